"""The formulas of the agents: pure functions of tensors and numbers.

Dimensions: B batch, K bins, A actions; N experiences. Time: `_tm1` is when the actions were taken, `_t` one policy
iteration later. What is said of one state holds for a batch of them too.
The bins are independent, so log π(a|s) is a sum over bins; like the authors' code the losses take the mean instead,
which only rescales the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def select_log_probs(logits_KA: Tensor, actions_K: Tensor) -> Tensor:
    """Return log_probs_K, log π(a_k|s), where the logits of each bin are a categorical distribution of its own."""
    assert actions_K.shape == logits_KA.shape[:-1], (actions_K.shape, logits_KA.shape)
    return logits_KA.log_softmax(-1).gather(-1, actions_K[..., None]).squeeze(-1)


def categorical_entropy(logits_KA: Tensor) -> Tensor:
    """Return entropy_K = -Σ_a π(a|s) log π(a|s), in nats."""
    log_probs_KA = logits_KA.log_softmax(-1)
    return -(log_probs_KA.exp() * log_probs_KA).sum(-1)


def discounted_returns(rewards_t: Sequence[float], discount: float, value_t: float = 0.0) -> list[float]:
    """Return R_tm1 = r_t + discount R_t for each step of an episode.

    After the last step R_t is value_t: V(s_t), or 0 where the episode ends there.
    G(s,a) of PADS, Eq. 5, is R_tm1 in REINFORCE and R_tm1 - V(s_tm1) in A2C.
    """
    returns = []
    return_t = value_t
    for reward_t in reversed(rewards_t):
        return_t = reward_t + discount * return_t
        returns.append(return_t)
    return returns[::-1]


def moving_average(average_tm1: float | None, reward_t: float, rate: float) -> float:
    """Return the exponential moving average of the rewards, which begins at the first; r_t has the one before as baseline."""
    return reward_t if average_tm1 is None else (1 - rate) * average_tm1 + rate * reward_t


def policy_gradient_loss(log_probs_K: Tensor, advantage: float) -> Tensor:
    """Return -mean_k G log π(a_k|s): its gradient is the REINFORCE estimate (Williams 1992; PADS, Eq. 5)."""
    return -(advantage * log_probs_K).mean()


def clipped_policy_loss(log_probs_K: Tensor, old_log_probs_K: Tensor, advantage: float, clip: float) -> Tensor:
    """Return -mean_k min(R_k G, clip(R_k, 1-ε, 1+ε) G), R_k = π(a_k|s) / π_old(a_k|s) (Schulman et al. 2017, Eq. 7)."""
    ratios_K = (log_probs_K - old_log_probs_K).exp()
    return -torch.minimum(ratios_K * advantage, ratios_K.clamp(1 - clip, 1 + clip) * advantage).mean()


def share_clipped(log_probs_K: Tensor, old_log_probs_K: Tensor, clip: float) -> Tensor:
    """Return the share of bins whose ratio lies outside [1-ε, 1+ε]."""
    ratios_K = (log_probs_K - old_log_probs_K).exp()
    return ((ratios_K - 1).abs() > clip).float().mean()


def value_loss(value_tm1: Tensor, target_t: float) -> Tensor:
    """Return (V(s_tm1) - target_t)²."""
    return (value_tm1 - target_t).square()


def epsilon_greedy(q_KA: Tensor, epsilon: float) -> Tensor:
    """Return probs_KA: the best action of each bin with probability 1 - ε, else any of them (Watkins 1989)."""
    num_actions = q_KA.shape[-1]
    best_KA = torch.nn.functional.one_hot(q_KA.argmax(-1), num_actions)
    return (1 - epsilon) * best_KA + epsilon / num_actions


def linear_schedule(start: float, end: float, num_steps: int, step: int) -> float:
    """Return the value at a step that goes from start to end in num_steps equal steps and then stays."""
    return start + (end - start) * min(step / num_steps, 1.0)


def select_values(q_KA: Tensor, actions_K: Tensor) -> Tensor:
    """Return q_K, Q(s, k, a_k)."""
    assert actions_K.shape == q_KA.shape[:-1], (actions_K.shape, q_KA.shape)
    return q_KA.gather(-1, actions_K[..., None]).squeeze(-1)


def q_targets(return_B: Tensor, discount_B: Tensor, value_BK: Tensor) -> Tensor:
    """Return targets_BK = r_t + discount_t V_k(s_t), where V_k is max_a Q_target(s_t, k, a) (Mnih et al. 2015)."""
    return return_B[:, None] + discount_B[:, None] * value_BK


def td_loss(errors_BK: Tensor, weights_B: Tensor) -> Tensor:
    """Return the mean over bins and batch of the squared TD error; weights_B correct for how the batch was drawn."""
    return (weights_B * errors_BK.square().mean(-1)).mean()


def priority_probabilities(priorities_N: Tensor, exponent: float) -> Tensor:
    """Return probs_N ∝ priority^exponent: proportional prioritisation (Schaul et al. 2016, Eq. 1)."""
    powers_N = priorities_N**exponent
    return powers_N / powers_N.sum()


def importance_weights(probs_B: Tensor, num_experiences: int, exponent: float) -> Tensor:
    """Return weights_B = (N P)^-exponent, scaled so that the largest is 1 (Schaul et al. 2016, Sec. 3.4)."""
    weights_B = (num_experiences * probs_B) ** -exponent
    return weights_B / weights_B.max()
