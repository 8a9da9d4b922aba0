"""Means over seeds and how far they can be trusted: spread, Student's t intervals, differences paired by seed.

Pure functions of plain numbers, for any number of seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pads.metrics.student import t_quantile


class Estimate(NamedTuple):
    """What n values say of their mean; what one value cannot say is nan."""

    n: int
    mean: float
    sd: float
    low: float
    high: float


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean, standard deviation and t-interval."""
    n = len(values)
    mean = statistics.fmean(values) if n else math.nan
    if n < 2:
        return Estimate(n, mean, math.nan, math.nan, math.nan)
    sd = statistics.stdev(values)
    half = t_quantile((1 + confidence) / 2, n - 1) * sd / math.sqrt(n)
    return Estimate(n, mean, sd, mean - half, mean + half)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate:
    """Ours less theirs, each with the run of the same seed; seeds that only one of them has say nothing."""
    return estimate([ours[seed] - theirs[seed] for seed in ours if seed in theirs])


NARROW = 1.0
"""Points: an interval that reaches no further than this to each side is narrow (docs/protocol.md)."""


def judge(found: Estimate) -> str:
    """Say where a difference lies: above, below, level with zero, or not resolved by so many seeds."""
    if found.n < 2:
        return "one seed"
    if found.low > 0:
        return "above"
    if found.high < 0:
        return "below"
    return "level" if (found.high - found.low) / 2 <= NARROW else f"not resolved by {found.n} seeds"


# -- as text ------------------------------------------------------------------------------------------------------------


def mean_and_sd(values: Sequence[float]) -> str:
    if not values:
        return ""
    found = estimate(values)
    return f"{found.mean:.1f}" + (f" ± {found.sd:.1f}" if found.n > 1 else "")


def interval(found: Estimate, sign: str = "") -> str:
    """[low, high]; with sign "+" both carry theirs."""
    return f"[{found.low:{sign}.2f}, {found.high:{sign}.2f}]" if found.n > 1 else ""


def difference(found: Estimate) -> str:
    return f"{found.mean:+.2f} {interval(found, '+')}".rstrip() if found.n else ""
