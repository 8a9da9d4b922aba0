"""RESULTS.md is what tools/results.py makes of the evidence."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool(load_tool):
    return load_tool("results")


def test_the_page_is_made_from_the_evidence(tool):
    assert (ROOT / "RESULTS.md").read_text() == tool.page()


def rows(**given):
    values = {
        f"selected_{metric}": "0.5" for metric in ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "nmi")
    }
    return [{"recipe": recipe, "seed": "0", "seconds": "", **values, **given} for recipe in ("ours", "theirs")]


def test_a_column_that_nobody_filled_is_left_out(tool):
    claim = {"baseline": "theirs"}
    head, *_ = tool.table(rows(), ["ours", "theirs"], "selected", claim)
    assert not any(word in head for word in ("seconds", "paper", "interval"))
    head, _, ours, theirs = tool.table(
        rows(seconds="7"), ["ours", "theirs"], "selected", {**claim, "paper": {"ours": 63.5}}
    )
    assert head.startswith("| recipe | n | R@1 | difference to baseline | R@2 |")
    assert head.endswith("| NMI | paper R@1 | seconds |")
    assert ours.startswith("| `ours` | 1 | 50.0 | +0.00 | 50.0 |")
    assert ours.endswith("| 63.5 | 7 |")
    assert theirs.endswith("|  | 7 |")
