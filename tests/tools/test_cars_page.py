"""docs/benchmarks.md shows what the evidence of CARS196 and of the larger images says, and no other numbers."""

from pathlib import Path

import pytest

from pads.studies.seeds import read_rows

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text()


@pytest.fixture
def tool(load_tool):
    return load_tool("cars_page")


def test_the_page_has_the_table_of_the_evidence(tool):
    assert "\n".join(tool.table()) in PAGE


def test_the_picture_is_drawn(tool, tmp_path):
    tool.draw(tmp_path / "cars.png")
    assert (tmp_path / "cars.png").stat().st_size > 10_000


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
