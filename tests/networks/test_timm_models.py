"""timm models as backbones, against a small stand-in for timm; tools/check_timm.py does the same with the real one."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, replace

import pytest
import safetensors.torch
import torch
from torch import nn

import pads
from pads.autoconfig import resolve_auto
from pads.build import build_network
from pads.check import check
from pads.config import MODEL_INPUT, AutoConfig, with_settings
from pads.errors import UserError
from pads.networks import backbone_of, build_backbone, check_backbone, find_weights, load_weights


@dataclass
class PretrainedCfg:
    input_size: tuple[int, int, int] = (3, 32, 32)
    crop_pct: float = 0.875
    mean: tuple[float, ...] = (0.5, 0.4, 0.3)
    std: tuple[float, ...] = (0.2, 0.3, 0.4)
    fixed_input_size: bool = True
    hf_hub_id: str | None = "timm/tiny_vit.one"
    hf_hub_filename: str | None = None
    classifier: str = "head.fc"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, tokens):
        return tokens + torch.relu(self.fc(tokens))


class TinyViT(nn.Module):
    """Patches of 8 pixels, positions, two blocks; its head keeps a norm when the classifier is gone."""

    def __init__(self, num_classes=10, img_size=32, width=12):
        super().__init__()
        self.pretrained_cfg = {"classifier": "head.fc"}
        self.num_features, self.head_hidden_size = width, width
        self.img_size = img_size
        self.pos_embed = nn.Parameter(torch.randn(1, (img_size // 8) ** 2, width))
        self.patch_embed = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Module()
        self.head.norm = nn.LayerNorm(width)
        self.head.fc = nn.Linear(width, num_classes) if num_classes else nn.Identity()

    def forward(self, images):
        assert images.shape[-1] == self.img_size
        tokens = self.patch_embed(images).flatten(2).transpose(1, 2) + self.pos_embed
        return self.head.fc(self.head.norm(self.blocks(tokens).mean(dim=1)))


def resized(state, model):
    """What timm's checkpoint_filter_fn does: positions of another size are resampled."""
    old = state["pos_embed"]
    side, new = int(old.shape[1] ** 0.5), int(model.pos_embed.shape[1] ** 0.5)
    maps = old.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    maps = nn.functional.interpolate(maps, (new, new), mode="bilinear").permute(0, 2, 3, 1)
    return {**state, "pos_embed": maps.reshape(1, new * new, -1)}


class WideHead(nn.Module):
    """As a MobileNet: the vector behind the head is wider than its feature maps. One that is not built for a size."""

    def __init__(self, num_classes=10):
        super().__init__()
        self.num_features, self.head_hidden_size = 6, 20
        self.layer1 = nn.Sequential(nn.Conv2d(3, 6, 3, 4, bias=False), nn.BatchNorm2d(6))
        self.conv_head = nn.Linear(6, 20)

    def forward(self, images):
        return self.conv_head(self.layer1(images).mean(dim=(2, 3)))


CFGS = {
    "tiny_vit.one": PretrainedCfg(),
    "wide.one": PretrainedCfg(fixed_input_size=False, crop_pct=1.0, hf_hub_id=None),
}
CFGS |= {"tiny_vit": CFGS["tiny_vit.one"], "wide": CFGS["wide.one"]}


@pytest.fixture(autouse=True)
def timm(monkeypatch):
    module = types.ModuleType("timm")

    def get_pretrained_cfg(name):
        if name in CFGS:
            return CFGS[name]
        if name.partition(".")[0] in CFGS:
            raise RuntimeError("Invalid pretrained tag")
        return None

    def create_model(name, pretrained=False, **options):
        assert not pretrained, "no weights are to be had here"
        return {"tiny_vit": TinyViT, "wide": WideHead}[name.partition(".")[0]](**options)

    module.get_pretrained_cfg, module.create_model = get_pretrained_cfg, create_model
    module.list_models = lambda pretrained=False: [name for name in CFGS if ("." in name) == pretrained]
    monkeypatch.setitem(sys.modules, "timm", module)
    monkeypatch.setattr(sys.modules[TinyViT.__module__], "checkpoint_filter_fn", for_vits, raising=False)
    return module


