"""From image files to final metrics: pads against the loop that one would write instead, in one run.

    python benchmarks/end_to_end.py [--epochs 10] [--out FILE.json]                                      emoji, on the CPU
    python benchmarks/end_to_end.py --recipe cub200-margin-udist --data DIR --weights FILE --epochs 20   on a GPU

The peer is plain PyTorch with pytorch-metric-learning's margin loss and distance-weighted miner: a DataLoader with a worker
for every core, channels_last, bfloat16 on a GPU, fused Adam, and the network compiled if `--compile` finds that faster. Both
have the same network, starting weights, images, crops, batches, steps and rates, and both measure R@1 and MAP@R of the test
split at the end. pads measures more (NMI, raw pixels, the untrained network), which counts against it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import MarginLoss
from pytorch_metric_learning.miners import DistanceWeightedMiner
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import pads
from pads.build import start_network
from pads.config import Config
from pads.data.prepare import read_data
from pads.networks import backbone_of
from pads.recipes import RECIPES

METRICS = {"recall@1": "precision_at_1", "map@r": "mean_average_precision_at_r"}


class Clock:
    """Adds up seconds by name; on a GPU it waits for the device, so that work counts where it was asked for."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds, self.last = device, dict[str, float](), time.perf_counter()

    def mark(self, name: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now


# -- the loop that one would write ---------------------------------------------------------------------------------------


class Files(Dataset[tuple[Tensor, int]]):
    """Image files, decoded and cropped by Pillow in the workers of a loader."""

    def __init__(self, paths: list[Path], labels: np.ndarray, config: Config, training: bool) -> None:
        self.paths, self.labels, self.config, self.training = paths, labels, config, training

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        data, network = self.config.data, self.config.network
        image: Image.Image = Image.open(self.paths[index])
        image.draft("RGB", (data.resize, data.resize))
        image = on_white(image)
        crop = self.crop_at_random(image) if self.training else self.crop_centre(image)
        pixels = torch.from_numpy(np.array(crop)).permute(2, 0, 1).float().div_(255)
        mean, std = (torch.tensor(values)[:, None, None] for values in (network.mean, network.std))
        return (pixels - mean) / std, int(self.labels[index])

    def crop_at_random(self, image: Image.Image) -> Image.Image:
        """A random resized crop, or resize and crop, as the recipe has it."""
        data, (width, height), size = self.config.data, image.size, self.config.data.image_size
        if data.augmentation == "random resized crop":
            area, ratio = random.uniform(0.08, 1) * width * height, np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = min(width, round((area * ratio) ** 0.5)), min(height, round((area / ratio) ** 0.5))
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            crop = image.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + w, top + h))
        else:
            image = image.resize((data.resize, data.resize), Image.Resampling.BILINEAR)
            left, top = (random.randint(0, data.resize - size) for _ in range(2))
            crop = image.crop((left, top, left + size, top + size))
        mirrored = data.flip and random.random() < 0.5
        return crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else crop

    def crop_centre(self, image: Image.Image) -> Image.Image:
        data, scale = self.config.data, self.config.data.resize / min(image.size)
        image = image.resize([round(side * scale) for side in image.size], Image.Resampling.BILINEAR)  # type: ignore[arg-type]
        left, top = ((side - data.image_size) // 2 for side in image.size)
        return image.crop((left, top, left + data.image_size, top + data.image_size))


def on_white(image: Image.Image) -> Image.Image:
    """An opaque image as it is; one that can be seen through on white, as pads has it."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def draw_batches(labels: np.ndarray, config: Config, num_steps: int) -> Iterator[list[int]]:
    """P classes of S images each, at random."""
    rng, data = np.random.default_rng(config.seed), config.data
    of_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    large = [images for images in of_class if len(images) >= data.samples_per_class]
    for _ in range(num_steps):
        classes = rng.choice(len(large), data.classes_per_batch, replace=False)
        yield [int(i) for c in classes for i in rng.choice(large[c], data.samples_per_class, replace=False)]


def plain_network(config: Config) -> nn.Module:
    """The network with torch's own layers: torchvision's ResNet-50 where the recipe has one, with the same weights."""
    own = start_network(config)
    if not config.network.backbone.startswith("resnet50"):
        return own
    from torchvision.models import resnet50

    backbone = resnet50()
    backbone.fc = nn.Identity()
    if config.network.backbone == "resnet50-he":  # He et al. halve the map in the first convolution of a block
        for layer in (backbone.layer2, backbone.layer3, backbone.layer4):
            layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)
    backbone.load_state_dict(own.backbone.state_dict(), strict=False)
    head = nn.Linear(2048, config.network.embedding_dim)
    head.load_state_dict(own.embedding.state_dict())
    return nn.Sequential(backbone, head)


def freeze_batch_norms(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


def train_plainly(
    config: Config, device: torch.device, workers: int, compiled: bool, detailed: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Train and measure by the loop that one would write; return the metrics and seconds by part.

    detailed: wait for the device between the parts, which slows the loop; without, only the whole is true.
    """
    started, clock = time.perf_counter(), Clock(device if detailed else torch.device("cpu"))
    benchmark, _ = read_data(config.data)
    train, test = benchmark.train, benchmark.test
    labels = np.asarray(train.labels)
    num_steps = config.num_epochs * max(1, len(labels) // config.data.batch_size)
    network = plain_network(config).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    run: Callable[[Tensor], Tensor] = torch.compile(network) if compiled else network  # type: ignore[assignment]
    loss_fn = MarginLoss(margin=0.2, beta=1.2, learn_beta=True, num_classes=int(labels.max()) + 1).to(device)
    miner, options = DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4), config.optimiser
    groups = [
        {"params": list(network.parameters()), "lr": options.learning_rate, "weight_decay": options.weight_decay},
        {"params": list(loss_fn.parameters()), "lr": options.loss_learning_rate},
    ]
    optimiser = torch.optim.Adam(groups, fused=True)
    half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    loading: dict[str, Any] = {
        "num_workers": workers,
        "pin_memory": device.type == "cuda",
        "persistent_workers": workers > 0,
    }

    def embed(images_BCHW: Tensor) -> Tensor:
        with half:
            rows_BD = run(images_BCHW.to(device, memory_format=torch.channels_last, non_blocking=True))
        return nn.functional.normalize(rows_BD.float(), dim=1)

    network.train()
    if config.network.frozen_batch_norm:
        freeze_batch_norms(network)
    files = Files(list(train.paths), labels, config, training=True)
    clock.mark("start")
    for images_BCHW, labels_B in DataLoader(
        files, batch_sampler=list(draw_batches(labels, config, num_steps)), **loading
    ):
        clock.mark("waiting for images")
        embeddings_BD = embed(images_BCHW)
        clock.mark("network")
        labels_B = labels_B.to(device)
        loss = loss_fn(embeddings_BD, labels_B, miner(embeddings_BD, labels_B))
        clock.mark("miner and loss")
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        clock.mark("network")
    network.eval()
    files = Files(list(test.paths), np.asarray(test.labels), config, training=False)
    with torch.inference_mode():
        pairs = [(embed(images), labels) for images, labels in DataLoader(files, batch_size=256, **loading)]
    embeddings_ND, labels_N = torch.cat([e for e, _ in pairs]), torch.cat([label for _, label in pairs])
    clock.mark("embedding the test split")
    calculator = AccuracyCalculator(tuple(METRICS.values()), k="max_bin_count", knn_func=CustomKNN(CosineSimilarity()))
    found = calculator.get_accuracy(embeddings_ND, labels_N.to(device))
    clock.mark("metrics")
    return {name: float(found[theirs]) for name, theirs in METRICS.items()}, {
        **clock.seconds,
        "all": time.perf_counter() - started,
    }


# -- pads ----------------------------------------------------------------------------------------------------------------


def train_by_pads(config: Config) -> tuple[dict[str, float], dict[str, float]]:
    """Train and measure by pads; return the metrics and seconds by part."""
    times: dict[str, float] = {}
    started = time.perf_counter()

    def watch(kind: str, step: int, values: Any) -> None:
        if kind in ("start", "step", "end"):
            times[kind] = time.perf_counter() - started

    with tempfile.TemporaryDirectory() as folder:
        run = pads.train(config, Path(folder) / "run", watch=watch)
        figures = (run.metrics or {})["test"]["last"]
    whole = time.perf_counter() - started
    parts = {
        "start and decoding": times["start"],
        "steps": times["step"] - times["start"],
        "metrics": whole - times["step"],
    }
    return {name: figures[name] for name in METRICS}, {**parts, "all": whole}


# -- both ----------------------------------------------------------------------------------------------------------------


def choose_config(options: argparse.Namespace) -> Config:
    config = RECIPES[options.recipe]()
    assert isinstance(config, Config)
    network = config.network
    if options.weights:
        network = replace(network, weights=options.weights, backbone=backbone_of(Path(options.weights)))
    data = replace(config.data, root=options.data, selection_share=0.0, reward_share=0.0)
    return replace(
        config,
        data=data,
        network=network,
        num_epochs=options.epochs,
        optimiser=replace(config.optimiser, milestones=()),
        adapt_every=None,
        checkpoint_every=10**6,
        test_curve_every=None,
        threads=options.threads,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="emoji-udist")
    parser.add_argument("--data")
    parser.add_argument("--weights")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=None, help="of torch, for both; all cores unless told otherwise")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="of the peer's loader")
    parser.add_argument("--compile", action="store_true", help="compile the peer's network")
    parser.add_argument("--detailed", action="store_true", help="run the peer once more and tell where its time goes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    config = choose_config(options)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(options.threads or os.cpu_count() or 1)
    peer = lambda detailed: train_plainly(config, device, options.workers, options.compile, detailed)
    found = {"pads": train_by_pads(config), "plain PyTorch": peer(False)}
    if options.detailed:
        found["plain PyTorch, parts"] = peer(True)
    print("| | seconds | R@1 | MAP@R | parts |\n|---|--:|--:|--:|---|")
    for name, (metrics, seconds) in found.items():
        parts = ", ".join(f"{part} {value:.1f}" for part, value in seconds.items() if part != "all")
        cells = [f"{seconds['all']:.1f}", *(f"{100 * metrics[metric]:.1f}" for metric in METRICS), parts]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    ratio = found["plain PyTorch"][1]["all"] / found["pads"][1]["all"]
    print(f"pads is {ratio:.2f} times as fast, from files to final metrics")
    if options.out:
        about = {"recipe": options.recipe, "epochs": options.epochs, "device": str(device), "torch": torch.__version__}
        rows = {name: {"metrics": metrics, "seconds": seconds} for name, (metrics, seconds) in found.items()}
        options.out.write_text(json.dumps({**about, "ratio": ratio, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
