"""Curricula whose distribution is a function of the training progress and of nothing else (paper, Tab. 4 and Fig. 5).

The paper gives its two schedules in words; docs/curricula.md says which formulas were chosen for them.

Dimensions: K bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pads.errors import UserError
from pads.sampling.bins import BinDistribution, bin_distribution
from pads.sampling.rules import BinRule, DistanceWeighted, log_density


class ScheduledCurriculum:
    """Draws by `distribution_at(progress)`; no validation is made for it."""

    metrics: tuple[str, ...] = ()

    def __init__(self, distribution_at: Callable[[float], BinDistribution]) -> None:
        self.distribution_at = distribution_at
        self.rule = BinRule(distribution_at(0.0))

    @property
    def distribution(self) -> BinDistribution:
        return self.rule.distribution

    def advance(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        self.rule.adjust(self.distribution_at(progress))
        return {
            "distribution": self.distribution.probabilities_K.tolist(),
            "perplexity": self.distribution.perplexity,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.distribution.weights_K}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rule.adjust(replace(self.distribution, weights_K=state["weights"]))


def linear(
    *,
    start: Sequence[float] = (0.7, 1.1),
    end: Sequence[float] = (0.1, 0.5),
    until: float = 1.0,
    num_bins: int = 30,
    interval: Sequence[float] = (0.1, 1.4),
    outside: float = 0.01,
) -> ScheduledCurriculum:
    """Move an interval of distances from semi-hard to hard ones as training goes on.

    start, end: the interval at progress 0 and from progress `until` on.
    num_bins, interval, outside: see `pads.bin_distribution`.
    """
    bins = bin_distribution(num_bins, interval, "uniform", outside=outside)
    check_until(until)
    for name, emphasis in (("start", start), ("end", end)):
        check_emphasis(name, emphasis, bins)
    ends = torch.tensor([list(start), list(end)], dtype=torch.float64)

    def distribution_at(progress: float) -> BinDistribution:
        low, high = torch.lerp(ends[0], ends[1], share_done(progress, until)).tolist()
        return emphasise(bins, overlap(bins.edges, low, high), outside)

    return ScheduledCurriculum(distribution_at)


def non_linear(
    *,
    dim: int = 128,
    cutoff: float = 0.5,
    shift: float = 0.4,
    power: float = 2.0,
    until: float = 1.0,
    num_bins: int = 30,
    interval: Sequence[float] = (0.1, 1.4),
    outside: float = 0.01,
) -> ScheduledCurriculum:
    """Shift what distance-weighted sampling draws to smaller distances, by shift * progress^power.

    dim, cutoff: D of the embedding and the cutoff of U-dist, see `DistanceWeighted`.
    shift, until: how far it has moved at progress `until`, where it stays.
    num_bins, interval, outside: see `pads.bin_distribution`.
    """
    bins = bin_distribution(num_bins, interval, "uniform", outside=outside)
    check_until(until)
    DistanceWeighted(dim, cutoff)  # refuses what is no dimension or no distance
    low, high = bins.interval
    if not 0 <= shift < high - low:
        raise UserError(
            f"shift is {shift}: it must be at least 0 and below the length of the interval, {high - low:.4g}."
        )
    if not power > 0:
        raise UserError(f"power is {power}: it must be above 0; 1 moves evenly, 2 slowly first.")

    def distribution_at(progress: float) -> BinDistribution:
        moved = shift * share_done(progress, until) ** power
        drawn_K = density_of_draws(bins.centres + moved, dim, cutoff)
        return emphasise(bins, drawn_K * overlap(bins.edges, low, high - moved), outside)

    return ScheduledCurriculum(distribution_at)


def share_done(progress: float, until: float) -> float:
    return min(1.0, progress / until)


def overlap(edges: Tensor, low: float, high: float) -> Tensor:
    """overlap_K: the share of each bin that lies within [low, high]."""
    inside_K = edges[1:].clamp(max=high) - edges[:-1].clamp(min=low)
    return inside_K.clamp(min=0) / (edges[1:] - edges[:-1])


def density_of_draws(distances: Tensor, dim: int, cutoff: float) -> Tensor:
    """Return what distance-weighted sampling draws where distances follow q (paper, Eq. 2): min(1, q(d) / q(cutoff))."""
    log_lambda = -log_density(torch.tensor(cutoff, dtype=torch.float64), dim)
    return torch.exp((log_density(distances.clamp(max=1.99), dim) + log_lambda).clamp(max=0))


def emphasise(bins: BinDistribution, shares_K: Tensor, outside: float) -> BinDistribution:
    """Make p_k proportional to `outside` where the share is 0, to 1 where it is 1."""
    weights_K = outside + (1 - outside) * shares_K
    return replace(bins, weights_K=weights_K / weights_K.sum())


def check_until(until: float) -> None:
    if not 0 < until <= 1:
        raise UserError(f"until is {until}: it is the progress at which the schedule ends, above 0 and at most 1.")


def check_emphasis(name: str, emphasis: Sequence[float], bins: BinDistribution) -> None:
    low, high = bins.interval
    if len(emphasis) != 2 or not low <= emphasis[0] < emphasis[1] <= high:
        raise UserError(
            f"{name} is {list(emphasis)}: write two growing distances within the interval of the bins, [{low}, {high}]."
        )
