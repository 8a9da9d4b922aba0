"""How long the work of a run takes here: measured on noise, so that `--minutes` becomes a number of epochs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pads.build import start_network
from pads.config import Config
from pads.data.preprocessing import Preprocessing
from pads.data.store import compute_stored_shape
from pads.runtime.precision import float32_rounding, use_threads
from pads.runtime.team import num_processes

MEASURED = 16
"""Images that are trained on and embedded to measure it: a quarter of a usual batch on a CPU, to lose little time."""
LEAST_SECONDS = 1.0
"""That a measurement takes: it is repeated until then."""


@dataclass(frozen=True)
class Speed:
    """Seconds of the parts of a run."""

    step: float
    """To train the whole network on one batch."""
    embed: float
    """To embed one image."""


def measure_speed(config: Config, device: torch.device) -> Speed:
    """Train on noise of the right shape for a moment, and embed some."""
    with use_threads(config.threads), float32_rounding(config.precision):
        network = start_network(config).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimiser = torch.optim.Adam(network.parameters(), 1e-9)
        preprocessing = Preprocessing.of(config.data, config.network)
        generator = torch.Generator(device).manual_seed(0)
        shape = compute_stored_shape(config.data.store_size, config.data.store_ratio)
        own = max(2, config.data.batch_size // num_processes())
        size = own if device.type == "cuda" else min(own, MEASURED)
        pixels_BCHW = torch.randint(256, (size, *shape), dtype=torch.uint8, device=device, generator=generator)
        sizes_B2 = torch.tensor([shape[:0:-1]] * size, device=device)

        def train() -> None:
            images_BCHW = preprocessing.for_training(pixels_BCHW, sizes_B2, generator)
            optimiser.zero_grad(set_to_none=True)
            network(images_BCHW)[:, 0].sum().backward()
            optimiser.step()

        def look() -> None:
            with torch.no_grad():
                network(preprocessing.for_evaluation(pixels_BCHW[:MEASURED], sizes_B2[:MEASURED]))

        step = measure_seconds(network.train() and train, device) * own / size
        embed = measure_seconds(network.eval() and look, device) / min(MEASURED, size)
    return Speed(step, embed)


def measure_seconds(function: Callable[[], None], device: torch.device) -> float:
    """Return the least seconds of a call, after one that warms up: what else runs here can only make it slower."""

    def call() -> float:
        started = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    call()
    seconds = [call()]
    while sum(seconds) < LEAST_SECONDS:
        seconds.append(call())
    return min(seconds)
