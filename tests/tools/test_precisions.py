"""tools/precisions.py: one run, measured in three precisions."""

from dataclasses import replace

import pytest

from pads.config import with_settings
from pads.recipes import RECIPES
from pads.train import train

SMALL = [
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=20",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.reward_share=0",
    "curriculum.name=distance-weighted",
    "network.backbone=small",
    "num_epochs=2",
    "threads=1",
    "precision=float32",
]


@pytest.fixture(scope="module")
def run(noisy_photos, tmp_path_factory):
    recipe = RECIPES["folder"]()
    config = replace(recipe, recipe="folder", data=replace(recipe.data, root=str(noisy_photos(14))))
    return train(with_settings(config, SMALL), tmp_path_factory.mktemp("runs") / "run")


def test_the_figures_of_a_run_in_its_own_precision_are_its_own(run, load_tool):
    tool = load_tool("precisions")
    figures = tool.measured(run.path)
    assert list(figures) == ["float32", "tf32", "bfloat16"]
    own = run.metrics["test"]["trained"]
    assert figures["float32"] == {name: own[name] for name in tool.METRICS}
    assert figures["bfloat16"]["map@r"] == pytest.approx(own["map@r"], abs=0.1)
