"""Agents that adjust the sampling distribution: what they see, what they are rewarded for, and how they learn."""

from collections.abc import Callable

from pads.agents.agent import Agent, Transition
from pads.agents.policy_gradient import a2c, ppo, reinforce
from pads.agents.value_based import q_learning, rainbow

AGENTS: dict[str, Callable[..., Agent]] = {
    "ppo": ppo,
    "reinforce": reinforce,
    "a2c": a2c,
    "q-learning": q_learning,
    "rainbow": rainbow,
}
"""Look up an agent by name: `--set curriculum.options.agent=ppo`."""

__all__ = ["AGENTS", "Agent", "Transition"]
