"""A world where acting greedily on the immediate reward loses: who looks ahead solves it, who does not cannot.

Poor or rich: being rich pays 1, each of three bins that spends pays 0.1 more, and one is rich next if two bins or more
save. Spending always pays more at once and leads to 0.3 a step; saving leads to 1 and more.
"""

import pytest
import torch

from pads.agents import AGENTS, Transition

torch.set_num_threads(1)

SAVE_K = torch.tensor([0, 2, 1])
POOR_RICH = torch.eye(2)


def play(agent, num_steps):
    """The mean reward of the last 200 steps."""
    wealth, rewards = 0, []
    for _ in range(num_steps):
        actions_K = agent.act(POOR_RICH[wealth])
        num_savers = int((actions_K == SAVE_K).sum())
        reward_t, wealth_t = wealth + 0.1 * (3 - num_savers), int(num_savers >= 2)
        agent.learn(Transition(POOR_RICH[wealth], actions_K, reward_t, POOR_RICH[wealth_t], metric_t=wealth_t))
        rewards.append(reward_t)
        wealth = wealth_t
    return sum(rewards[-200:]) / 200


def make(name, **options):
    return AGENTS[name](2, 3, 3, learning_rate=0.003, seed=0, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"episode_length": 4}),
        ("ppo", {"episode_length": 4, "baseline": "moving average"}),
        ("reinforce", {"episode_length": 4}),
        ("reinforce", {"episode_length": 4, "baseline": "moving average"}),
        ("a2c", {"episode_length": 4}),
        ("a2c", {"episode_length": 4, "critic_target": "bootstrapped return"}),
        ("q-learning", {}),
        ("rainbow", {}),
    ],
)
def test_who_looks_ahead_gets_rich(name, options):
    assert play(make(name, **options), 1500) > 0.75


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {}),
        ("reinforce", {}),
        ("reinforce", {"baseline": "moving average"}),
        ("a2c", {}),
        ("q-learning", {"discount": 0.0}),
        ("rainbow", {"discount": 0.0}),
    ],
)
def test_who_sees_only_the_next_reward_stays_poor(name, options):
    assert play(make(name, **options), 1000) < 0.4  # a coin in each bin has 0.46


def test_a_critic_of_returns_gets_rich_as_fast_as_the_authors_rule():
    """The mean reward of steps 200 to 400, at the rate of a real run and over three seeds."""

    def early(**options):
        agents = [AGENTS["ppo"](2, 3, 3, episode_length=4, seed=seed, **options) for seed in range(3)]
        return sum(play(agent, 400) for agent in agents) / 3

    ours = early()
    assert ours > 0.9
    assert ours >= early(critic_target="metric")
