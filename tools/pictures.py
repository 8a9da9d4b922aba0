"""Draws the pictures of docs/findings.md and docs/reproduction.md from the evidence in results/.

python tools/pictures.py
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from pads.reports.figures import COLOURS, heat, new_figure, percent
from pads.reports.heatmap import Progression, mean_progression
from pads.sampling import bin_distribution
from pads.studies.seeds import read_rows
from pads.studies.statistics import Estimate, judge, paired_difference
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

ANSWER = {
    "CUB, the authors' code (test-selected): PADS less": (
        ("cub200-authors-code", "authors-pads", "authors-fixed-bins", "never adapted"),
    ),
    "CUB, our reading of it (test-selected): PADS less": (
        ("cub200-authors-code", "pads-code", "pads-code-fixed-bins", "never adapted"),
        ("cub200-authors-code", "pads-code", "pads-code-random-reward", "a coin for a reward"),
    ),
    "CUB, the paper's wording, policy hardly learned: PADS less": (
        ("cub200-series-b", "cub200-margin-pads", "cub200-margin-udist", "distance-weighted, β 1.2"),
    ),
    "emoji, the paper's wording, critic repaired: PADS less": (
        ("emoji-controls", "pads", "random-actions", "random actions"),
        ("emoji-controls", "pads", "random-reward", "a coin for a reward"),
        ("emoji-controls", "pads", "fixed-bins", "never adapted"),
        ("emoji-controls", "pads", "udist", "distance-weighted, β 1.2"),
        ("emoji-controls", "pads", "udist-beta", "distance-weighted, β 0.6"),
    ),
}
"""By group: folder, arm, the arm that it is compared with, and the words."""
READS = {"above": COLOURS[1], "below": COLOURS[1], "level": COLOURS[0]}
ENTROPY = (("pads", "PADS", 1), ("random-reward", "a coin for a reward", 2))
GAINS = (
    ("CUB", "cub200-series-b", "cub200-margin-pads", "cub200-margin-udist", 3.8),
    ("CARS", "cars196-series-a", "cars196-margin-pads", "cars196-margin-udist", 3.4),
    ("emoji", "emoji-baselines", "margin-pads", "margin-udist", None),
    ("emoji, both β 0.6", "emoji-baselines", "margin-pads", "margin-udist-0.6", None),
)
"""Data, folder, PADS, distance-weighted sampling, and the gain of the paper."""
SCHEDULES = ("pads", "linear", "non-linear")

Curve = Mapping[float, float]


def main() -> None:
    draw_differences(PICTURES / "findings-differences.png")
    draw_lines(PICTURES / "findings-training.png", TRAINING, "test_curves.csv", "epoch", "recall@1", "test R@1, %", 100)
    draw_lines(PICTURES / "findings-collapse.png", COLLAPSE, "adaptations.csv", "step", "perplexity", "bins in use", 1)
    draw_authors(PICTURES / "findings-authors.png")
    draw_answer(PICTURES / "reproduction-answer.png")
    draw_gain(PICTURES / "reproduction-figure-1.png")
    draw_seeds(PICTURES / "reproduction-figure-4.png")
    draw_schedules(PICTURES / "curricula.png")


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


# -- docs/reproduction.md ------------------------------------------------------------------------------------------------


def draw_answer(path: Path) -> None:
    """What PADS is above or below, as far as runs say; and the entropy of the policy with the repaired critic."""
    with new_figure(7.4, 3.7) as (figure, _):
        left, right = figure.subplots(1, 2, width_ratios=(2, 1))
        height, words_at = 0, {}
        left.axvline(0, color=GREY, linewidth=1)
        for group, rows in ANSWER.items():
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            left.text(-5.4, height, group, va="center", weight="bold", fontsize=7, bbox=behind)
            for name, arm, other, words in rows:
                height += 1
                words_at[height] = words
                found = compare(name, arm, other)
                colour = READS.get(judge(found), "#aaaaaa")
                if found.n > 1:
                    left.plot([found.low, found.high], [height] * 2, color=colour, linewidth=1.6)
                left.plot(found.mean, height, "o", color=colour, markersize=5)
                left.text(1.01, height, f"n = {found.n}", transform=left.get_yaxis_transform(), va="center", color=GREY)
            height += 1
        left.set_yticks(list(words_at), list(words_at.values()))
        left.tick_params(axis="y", length=0)
        left.set(xlim=(-5.5, 5.5), ylim=(height - 0.5, -0.6))
        left.set_xlabel("points of R@1, 95 % interval; orange: above or below, blue: level, grey: open")
        for arm, label, colour in ENTROPY:
            for number, curve in enumerate(
                read_curves(RESULTS / "emoji-controls" / "adaptations.csv", arm, "step", "policy_entropy", 1)
            ):
                look = {"color": COLOURS[colour], "linewidth": 1.1, "alpha": 0.8}
                right.plot(list(curve), list(curve.values()), label=label if not number else None, **look)
        right.axhline(np.log(3), color=GREY, linewidth=0.8, linestyle=":")
        right.set(
            xlabel="training step", ylim=(0, 1.15), title="emoji: entropy of the policy\nper bin, five seeds each"
        )
        right.legend(frameon=False, loc="lower left")
        figure.savefig(path, dpi=130)


def compare(name: str, arm: str, other: str) -> Estimate:
    """Return the paired difference at the selected epoch, or at the best test epoch where none was selected."""
    folder = read_folder(RESULTS / name)
    when = "selected" if folder.figures(arm, "selected") else "best_test"
    return paired_difference(folder.figures(arm, when), folder.figures(other, when))


def draw_gain(path: Path) -> None:
    """The paper's Figure 1: the gain over distance-weighted sampling, and where negatives are drawn."""
    with new_figure(7.4, 2.8) as (figure, _):
        left, right = figure.subplots(1, 2)
        left.axhline(0, color=GREY, linewidth=1)
        for place, (_, name, arm, other, paper) in enumerate(GAINS):
            found = compare(name, arm, other)
            left.plot([place] * 2, [found.low, found.high], color=COLOURS[0], linewidth=1.6)
            left.plot(place, found.mean, "o", color=COLOURS[0], label="" if place else "here, n = 5, 95 % interval")
            if paper is not None:
                left.plot(place - 0.2, paper, "D", color=COLOURS[1], label="" if place else "paper")
        left.set_xticks(range(len(GAINS)), [words for words, *_ in GAINS], fontsize=7)
        left.set(ylabel="points of R@1", title="PADS less distance-weighted", xlim=(-0.5, len(GAINS) - 0.5))
        left.legend(frameon=False, fontsize=7)
        start = bin_distribution()
        right.stairs(
            start.probabilities_K.numpy(), start.edges.numpy(), color=GREY, linewidth=1.6, label="at the start"
        )
        for number, run in enumerate(read_progressions("pads")):
            label = "" if number else "PADS at the end, five seeds"
            right.stairs(run.shares_TK[-1], run.edges, color=COLOURS[1], linewidth=0.9, alpha=0.8, label=label)
        right.set(xlabel="distance between anchor and negative", ylabel="probability of the bin", title="emoji: p")
        right.yaxis.set_major_formatter(percent)
        right.legend(frameon=False, fontsize=7)
        figure.savefig(path, dpi=130)


