"""The tables and pictures of the series in docs/benchmarks.md, from their folders of evidence.

    python tools/series_page.py

Writes docs/pictures/NAME.png of every series and prints the tables; tests/tools/test_series_page.py holds the page to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from adaptive_page import PICTURES, RESULTS, Curve, curves_by_seed, figures, in_points, mean_curve, plot

from pads.reports.figures import COLOURS, new_figure
from pads.studies.seeds import read_rows
from pads.studies.statistics import difference, mean_and_sd, paired_difference
from results import COLUMNS, unbroken


class Series(NamedTuple):
    """U-dist and PADS with the same seeds, in one folder of evidence."""

    folder: str
    steps_per_epoch: int
    udist: str
    pads: str
    marked_seed: int | None = None
    """The run of PADS that the page speaks of; it is dashed."""
    legend: str = "lower left"

    @property
    def arms(self) -> dict[str, str]:
        return {self.udist: "U-dist", self.pads: "PADS"}


CUB = ("cub200-margin-udist", "cub200-margin-pads")
SERIES = {
    "cars196": Series("cars196-series-a", 57, "cars196-margin-udist", "cars196-margin-pads", 1, "lower right"),
    "cub200-256-pixels": Series("cub200-series-b", 39, *CUB),
    "cub200-300-epochs": Series("cub200-300-epochs", 39, *CUB, legend="upper right"),
}
"""By the name of the picture."""

ALL_IMAGES = ("cub200-all-images", "cub200-margin-udist-all-images")
B, LONG, OLDER = SERIES["cub200-256-pixels"], SERIES["cub200-300-epochs"], "cub200-series-a"
PAPER = {"U-dist": 63.5, "PADS": 67.3}
ROWS = {"selected": "selected epoch", "last": "last epoch", "best_test": "best R@1 of every 20 epochs (test-selected)"}
PANELS = {
    "test R@1, %": ("test_curves.csv", "epoch", "recall@1"),
    "bins in use (perplexity of p)": ("adaptations.csv", "step", "perplexity"),
    "distance of the negatives drawn": ("training.csv", "step", "negative_distance"),
    "share of triplets that cost something": ("training.csv", "step", "violation_share"),
}


def main() -> None:
    for name, series in SERIES.items():
        draw(series, PICTURES / f"{name}.png")
    for lines in tables():
        print("\n".join(lines), end="\n\n")


def tables() -> list[list[str]]:
    """All that the page shows."""
    every_20 = range(20, 121, 20)
    return [
        *(table(series) for series in SERIES.values()),
        runs_table(B),
        runs_table(LONG),
        curve_table({label: recall(B, label) for label in PAPER}, every_20),
        older_table(),
        curve_table({label: recall(LONG, label) for label in PAPER}, (20, 40, 60, 100, 140, 160, 200, 240, 300)),
        curve_table(
            {
                f"{label}, {words}": recall(series, label, seed=0)
                for label in PAPER
                for series, words in ((LONG, "224 pixels"), (B, "256 pixels"))
            },
            every_20,
        ),
        all_images_table(),
        curve_table(
            {
                "all images, seed 0": recall_in(*ALL_IMAGES, seed=0),
                "85 % of 90 classes, seed 0": recall(LONG, "U-dist", seed=0),
                "all images, mean of 5": recall_in(*ALL_IMAGES),
            },
            every_20,
        ),
    ]


# -- tables --------------------------------------------------------------------------------------------------------------


def table(series: Series) -> list[str]:
    """Both arms and their paired difference, at the three epochs that are reported."""
    heading = "PADS less U-dist" + (", paired, 95 % interval" if len(recall(series, "PADS")) > 1 else "")
    lines = [f"| | U-dist | PADS | {heading} |", "|---|--:|--:|--:|"]
    for when, words in ROWS.items():
        for metric, name in (("recall@1", "R@1"), ("map@r", "MAP@R")):
            udist, pads = (figures(series.folder, arm, f"{when}_{metric}") for arm in series.arms)
            means = " | ".join(mean_and_sd(list(each.values())) for each in (udist, pads))
            lines.append(f"| {name}, {words} | {means} | {difference(paired_difference(pads, udist))} |")
    return [unbroken(line) for line in lines]


def runs_table(series: Series) -> list[str]:
    """Every run: R@1, what the policy did, and what was drawn in the last tenth of the training."""
    lines = [
        "| arm, seed | R@1, selected (epoch) | R@1, last | R@1, best of every 20 (epoch) | bins in use at the end | mean reward "
        "| distance of the negatives | of the anchor's class | triplets that cost something |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in read_rows(RESULTS / series.folder / "seeds.csv"):
        arm, seed = row["recipe"], int(row["seed"])
        selected, last, best = (f"{100 * float(row[f'{when}_recall@1']):.1f}" for when in ROWS)
        cells = [f"{selected} ({row['selected_epoch']})", last, f"{best} ({row['best_test_epoch']})"]
        adjusted = [
            curves_by_seed(series.folder, "adaptations.csv", arm, "step", y).get(seed) for y in ("perplexity", "reward")
        ]
        bins, rewards = ([*curve.values()] if curve else None for curve in adjusted)
        cells += [f"{bins[-1]:.1f}" if bins else "", f"{fmean(rewards):.2f}" if rewards else ""]
        for y in ("negative_distance", "negative_of_class_share", "violation_share"):
            drawn = [*curves_by_seed(series.folder, "training.csv", arm, "step", y)[seed].values()]
            cells.append(f"{fmean(drawn[-(len(drawn) // 10) :]):.2f}")
        lines.append(f"| {series.arms[arm]}\u00a0{seed} | {' | '.join(cells)} |")
    return lines


def recall(series: Series, label: str, seed: int | None = None) -> list[Curve]:
    """R@1 on the test split over training, in points: of every run of an arm, or of one."""
    return recall_in(series.folder, {label: arm for arm, label in series.arms.items()}[label], seed)


def recall_in(folder: str, arm: str, seed: int | None = None) -> list[Curve]:
    by_seed = curves_by_seed(folder, "test_curves.csv", arm, "epoch", "recall@1")
    return [in_points(curve) for each, curve in by_seed.items() if seed in (None, each)]


def curve_table(rows: Mapping[str, Sequence[Curve]], epochs: Sequence[int]) -> list[str]:
    """The mean R@1 of each row's runs at some epochs."""
    lines = ["| R@1 at epoch | " + " | ".join(map(str, epochs)) + " |", "|---" + "|--:" * len(epochs) + "|"]
    for words, several in rows.items():
        mean = mean_curve(several)
        lines.append(f"| {words} | " + " | ".join(f"{mean[epoch]:.1f}" for epoch in epochs) + " |")
    return lines


