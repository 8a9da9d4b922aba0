"""Pooling is an option of every network of ours."""

import pytest
import torch
from torch import nn

from pads.build import build_network
from pads.config import Config, Network
from pads.errors import UserError
from pads.networks import BACKBONES, POOLINGS, EmbeddingNetwork, build_backbone


@pytest.mark.parametrize("name", POOLINGS)
def test_poolings_agree_with_a_loop(name, generator):
    maps = torch.randn(2, 3, 4, 5, generator=generator)
    pooled = POOLINGS[name](maps)
    for image in range(2):
        for channel in range(3):
            values = maps[image, channel].flatten().tolist()
            expected = {"mean": sum(values) / 20, "max": max(values), "mean+max": sum(values) / 20 + max(values)}[name]
            assert pooled[image, channel].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", BACKBONES)
def test_the_pooling_of_every_backbone_can_be_chosen(name, generator):
    backbone = build_backbone(name, pooling="mean+max").eval()
    assert backbone.pool is POOLINGS["mean+max"]
    images, outputs = torch.randn(2, 3, 64, 64, generator=generator), {}
    for pooling in POOLINGS:
        backbone.pool = POOLINGS[pooling]
        with torch.no_grad():
            outputs[pooling] = backbone(images)
        assert outputs[pooling].shape == (2, backbone.num_features)
    torch.testing.assert_close(outputs["mean"] + outputs["max"], outputs["mean+max"])
    assert (outputs["max"] >= outputs["mean"]).all()
    assert (outputs["max"] > outputs["mean"]).any()


def test_a_backbone_from_outside_need_not_know_of_pooling(monkeypatch):
    monkeypatch.setitem(BACKBONES, "mine", lambda: nn.Identity())
    assert isinstance(build_backbone("mine"), nn.Identity)
    with pytest.raises(UserError, match="the backbone mine has its own pooling"):
        build_backbone("mine", pooling="max")


def test_unknown_poolings_and_backbones_are_refused_with_the_right_ones():
    with pytest.raises(UserError, match="did you mean mean"):
        build_backbone("small", pooling="men")
    with pytest.raises(UserError, match="did you mean resnet50-he"):
        build_backbone("resnet-50-he")


def test_the_config_arrives_at_the_network():
    config = Config(
        network=Network("small", embedding_dim=512, pooling="mean+max", normalise=False, frozen_batch_norm=False)
    )
    network = build_network(config)
    assert isinstance(network, EmbeddingNetwork)
    assert (network.backbone.pool, network.normalise) == (POOLINGS["mean+max"], False)
    assert not network.frozen_batch_norm
    assert network.embedding.out_features == 512
