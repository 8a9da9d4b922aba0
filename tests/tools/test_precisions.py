"""tools/precisions.py: trained runs, measured in three precisions."""

from pathlib import Path
from statistics import fmean, stdev

import pytest

from pads.config import with_settings
from pads.recipes import RECIPES
from pads.studies.seeds import read_rows
from pads.train import train

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

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
    own = ["recipe=folder", f"data.root={noisy_photos(14)}"]
    return train(with_settings(RECIPES["folder"](), [*own, *SMALL]), tmp_path_factory.mktemp("runs") / "run")


def test_the_figures_of_a_run_in_its_own_precision_are_its_own(run, load_tool):
    tool = load_tool("precisions")
    found = list(tool.measure_runs([run.path, run.path]))
    assert [precision for _, precision, _ in found] == ["float32", "float32", "tf32", "tf32", "bfloat16", "bfloat16"]
    own = run.metrics["test"]["trained"]
    for path, precision, figures in found:
        assert path == run.path
        assert figures["map@r"] == pytest.approx(own["map@r"], abs=0.1 if precision == "bfloat16" else 0)
    assert found[0][2] == {name: own[name] for name in tool.METRICS}


def test_the_spread_is_that_of_the_paired_differences(load_tool):
    tool = load_tool("precisions")
    exact = [dict.fromkeys(tool.METRICS, value) for value in (0.5, 0.7)]
    rounded = [dict.fromkeys(tool.METRICS, value) for value in (0.502, 0.696)]
    assert tool.spread(rounded, exact).startswith("recall@1 -0.10 ± 0.42 (at most 0.40), recall@2")


def test_the_page_of_speed_has_the_precisions_that_were_measured():
    page, num_images = (BENCHMARKS / "README.md").read_text(), 5924
    by_run: dict[str, list[dict[str, str]]] = {}
    for row in read_rows(BENCHMARKS / "h200-precisions.csv"):
        by_run.setdefault(row["run"], []).append(row)
    differences = []
    for run, rows in by_run.items():
        assert [row["precision"] for row in rows] == ["float32", "tf32", "bfloat16"]
        recalls = [row["recall@1"] for row in rows]
        assert f"| `{run}` | {rows[0]['image_size']} | {' | '.join(recalls)} |" in page
        float32, _, bfloat16 = (
            round(float(recall) * num_images / 100) for recall in recalls
        )  # two digits name a count
        differences.append(100 * (bfloat16 - float32) / num_images)
    assert f"bfloat16 less float32: {fmean(differences):+.2f} ± {stdev(differences):.2f} points" in page
    assert f"18 images, {max(map(abs, differences)):.3f} points" in page
