"""Agents that adjust the sampling distribution: what they see, what they are rewarded for, and how they learn."""

from collections.abc import Callable

from pads.agents.agent import BASELINES, CRITIC_TARGETS, Agent, Transition
from pads.agents.policy_gradient import PolicyGradient, a2c, ppo, reinforce
from pads.agents.rewards import REWARDS, reward_level, reward_metrics, sign_reward
from pads.agents.state import STATE_PARTS, TrainingState
from pads.agents.value_based import ValueBased, q_learning, rainbow

AGENTS: dict[str, Callable[..., Agent]] = {
    "ppo": ppo,
    "reinforce": reinforce,
    "a2c": a2c,
    "q-learning": q_learning,
    "rainbow": rainbow,
}
"""Look up a policy by name: `--set curriculum.options.agent=ppo`."""

__all__ = [
    "AGENTS",
    "BASELINES",
    "CRITIC_TARGETS",
    "REWARDS",
    "STATE_PARTS",
    "Agent",
    "PolicyGradient",
    "TrainingState",
    "Transition",
    "ValueBased",
    "a2c",
    "ppo",
    "q_learning",
    "rainbow",
    "reinforce",
    "reward_level",
    "reward_metrics",
    "sign_reward",
]
