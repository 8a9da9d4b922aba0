"""A critic of returns lets the policy learn: from rewards that are mostly luck, in the sizes and at the rate of a real run.

The world: thirty bins have a right action each. The reward says whether more bins were right than of late, under as much
noise that it is no better than a weak hint. The state is as long as that of a run: metrics that drift, p, progress.
"""

import statistics

import pytest
import torch

from pads.agents import AGENTS, Transition
from pads.agents.networks import PolicyNetwork

torch.set_num_threads(1)

NUM_BINS, NUM_METRICS, NUM_SLOTS = 30, 7, 24
STATE_SIZE = NUM_METRICS * NUM_SLOTS + NUM_BINS + 1
NOISE = 2.0
"""In standard deviations of the share of right bins under random actions."""


def play(agent, seed, num_updates=150):
    """The share of right actions beyond chance over the last 50 updates, and the entropy per bin over the last 20."""
    generator = torch.Generator().manual_seed(seed)
    right_K = torch.randint(3, (NUM_BINS,), generator=generator)
    metrics = 0.3 + 0.5 * torch.rand(NUM_METRICS, generator=generator)
    history = metrics.repeat(NUM_SLOTS)
    level, usual, hits, entropies = 0.4, 1 / 3, [], []

    def state(progress):
        return torch.cat([history, torch.full((NUM_BINS,), 1 / NUM_BINS), torch.tensor([progress])])

    state_tm1 = state(0.0)
    for update in range(num_updates):
        actions_K = agent.act(state_tm1)
        hit = (actions_K == right_K).float().mean().item()
        surprise = (hit - usual) * NUM_BINS**0.5 / 0.47 + NOISE * torch.randn((), generator=generator).item()
        reward = 1.0 if surprise > 0 else -1.0
        usual, level = 0.9 * usual + 0.1 * hit, level + 0.002 * reward
        measured = metrics + 0.05 * (level - 0.4) + 0.01 * torch.randn(NUM_METRICS, generator=generator)
        history = torch.cat([history[NUM_METRICS:], measured])
        state_t = state(update / num_updates)
        entropies.append(agent.entropy(state_tm1).mean().item())
        agent.learn(Transition(state_tm1, actions_K, reward, state_t, metric_t=level))
        hits.append(hit)
        state_tm1 = state_t
    return statistics.fmean(hits[-50:]) - 1 / 3, statistics.fmean(entropies[-20:])


def play_seeds(**options):
    """Return the mean gain and the mean entropy over three seeds, of agents as a run makes them."""
    played = [play(AGENTS["ppo"](STATE_SIZE, NUM_BINS, 3, seed=seed, **options), seed) for seed in range(3)]
    return tuple(statistics.fmean(column) for column in zip(*played, strict=True))


def test_the_policy_learns_as_fast_as_by_the_authors_rule_and_its_entropy_falls():
    gain, entropy = play_seeds()
    authors_gain, _ = play_seeds(critic_target="metric")
    assert authors_gain > 0.1
    assert gain > 0.8 * authors_gain
    assert entropy < 0.6  # of 1.10


def test_a_critic_in_the_layers_of_the_policy_keeps_it_from_learning(monkeypatch):
    """What the other test would see if the critic of returns shared the policy's layers."""
    shared = lambda *sizes, own_critic, seed: PolicyNetwork(*sizes, seed=seed)
    monkeypatch.setattr("pads.agents.policy_gradient.PolicyNetwork", shared)
    gain, entropy = play_seeds()
    assert gain < 0.1
    assert entropy > 0.95


@pytest.mark.parametrize("target", ["return", "bootstrapped return"])
def test_learning_the_value_does_not_move_the_policy(target):
    agent = AGENTS["a2c"](6, 5, 3, critic_target=target)
    _, value = agent.network(torch.rand(6))
    value.square().backward()
    moved = {name for name, weight in agent.network.named_parameters() if weight.grad is not None}
    assert moved == {f"{part}.{kind}" for part in ("value", "critic.0", "critic.2") for kind in ("weight", "bias")}


def test_the_policy_begins_with_the_same_weights_whichever_critic_it_has():
    own, shared = (PolicyNetwork(6, 5, 3, own_critic=has_own, seed=3) for has_own in (True, False))
    for name, weight in shared.state_dict().items():
        assert torch.equal(weight, own.state_dict()[name])
    assert own.critic is not None and shared.critic is None
