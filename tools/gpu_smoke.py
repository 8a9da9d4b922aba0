"""Trains every arm of a screen for a dozen steps on made-up photos, as the screen would: OK or a traceback for each arm.

    python tools/gpu_smoke.py ARMS.json

On a GPU with the network, the batch and the precision of the screen, compiled and captured, so that what torch compiles is
kept on the disk for the screen that follows. With --small, a small network on tiny images: for a CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from gpu_screen import FIXED, allow_recompiling, run_arms
from PIL import Image

from pads.recipes import RECIPES

ON_GPU = ["network.backbone=resnet50-he"]
SMALL = [
    "network.backbone=small",
    "network.embedding_dim=32",
    "data.image_size=32",
    "data.resize=36",
    "data.store_size=40",
    "precision=float32",
    "compiled=false",
    "threads=1",
]
COMMON = [
    "data.name=folder",
    "data.options.hold_out=classes",
    "data.reward_share=0",
    "num_epochs=6",
    "select_every=6",
    "log_every=1",
]


def make_photos(root: Path, num_classes: int, num_photos: int, size: tuple[int, int]) -> None:
    """Write noisy photos in the colour of their class."""
    noise = np.random.default_rng(0)
    for label in range(num_classes):
        folder = root / f"class-{label:03d}"
        folder.mkdir(parents=True)
        colour = noise.integers(0, 255, (1, 1, 3))
        for number in range(num_photos):
            pixels = np.clip(colour + noise.normal(0, 40, (*size, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.jpg")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arms", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="*", help="names of arms")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args(arguments)
    arms = json.loads(options.arms.read_text())
    if options.only:
        arms = [arm for arm in arms if arm["name"] in options.only]
    allow_recompiling()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
        photos = Path(folder) / "photos"
        make_photos(photos, 100, 4, (40, 48) if options.small else (240, 320))
        recipe = RECIPES["cub200-margin-udist"]()
        base = replace(recipe, recipe="cub200-margin-udist", data=replace(recipe.data, root=str(photos)))
        common = [*FIXED, *COMMON, *(SMALL if options.small else ON_GPU), *options.set]
        num_failed = run_arms(arms, base, common, Path(folder) / "smoke.jsonl")
    print(f"{len(arms) - num_failed} of {len(arms)} arms OK in {time.perf_counter() - started:.0f} s", flush=True)
    return num_failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