def for_vits(state, model):
    return resized(state, model) if isinstance(model, TinyViT) else state


def test_a_model_gives_its_features_without_its_classifier(generator):
    backbone = build_backbone("timm:tiny_vit.one").eval()
    assert backbone(torch.randn(2, 3, 32, 32, generator=generator)).shape == (2, 12)


def test_a_model_of_one_size_is_built_for_the_size_that_was_asked_for(generator):
    assert build_backbone("timm:tiny_vit", image_size=64)(torch.randn(1, 3, 64, 64, generator=generator)).shape == (
        1,
        12,
    )
    assert build_backbone("timm:wide", image_size=64)(torch.randn(1, 3, 64, 64, generator=generator)).shape == (1, 20)


def test_the_width_behind_the_head_is_what_the_embedding_takes(generator):
    config = with_settings(
        pads.Config(), ["network.backbone=timm:wide", "data.image_size=40", "network.embedding_dim=5"]
    )
    assert build_network(told(config)[0])(torch.randn(2, 3, 40, 40, generator=generator)).shape == (2, 5)


def test_what_cannot_be_built_or_is_not_there_is_answered_in_a_sentence(timm, monkeypatch):
    with pytest.raises(UserError, match=r"no timm model 'tiny_vit.two'; did you mean tiny_vit.one"):
        check_backbone("timm:tiny_vit.two")
    with pytest.raises(UserError, match="no timm model 'tiny_vot'; did you mean tiny_vit"):
        check(with_settings(pads.Config(), ["network.backbone=timm:tiny_vot"]))
    with pytest.raises(UserError, match="has its own pooling"):
        build_backbone("timm:wide", pooling="max")
    with monkeypatch.context() as patched:
        patched.setitem(CFGS, "wide", replace(CFGS["wide"], fixed_input_size=True))
        with pytest.raises(UserError, match=r"cannot be built for images of 64 pixels .*made for 32"):
            build_backbone("timm:wide", image_size=64)


def test_without_timm_the_extra_is_named_and_a_broken_torchvision_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r'pip install "pads-dml\[timm\]"'):
        check_backbone("timm:tiny_vit")

    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(UserError, match=r"nms does not exist.*torchvision that fits this torch"):
        check_backbone("timm:tiny_vit")


# -- input -------------------------------------------------------------------------------------------------------------


def told(config):
    notes = {}
    config = resolve_auto(
        config, torch.device("cpu"), lambda kind, step, values: notes.setdefault(kind, []).append(values)
    )
    return config, notes


