"""EfficientNet-Lite0 against the package that its weights were published with."""

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

from pads.networks.efficientnet_lite import EfficientNetLite0

NAME = "efficientnet-lite0"


def make_theirs():
    """Without a size it pads for each image anew, and without a rate it drops no block in training."""
    return EfficientNet.from_name(NAME, image_size=None, drop_connect_rate=0.0)


@pytest.fixture
def pair():
    """Ours and theirs with the same weights, in float64; batch norms as a training leaves them."""
    generator = torch.Generator().manual_seed(0)
    ours, theirs = EfficientNetLite0().double(), make_theirs().double()
    for module in ours.modules():
        if isinstance(module, nn.BatchNorm2d):
            for vector, low, high in ((module.weight, 0.5, 1.5), (module.bias, 0.0, 1.0)):
                vector.data.uniform_(low, high, generator=generator)
            module.running_mean.uniform_(-0.5, 0.5, generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
    missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert (missing, unexpected) == (["_fc.weight", "_fc.bias"], [])
    return ours, theirs


def pool_theirs(theirs, images):
    return theirs.extract_features(images).mean((2, 3))


def noise(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_names_shapes_and_batch_norms_are_theirs():
    ours, theirs = EfficientNetLite0(), make_theirs()
    expected = {name: value.shape for name, value in theirs.state_dict().items() if not name.startswith("_fc.")}
    assert {name: value.shape for name, value in ours.state_dict().items()} == expected
    norms = [
        {(norm.eps, round(norm.momentum, 9)) for norm in network.modules() if isinstance(norm, nn.BatchNorm2d)}
        for network in (ours, theirs)
    ]
    assert norms[0] == norms[1] == {(1e-3, 0.01)}


@pytest.mark.parametrize("shape", [(32, 32), (64, 96), (65, 65), (33, 50), (90, 87)])
def test_features_are_theirs_whatever_the_size_of_the_image(pair, shape):
    """Every map of these is halved from an even size or from an odd one, which are padded differently."""
    ours, theirs = (network.eval() for network in pair)
    images = noise(2, 3, *shape)
    with torch.no_grad():
        expected = pool_theirs(theirs, images)
        torch.testing.assert_close(ours(images), expected, rtol=1e-10, atol=1e-12)
    assert expected.std() > 0.1


def test_gradients_and_moving_statistics_are_theirs(pair):
    ours, theirs = (network.train() for network in pair)
    images = noise(4, 3, 64, 64)
    ours(images).square().sum().backward()
    pool_theirs(theirs, images).square().sum().backward()
    parameters = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, parameters[name].grad, rtol=1e-7, atol=1e-9)
    state = theirs.state_dict()
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, state[name])


def test_a_fresh_network_passes_its_input_on():
    """In training, where batch norms use the batch: features differ from image to image, and none is out of bounds."""
    torch.manual_seed(0)
    features = EfficientNetLite0()(torch.randn(8, 3, 64, 64))
    assert features.std(0).mean() > 0.1
    assert 0 <= features.min() <= features.max() <= 6
