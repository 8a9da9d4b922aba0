"""The reward of the policy: whether the embedding got better on the reward split (PADS, Eq. 3)."""

from __future__ import annotations

from collections.abc import Mapping

from pads.agents.state import pick_metrics

REWARDS = {
    "recall@1": ("recall@1",),
    "nmi": ("nmi",),
    "recall@1+nmi": ("recall@1", "nmi"),
}


def reward_level(metrics: Mapping[str, float], name: str) -> float:
    """Return e(φ, I_val), the sum of the reward's metrics."""
    return sum(pick_metrics(metrics, REWARDS[name]))


def sign_reward(change: float) -> float:
    """Return r_t = sign(e_t - e_tm1) of the change of the level: 1 for better, -1 for worse, 0 for the same."""
    return float((change > 0) - (change < 0))
