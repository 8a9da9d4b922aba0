"""How deep a parameter lies, by its name; and the rates that follow from it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pads.build import build_optimiser, network_groups, set_learning_rates
from pads.config import Optimiser
from pads.errors import UserError
from pads.networks import BACKBONES, EmbeddingNetwork
from pads.networks.depth import block_of, layer_numbers, rate_scales

VIT = ["cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "blocks.0.mlp.fc1.bias"]
VIT += ["blocks.1.attn.qkv.weight", "blocks.10.attn.qkv.weight", "norm.weight"]


def test_the_blocks_of_a_vit_are_counted_as_numbers_and_not_as_texts():
    assert layer_numbers(VIT) == [0, 0, 0, 1, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("blocks.3.attn.qkv.weight", (3,)),
        ("layers.2.blocks.1.mlp.fc1.weight", (2, 1)),
        ("stages.2.blocks.5.conv_dw.weight", (2, 5)),
        ("stages.1.downsample.0.weight", (1,)),
        ("blocks.2.1.conv_pw.weight", (2, 1)),
        ("layer3.2.conv1.weight", (3, 2)),
        ("layer3.0.downsample.0.weight", (3, 0)),
        ("s2.b4.conv1.conv.weight", (2, 4)),
        ("_blocks.10._expand_conv.weight", (10,)),
        ("stem.0.weight", None),
        ("norm.weight", None),
        ("head.fc.weight", None),
        ("patch_embed.proj.weight", None),
    ],
)
def test_a_block_is_known_by_its_name(name, block):
    assert block_of(name) == block


def test_a_stage_comes_in_its_order_and_what_leads_into_it_before_its_blocks():
    names = [
        "stem.weight",
        "stages.0.blocks.0.w",
        "stages.0.blocks.1.w",
        "stages.1.downsample.0.w",
        "stages.1.blocks.0.w",
    ]
    assert layer_numbers([*names, "norm.weight"]) == [0, 1, 2, 3, 4, 4]


def test_rates_fall_by_the_same_factor_from_layer_to_layer():
    assert rate_scales([0, 1, 2, 3], 0.5) == [0.0625, 0.125, 0.25, 0.5]
    assert rate_scales([0, 1, 2, 3], 1.0) == [1.0] * 4


@pytest.mark.parametrize("name", ["small", "resnet18", "efficientnet-lite0"])
def test_every_parameter_is_in_one_group_and_the_embedding_learns_at_the_full_rate(name):
    network = EmbeddingNetwork(BACKBONES[name](), 8)
    groups = network_groups(Optimiser(learning_rate=0.1, layer_decay=0.5), network)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in network.parameters())
    rate = {id(p): group["initial_lr"] for group in groups for p in group["params"]}
    assert rate[id(network.embedding.weight)] == 0.1
    rates = [rate[id(p)] for p in network.backbone.parameters()]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1] == 0.05
    assert len(groups) == len(set(rates)) + 1


def test_all_alike_is_one_group_as_before():
    network = EmbeddingNetwork(BACKBONES["small"](), 8)
    (group,) = network_groups(Optimiser(learning_rate=0.1), network)
    assert [id(p) for p in group["params"]] == [id(p) for p in network.parameters()]


def test_a_step_moves_the_first_layers_less_and_milestones_lower_all():
    torch.manual_seed(0)
    network = EmbeddingNetwork(BACKBONES["small"](), 8)
    options = Optimiser(learning_rate=0.1, weight_decay=0.0, layer_decay=0.1, milestones=(1,), factor=0.5)
    optimiser = build_optimiser(options, network, nn.Module())
    set_learning_rates(optimiser, options, epoch=0)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    network(torch.randn(4, 3, 32, 32)).square().sum(dim=1).mul(torch.arange(4.0)).sum().backward()
    for p in network.parameters():
        p.grad = torch.ones_like(p)  # Adam's first step is then the rate itself
    optimiser.step()
    moved = {name: (before[name] - p.detach()).abs().max().item() for name, p in network.named_parameters()}
    assert moved["embedding.weight"] == pytest.approx(0.1, rel=1e-3)
    assert moved["backbone.blocks.2.conv1.weight"] == pytest.approx(0.01, rel=1e-2)
    assert moved["backbone.blocks.0.conv1.weight"] == pytest.approx(0.0001, rel=1e-2)
    rates = [group["lr"] for group in optimiser.param_groups]
    set_learning_rates(optimiser, options, epoch=1)
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([rate / 2 for rate in rates])


def test_a_network_without_blocks_is_refused():
    with pytest.raises(UserError, match="made of blocks"):
        network_groups(Optimiser(layer_decay=0.5), EmbeddingNetwork(BACKBONES["inception-bn"](), 8))


@pytest.mark.parametrize("layer_decay", [1.0, 0.5])
def test_the_head_may_have_a_multiple_of_the_rate(layer_decay):
    network = EmbeddingNetwork(BACKBONES["resnet18"](), 8)
    groups = network_groups(Optimiser(learning_rate=0.1, layer_decay=layer_decay, head_factor=10.0), network)
    rates = {id(parameter): group["initial_lr"] for group in groups for parameter in group["params"]}
    assert len(rates) == sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    assert {rates[id(parameter)] for parameter in network.embedding.parameters()} == {1.0}
    assert max(rates[id(parameter)] for parameter in network.backbone.parameters()) <= 0.1
