"""Trains real timm models through pads for a few steps with random weights, and checks what the tests can only imitate.

python tools/check_timm.py              # needs timm and its torchvision, no network; about two minutes on a GPU
python tools/check_timm.py --eager      # without compilation

For each model: shapes, mean and std, the size of its images, layer-wise rates (for the ViT against timm's own), weights from
a file (made at another image size where the model allows it), pads.load, and on a GPU compiled and captured training.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import timm
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from timm.optim import param_groups_layer_decay

import pads
from pads.build import build_network, network_groups
from pads.config import Config, Optimiser, with_settings
from pads.model import evaluate_run
from pads.networks import build_backbone, load_weights

MODELS = {
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k": ["data.image_size=96"],
    "vit_small_patch14_dinov2.lvd142m": ["data.image_size=98", "data.resize=112"],
    "convnext_atto.d2_in1k": ["data.image_size=96"],
    "efficientnet_b0.ra_in1k": ["data.image_size=96"],
    "mobilenetv3_small_100.lamb_in1k": ["data.image_size=96"],
    "resnet18.a1_in1k": ["data.image_size=96"],
}
DECAY = 0.75


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="without compilation, also on a GPU")
    is_compiled = torch.cuda.is_available() and not parser.parse_args().eager
    table = Table("model", "features", "image", "mean", "layers", "file", "loss", "load", "seconds", box=None)
    with tempfile.TemporaryDirectory() as folder:
        photos = make_photos(Path(folder, "photos"))
        for name, settings in MODELS.items():
            start = time.perf_counter()
            row = check_model(name, settings, photos, Path(folder, name), is_compiled)
            table.add_row(name, *row, f"{time.perf_counter() - start:.0f}")
            print(name, *row, flush=True)  # now too, in case the next one takes for ever
    how = "compiled and captured" if is_compiled else "eager"
    Console(width=150).print(f"timm {timm.__version__}, torch {torch.__version__}, {how}", table, sep="\n")


def make_photos(root: Path) -> Path:
    """Make 12 classes of 8 noisy pictures."""
    noise = np.random.default_rng(0)
    for label in range(12):
        (root / f"class-{label:02d}").mkdir(parents=True)
        pattern = np.kron(noise.integers(0, 256, (6, 6, 3)), np.ones((20, 20, 1)))
        for number in range(8):
            pixels = np.clip(pattern + noise.normal(0, 60, pattern.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class-{label:02d}" / f"{number}.png")
    return root


def check_model(name: str, settings: list[str], photos: Path, folder: Path, is_compiled: bool) -> list[str]:
    """Train one model and return what the table says of it."""
    folder.mkdir()
    file = folder / "start.safetensors"
    published = timm.create_model(name, num_classes=1000)  # at its own size, with its classifier
    safetensors.torch.save_file({k: v.contiguous() for k, v in published.state_dict().items()}, file)
    every = [f"data.root={photos}", f"network.backbone=timm:{name}", f"network.weights={file}", *settings]
    every += [
        "num_epochs=8",
        "log_every=2",
        f"compiled={str(is_compiled).lower()}",
        "data.reward_share=0.15",
        "threads=4",
    ]
    every += ["data.classes_per_batch=4", "data.samples_per_class=4", f"optimiser.layer_decay={DECAY}"]
    told: dict[str, Any] = {}
    run = pads.train(
        with_settings(pads.RECIPES["folder"](), ["recipe=folder", *every]),
        folder / "run",
        watch=lambda kind, step, values: told.setdefault(kind, []).append(values),
    )
    config, about = run.config, timm.get_pretrained_cfg(name)
    assert config.network.mean == tuple(about.mean), (config.network.mean, about.mean)
    assert config.network.std == tuple(about.std)
    assert config.data.resize >= config.data.image_size
    loss = told["training"][-1]["loss"]
    assert np.isfinite(loss)
    layers = check_rates(config, name)
    width = check_width(config)
    used = check_file(config, name, file)
    same = check_load(run)
    return [
        str(width),
        str(config.data.image_size),
        f"{config.network.mean[0]:.3f}",
        str(layers),
        used,
        f"{loss:.3f}",
        same,
    ]


def check_width(config: Config) -> int:
    network = build_network(config).eval()
    with torch.no_grad():
        features = network.backbone(torch.randn(2, 3, config.data.image_size, config.data.image_size))
    assert features.shape == (2, network.embedding.in_features), features.shape
    return network.embedding.in_features


def check_rates(config: Config, name: str) -> int:
    """Rates fall towards the input; for a plain ViT they are timm's."""
    network = build_network(config)
    groups = network_groups(Optimiser(learning_rate=1.0, layer_decay=DECAY), network)
    rate_of = {id(p): group["initial_lr"] for group in groups for p in group["params"]}
    assert len(rate_of) == sum(1 for _ in network.parameters())
    if name.startswith("vit"):
        theirs = timm.create_model(name, num_classes=10)  # its classifier is above the last block, as our embedding is
        scale_of = {
            id(p): group["lr_scale"]
            for group in param_groups_layer_decay(theirs, layer_decay=DECAY)
            for p in group["params"]
        }
        expected = {key: scale_of[id(p)] for key, p in theirs.named_parameters()}
        for key, p in network.backbone.named_parameters():
            assert abs(rate_of[id(p)] - expected[key]) < 1e-9, key
    first, last = next(network.backbone.parameters()), network.embedding.weight
    assert rate_of[id(first)] < rate_of[id(last)] == 1.0
    return len(groups)


def check_file(config: Config, name: str, file: Path) -> str:
    """At the model's own size the file gives the same features as timm's model that it was saved from."""
    backbone = build_backbone(f"timm:{name}")
    used = load_weights(backbone, file)
    theirs = timm.create_model(name, num_classes=0)
    theirs.load_state_dict(backbone.state_dict())
    size = timm.get_pretrained_cfg(name).input_size[-1]
    images = torch.randn(1, 3, size, size)
    with torch.no_grad():
        torch.testing.assert_close(backbone.eval()(images), theirs.eval()(images))
    saved = safetensors.torch.load_file(file)
    assert all(torch.equal(saved[key], value) for key, value in backbone.state_dict().items())
    return f"{len(used.used)} of {len(used.used) + len(used.ignored)}"


def check_load(run: pads.RunFolder) -> str:
    pictures = [np.random.default_rng(n).integers(0, 256, (60, 80, 3), dtype=np.uint8) for n in range(3)]
    once, again = pads.load(run, device="cpu").embed(pictures), pads.load(run.path, device="cpu").embed(pictures)
    assert torch.equal(once, again)
    assert once.shape == (3, 128)
    torch.testing.assert_close(once.norm(dim=1), torch.ones(3))
    figures = evaluate_run(run)
    assert abs(figures["recall@1"] - run.metrics["test"]["trained"]["recall@1"]) < 0.2
    return "ok"


if __name__ == "__main__":
    main()
