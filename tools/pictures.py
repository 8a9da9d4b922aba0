"""Draws the pictures of docs/findings.md from the evidence in results/.

python tools/pictures.py
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from pads.reports.figures import COLOURS, new_figure
from pads.studies.seeds import read_rows
from pads.studies.statistics import judge, paired_difference
from results import RESULTS, ROOT, read_folder

PICTURES = ROOT / "docs" / "pictures"
GREY, LIMIT = "#555b63", 9.0
"""Points of R@1 that the picture of differences shows to each side."""


class Line(NamedTuple):
    """An arm in a picture: where it is, what it is called and how it looks."""

    folder: str
    arm: str
    label: str
    colour: int
    dashes: str = "-"


DIFFERENCES = {
    "PADS less distance-weighted": (
        ("cub200-series-b", "cub200-margin-pads", "cub200-margin-udist", "CUB, 256 px"),
        ("cub200-series-a", "cub200-margin-pads", "cub200-margin-udist", "CUB, 224 px"),
        ("cars196-series-a", "cars196-margin-pads", "cars196-margin-udist", "CARS"),
        ("groceries-adaptive", "pads", "udist", "product photos"),
        ("groceries-pretrained", "pads", "udist", "product photos, pretrained"),
        ("emoji-60-epochs", "pads", "udist", "emoji, 60 epochs"),
    ),
    "PADS less random actions": (
        ("cub200-series-a", "cub200-margin-pads", "cub200-margin-pads-random-actions", "CUB, 224 px"),
        ("cars196-adaptive", "pads", "random-actions", "CARS"),
        ("groceries-adaptive", "pads", "random-actions", "product photos"),
        ("emoji-60-epochs", "pads", "random-actions", "emoji, 60 epochs"),
    ),
    "self-paced less distance-weighted": (
        ("cub200-adaptive", "udist-pace", "udist", "CUB, 256 px"),
        ("cars196-adaptive", "udist-pace", "udist", "CARS"),
        ("groceries-adaptive", "udist-pace", "udist", "product photos"),
        ("groceries-pretrained", "udist-pace", "udist", "product photos, pretrained"),
        ("emoji-60-epochs", "udist-pace", "udist", "emoji, 60 epochs"),
    ),
    "self-paced less ρ 0.4": (
        ("cub200-adaptive", "udist-pace", "udist-rho", "CUB, 256 px"),
        ("cars196-adaptive", "udist-pace", "udist-rho", "CARS"),
        ("groceries-adaptive", "udist-pace", "udist-rho", "product photos"),
        ("groceries-pretrained", "udist-pace", "udist-rho", "product photos, pretrained"),
        ("emoji-60-epochs", "udist-pace", "udist-rho", "emoji, 60 epochs"),
    ),
}
"""By group: folder, arm, the arm that it is compared with, and the words."""

TRAINING = {
    "CUB200-2011, 256 pixels": (
        Line("cub200-series-b", "cub200-margin-udist", "distance-weighted", 0),
        Line("cub200-series-b", "cub200-margin-pads", "PADS", 1),
        Line("cub200-adaptive", "udist-pace", "self-paced boundary", 4),
        Line("cub200-adaptive", "udist-rho", "ρ 0.4", 5),
    ),
    "CARS196": (
        Line("cars196-series-a", "cars196-margin-udist", "distance-weighted", 0),
        Line("cars196-series-a", "cars196-margin-pads", "PADS", 1),
        Line("cars196-adaptive", "udist-pace", "self-paced boundary", 4),
        Line("cars196-adaptive", "udist-rho", "ρ 0.4", 5),
        Line("cars196-adaptive", "random-actions", "random actions", 1, "--"),
        Line("cars196-adaptive", "fixed-bins", "PADS never adapted", 6),
    ),
    "emoji, 60 epochs": (
        Line("emoji-60-epochs", "udist", "distance-weighted", 0),
        Line("emoji-60-epochs", "pads", "PADS", 1),
        Line("emoji-60-epochs", "udist-pace", "self-paced boundary", 4),
        Line("emoji-60-epochs", "udist-rho", "ρ 0.4", 5),
        Line("emoji-60-epochs", "random-actions", "random actions", 1, "--"),
        Line("emoji-60-epochs", "fixed-bins", "PADS never adapted", 6),
    ),
}
COLLAPSE = {
    "CUB200-2011": (
        Line("cub200-series-a", "cub200-margin-pads", "PADS", 1),
        Line("cub200-series-a", "cub200-margin-pads-random-reward", "a coin for a reward", 2),
        Line("cub200-series-a", "cub200-margin-pads-random-actions", "random actions", 0),
    ),
    "emoji, 60 epochs": (
        Line("emoji-60-epochs", "pads", "PADS", 1),
        Line("emoji-60-epochs", "random-actions", "random actions", 0),
    ),
}
AUTHORS = {
    "the authors' code": {
        "PADS (their CUB command, seed 3)": ("PADS", 1),
        "the same, distribution never adapted (--policy_training_delay 100000)": ("never adapted", 6),
    },
    "pads, the same reading": {
        "cub200-margin-pads-code": ("PADS", 1),
        "the same with curriculum bins (never adapted)": ("never adapted", 6),
        "the same with a coin for a reward": ("a coin for a reward", 2),
    },
}
"""By panel: the arms of results/cub200-authors-code/curves.csv, what they are called and their colour."""

Curve = Mapping[float, float]


def main() -> None:
    draw_differences(PICTURES / "findings-differences.png")
    draw_lines(PICTURES / "findings-training.png", TRAINING, "test_curves.csv", "epoch", "recall@1", "test R@1, %", 100)
    draw_lines(PICTURES / "findings-collapse.png", COLLAPSE, "adaptations.csv", "step", "perplexity", "bins in use", 1)
    draw_authors(PICTURES / "findings-authors.png")


def draw_differences(path: Path) -> None:
    """Every difference with its interval; grey where it is not resolved, an arrow where it goes on."""
    with new_figure(7.2, 4.8) as (figure, _):
        axes, height, words_at = figure.subplots(), 0, {}
        axes.axvline(0, color=GREY, linewidth=1)
        for number, (group, rows) in enumerate(DIFFERENCES.items()):
            axes.text(-LIMIT, height, group, va="center", weight="bold")
            for name, arm, other, words in rows:
                height += 1
                words_at[height] = words
                folder = read_folder(RESULTS / name)
                found = paired_difference(folder.figures(arm, "selected"), folder.figures(other, "selected"))
                colour = "#aaaaaa" if judge(found).startswith("not") else COLOURS[number]
                axes.plot([max(found.low, -LIMIT), min(found.high, LIMIT)], [height] * 2, color=colour, linewidth=1.6)
                cut = [(-LIMIT, "<")] * (found.low < -LIMIT) + [(LIMIT, ">")] * (found.high > LIMIT)
                for end, marker in cut:
                    axes.plot(end, height, marker, color=colour, markersize=4)
                axes.plot(found.mean, height, "o", color=colour, markersize=5)
                axes.text(1.01, height, f"n = {found.n}", transform=axes.get_yaxis_transform(), va="center", color=GREY)
            height += 1
        axes.set_yticks(list(words_at), list(words_at.values()))
        axes.tick_params(axis="y", length=0)
        axes.set(xlim=(-LIMIT - 0.3, LIMIT + 0.3), ylim=(height - 0.5, -0.6))
        axes.set_xlabel("points of R@1 at the selected epoch, paired by seed, 95 % interval; grey: not resolved")
        figure.savefig(path, dpi=130)


def draw_lines(
    path: Path, panels: Mapping[str, Sequence[Line]], name: str, x: str, y: str, label: str, factor: float
) -> None:
    """A panel for each data set: every run thin, the means thick."""
    with new_figure(7.4, 2.9) as (figure, _):
        every, labels = figure.subplots(1, len(panels)), dict[str, Any]()
        for axes, (title, lines) in zip(every, panels.items(), strict=True):
            for line in lines:
                runs = read_curves(RESULTS / line.folder / name, line.arm, x, y, factor)
                look: dict[str, Any] = {"color": COLOURS[line.colour], "linestyle": line.dashes}
                for curve in runs:
                    axes.plot(list(curve), list(curve.values()), linewidth=0.5, alpha=0.35, **look)
                mean = {at: fmean(curve[at] for curve in runs) for at in set.intersection(*map(set, runs))}
                places = sorted(mean)
                (drawn,) = axes.plot(places, [mean[at] for at in places], linewidth=1.8, **look)
                labels.setdefault(line.label, drawn)
            axes.set(xlabel=x, title=title)
        every[0].set_ylabel(label)
        figure.legend(labels.values(), labels.keys(), frameon=False, loc="outside lower center", ncols=6, fontsize=7)
        figure.savefig(path, dpi=130)


def read_curves(path: Path, arm: str, x: str, y: str, factor: float) -> list[Curve]:
    """Read one curve for each seed of an arm."""
    made: dict[str, dict[float, float]] = {}
    for row in read_rows(path):
        if row["recipe"] == arm and row[y]:
            made.setdefault(row["seed"], {})[int(row[x])] = factor * float(row[y])
    return list(made.values())


def draw_authors(path: Path) -> None:
    """The test split over training in both codes, one run each."""
    with (RESULTS / "cub200-authors-code" / "curves.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with new_figure(7.4, 2.7) as (figure, _):
        every = figure.subplots(1, 2, sharey=True)
        for axes, (title, arms) in zip(every, AUTHORS.items(), strict=True):
            for arm, (label, colour) in arms.items():
                curve = {int(row["epoch"]): float(row["test R@1"]) for row in rows if row["arm"] == arm}
                axes.plot(list(curve), list(curve.values()), color=COLOURS[colour], linewidth=1.6, label=label)
            axes.set(xlabel="epoch", title=f"CUB200-2011, {title}, one run each", xlim=(0, 205))
            axes.legend(frameon=False, loc="lower right")
        every[0].set_ylabel("test R@1, %")
        figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
