"""How well the selection split picks: an epoch, in points of test R@1 lost to the best; and one of two arms.

    python tools/picks.py results/cub200-adaptive-screen results/cub200-factors

Of each run the epochs count that both curves have. Two arms of a folder are compared at their selected epochs, by what the
selection split had there. Runs that selected on the test split (paper_protocol) are left out.
The test split is read here to judge the rule, not to choose a result.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean

from pads.studies.seeds import read_rows, selects_on_test

METRICS = ("recall@1", "map@r")

Run = tuple[str, str, int]
"""Folder, recipe, seed."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, help="folders with selection_curves.csv and test_curves.csv")
    folders = parser.parse_args(arguments).results
    losses = losses_of(folders)
    print("| recipe | seed | lost by R@1 | lost by MAP@R |\n|---|--:|--:|--:|")
    for (_, recipe, seed), lost in losses.items():
        print(f"| {recipe} | {seed} | {lost['recall@1']:.2f} | {lost['map@r']:.2f} |")
    kept = sorted(losses.values(), key=lambda lost: max(lost.values()))
    for words, some in ((f"mean of {len(kept)}", kept), ("without the run that lost most", kept[:-1])):
        by_recall, by_map = (fmean(lost[metric] for lost in some) for metric in METRICS)
        print(f"| {words} | | {by_recall:.2f} | {by_map:.2f} |")
    for folder in folders:
        for metric in METRICS:
            agreed, pairs = agreement(folder, metric)
            print(f"{folder.name}: of {pairs} pairs of arms, selection {metric} and test R@1 agree on {agreed}")


def losses_of(folders: Sequence[Path]) -> dict[Run, dict[str, float]]:
    """By run and metric of the selection split: points of R@1 below the best of the epochs that both curves have."""
    selection = {metric: curves(folders, "selection_curves.csv", metric) for metric in METRICS}
    found = {}
    for run, test in curves(folders, "test_curves.csv", "recall@1").items():
        found[run] = {metric: 100 * measure_lost(selection[metric][run], test) for metric in METRICS}
    return found


def curves(folders: Sequence[Path], name: str, metric: str) -> dict[Run, dict[int, float]]:
    made: dict[Run, dict[int, float]] = {}
    for folder in folders:
        for row in read_rows(folder / name):
            if not selects_on_test(folder, row["recipe"]):
                run = made.setdefault((folder.name, row["recipe"], int(row["seed"])), {})
                run[int(row["epoch"])] = float(row[metric])
    return made


def measure_lost(selection: Mapping[int, float], test: Mapping[int, float]) -> float:
    """Measure what the first epoch with the best selection figure has less than the best test epoch."""
    both = sorted(selection.keys() & test.keys())
    picked = max(both, key=lambda epoch: selection[epoch])
    return max(test[epoch] for epoch in both) - test[picked]


def agreement(folder: Path, metric: str) -> tuple[int, int]:
    """In how many pairs of runs with the same seed the one better on the selection split is so in test R@1; and of how many."""
    rows = [row for row in read_rows(folder / "seeds.csv") if not selects_on_test(folder, row["recipe"])]
    signs = [
        (float(a[f"selection_{metric}"]) - float(b[f"selection_{metric}"]))
        * (float(a["selected_recall@1"]) - float(b["selected_recall@1"]))
        for a, b in combinations(rows, 2)
        if a["seed"] == b["seed"]
    ]
    return sum(sign > 0 for sign in signs), sum(sign != 0 for sign in signs)


if __name__ == "__main__":
    main()
