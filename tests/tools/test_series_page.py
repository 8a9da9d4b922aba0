"""docs/benchmarks.md shows what the evidence of its series and of the larger images says, and no other numbers."""

import json
from pathlib import Path

import pytest

from pads.studies.seeds import read_rows

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text()
NAMES = ["cars196", "cub200-256-pixels", "cub200-300-epochs"]


@pytest.fixture(scope="module")
def tool(load_tool):
    return load_tool("series_page")


def test_the_page_has_every_table_of_the_evidence(tool):
    missing = [table for table in map("\n".join, tool.tables()) if table not in PAGE]
    assert not missing


def test_every_series_has_a_picture_on_the_page(tool):
    assert list(tool.SERIES) == NAMES
    for name in NAMES:
        assert f"(pictures/{name}.png)" in PAGE


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_is_drawn(tool, tmp_path, name):
    tool.draw(tool.SERIES[name], tmp_path / "series.png")
    assert (tmp_path / "series.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", NAMES)
def test_an_epoch_has_the_steps_that_the_curves_say(tool, name):
    series = tool.SERIES[name]
    for row in read_rows(tool.RESULTS / series.folder / "selection_curves.csv"):
        assert int(row["step"]) == series.steps_per_epoch * int(row["epoch"])


@pytest.mark.parametrize("name", NAMES)
def test_rows_and_curves_stand_by_arm_and_then_by_seed(tool, name):
    series = tool.SERIES[name]
    runs = [(row["recipe"], row["seed"]) for row in read_rows(tool.RESULTS / series.folder / "seeds.csv")]
    assert runs == [(arm, str(seed)) for arm in (series.udist, series.pads) for seed in range(len(runs) // 2)]
    for path in (tool.RESULTS / series.folder).glob("*.csv"):
        found = list(dict.fromkeys((row["recipe"], row["seed"]) for row in read_rows(path)))
        assert found == [run for run in runs if run in found]


@pytest.mark.parametrize("name", NAMES[:2])  # one seed has no interval
def test_a_claim_has_the_differences_of_the_table(tool, name):
    series = tool.SERIES[name]
    claim = json.loads((tool.RESULTS / series.folder / "claim.json").read_text())["claim"]
    differences = [line.replace("\u00a0", " ").split(" | ")[3].removesuffix(" |") for line in tool.table(series)[2:6]]
    assert all(difference in claim for difference in differences)  # at the selected and at the last epoch


@pytest.mark.parametrize("arm", ["udist", "four-per-class", "larger-images-cut"])
def test_the_page_has_the_curves_of_the_larger_images_and_of_what_they_are_compared_with(arm):
    test, selection = (
        {int(row["epoch"]): 100 * float(row[metric]) for row in rows if row["recipe"] == arm}
        for metric, name in (("recall@1", "test_curves.csv"), ("map@r", "selection_curves.csv"))
        for rows in [read_rows(ROOT / "results" / "cub200-factors" / name)]
    )
    best = max((epoch for epoch in selection if epoch <= 70), key=selection.__getitem__)
    recalls = " | ".join(f"{test[epoch]:.1f}" for epoch in (20, 40, 60))
    assert f"| `{arm}` | {recalls} | {selection[best]:.1f} ({best}) |" in PAGE


def test_a_run_that_was_cut_has_curves_and_no_final_figures():
    folder = ROOT / "results" / "cub200-factors"
    assert not any("larger-images" in row["recipe"] for row in read_rows(folder / "seeds.csv"))
    epochs = [int(row["epoch"]) for row in read_rows(folder / "selection_curves.csv") if row["recipe"].endswith("-cut")]
    assert max(epochs) == 70


def test_what_was_picked_on_the_test_split_is_marked_so(tool):
    """The claim, both tables and RESULTS.md say it, since nothing of all images was held back."""
    folder, arm = tool.ALL_IMAGES
    assert json.loads((tool.RESULTS / folder / f"{arm}.json").read_text())["data"]["paper_protocol"]
    assert "test-selected" in json.loads((tool.RESULTS / folder / "claim.json").read_text())["claim"]
    assert [line.split(" | ")[0].endswith("(test-selected)") for line in tool.all_images_table()[2:]] == [
        True,
        True,
        False,
    ]
    rows = [line for line in (ROOT / "RESULTS.md").read_text().splitlines() if line.startswith(f"| `{arm}`")]
    assert ["(test-selected)" in row for row in rows] == [True, False, False]
