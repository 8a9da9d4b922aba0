"""The reward of the policy: whether the embedding got better on the reward split (PADS, Eq. 3), or by how much."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from pads.agents.state import pick_metrics
from pads.errors import UserError

REWARDS = {
    "recall@1": ("recall@1",),
    "nmi": ("nmi",),
    "recall@1+nmi": ("recall@1", "nmi"),
    "soft-recall": ("soft-recall",),
}
CHANGES_KEPT = 20
"""The earlier changes that a change is compared with: training slows down, so old ones say little."""
LARGEST_REWARD = 3.0


def reward_metrics(name: str) -> tuple[str, ...]:
    """The metrics that this reward needs, whether or not the training state shows them."""
    if name not in REWARDS:
        raise UserError(f"there is no reward {name!r}; choose one of {', '.join(REWARDS)}")
    return REWARDS[name]


def reward_level(metrics: Mapping[str, float], name: str) -> float:
    """e(φ, I_val): the sum of the reward's metrics."""
    return sum(pick_metrics(metrics, reward_metrics(name)))


def sign_reward(change: float) -> float:
    """Return r_t = sign(e_t - e_tm1): 1 for better, -1 for worse, 0 for the same."""
    return float((change > 0) - (change < 0))


def difference_reward(change_t: float, changes: Sequence[float]) -> float:
    """r_t = (c_t - mean) / sd of the earlier changes, within ±3; where they do not vary, the sign of c_t - mean.

    The first change has no others to compare with: its reward is its sign. Any unit of the level gives the same reward.
    """
    surplus = change_t - (statistics.fmean(changes) if changes else 0.0)
    sd = statistics.stdev(changes) if len(changes) > 1 else 0.0
    if sd == 0:
        return sign_reward(surplus)
    return max(-LARGEST_REWARD, min(surplus / sd, LARGEST_REWARD))


REWARD_FORMS: dict[str, Callable[[float, Sequence[float]], float]] = {
    "sign": lambda change_t, changes: sign_reward(change_t),
    "difference": difference_reward,
}
"""Of the change of the level and the earlier changes, newest last."""