def older_table() -> list[str]:
    """R@1 of Series A and Series B on CUB200-2011 beside the paper's."""
    lines = ["| | Series A | Series B | paper |", "|---|--:|--:|--:|"]
    for when, words in ROWS.items():
        found: dict[str, list[dict[int, float]]] = {}
        for arm, label in B.arms.items():
            found[label] = [figures(folder, arm, f"{when}_recall@1") for folder in (OLDER, B.folder)]
            means = " | ".join(mean_and_sd(list(each.values())) for each in found[label])
            lines.append(f"| {label}, {words} | {means} | {PAPER[label] if when == 'best_test' else ''} |")
        less = [difference(paired_difference(*pair)) for pair in zip(found["PADS"], found["U-dist"], strict=True)]
        paper = f"{PAPER['PADS'] - PAPER['U-dist']:+.1f}" if when == "best_test" else ""
        lines.append(f"| PADS less U-dist, {words} | {' | '.join(less)} | {paper} |")
    return [unbroken(line) for line in lines]


def all_images_table() -> list[str]:
    """U-dist without anything held back: two of its three epochs are picked on the test split."""
    rows = {
        "selected": "best R@1 of every 5 epochs (test-selected)",
        "best_test": ROWS["best_test"],
        "last": ROWS["last"],
    }
    lines = ["| U-dist, all images | " + " | ".join(COLUMNS.values()) + " |", "|---" + "|--:" * len(COLUMNS) + "|"]
    for when, words in rows.items():
        found = [figures(*ALL_IMAGES, f"{when}_{metric}") for metric in COLUMNS]
        lines.append(f"| {words} | " + " | ".join(mean_and_sd(list(each.values())) for each in found) + " |")
    return [unbroken(line) for line in lines]


# -- pictures ------------------------------------------------------------------------------------------------------------


def draw(series: Series, path: Path) -> None:
    """Each run thin, the means thick; a marked run of PADS dashed; a dotted line where the learning rate falls."""
    with new_figure(7.2, 4.6) as (figure, _):
        for axes, (title, (name, x, y)) in zip(figure.subplots(2, 2, sharex=True).flat, PANELS.items(), strict=True):
            for (arm, label), colour in zip(series.arms.items(), COLOURS, strict=False):
                by_seed = curves_by_seed(series.folder, name, arm, x, y)
                if y == "recall@1":
                    by_seed = {seed: in_points(curve) for seed, curve in by_seed.items()}
                if x == "step":
                    per_epoch = series.steps_per_epoch
                    by_seed = {seed: {t / per_epoch: v for t, v in c.items()} for seed, c in by_seed.items()}
                for seed, curve in by_seed.items() if len(by_seed) > 1 else ():
                    is_marked = label == "PADS" and seed == series.marked_seed
                    look = {"linestyle": "--", "linewidth": 1.2} if is_marked else {"linewidth": 0.6, "alpha": 0.6}
                    plot(axes, curve, color=colour, label=f"PADS, seed {seed}" if is_marked else None, **look)
                if by_seed:
                    words = f"{label}, mean of {len(by_seed)}" if len(by_seed) > 1 else f"{label}, one run"
                    width = 2 if len(by_seed) > 1 else 1.4
                    plot(axes, mean_curve(list(by_seed.values())), color=colour, linewidth=width, label=words)
            for epoch in milestones(series):
                axes.axvline(epoch, color="#555b63", linewidth=0.8, linestyle=":", label="learning rate falls")
            axes.set_title(title, loc="left")
        figure.axes[0].legend(frameon=False, loc=series.legend)
        for axes in figure.axes[2:]:
            axes.set_xlabel("epoch")
        figure.savefig(path, dpi=180)


def milestones(series: Series) -> list[int]:
    return json.loads((RESULTS / series.folder / f"{series.pads}.json").read_text())["optimiser"]["milestones"]


if __name__ == "__main__":
    main()
