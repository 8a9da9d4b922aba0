"""What the tests of the agents share: made-up transitions, and the weights to compare."""

import pytest
import torch

from pads.agents import Transition

NUM_STATES, NUM_BINS, NUM_ACTIONS = 6, 5, 3


@pytest.fixture
def sizes():
    """The state_size, num_bins and num_actions that `walk` is made for."""
    return NUM_STATES, NUM_BINS, NUM_ACTIONS


@pytest.fixture
def walk():
    """Makes random transitions, each from the state where the last one ended."""

    def make(num, seed=0):
        generator = torch.Generator().manual_seed(seed)
        states = torch.randn(num + 1, NUM_STATES, generator=generator)
        actions = torch.randint(NUM_ACTIONS, (num, NUM_BINS), generator=generator)
        rewards = torch.randint(-1, 2, (num,), generator=generator).float().tolist()
        metrics = torch.rand(num, generator=generator).tolist()
        return [Transition(*step) for step in zip(states, actions, rewards, states[1:], metrics, strict=False)]

    return make


@pytest.fixture
def weights():
    """Flattens the weights of an agent, or of a network, into one vector."""

    def flatten(owner):
        network = getattr(owner, "network", owner)
        return torch.cat([weight.detach().flatten() for weight in network.parameters()])

    return flatten
