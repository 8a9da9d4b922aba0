"""Pictures and settings with which a run takes a fraction of a second."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

QUICK = (
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=18",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.reward_share=0.2",
    "data.selection_share=0.2",
    "data.augmentation=none",
    "network.embedding_dim=8",
    "log_every=2",
    "threads=1",
    "recall_at=[1, 2]",
)


@pytest.fixture(scope="session")
def quick_settings() -> tuple[str, ...]:
    return QUICK


@pytest.fixture(scope="session")
def photos(tmp_path_factory) -> Path:
    """14 classes of 6 noisy pictures: enough for four roles."""
    root, noise = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for label in range(14):
        (root / f"class-{label:02d}").mkdir()
        colour = noise.integers(0, 255, (1, 1, 3))
        for number in range(6):
            pixels = np.clip(colour + noise.normal(0, 60, (20, 24, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class-{label:02d}" / f"{number}.png")
    return root


@pytest.fixture
def quick(photos, tmp_path):
    """What makes `run_study` quick: a call of it needs only the study and what the test is about."""
    return {
        "base": "folder",
        "data": str(photos),
        "out": tmp_path / "study",
        "seeds": (0, 1),
        "epochs": 2,
        "settings": [*QUICK, "adapt_every=3", "test_curve_every=1"],
        "commit": "abc1234",
    }
