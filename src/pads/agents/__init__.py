"""Agents that adjust the sampling distribution: what they see, what they are rewarded for, and how they learn."""

from collections.abc import Callable

from pads.agents.agent import BASELINES, CRITIC_TARGETS, Agent, Transition
from pads.agents.ppo import PPO
from pads.agents.reinforce import Reinforce
from pads.agents.rewards import REWARDS, reward_level, reward_metrics, sign_reward
from pads.agents.state import STATE_PARTS, TrainingState

AGENTS: dict[str, Callable[..., Agent]] = {"ppo": PPO, "reinforce": Reinforce}

__all__ = [
    "AGENTS",
    "BASELINES",
    "CRITIC_TARGETS",
    "PPO",
    "REWARDS",
    "STATE_PARTS",
    "Agent",
    "Reinforce",
    "TrainingState",
    "Transition",
    "reward_level",
    "reward_metrics",
    "sign_reward",
]
