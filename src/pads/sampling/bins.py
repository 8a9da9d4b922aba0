"""The sampling distribution p(I_n | I_a): K equal bins over the distances U = [lambda_min, lambda_max] (paper, Sec. 4.1).

Dimensions: K bins, B batch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pads.errors import UserError

TAILS = ("exclude", "clip low, drop high", "merge")
EVALUATED_AT = ("centres", "shifted")
DRAWINGS = ("bin then image", "weight per image")


@dataclass(frozen=True)
class BinDistribution:
    """Hold p_k over K equal bins of distance. Values never change: `scale` returns a new distribution."""

    interval: tuple[float, float]
    """[lambda_min, lambda_max], the distances that the bins cover."""
    weights_K: Tensor
    """float64 on the CPU, proportional to p_k."""
    tails: str = "exclude"
    """Distances outside the interval: have probability 0 ("exclude", paper Sec. 5), are clipped below and ignored above
    ("clip low, drop high", paper Sec. 4.2), or fall into the first and the last bin ("merge", the authors' code)."""
    clip: tuple[float, float] | None = None
    """Bounds of the weights, which are then kept unnormalised as in the authors' code (1e-25, 1e25)."""
    drawing: str = "bin then image"
    """First a bin by p_k, renormalised over the occupied bins, then any image in it ("bin then image", the paper), or every
    image weighs p_k, so that a bin is drawn in proportion to n_k p_k ("weight per image", the authors' code)."""

    @property
    def num_bins(self) -> int:
        """Return K."""
        return len(self.weights_K)

    @property
    def probabilities_K(self) -> Tensor:
        """Return p_k, whose sum is 1."""
        return self.weights_K / self.weights_K.sum()

    @property
    def edges(self) -> Tensor:
        """Return the K + 1 limits of the bins."""
        return torch.linspace(*self.interval, self.num_bins + 1, dtype=torch.float64)

    @property
    def centres(self) -> Tensor:
        """Return the middle of each bin."""
        edges = self.edges
        return (edges[:-1] + edges[1:]) / 2

    @property
    def perplexity(self) -> float:
        """Return the number of bins that p is effectively spread over: exp of its entropy."""
        p_K = self.probabilities_K
        return math.exp(-torch.special.xlogy(p_K, p_K).sum().item())

    @property
    def clipped_share(self) -> float:
        """Return the share of bins that stand at a bound of `clip`."""
        if self.clip is None:
            return 0.0
        low, high = self.clip
        return ((self.weights_K <= low) | (self.weights_K >= high)).double().mean().item()

    def bin_of(self, distances: Tensor) -> Tensor:
        """Return the index of the bin of each distance; outside the interval, the nearest bin."""
        low, high = self.interval
        position = (distances - low) * (self.num_bins / (high - low))
        # the clamp comes last: it would keep a nan, whose whole number is no index of a bin
        return position.long().clamp(0, self.num_bins - 1)

    def covers(self, distances: Tensor) -> Tensor:
        """Return whether a distance has a bin at all, which the tails decide."""
        low, high = self.interval
        if self.tails == "merge":
            return torch.ones_like(distances, dtype=torch.bool)
        if self.tails == "clip low, drop high":
            return distances <= high
        return (distances >= low) & (distances <= high)

    def at(self, distances: Tensor) -> Tensor:
        """Return p_k of the bin that each distance falls in, 0 where it has none."""
        p_K = self.probabilities_K.to(distances.device)
        return torch.where(self.covers(distances), p_K[self.bin_of(distances)], 0.0)

    def scale(self, factors_K: Tensor) -> BinDistribution:
        """Return p_k * a_k for every bin, re-normalised (paper, Sec. 4.2, "Adjustments a")."""
        weights_K = self.weights_K * factors_K.to(self.weights_K)
        if self.clip:
            return replace(self, weights_K=weights_K.clamp(*self.clip))
        return replace(self, weights_K=weights_K / weights_K.sum())


MOST_BINS = 1_000_000


def bin_distribution(
    num_bins: int = 30,
    interval: Sequence[float] = (0.1, 1.4),
    initial: str | Sequence[float] = "U[0.3, 0.7]",
    *,
    outside: float = 0.01,
    evaluated_at: str = "centres",
    tails: str = "exclude",
    clip: Sequence[float] | None = None,
    drawing: str = "bin then image",
) -> BinDistribution:
    """Return the initial distribution of the bins.

    initial: "uniform" over the whole interval, "U[a, b]" with low mass outside [a, b], "N(mean, sd)", or K numbers.
    outside: the weight of a bin outside the emphasis, where 1 is the weight of a bin inside (the authors' code: 1e-15).
    evaluated_at: the point of a bin that decides; "shifted" is the authors' left edge + 2 / (K + 1), about one bin off.
    """
    low, high = check_interval(interval)
    if num_bins < 1:
        raise UserError(f"num_bins is {num_bins}: the distribution needs at least one bin.")
    if num_bins > MOST_BINS:
        raise UserError(f"num_bins is {num_bins}: it must be at most {MOST_BINS}.")
    check_choice("tails", tails, TAILS)
    check_choice("evaluated_at", evaluated_at, EVALUATED_AT)
    check_choice("drawing", drawing, DRAWINGS)
    if clip is not None and not (len(clip) == 2 and 0 < clip[0] < clip[1]):
        raise UserError(f"clip is {list(clip)}: it must hold two growing positive numbers, such as [1e-25, 1e25].")
    edges = torch.linspace(low, high, num_bins + 1, dtype=torch.float64)
    points_K = (edges[:-1] + edges[1:]) / 2 if evaluated_at == "centres" else edges[:-1] + 2 / (num_bins + 1)
    weights_K = initial_weights(initial, points_K, outside)
    weights_K = (
        weights_K / weights_K.sum()
    )  # with a clip too: the authors' bins begin at 1/9 on their way to the bounds
    limits = (clip[0], clip[1]) if clip is not None else None
    return BinDistribution((low, high), weights_K, tails, limits, drawing)


def initial_weights(initial: str | Sequence[float], points_K: Tensor, outside: float) -> Tensor:
    """The initial shapes of the paper's Tab. 5c, or the user's own K numbers."""
    if not isinstance(initial, str):
        return take_weights(initial, len(points_K))
    if outside <= 0:
        raise UserError(f"outside is {outside}: a bin of weight 0 could never be raised; take a small positive number.")
    if initial == "uniform":
        return torch.ones_like(points_K)
    number = r"\s*([-+.\deE]+)\s*"
    if match := re.fullmatch(rf"U\[{number},{number}\]", initial):
        a, b = map(float, match.groups())
        inside_K = (points_K >= a) & (points_K <= b)
        if not inside_K.any():
            raise UserError(
                f"initial is {initial!r}, but no bin lies there: the bins cover {points_K[0]:.3g} to {points_K[-1]:.3g}."
            )
        return torch.where(inside_K, 1.0, outside).double()
    if match := re.fullmatch(rf"N\({number},{number}\)", initial):
        mean, sd = map(float, match.groups())
        if sd <= 0:
            raise UserError(f"initial is {initial!r}: its standard deviation must be above 0.")
        return torch.exp(-0.5 * ((points_K - mean) / sd) ** 2).clamp(min=outside)
    raise UserError(
        f'initial is {initial!r}: write "uniform", "U[0.3, 0.7]", "N(0.5, 0.05)", or one number for each bin.'
    )


def take_weights(values: Sequence[float], num_bins: int) -> Tensor:
    weights_K = torch.tensor([float(value) for value in values], dtype=torch.float64)
    if len(weights_K) != num_bins:
        raise UserError(f"initial holds {len(weights_K)} numbers for {num_bins} bins: give one for each bin.")
    if not bool((weights_K >= 0).all()) or not 0 < weights_K.sum().item() < math.inf:
        raise UserError("initial must hold finite numbers of at least 0, not all of them 0.")
    return weights_K


def check_interval(interval: Sequence[float]) -> tuple[float, float]:
    if len(interval) != 2 or not interval[0] < interval[1]:
        raise UserError(f"interval is {list(interval)}: write [lambda_min, lambda_max] with lambda_min < lambda_max.")
    if interval[0] < 0 or interval[1] > 2:
        raise UserError(f"interval is {list(interval)}: distances on the unit sphere lie within [0, 2].")
    return float(interval[0]), float(interval[1])


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UserError(f"{name} is {value!r}: choose one of {', '.join(map(repr, choices))}.")
