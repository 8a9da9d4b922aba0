"""The networks against torchvision's published names, shapes and counts, and the embedding on top of them."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from pads.build import build_network
from pads.config import Config, Network
from pads.networks import BACKBONES, EmbeddingNetwork, use_seed
from pads.networks.small import SmallNetwork

RESNETS = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
}
every_resnet = pytest.mark.parametrize("name", RESNETS)


# -- ResNets, written down a second time, as torchvision names them ---------------------------------------------------


def batch_norm(prefix, channels):
    vectors = ("weight", "bias", "running_mean", "running_var")
    return {f"{prefix}.{name}": (channels,) for name in vectors} | {f"{prefix}.num_batches_tracked": ()}


def torchvision_shapes(name):
    """The keys of torchvision's state dict without `fc`: conv1, bn1, then layer{1..4}.{block}.conv{i}, .bn{i}, and
    .downsample.0 and .1 in the first block of a layer, unless it keeps the shape."""
    kind, depths = RESNETS[name]
    shapes = {"conv1.weight": (64, 3, 7, 7), **batch_norm("bn1", 64)}
    channels_in = 64
    for layer, depth in enumerate(depths, start=1):
        width = 32 * 2**layer
        channels_out = width if kind == "basic" else 4 * width
        for block in range(depth):
            prefix = f"layer{layer}.{block}"
            sizes = {"basic": [(width, 3), (width, 3)], "bottleneck": [(width, 1), (width, 3), (channels_out, 1)]}[kind]
            before = channels_in
            for number, (channels, kernel) in enumerate(sizes, start=1):
                shapes[f"{prefix}.conv{number}.weight"] = (channels, before, kernel, kernel)
                shapes |= batch_norm(f"{prefix}.bn{number}", channels)
                before = channels
            if block == 0 and (layer > 1 or channels_in != channels_out):
                shapes[f"{prefix}.downsample.0.weight"] = (channels_out, channels_in, 1, 1)
                shapes |= batch_norm(f"{prefix}.downsample.1", channels_out)
            channels_in = channels_out
    return shapes


def torchvision_forward(weights, name, images):
    """The features, computed from the state dict alone; a bottleneck halves the map in its 3x3 convolution."""
    kind, depths = RESNETS[name]

    def normalised(maps, prefix):
        mean, var, scale, shift = (
            weights[f"{prefix}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(maps, mean, var, scale, shift, training=False, eps=1e-5)

    maps = F.conv2d(images, weights["conv1.weight"], stride=2, padding=3)
    maps = F.max_pool2d(F.relu(normalised(maps, "bn1")), kernel_size=3, stride=2, padding=1)
    for layer, depth in enumerate(depths, start=1):
        for block in range(depth):
            prefix, halving = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            strides = (halving, 1) if kind == "basic" else (1, halving, 1)
            hidden, shortcut = maps, maps
            for number, stride in enumerate(strides, start=1):
                kernel = weights[f"{prefix}.conv{number}.weight"]
                hidden = F.conv2d(hidden, kernel, stride=stride, padding=kernel.shape[-1] // 2)
                hidden = normalised(hidden, f"{prefix}.bn{number}")
                hidden = F.relu(hidden) if number < len(strides) else hidden
            if f"{prefix}.downsample.0.weight" in weights:
                shortcut = F.conv2d(maps, weights[f"{prefix}.downsample.0.weight"], stride=halving)
                shortcut = normalised(shortcut, f"{prefix}.downsample.1")
            maps = F.relu(hidden + shortcut)
    return maps, maps.mean((2, 3))


@every_resnet
def test_the_parameters_of_a_resnet_have_torchvisions_names_and_shapes(name):
    state = BACKBONES[name]().state_dict()
    assert {key: tuple(tensor.shape) for key, tensor in state.items()} == torchvision_shapes(name)


@pytest.mark.parametrize(
    ("name", "count"), [("resnet18", 11_176_512), ("resnet34", 21_284_672), ("resnet50", 23_508_032)]
)
def test_a_resnet_has_torchvisions_number_of_parameters_without_the_head(name, count):
    assert sum(parameter.numel() for parameter in BACKBONES[name]().parameters()) == count


def test_the_small_network_is_as_small_as_it_says():
    assert 250_000 < sum(parameter.numel() for parameter in SmallNetwork().parameters()) < 350_000


def shaken(backbone, generator):
    """Weights and statistics that a fresh network does not have, so that each of them matters."""
    with torch.no_grad():
        for key, tensor in backbone.state_dict().items():
            if key.endswith(("bn1.weight", "bn2.weight", "bn3.weight", "1.weight", "running_var")) and tensor.ndim == 1:
                tensor.uniform_(0.5, 1.5, generator=generator)
            elif tensor.ndim == 1:
                tensor.uniform_(-0.2, 0.2, generator=generator)
    return backbone.eval()


@every_resnet
def test_a_resnet_computes_what_its_names_say(name, generator):
    with use_seed(0):
        backbone = shaken(BACKBONES[name](), generator)
    images = torch.randn(2, 3, 64, 96, generator=generator)
    with torch.no_grad():
        maps, expected = torchvision_forward(backbone.state_dict(), name, images)
        assert maps.shape == (2, backbone.num_features, 64 // 32, 96 // 32)  # halved five times
        torch.testing.assert_close(backbone(images), expected, rtol=1e-4, atol=1e-4)


# -- the embedding -----------------------------------------------------------------------------------------------------


def network(**options):
    with use_seed(0):
        return EmbeddingNetwork(SmallNetwork(width=8), 6, **options)


@pytest.fixture
def images(generator):
    return torch.randn(5, 3, 24, 24, generator=generator)


def test_embeddings_have_unit_length_and_point_where_the_linear_layer_points(images):
    net = network().eval()
    with torch.no_grad():
        features = net.backbone(images)
        linear = features @ net.embedding.weight.T + net.embedding.bias
        embeddings = net(images)
    assert embeddings.shape == (5, 6)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(embeddings, linear / linear.norm(dim=1, keepdim=True))


def test_embeddings_keep_their_length_if_that_is_asked_for(images):
    net, unit = network(normalise=False).eval(), network().eval()
    with torch.no_grad():
        lengths = net(images).norm(dim=1, keepdim=True)
        assert ((lengths - 1).abs() > 0.01).all()
        torch.testing.assert_close(net(images) / lengths, unit(images))


def test_embeddings_are_float32_also_under_autocast(images):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = network()(images)
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(5))


def statistics(net):
    return {key: tensor.clone() for key, tensor in net.state_dict().items() if "running_" in key or "tracked" in key}


def test_frozen_batch_norms_keep_their_statistics_in_training_while_their_scales_learn(images):
    net = network(frozen_batch_norm=True).train()
    before = statistics(net)
    net(images)[:, 0].sum().backward()
    assert len(before) == 3 * 7  # the stem and two in each of three blocks
    assert all(torch.equal(before[key], after) for key, after in statistics(net).items())
    for name, parameter in net.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
    assert net.training
    assert net.backbone.training


def test_frozen_batch_norms_normalise_in_training_as_they_do_in_evaluation(images):
    net = network(frozen_batch_norm=True)
    with torch.no_grad():
        torch.testing.assert_close(net.train()(images), net.eval()(images))
        assert (network().train()(images) - network().eval()(images)).abs().max() > 1e-3


def test_batch_norms_that_are_not_frozen_follow_the_data(images):
    net = network().train()
    before = statistics(net)
    net(images)
    assert all(not torch.equal(before[key], after) for key, after in statistics(net).items())


def test_frozen_batch_norms_stay_frozen_however_often_the_mode_changes():
    net = network(frozen_batch_norm=True)
    for mode, again in itertools.product((True, False), repeat=2):
        net.train(mode).train(again)
        assert not any(module.training for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d))
        assert net.embedding.training == again
    assert net.train() is net


# -- initial weights ---------------------------------------------------------------------------------------------------


def small_config(seed):
    return Config(seed=seed, network=Network("small", embedding_dim=6))


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = build_network(small_config(0)).state_dict()
    torch.manual_seed(2)
    second, other = (build_network(small_config(seed)).state_dict() for seed in (0, 7))
    assert all(torch.equal(first[key], second[key]) for key in first)
    differing = [key for key in first if not torch.equal(first[key], other[key])]
    assert "embedding.weight" in differing
    assert "backbone.conv1.weight" in differing


def test_making_a_network_leaves_the_callers_random_state_alone(monkeypatch):
    seeded_gpus = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded_gpus.append)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    seeded_gpus.clear()
    build_network(small_config(0))
    assert torch.equal(torch.rand(3), expected)
    assert seeded_gpus == []


def test_the_seed_of_a_block_ends_with_it_also_if_it_fails():
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), use_seed(3):
        1 / 0
    assert torch.equal(torch.get_rng_state(), before)
