"""Where a ResNet-50 halves its maps: in the 3x3 convolutions (torchvision) or in the first 1x1 (He et al.)."""

import pytest
import torch

from pads.networks import BACKBONES, EmbeddingNetwork, use_seed
from pads.networks.resnet import Bottleneck, HeBottleneck


def strides(name):
    """The strides of the three convolutions and the shortcut in the first block of each layer."""
    with torch.device("meta"):
        backbone = BACKBONES[name]()
    firsts = [getattr(backbone, f"layer{number}")[0] for number in (1, 2, 3, 4)]
    return [tuple(c.stride[0] for c in (b.conv1, b.conv2, b.conv3, b.downsample[0])) for b in firsts]


def test_the_stride_is_where_the_name_says():
    assert strides("resnet50") == [(1, 1, 1, 1), (1, 2, 1, 2), (1, 2, 1, 2), (1, 2, 1, 2)]
    assert strides("resnet50-he") == [(1, 1, 1, 1), (2, 1, 1, 2), (2, 1, 1, 2), (2, 1, 1, 2)]


def test_both_have_the_same_tensors_and_for_a_seed_the_same_values():
    states = []
    for name in ("resnet50", "resnet50-he"):
        with use_seed(3):
            states.append(EmbeddingNetwork(BACKBONES[name](), 8).state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("size", [8, 7])
def test_the_block_of_he_sees_every_other_pixel_only(size, generator):
    """With both strides in 1x1 convolutions, it is a block without stride on a quarter of the pixels."""
    he, torchvision, plain = HeBottleneck(16, 4, 2).eval(), Bottleneck(16, 4, 2).eval(), Bottleneck(16, 4, 2).eval()
    plain.conv2.stride = plain.downsample[0].stride = (1, 1)
    for block in (torchvision, plain):
        block.load_state_dict(he.state_dict())
    maps = torch.randn(2, 16, size, size, generator=generator)
    with torch.no_grad():
        torch.testing.assert_close(he(maps), plain(maps[:, :, ::2, ::2]))
        assert he(maps).shape == torchvision(maps).shape
        assert not torch.allclose(he(maps), torchvision(maps), atol=1e-2)
