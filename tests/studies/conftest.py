"""Pictures and settings with which a run takes a fraction of a second."""

import sys
from pathlib import Path

import pytest

QUICK = (
    "network.weights=none",
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
def photos(noisy_photos) -> Path:
    """14 classes of 6 noisy pictures: enough for four roles."""
    return noisy_photos(14, sizes=[(20, 24)])


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


@pytest.fixture
def study_command(quick):
    """The command line of `pads study controls` with the arms udist and pads, and what else the test is about."""

    def make(*more):
        options = {
            "--recipe-base": "folder",
            "--data": quick["data"],
            "--out": quick["out"],
            "--commit": quick["commit"],
        }
        words = [word for option in options.items() for word in option]
        words += [word for setting in quick["settings"] for word in ("--set", setting)]
        command = [sys.executable, "-m", "pads", "study", "controls", "--arms", "udist", "pads", "--seeds", "0"]
        return [str(word) for word in (*command, *words, *more)]

    return make
