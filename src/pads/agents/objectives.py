"""The formulas of the policy-gradient agents: pure functions of tensors and numbers.

Dimensions: K bins, A actions. Time: `_tm1` is when the actions were taken, `_t` one policy iteration later.
The bins are independent, so log π(a|s) is a sum over bins; like the authors' code the losses take the mean instead,
which only rescales the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor


def chosen_log_probs(logits_KA: Tensor, actions_K: Tensor) -> Tensor:
    """log_probs_K: log π(a_k|s), where the logits of each bin are a categorical distribution of its own."""
    assert actions_K.shape == logits_KA.shape[:-1], (actions_K.shape, logits_KA.shape)
    return logits_KA.log_softmax(-1).gather(-1, actions_K[..., None]).squeeze(-1)


def categorical_entropy(logits_KA: Tensor) -> Tensor:
    """entropy_K = -Σ_a π(a|s) log π(a|s), in nats."""
    log_probs_KA = logits_KA.log_softmax(-1)
    return -(log_probs_KA.exp() * log_probs_KA).sum(-1)


def advantage(reward_t: float, discount_t: float, value_t: float, value_tm1: float) -> float:
    """G(s,a) = r_t + discount_t V(s_t) - V(s_tm1), as in A2C (PADS, Eq. 5); discount_t is 0 where an episode ends."""
    return reward_t + discount_t * value_t - value_tm1


def moving_average(average_tm1: float | None, reward_t: float, rate: float) -> float:
    """The exponential moving average of the rewards, begun at the first; the baseline of r_t is the one before it."""
    return reward_t if average_tm1 is None else (1 - rate) * average_tm1 + rate * reward_t


def policy_gradient_loss(log_probs_K: Tensor, advantage: float) -> Tensor:
    """-mean_k G log π(a_k|s): its gradient is the REINFORCE estimate (Williams 1992; PADS, Eq. 5)."""
    return -(advantage * log_probs_K).mean()


def clipped_policy_loss(log_probs_K: Tensor, old_log_probs_K: Tensor, advantage: float, clip: float) -> Tensor:
    """-mean_k min(R_k G, clip(R_k, 1-ε, 1+ε) G), R_k = π(a_k|s) / π_old(a_k|s) (Schulman et al. 2017, Eq. 7)."""
    ratios_K = (log_probs_K - old_log_probs_K).exp()
    return -torch.minimum(ratios_K * advantage, ratios_K.clamp(1 - clip, 1 + clip) * advantage).mean()


def share_clipped(log_probs_K: Tensor, old_log_probs_K: Tensor, clip: float) -> Tensor:
    """The share of bins whose ratio lies outside [1-ε, 1+ε]."""
    ratios_K = (log_probs_K - old_log_probs_K).exp()
    return ((ratios_K - 1).abs() > clip).float().mean()


def value_loss(value_tm1: Tensor, target_t: float) -> Tensor:
    """(V(s_tm1) - target_t)²."""
    return (value_tm1 - target_t).square()
