"""What every backbone must do: map images to as many features as it says, and load its own weights."""

import pytest
import torch

from pads.networks import BACKBONES, EmbeddingNetwork, use_seed

every_backbone = pytest.mark.parametrize("name", BACKBONES)


def make(name, seed=0):
    with use_seed(seed):
        return BACKBONES[name]()


@every_backbone
def test_every_backbone_gives_as_many_features_as_it_says(name, generator):
    backbone = make(name).eval()
    for size in (32, 64, 96):
        with torch.no_grad():
            features = backbone(torch.randn(2, 3, size, size, generator=generator))
        assert features.shape == (2, backbone.num_features)
        assert features.isfinite().all()


@every_backbone
def test_every_backbone_tells_images_apart_and_each_by_itself(name, generator):
    """In evaluation an image's features do not depend on the batch that it came in."""
    backbone, images = make(name).eval(), torch.randn(3, 3, 32, 32, generator=generator)
    with torch.no_grad():
        together, alone = backbone(images), backbone(images[1:2])
    torch.testing.assert_close(together[1:2], alone, rtol=1e-4, atol=1e-5)
    assert (together[0] - together[1]).norm() > 1e-3 * together[0].norm()


@every_backbone
def test_every_parameter_of_every_backbone_learns(name, generator):
    network = EmbeddingNetwork(make(name), 8)
    network(torch.randn(4, 3, 64, 64, generator=generator))[:, 0].sum().backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@every_backbone
def test_the_weights_of_every_backbone_load_into_a_fresh_one(name, round_trip, generator):
    backbone, fresh = make(name, seed=0), make(name, seed=1)
    images = torch.randn(4, 3, 32, 32, generator=generator)
    backbone(images)  # in training mode, so that the statistics are no longer those of a fresh one
    fresh.load_state_dict(round_trip(backbone.state_dict()))
    with torch.no_grad():
        assert torch.equal(fresh.eval()(images), backbone.eval()(images))


@every_backbone
def test_the_seed_decides_every_weight_of_every_backbone(name):
    first, second, other = (make(name, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
