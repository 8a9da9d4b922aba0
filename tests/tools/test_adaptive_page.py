"""docs/adaptive.md and docs/benchmarks.md show what tools/adaptive_page.py makes of the evidence, and no other numbers."""

from pathlib import Path

import pytest

from pads.studies import STUDIES
from pads.studies.seeds import read_rows

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool(load_tool):
    return load_tool("adaptive_page")


@pytest.mark.parametrize(
    ("table", "page"),
    [
        ("emoji_table", "adaptive"),
        ("udist_table", "adaptive"),
        ("sixty_table", "adaptive"),
        ("pace_table", "adaptive"),
        ("cub_arms_table", "adaptive"),
        ("cars_arms_table", "adaptive"),
        ("development_table", "adaptive"),
        ("groceries_table", "adaptive"),
        ("pretrained_table", "adaptive"),
        ("cub_table", "adaptive"),
        ("factors_table", "benchmarks"),
    ],
)
def test_the_pages_have_the_tables_of_the_evidence(tool, table, page):
    assert "\n".join(getattr(tool, table)()) in (ROOT / "docs" / f"{page}.md").read_text()


def test_every_arm_that_was_run_is_shown(tool):
    shown = {arm for arms in tool.WAYS.values() for arm in arms}
    assert shown == {row["recipe"] for row in read_rows(tool.RESULTS / tool.EMOJI / "seeds.csv")}
    assert set(tool.LOOKS) == {row["recipe"] for row in read_rows(tool.RESULTS / tool.SIXTY / "seeds.csv")}
    assert set(tool.CUB) == {row["recipe"] for row in read_rows(tool.RESULTS / tool.SCREEN / "seeds.csv")}
    assert shown <= {arm.name for arm in STUDIES["adaptive"].arms}
    for arms, folder in ((tool.CUB_ARMS, tool.CUB_RUN), (tool.CARS_ARMS, tool.CARS_RUN)):
        run_there = {row["recipe"] for row in read_rows(tool.RESULTS / folder / "seeds.csv")}
        assert run_there == {arm for arm in arms if arms[arm] == folder}
    tried = {row["recipe"] for row in read_rows(tool.RESULTS / tool.DEVELOPMENT / "test_curves.csv")}
    assert tried == set(tool.TRIED_LAST)


def test_arms_on_a_benchmark_are_compared_over_the_seeds_that_both_have(tool):
    assert all(tool.shared_seeds(tool.CUB_ARMS, arm) == [0, 1, 2] for arm in tool.CUB_ARMS)
    counts = {arm: len(tool.shared_seeds(tool.CARS_ARMS, arm)) for arm in tool.CARS_ARMS}
    assert counts == dict.fromkeys(tool.CARS_ARMS, 3) | dict.fromkeys(("fixed-bins", "random-actions"), 2)
    assert all(len(tool.arm_curves(tool.CARS_ARMS, arm, 120)) == count for arm, count in counts.items())


def test_the_pictures_are_drawn(tool, tmp_path):
    for draw in (
        tool.draw_collapse,
        tool.draw_emoji,
        tool.draw_cub,
        tool.draw_sixty,
        tool.draw_cub_arms,
        tool.draw_cars_arms,
    ):
        path = tmp_path / f"{draw.__name__}.png"
        draw(path)
        assert path.stat().st_size > 10_000


def test_a_mean_is_of_the_curves_at_each_step(tool):
    assert tool.mean_curve([{1: 2.0, 2: 4.0}, {1: 4.0, 2: 0.0}]) == {1: 3.0, 2: 2.0}
