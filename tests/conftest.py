"""One thread: with busy cores, two OpenMP threads can be slower than one by orders of magnitude."""

import numpy as np
import pytest
import torch
from PIL import Image

from pads.config import Config, Part
from pads.curricula import build_curriculum
from pads.runs import RunFolder
from pads.runs.checkpoint import load_state, save_state

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def batch(generator):
    """Embeddings of 8 classes x 4 samples on the unit sphere, with distances from near to far, and their labels."""
    centres = torch.randn(8, 1, 16, generator=generator)
    embeddings = centres + 0.7 * torch.randn(8, 4, 16, generator=generator)
    labels = torch.arange(8).repeat_interleave(4)
    return torch.nn.functional.normalize(embeddings.flatten(0, 1), dim=1), labels


@pytest.fixture
def round_trip(tmp_path):
    """A state as a resumed run finds it: through the file of a checkpoint and back."""

    def through_a_file(state):
        save_state(tmp_path / "state.safetensors", state)
        return load_state(tmp_path / "state.safetensors")

    return through_a_file


@pytest.fixture(scope="session")
def made_up_metrics():
    """What a curriculum asks to be told of the reward split, made up."""

    def make(curriculum, generator):
        return {name: torch.rand((), generator=generator).item() for name in curriculum.metrics}

    return make


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, made_up_metrics):
    """Makes the folder of a run whose curriculum advanced after these steps; nothing was trained."""

    def make(name, steps, num_steps, curriculum="learned", seed=0, **options):
        config = Config(curriculum=Part(curriculum, options))
        run = RunFolder.create(tmp_path_factory.mktemp("runs") / name, config)
        made = build_curriculum(config.curriculum, dim=16, recall_at=(1, 2, 4, 8), seed=seed)
        generator = torch.Generator().manual_seed(seed)
        with run:
            run.append("events.jsonl", {"event": "training", "step": 1, "loss": 0.5})
            for step in steps:
                log = made.advance(made_up_metrics(made, generator), step / num_steps)
                run.append("events.jsonl", {"event": "adaptation", "step": step, **log})
        run.write_json("metrics.json", {"steps": num_steps})
        return run

    return make


@pytest.fixture(scope="session")
def noisy_photos(tmp_path_factory):
    """Makes a folder of classes, each a colour under much noise, in these sizes by turns; the same for the same arguments."""

    def make(num_classes, images_per_class=6, sizes=((20, 20),)):
        root, noise = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
        for label in range(num_classes):
            (root / f"class-{label:02d}").mkdir()
            colour = noise.integers(0, 255, (1, 1, 3))
            for number in range(images_per_class):
                pixels = np.clip(colour + noise.normal(0, 60, (*sizes[number % len(sizes)], 3)), 0, 255).astype(
                    np.uint8
                )
                Image.fromarray(pixels).save(root / f"class-{label:02d}" / f"{number}.png")
        return root

    return make
