"""The policy network: its shape, its seed and what saving it keeps."""

import copy

import pytest
import torch
from torch import nn

from pads.agents.networks import PolicyNetwork, adam_state, draw_seed, load_adam_state

torch.set_num_threads(1)


def test_network_of_the_paper_has_the_authors_number_of_parameters():
    # 198·128+128 and 128·128+128 in the trunk, 128·87+87 for 29 bins of 3 actions, 128+1 for the value.
    network = PolicyNetwork(198, 29, 3, seed=0)
    assert sum(weight.numel() for weight in network.parameters()) == 25_472 + 16_512 + 11_223 + 129


def test_network_computes_two_relu_layers_and_two_heads_from_the_same_features():
    network = PolicyNetwork(6, 4, 3, 5, seed=0)
    state_S = torch.randn(6, generator=torch.Generator().manual_seed(0))
    first, second = network.trunk[0], network.trunk[2]
    hidden = torch.relu(second.weight @ torch.relu(first.weight @ state_S + first.bias) + second.bias)
    logits_KA, value = network(state_S)
    assert logits_KA.shape == (4, 3) and value.shape == ()
    torch.testing.assert_close(logits_KA.flatten(), network.policy.weight @ hidden + network.policy.bias)
    torch.testing.assert_close(value, network.value.weight[0] @ hidden + network.value.bias[0])


def test_network_takes_many_states_at_once():
    network = PolicyNetwork(6, 4, 3, 5, seed=0)
    states = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    logits, values = network(states)
    assert logits.shape == (7, 4, 3) and values.shape == (7,)
    torch.testing.assert_close(logits[2], network(states[2])[0])


def test_network_depends_on_its_seed_alone_and_leaves_the_global_stream_untouched():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = PolicyNetwork(6, 4, 3, 5, seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again, other = PolicyNetwork(6, 4, 3, 5, seed=1).state_dict(), PolicyNetwork(6, 4, 3, 5, seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_seeds_drawn_in_turn_differ_and_repeat_with_the_generator():
    generator, same = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    first, second = draw_seed(generator), draw_seed(generator)
    assert first != second
    assert first == draw_seed(same)


@pytest.mark.parametrize("num_steps_before", [0, 3])
def test_adam_continues_bit_for_bit_from_its_saved_moments(num_steps_before):
    def step(layer, optimiser):
        optimiser.zero_grad()
        layer(torch.tensor([1.0, -2.0])).square().sum().backward()
        optimiser.step()

    layer = nn.Linear(2, 3)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(num_steps_before):
        step(layer, optimiser)
    twin = copy.deepcopy(layer)
    twin_optimiser = torch.optim.Adam(twin.parameters(), lr=0.1)
    saved = adam_state(optimiser)
    step(layer, optimiser)
    load_adam_state(twin_optimiser, saved)
    step(twin, twin_optimiser)
    step(layer, optimiser)
    step(twin, twin_optimiser)
    assert torch.equal(layer.weight, twin.weight) and torch.equal(layer.bias, twin.bias)
