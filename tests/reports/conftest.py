"""One tiny set of pictures, and runs on it: with PADS (two seeds), static under a boundary that rises, and one stopped."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pads
from pads.autoconfig import resolve_auto
from pads.config import Config, Part, with_settings
from pads.recipes import PACED, RECIPES
from pads.runs import RunFolder
from pads.runs.watch import nobody

EVIL = "<img src=x onerror=document.title='hacked'>"
"""A folder may be called that."""
NO_TEXT = os.fsdecode(b"caf\xe9")
"""Nor need it be text."""
TEST_CLASSES = (EVIL, "a & b $x_1$", NO_TEXT, "plain", "zebra")
SETTINGS = [
    "network.weights=none",
    "data.image_size=16",
    "data.resize=16",
    "data.store_size=16",
    "data.store_ratio=1",
    "data.classes_per_batch=3",
    "data.samples_per_class=2",
    "data.reward_share=0.15",
    "data.selection_share=0.1",
    "network.embedding_dim=8",
    "num_epochs=4",
    "adapt_every=2",
    "log_every=2",
    "optimiser.milestones=[2]",
    "threads=1",
    "device=cpu",
]


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """Eight classes to train on and five to test on, of six pictures each: a pattern with noise."""
    root, noise = tmp_path_factory.mktemp("data") / "photos", np.random.default_rng(0)
    names = [f"train/class-{label}" for label in range(8)] + [f"test/{name}" for name in TEST_CLASSES]
    for name in names:
        (root / name).mkdir(parents=True)
        pattern = np.kron(noise.integers(0, 256, (4, 4, 3)), np.ones((4, 4, 1)))
        for number in range(6):
            pixels = np.clip(pattern + noise.normal(0, 90, pattern.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


@pytest.fixture(scope="session")
def config(photos) -> Config:
    config = with_settings(RECIPES["folder-pads"](), ["recipe=folder", f"data.root={photos}", *SETTINGS])
    return resolve_auto(config, torch.device("cpu"), nobody)


@pytest.fixture(scope="session")
def runs(config, tmp_path_factory) -> dict[str, RunFolder]:
    where = tmp_path_factory.mktemp("runs")
    default = replace(config, curriculum=Part("distance-weighted"), loss=PACED)
    static = replace(default, recipe="static", test_curve_every=1)
    return {
        "pads": pads.train(config, where / "pads"),
        "pads-1": pads.train(replace(config, seed=1), where / "pads-1"),
        "static": pads.train(static, where / "static"),
    }


@pytest.fixture
def run(runs, tmp_path) -> RunFolder:
    """A finished run, to be spoilt."""
    return RunFolder.open(shutil.copytree(runs["pads"].path, tmp_path / "run"))


@pytest.fixture
def stopped(run) -> RunFolder:
    """The same, in the middle of a line of its events."""
    (run.path / "metrics.json").unlink()
    events = (run.path / "events.jsonl").read_bytes().splitlines(keepends=True)
    (run.path / "events.jsonl").write_bytes(b"".join(events[:5]) + events[5][:20])
    return run
