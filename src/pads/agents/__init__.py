"""Agents that adjust the sampling distribution: what they see, what they are rewarded for, and how they learn."""

from collections.abc import Callable

from pads.agents.a2c import A2C
from pads.agents.agent import BASELINES, CRITIC_TARGETS, Agent, Transition
from pads.agents.ppo import PPO
from pads.agents.q_learning import QLearning
from pads.agents.rainbow import Rainbow
from pads.agents.reinforce import Reinforce
from pads.agents.rewards import REWARD_FORMS, REWARDS, difference_reward, reward_level, reward_metrics, sign_reward
from pads.agents.state import STATE_PARTS, TrainingState

AGENTS: dict[str, Callable[..., Agent]] = {
    "ppo": PPO,
    "reinforce": Reinforce,
    "a2c": A2C,
    "q-learning": QLearning,
    "rainbow": Rainbow,
}
"""Look up a policy by name: `--set curriculum.options.agent=ppo`."""

__all__ = [
    "A2C",
    "AGENTS",
    "BASELINES",
    "CRITIC_TARGETS",
    "PPO",
    "REWARDS",
    "REWARD_FORMS",
    "STATE_PARTS",
    "Agent",
    "QLearning",
    "Rainbow",
    "Reinforce",
    "TrainingState",
    "Transition",
    "difference_reward",
    "reward_level",
    "reward_metrics",
    "sign_reward",
]
