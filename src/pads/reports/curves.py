"""Which curves of a run are drawn, in which chart and unit, and their mean and band over seeds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from pads.reports.series import Curve

REWARD_WINDOW = 20
SPLITS = ("selection", "reward", "test")
NAMES = {"map@r": "MAP@R", "nmi": "NMI", "r-precision": "R-precision"}


class Line(NamedTuple):
    name: str
    """Of the curve."""
    label: str = ""
    """In the legend of its chart."""
    style: int = 0
    """0 solid, 1 dashed, 2 dotted."""


@dataclass(frozen=True)
class Chart:
    title: str
    unit: str
    lines: tuple[Line, ...]
    is_percent: bool = False
    is_stepped: bool = False


@dataclass(frozen=True)
class Band:
    """The mean over runs, and one standard deviation around it."""

    steps: list[float]
    mean: list[float]
    sd: list[float] | None
    """None for a single run."""


def charts_of(names: Iterable[str]) -> list[Chart]:
    """The charts that these curves fill, in the order of reading."""
    names = set(names)
    every = [
        Chart("Loss", "loss", (Line("loss"),)),
        *metric_charts(names),
        *(distance_chart(split) for split in ("reward", "test")),
        Chart(f"Reward, mean of the last {REWARD_WINDOW}", "reward", (Line("reward"),)),
        Chart("Entropy of the policy, mean of the bins", "nats", (Line("policy_entropy"),)),
        Chart("Perplexity of p(Iₙ|Iₐ)", "bins", (Line("perplexity"),)),
        Chart("Mean distance of the negatives drawn", "distance", (Line("negative_distance"),)),
        Chart("Mean boundary β of the margin loss", "distance", (Line("boundary"),)),
        Chart("Triplets that violate the margin", "%", (Line("violation_share"),), is_percent=True),
        Chart("Negatives of the anchor's own class", "%", (Line("negative_of_class_share"),), is_percent=True),
        Chart("Learning rate", "learning rate", (Line("learning_rate"),), is_stepped=True),
        Chart("Speed of training", "images per second", (Line("images_per_second"),)),
    ]
    filled = [replace(chart, lines=tuple(line for line in chart.lines if line.name in names)) for chart in every]
    return [chart for chart in filled if chart.lines]


def metric_charts(names: set[str]) -> list[Chart]:
    ks = sorted({int(match[1]) for name in names if (match := re.search(r"/recall@(\d+)$", name))})
    metrics = [*(f"recall@{k}" for k in ks), "map@r", "r-precision", "nmi"]
    return [Chart(metric_title(metric), "%", lines_of(metric), is_percent=True) for metric in metrics]


def lines_of(metric: str) -> tuple[Line, ...]:
    return tuple(Line(f"{split}/{metric}", f"{split} split", style) for style, split in enumerate(SPLITS))


def metric_title(metric: str) -> str:
    return NAMES.get(metric, metric.replace("recall@", "Recall@"))


def distance_chart(split: str) -> Chart:
    lines = (Line(f"{split}/intra", "within classes"), Line(f"{split}/inter", "between classes", 1))
    return Chart(f"Distances on the {split} split", "distance", lines)


def band(curves: Sequence[Curve]) -> Band:
    """At the steps that all of the runs reached."""
    common = set(curves[0]["steps"]).intersection(*(curve["steps"] for curve in curves[1:]))
    steps = sorted(common)
    rows = [[dict(zip(curve["steps"], curve["values"], strict=True))[step] for step in steps] for curve in curves]
    values = np.asarray(rows, dtype=np.float64).reshape(len(curves), len(steps))
    sd = values.std(0, ddof=1).tolist() if len(curves) > 1 else None
    return Band(steps, values.mean(0).tolist(), sd)


def running_mean(curve: Curve, window: int = REWARD_WINDOW) -> Curve:
    """The mean of the last values at each step: a reward is a sign, which by itself is nothing to look at."""
    sums = [0.0, *accumulate(curve["values"])]
    values = [(sums[at] - sums[max(0, at - window)]) / min(at, window) for at in range(1, len(sums))]
    return {"steps": curve["steps"], "values": values}
