"""A small trained run, a folder of its kind of pictures, and an index of them."""

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
    "data.classes_per_batch=4",
    "data.samples_per_class=3",
    "data.selection_share=0.3",
    "network.embedding_dim=8",
    "num_epochs=2",
    "device=cpu",
    "threads=1",
]


def draw_classes(root: Path, num_classes: int, num_images: int, seed: int) -> Path:
    """Pictures with a colour and stripes for each class, in several proportions."""
    rng = np.random.default_rng(seed)
    for label in range(num_classes):
        (root / f"class{label}").mkdir(parents=True)
        colour = rng.integers(0, 256, 3)
        for index in range(num_images):
            height, width = ((24, 24), (30, 20), (20, 33))[index % 3]
            pixels = np.clip(colour + rng.normal(0, 50, (height, width, 3)), 0, 255).astype(np.uint8)
            pixels[:: label + 2] //= 2
            Image.fromarray(pixels).save(root / f"class{label}" / f"{index}.png")
    return root


@pytest.fixture(scope="session")
def training_photos(tmp_path_factory) -> Path:
    return draw_classes(tmp_path_factory.mktemp("training"), 14, 6, seed=0)


@pytest.fixture(scope="session")
def run(training_photos, tmp_path_factory):
    config = with_settings(RECIPES["folder"](), [f"data.root={training_photos}", *SETTINGS])
    return pads.train(config, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """Another folder, which the run has never seen; tests copy it before they change it."""
    return draw_classes(tmp_path_factory.mktemp("photos"), 5, 7, seed=1)


@pytest.fixture(scope="session")
def index(run, photos, tmp_path_factory):
    return pads.build_index(run, photos, tmp_path_factory.mktemp("indexes") / "index")
