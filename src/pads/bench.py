"""`pads bench`: how fast this machine trains, every figure as a ratio within one run.

The ceiling is the network and the optimiser alone, on images that are already there. Everything that pads adds (reading,
cropping, drawing, the loss, what is logged, the policy) is measured against it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pads.autoconfig import resolve_auto
from pads.build import build_draw, build_optimiser, pick_device, set_learning_rates, start_network
from pads.check import check
from pads.config import AutoConfig, Config, Part, Sampling, drop_auto
from pads.curricula import is_adaptive, make_curriculum
from pads.data.benchmark import ImageList
from pads.data.loading import load_views
from pads.data.preprocessing import Preprocessing
from pads.data.roles import View, Views, even_batches
from pads.data.store import ImageStore, compute_stored_shape
from pads.errors import UserError
from pads.evaluate import evaluate
from pads.recipes import with_pads
from pads.runs import RunFolder
from pads.runs.events import read_records
from pads.runs.watch import nobody
from pads.runtime.files import write_atomically
from pads.runtime.graphs import WARM_UP_STEPS, CapturedStep
from pads.runtime.precision import float32_rounding
from pads.train import fit_stages

SKIPPED_WINDOWS = 2
"""The first records of a run hold the compilation and the capture."""


def bench(recipe: Config | AutoConfig, *, num_steps: int = 600, images: int = 5864) -> dict[str, Any]:
    """Measure the network, batch and precision of a recipe, on its data or on noise: the figures of `pads bench`."""
    if num_steps < 1:
        raise UserError(f"--steps is {num_steps}: give at least 1, better some hundreds.")
    check(recipe)
    device = pick_device(drop_auto(recipe).device)
    config = resolve_auto(recipe, device, nobody)
    if is_adaptive(config):
        config = replace(config, curriculum=Part("distance-weighted"), sampling=Sampling())
    views = (
        load_views(config, device, nobody)
        if config.data.root or config.data.name == "emoji"
        else noise(config, device, images)
    )
    epochs = max(1, round(num_steps / max(1, len(views.train) // config.data.batch_size)))
    window = min(config.adapt_every or 30, max(1, num_steps // 6))
    config = replace(
        config,
        num_epochs=epochs,
        log_every=window,  # every record holds exactly one adjustment
        adapt_every=window,
        select_every=10**6,
        test_curve_every=None,
        checkpoint_every=10**6,
    )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    ceiling = synthetic_rate(config, device)
    static = end_to_end_rate(config, views)
    adaptive = end_to_end_rate(with_pads(config), views)
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "network": config.network.backbone,
        "image_size": config.data.image_size,
        "batch": config.data.batch_size,
        "precision": config.precision,
        "compiled": config.compiled,
        "images_per_second": {"synthetic ceiling": ceiling, "static sampling": static, "PADS": adaptive},
        "ratios": {"static / ceiling": static / ceiling, "PADS / static": adaptive / static},
        "milliseconds": {
            "drawing a batch of triplets": drawing_time(config, device) * 1e3,
            "validation of the reward split": validation_time(config, views) * 1e3,
        },
        "validation_images": len(views.reward),
    }
    if device.type == "cuda":
        figures["gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
    return figures


def synthetic_rate(config: Config, device: torch.device, num_steps: int = 60) -> float:
    """Images per second of forward, backward and Adam on one fixed batch: nothing can be faster with this network."""
    network = start_network(config).to(device).train()
    if config.compiled and device.type == "cuda":
        network.compile(dynamic=False)
    optimiser = build_optimiser(config.optimiser, network, torch.nn.Module())
    set_learning_rates(optimiser, config.optimiser, 0)
    size = config.data.image_size
    images = torch.randn(config.data.batch_size, 3, size, size, device=device).to(memory_format=torch.channels_last)
    target = torch.randn(config.data.batch_size, config.network.embedding_dim, device=device)

    def step(_: Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        (network(images) * target).sum().backward()
        optimiser.step()

    with float32_rounding(config.precision):
        captured = config.compiled and device.type == "cuda"
        update = CapturedStep(step, torch.Generator(device)) if captured else step
        return config.data.batch_size / seconds_per_call(lambda: update(target), device, num_steps, WARM_UP_STEPS + 3)


def end_to_end_rate(config: Config, views: Views) -> float:
    """Images per second of a real training, from its own timing file; the median of its records after the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", config)
        with run:
            fit_stages(config, run, views, nobody)
        records = list(read_records(run.path / "timing.jsonl"))
    rates = [record["images_per_second"] for record in records if "images_per_second" in record]
    return statistics.median(rates[SKIPPED_WINDOWS:] or rates)


