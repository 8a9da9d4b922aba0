"""Convolution, batch norm, shortcut and ReLU in one step: the same numbers and gradients as one after the other."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pads.networks import BACKBONES, fused
from pads.networks.fused import convolve_add_relu, fold_norm, folds


def lived_in(network: nn.Module) -> nn.Module:
    """Batch norms as a training leaves them, in double precision."""
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for vector, (low, high) in {
                module.weight: (0.5, 1.5),
                module.bias: (-0.5, 0.5),
                module.running_mean: (-0.5, 0.5),
                module.running_var: (0.5, 2.0),
            }.items():
                vector.data.uniform_(low, high, generator=generator)
    return network.double().eval()


def results(network: nn.Module, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """The features, and the gradient of every parameter."""
    features = network(images)
    features.square().sum().backward()
    return {"features": features.detach(), **{name: p.grad for name, p in network.named_parameters()}}


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(fused, "folds", lambda maps, norm: True)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet50-he", "inception-bn", "efficientnet-lite0"])
def test_a_folded_network_has_the_features_and_gradients_of_the_plain_one(name, monkeypatch) -> None:
    network = lived_in(BACKBONES[name]())
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain = results(copy.deepcopy(network), images)
    calls = []
    monkeypatch.setattr(fused, "folds", lambda maps, norm: calls.append(norm) or True)
    in_one = results(network, images)
    num_blocks_with_projection = sum(name.endswith("downsample.1") for name, _ in network.named_modules())
    num_norms = sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert len(calls) == num_norms - num_blocks_with_projection  # a projection is folded with the end of its block
    for part, expected in plain.items():
        torch.testing.assert_close(
            in_one[part], expected, rtol=1e-8, atol=1e-8, msg=lambda text, part=part: part + text
        )


@pytest.mark.parametrize("with_shortcut", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (1, 2), (3, 1), (3, 2)])
def test_the_gradient_of_the_kernel_is_the_numerical_one(kernel, stride, with_shortcut) -> None:
    generator = torch.Generator().manual_seed(kernel + stride)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)

    maps, weight, bias = noise(2, 8, 5, 5), noise(4, 8, kernel, kernel), noise(4)
    side = (5 + 2 * (kernel // 2) - kernel) // stride + 1
    shortcut = noise(2, 4, side, side) if with_shortcut else None
    inputs = (maps, weight, bias, shortcut, stride, kernel // 2)
    assert torch.autograd.gradcheck(convolve_add_relu, inputs)
    torch.library.opcheck(convolve_add_relu, inputs)  # schema, shapes of the compiler, autograd


def test_what_needs_no_gradient_gets_none() -> None:
    maps, weight = torch.randn(2, 8, 5, 5), torch.randn(4, 8, 3, 3, requires_grad=True)
    convolve_add_relu(maps, weight, torch.zeros(4, requires_grad=True), None, 1, 1).sum().backward()
    assert maps.grad is None
    assert weight.grad is not None


def test_the_bias_of_a_convolution_is_folded_too() -> None:
    convolution, norm = nn.Conv2d(8, 4, 3, 1, 1).double(), lived_in(nn.BatchNorm2d(4))
    maps = torch.randn(2, 8, 6, 6, dtype=torch.float64)
    weight, bias = fold_norm(convolution, norm)
    torch.testing.assert_close(F.conv2d(maps, weight, bias, 1, 1), norm(convolution(maps)))


def test_it_is_left_alone_where_statistics_move_or_nothing_is_compiled() -> None:
    maps, norm = torch.randn(2, 8, 4, 4), nn.BatchNorm2d(8)
    assert not folds(maps, norm.eval())
    assert not folds(maps, norm.train())


@pytest.mark.parametrize("name", ["resnet18", "efficientnet-lite0"])
def test_the_compiler_follows_the_folded_network(name, always) -> None:
    network = lived_in(BACKBONES[name]())
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = results(copy.deepcopy(network), images)
    network.compile(backend="aot_eager", fullgraph=True)
    for part, found in results(network, images).items():
        torch.testing.assert_close(found, expected[part], rtol=1e-9, atol=1e-9)
