"""Inception-BN: the published names and sizes, the order of the channels."""

import copy

import pytest
import torch
from torch.nn import functional as F

from pads.data.augment import normalise
from pads.networks import BACKBONES, use_seed


@pytest.fixture(scope="module")
def backbone():
    with use_seed(0):
        network = BACKBONES["inception-bn"]()
        for name, value in network.state_dict().items():  # statistics and shifts that a mistake would not survive
            if name.endswith(("_bn.running_mean", "bias")):
                value.normal_(std=0.1)
            elif name.endswith(("_bn.running_var", "_bn.weight")):
                value.uniform_(0.5, 1.5)
        return network.eval()


@pytest.fixture
def images(generator):
    return torch.randn(2, 3, 64, 64, generator=generator)


PUBLISHED = {
    "conv1_7x7_s2.weight": (64, 3, 7, 7),
    "conv1_7x7_s2.bias": (64,),
    "conv1_7x7_s2_bn.running_mean": (64,),
    "conv2_3x3_reduce.weight": (64, 64, 1, 1),
    "conv2_3x3.weight": (192, 64, 3, 3),
    "inception_3a_1x1.weight": (64, 192, 1, 1),
    "inception_3a_pool_proj.weight": (32, 192, 1, 1),
    "inception_3b_3x3.weight": (96, 64, 3, 3),
    "inception_3c_3x3_reduce.weight": (128, 320, 1, 1),
    "inception_3c_double_3x3_2_bn.weight": (96,),
    "inception_4a_1x1.weight": (224, 576, 1, 1),
    "inception_4b_double_3x3_reduce.bias": (96,),
    "inception_4c_double_3x3_1.weight": (160, 128, 3, 3),
    "inception_4d_1x1.weight": (96, 608, 1, 1),
    "inception_4e_double_3x3_2.weight": (256, 256, 3, 3),
    "inception_5a_3x3_reduce.weight": (192, 1056, 1, 1),
    "inception_5b_double_3x3_reduce.weight": (192, 1024, 1, 1),
    "inception_5b_pool_proj_bn.running_var": (128,),
}


def test_the_names_and_shapes_are_the_published_ones(backbone):
    shapes = {name: tuple(value.shape) for name, value in backbone.state_dict().items()}
    assert {name: shapes.get(name) for name in PUBLISHED} == PUBLISHED
    assert not any(
        name.startswith(("inception_3c_1x1", "inception_4e_1x1", "inception_4e_pool_proj")) for name in shapes
    )
    # 69 convolutions with bias, each with a batch norm; 11,295,240 parameters are published for the net with its head
    assert len(shapes) == 69 * 7
    assert sum(p.numel() for p in backbone.parameters()) == 11_295_240 - (1024 * 1000 + 1000)
    assert backbone.num_features == 1024


def test_the_maps_shrink_as_published(backbone):
    """Fig. 5 of the paper, for an image of 224 x 224."""
    sizes, handles = {}, []
    for name in ("conv2_3x3_reduce", "inception_3a_1x1", "inception_4a_1x1", "inception_5a_1x1", "inception_5b_1x1"):
        hook = lambda module, inputs, name=name: sizes.update({name: tuple(inputs[0].shape[1:])})
        handles.append(getattr(backbone, name).register_forward_pre_hook(hook))
    with torch.no_grad():
        backbone(torch.zeros(1, 3, 224, 224))
    for handle in handles:
        handle.remove()
    assert list(sizes.values()) == [(64, 56, 56), (192, 28, 28), (576, 14, 14), (1056, 7, 7), (1024, 7, 7)]


def by_hand(state, images):
    """The whole network from its tensors, line by line."""

    def layer(name, maps, stride=1):
        kernel = state[f"{name}.weight"]
        maps = F.conv2d(maps, kernel, state[f"{name}.bias"], stride, kernel.shape[-1] // 2)
        mean, var, weight, bias = (
            state[f"{name}_bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        scale = weight / (var + 1e-5).sqrt()
        return (maps * scale[:, None, None] + (bias - mean * scale)[:, None, None]).clamp(min=0)

    def half(maps):  # windows of 3 at every second pixel, the last one cut off at the edge
        size = maps.shape[-1]
        rows = range(0, size - 1, 2)
        return torch.stack(
            [torch.stack([maps[..., i : i + 3, j : j + 3].amax((2, 3)) for j in rows], 2) for i in rows], 2
        )

    maps = half(layer("conv1_7x7_s2", images[:, [2, 1, 0]], 2))
    maps = half(layer("conv2_3x3", layer("conv2_3x3_reduce", maps)))
    for block in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        name = f"inception_{block}"
        stride = 2 if block in ("3c", "4e") else 1
        three = layer(f"{name}_3x3", layer(f"{name}_3x3_reduce", maps), stride)
        double = layer(f"{name}_double_3x3_1", layer(f"{name}_double_3x3_reduce", maps))
        double = layer(f"{name}_double_3x3_2", double, stride)
        if stride == 2:
            maps = torch.cat([three, double, half(maps)], 1)
            continue
        edge = -torch.inf if block == "5b" else 0.0
        windows = F.pad(maps, (1, 1, 1, 1), value=edge).unfold(2, 3, 1).unfold(3, 3, 1)
        pooled = windows.amax((4, 5)) if block == "5b" else windows.mean((4, 5))
        maps = torch.cat([layer(f"{name}_1x1", maps), three, double, layer(f"{name}_pool_proj", pooled)], 1)
    return maps.mean((2, 3))


def test_it_computes_what_its_tensors_say(backbone, images):
    exact = copy.deepcopy(backbone).double()
    with torch.no_grad():
        expected = by_hand(exact.state_dict(), images.double())
        torch.testing.assert_close(exact(images.double()), expected)
    assert expected.std() > 0.01


def test_the_first_convolution_gets_blue_green_red_less_the_published_mean(backbone):
    seen = []
    handle = backbone.conv1_7x7_s2.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    red, green, blue = 200.0, 100.0, 50.0
    pixels = torch.tensor([red, green, blue]).view(1, 3, 1, 1).expand(1, 3, 64, 64)
    with torch.no_grad():
        backbone(normalise(pixels / 255, (128 / 255, 117 / 255, 104 / 255), (1 / 255, 1 / 255, 1 / 255)))
    handle.remove()
    assert seen[0][0, :, 0, 0].tolist() == pytest.approx([blue - 104, green - 117, red - 128], abs=1e-3)
