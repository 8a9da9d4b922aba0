"""A small trained run and pictures to embed."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pads
from pads.config import with_settings
from pads.recipes import RECIPES

SETTINGS = [
    "network.weights=none",
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=20",
    "data.classes_per_batch=3",
    "data.samples_per_class=3",
    "data.selection_share=0.3",
    "network.embedding_dim=8",
    "num_epochs=1",
    "device=cpu",
    "threads=1",
]


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """Twelve classes of four pictures, one of them wide."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for label in range(12):
        (root / f"class{label}").mkdir()
        for index in range(4):
            patches = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            image = Image.fromarray(patches).resize(((40, 40), (70, 30))[index % 2], Image.Resampling.BICUBIC)
            image.save(root / f"class{label}" / f"{index}.png")
    return root


@pytest.fixture(scope="session")
def run(photos, tmp_path_factory):
    config = with_settings(RECIPES["folder"](), [f"data.root={photos}", *SETTINGS])
    return pads.train(config, tmp_path_factory.mktemp("runs") / "run")
