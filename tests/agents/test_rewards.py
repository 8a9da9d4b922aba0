"""The reward: the sign of the change of the chosen metrics."""

import pytest

from pads.agents.rewards import reward_level, sign_reward
from pads.errors import UserError

METRICS = {"recall@1": 0.25, "nmi": 0.5, "recall@2": 0.9}


@pytest.mark.parametrize(("name", "level"), [("recall@1", 0.25), ("nmi", 0.5), ("recall@1+nmi", 0.75)])
def test_level_is_the_sum_of_the_named_metrics(name, level):
    assert reward_level(METRICS, name) == level


@pytest.mark.parametrize(("change", "reward"), [(0.0, 0.0), (1e-4, 1.0), (-1e-4, -1.0), (-3.0, -1.0), (2.0, 1.0)])
def test_reward_is_the_sign_of_the_change(change, reward):
    assert sign_reward(change) == reward
    assert isinstance(sign_reward(change), float)


def test_a_reward_without_its_metric_is_refused_and_not_nan():
    with pytest.raises(UserError, match="nmi"):
        reward_level({"recall@1": 0.5}, "recall@1+nmi")
    with pytest.raises(UserError, match="nmi is nan"):
        reward_level({"recall@1": 0.5, "nmi": float("nan")}, "recall@1+nmi")