def read_progressions(arm: str) -> list[Progression]:
    """Read p after each epoch for each seed of an arm of Table 4 on emoji."""
    rows = [row for row in read_rows(RESULTS / "emoji-curricula" / "distributions.csv") if row["recipe"] == arm]
    edges, made = bin_distribution().edges.numpy(), []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        own = [row for row in rows if row["seed"] == seed]
        steps = np.array([int(row["step"]) for row in own])
        shares_TK = np.array([[float(row[f"bin_{k}"]) for k in range(1, len(edges))] for row in own])
        made.append(Progression(edges, steps, shares_TK, steps[-1], is_drawn=True))
    return made


def draw_seeds(path: Path) -> None:
    """The paper's Figure 4: p over training, a panel for each seed."""
    runs = read_progressions("pads")
    with new_figure(9, 2.4) as (figure, _):
        for seed, (axes, run) in enumerate(zip(figure.subplots(1, len(runs), sharey=True), runs, strict=True)):
            heat(figure, axes, run, f"seed {seed}")
            if seed:
                axes.set_ylabel("")
        figure.savefig(path, dpi=110)


def draw_schedules(path: Path) -> None:
    """The paper's Figure 5: the learned curriculum and the fixed ones, mean of five seeds, linear and log scale."""
    with new_figure(7, 0.5 + 2.1 * len(SCHEDULES)) as (figure, _):
        for arm, axes in zip(SCHEDULES, figure.subplots(len(SCHEDULES), 2), strict=True):
            mean = mean_progression(read_progressions(arm))
            heat(figure, axes[0], mean, f"{arm}, linear scale")
            heat(figure, axes[1], mean, f"{arm}, log scale", is_log=True)
        figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