def drawing_time(config: Config, device: torch.device) -> float:
    """Seconds to draw a batch of triplets by the bins, distances included."""
    generator = torch.Generator(device).manual_seed(0)
    embeddings = torch.nn.functional.normalize(
        torch.randn(config.data.batch_size, config.network.embedding_dim, device=device, generator=generator), dim=1
    )
    labels = torch.arange(config.data.classes_per_batch, device=device).repeat_interleave(config.data.samples_per_class)
    rule, draw = make_curriculum(with_pads(config)).rule, build_draw(with_pads(config))

    def draw_once(_: Tensor) -> None:
        draw(embeddings, labels, rule, generator=generator)

    update = CapturedStep(draw_once, generator) if device.type == "cuda" else draw_once
    return seconds_per_call(lambda: update(labels), device, 200, WARM_UP_STEPS + 3)


def validation_time(config: Config, views: Views) -> float:
    """Seconds to embed the reward split and compute the metrics of the training state."""
    network = start_network(config).to(views.device)
    if config.compiled and views.device.type == "cuda":
        network.compile(dynamic=False)
    metrics = make_curriculum(with_pads(config)).metrics
    with float32_rounding(config.precision):
        return seconds_per_call(lambda: evaluate(network, views.reward, metrics), views.device, 10, 3)


def seconds_per_call(call: Callable[[], Any], device: torch.device, num_calls: int, num_warm_up: int) -> float:
    for _ in range(num_warm_up):
        call()
    wait(device)
    started = time.perf_counter()
    for _ in range(num_calls):
        call()
    wait(device)
    return (time.perf_counter() - started) / num_calls


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def noise(config: Config, device: torch.device, num_images: int) -> Views:
    """Made-up images in the shape of CUB200-2011, for a machine that has no data."""
    generator = torch.Generator(device).manual_seed(0)
    shape = (num_images, *compute_stored_shape(config.data.store_size, config.data.store_ratio))
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
    num_classes = max(2, min(100, num_images // 28))
    labels = torch.arange(num_images) % num_classes
    images = ImageList(
        tuple(Path(str(number)) for number in range(num_images)), labels.numpy(), tuple(map(str, range(num_classes)))
    )
    sizes = torch.tensor([[500, 375]], device=device).repeat(num_images, 1)
    store = ImageStore(pixels, sizes, labels.to(device), images, np.arange(num_images))
    preprocessing = Preprocessing.of(config.data, config.network, config.compiled)
    order = np.arange(num_images)
    reward = order % 7 == 0  # about 15 %
    train = View(store, order[~reward], preprocessing)
    held_out = View(store, order[reward], preprocessing, batch_size=even_batches(int(reward.sum())))
    return Views(train, held_out, View(store, order[:0], preprocessing), held_out, ())


def rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """What a person reads."""
    table = [(name, f"{rate:,.0f} images/s") for name, rate in figures["images_per_second"].items()]
    table += [(name, f"{ratio:.3f}") for name, ratio in figures["ratios"].items()]
    table += [(name, f"{time_:.2f} ms") for name, time_ in figures["milliseconds"].items()]
    if "gigabytes" in figures:
        table.append(("peak memory", f"{figures['gigabytes']:.1f} GB"))
    return table


def write(figures: dict[str, Any], path: Path) -> None:
    write_atomically(path, json.dumps(figures, indent=2) + "\n")
