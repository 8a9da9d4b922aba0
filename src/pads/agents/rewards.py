"""The reward of the policy: whether the embedding got better on the reward split (PADS, Eq. 3)."""

from __future__ import annotations

from collections.abc import Mapping

from pads.agents.state import pick_metrics
from pads.errors import UserError

REWARDS = {"recall@1": ("recall@1",), "nmi": ("nmi",), "recall@1+nmi": ("recall@1", "nmi")}


def reward_metrics(name: str) -> tuple[str, ...]:
    """The metrics that this reward needs, whether or not the training state shows them."""
    if name not in REWARDS:
        raise UserError(f"there is no reward {name!r}; choose one of {', '.join(REWARDS)}")
    return REWARDS[name]


def reward_level(metrics: Mapping[str, float], name: str) -> float:
    """e(φ, I_val): the sum of the reward's metrics."""
    return sum(pick_metrics(metrics, reward_metrics(name)))


def sign_reward(level_t: float, level_tm1: float) -> float:
    """r_t = sign(e_t - e_tm1): 1 for better, -1 for worse, 0 for the same."""
    return float((level_t > level_tm1) - (level_t < level_tm1))