def test_the_input_follows_the_model_unless_it_was_set():
    config = with_settings(pads.RECIPES["emoji-udist"](), ["network.backbone=timm:tiny_vit.one"])
    assert isinstance(config, AutoConfig) and config.auto == set(MODEL_INPUT)
    config, notes = told(config)
    assert (config.data.image_size, config.data.resize, config.data.store_size) == (32, 37, 48)
    assert (config.network.mean, config.network.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    assert [key for key, _, _ in notes["chosen"][0]["choices"]] == list(MODEL_INPUT)
    quoted = with_settings(pads.RECIPES["emoji-udist"](), ['network.backbone = "timm:tiny_vit.one"'])
    assert told(quoted)[0] == config
    own = ["data.image_size=64", "network.mean=[0.1,0.1,0.1]", "network.backbone=timm:tiny_vit.one"]
    config, _ = told(with_settings(pads.RECIPES["emoji-udist"](), own))
    assert (config.data.image_size, config.data.resize) == (64, 73)
    assert (config.network.mean, config.network.std) == ((0.1, 0.1, 0.1), (0.2, 0.3, 0.4))


def test_a_resize_that_is_too_small_for_the_model_is_refused():
    own = ["network.backbone=timm:tiny_vit.one", "data.resize=20"]
    with pytest.raises(UserError, match=r"data.image_size \(32\) must not exceed data.resize \(20\)"):
        told(with_settings(pads.RECIPES["emoji-udist"](), own))


def test_a_recipe_with_another_backbone_of_ours_takes_its_mean_and_reads_no_data():
    recipe = pads.RECIPES["cub200-margin-udist"]()
    resolved, notes = told(with_settings(recipe, ["network.backbone=resnet18"]))
    assert resolved == replace(recipe, network=replace(recipe.network, backbone="resnet18"))
    assert [key for key, _, _ in notes["chosen"][0]["choices"]] == ["network.mean", "network.std"]
    inception, _ = told(with_settings(recipe, ["network.backbone=inception-bn"]))
    assert inception.network.std == (1 / 255,) * 3
    assert inception.data == recipe.data
    assert with_settings(recipe, ["network.backbone=resnet50"]) == recipe


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    torch.manual_seed(1)
    safetensors.torch.save_file(TinyViT().state_dict(), tmp_path / "vit.safetensors")
    return tmp_path / "vit.safetensors"


def test_a_file_fits_without_its_classifier(file):
    backbone = build_backbone("timm:tiny_vit")
    used = load_weights(backbone, file)
    assert used.ignored == ("head.fc.bias", "head.fc.weight")
    saved = safetensors.torch.load_file(file)
    assert all(torch.equal(saved[name], value) for name, value in backbone.state_dict().items())


def test_positions_are_brought_to_the_size_of_the_images(file):
    backbone = build_backbone("timm:tiny_vit", image_size=64)
    load_weights(backbone, file)
    saved = safetensors.torch.load_file(file)
    expected = resized(saved, backbone)["pos_embed"]
    assert torch.equal(backbone.pos_embed, expected)


def test_a_file_of_another_model_is_refused(file):
    with pytest.raises(UserError, match="does not fit the backbone"):
        load_weights(build_backbone("timm:wide"), file)
    with pytest.raises(UserError, match="fits none of the backbones"):
        backbone_of(file)


@pytest.mark.parametrize("word", ["imagenet", "pretrained"])
def test_what_is_published_is_fetched_by_its_name_on_the_hub(word, file, monkeypatch):
    asked = []
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *names: asked.append(names) or str(file))
    assert find_weights(word, "timm:tiny_vit.one") == file
    assert asked == [("timm/tiny_vit.one", "model.safetensors")]
    with pytest.raises(UserError, match=r"no weights on the Hub for wide\.one: give a file"):
        find_weights(word, "timm:wide.one")


def test_without_a_network_one_sentence_says_what_to_do(monkeypatch):
    def unreachable(*names):
        raise OSError("Could not connect\nto anything")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    with pytest.raises(
        UserError, match=r"could not be fetched from timm/tiny_vit.one on the Hub \(Could not connect\)"
    ):
        find_weights("pretrained", "timm:tiny_vit.one")


# -- a run -------------------------------------------------------------------------------------------------------------


def test_a_run_trains_a_model_from_a_file_and_loads_it_again(noisy_photos, tmp_path, file):
    photos = noisy_photos(8, 4, sizes=[(40, 50)])
    settings = [f"data.root={photos}", "network.backbone=timm:tiny_vit.one", f"network.weights={file}"]
    settings += ["num_epochs=2", "optimiser.layer_decay=0.5", "threads=1", "network.embedding_dim=6", "device=cpu"]
    run = pads.train(with_settings(pads.RECIPES["folder"](), settings), tmp_path / "run")
    assert run.config.network.mean == (0.5, 0.4, 0.3)
    assert run.metrics["weights"]["left_out"] == 2
    pictures = list((photos / "class-03").iterdir())
    vectors = pads.load(run).embed(pictures)
    assert vectors.shape == (4, 6)
    assert torch.equal(vectors, pads.load(str(run.path)).embed(pictures))


def test_a_model_is_used_as_it_is_with_the_input_that_it_was_made_for(noisy_photos, tmp_path, file):
    photos = noisy_photos(8, 4, sizes=[(40, 50)])
    name = f"backbone:timm:tiny_vit.one={file}"
    model = pads.load(name, device="cpu")
    assert (model.config.data.image_size, model.config.data.resize) == (32, 37)
    assert (model.config.network.mean, model.config.network.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    index = pads.build_index(name, photos, tmp_path / "index")
    assert index.vectors_ND.shape == (32, model.network.embedding.in_features)
    torch.testing.assert_close(
        torch.from_numpy(index.vectors_ND), model.embed([photos / path for path in index.paths]), rtol=0, atol=1e-6
    )
