"""The reward: the sign of the change of the chosen metrics, or how it compares with the earlier changes."""

import statistics

import pytest

from pads.agents import (
    REWARD_FORMS,
    REWARDS,
    TrainingState,
    difference_reward,
    reward_level,
    reward_metrics,
    sign_reward,
)
from pads.errors import UserError

METRICS = {"recall@1": 0.25, "nmi": 0.5, "recall@2": 0.9}


@pytest.mark.parametrize(("name", "level"), [("recall@1", 0.25), ("nmi", 0.5), ("recall@1+nmi", 0.75)])
def test_level_is_the_sum_of_the_named_metrics(name, level):
    assert reward_level(METRICS, name) == level


@pytest.mark.parametrize(("level_t", "reward"), [(0.5, 0.0), (0.5001, 1.0), (0.4999, -1.0), (-3.0, -1.0), (2.0, 1.0)])
def test_reward_is_the_sign_of_the_change(level_t, reward):
    assert sign_reward(level_t, 0.5) == reward
    assert isinstance(sign_reward(level_t, 0.5), float)


@pytest.mark.parametrize("name", REWARDS)
def test_every_reward_names_metrics_that_suffice_for_it(name):
    metrics = dict.fromkeys(reward_metrics(name), 0.5)
    assert reward_level(metrics, name) == 0.5 * len(metrics)


def test_a_reward_can_need_metrics_that_the_state_does_not_show():
    state = TrainingState(("recall", "distances"), num_bins=2)
    assert "nmi" not in state.metrics
    assert set(reward_metrics("recall@1+nmi")) - set(state.metrics) == {"nmi"}
    assert reward_level({"recall@1": 0.25, "nmi": 0.5}, "recall@1+nmi") == 0.75


def test_unknown_reward_is_refused_with_the_right_names():
    with pytest.raises(UserError, match=r"'recall'.*recall@1, nmi, recall@1\+nmi"):
        reward_metrics("recall")


def test_a_reward_without_its_metric_is_refused_and_not_nan():
    with pytest.raises(UserError, match="nmi"):
        reward_level({"recall@1": 0.5}, "recall@1+nmi")
    with pytest.raises(UserError, match="nmi is nan"):
        reward_level({"recall@1": 0.5, "nmi": float("nan")}, "recall@1+nmi")


# -- the difference ----------------------------------------------------------------------------------------------------

EARLIER = [0.01, -0.02, 0.03, 0.005, -0.01]


@pytest.mark.parametrize("change", [0.02, -0.03, 0.0, 0.1, -0.1])
def test_a_difference_is_the_change_less_the_mean_of_the_earlier_ones_in_their_standard_deviations(change):
    expected = (change - statistics.mean(EARLIER)) / statistics.stdev(EARLIER)
    assert difference_reward(change, EARLIER) == pytest.approx(max(-3.0, min(expected, 3.0)))


def test_a_difference_has_the_sign_of_what_is_better_or_worse_than_usual():
    usual = statistics.mean(EARLIER)
    assert difference_reward(usual + 0.001, EARLIER) > 0 > difference_reward(usual - 0.001, EARLIER)
    assert difference_reward(0.001, [0.004, 0.006]) < 0  # it rose, but by less than it used to


@pytest.mark.parametrize("unit", [2.0**-20, 100.0, 1e-6])
def test_the_unit_of_the_level_does_not_matter_to_a_difference(unit):
    for earlier in ([], [0.01], [0.01, 0.01], EARLIER):
        scaled = difference_reward(0.012 * unit, [change * unit for change in earlier])
        assert scaled == pytest.approx(difference_reward(0.012, earlier), rel=1e-9)


def test_a_difference_stays_within_three():
    assert difference_reward(9.0, EARLIER) == 3.0
    assert difference_reward(-9.0, EARLIER) == -3.0


def test_where_earlier_changes_do_not_vary_a_difference_is_a_sign():
    assert [difference_reward(change, []) for change in (0.2, 0.0, -0.2)] == [1.0, 0.0, -1.0]  # the first change
    assert [difference_reward(change, [0.25]) for change in (0.5, 0.25, 0.125)] == [1.0, 0.0, -1.0]
    assert [difference_reward(change, [0.25] * 9) for change in (0.5, 0.25, -7.0)] == [1.0, 0.0, -1.0]


@pytest.mark.parametrize("change", [0.3, -0.2, 0.0])
def test_the_papers_form_is_the_sign_whatever_came_before(change):
    for earlier in ([], EARLIER):
        assert REWARD_FORMS["sign"](change, earlier) == sign_reward(change, 0.0)
