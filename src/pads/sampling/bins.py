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
DRAWINGS = ("bin then image", "weight per image", "distance-weighted")


@dataclass(frozen=True)
class BinDistribution:
    """p_k over K equal bins. Values never change: `scaled` returns a new distribution."""

    interval: tuple[float, float]
    """[lambda_min, lambda_max], the distances that the bins cover."""
    weights_K: Tensor
    """float64 on the CPU, proportional to p_k."""
    tails: str = "exclude"
    """Distances outside the interval: have probability 0 ("exclude", paper Sec. 5), are clipped below and ignored above
    ("clip low, drop high", paper Sec. 4.2), or fall into the first and the last bin ("merge", the authors' code)."""
    floor: float = 0.0
    """No p_k falls below this share."""
    clip: tuple[float, float] | None = None
    """Bounds of the weights, which are then kept unnormalised as in the authors' code (1e-25, 1e25)."""
    drawing: str = "bin then image"
    """First a bin by p_k, renormalised over the occupied bins, then any image in it ("bin then image", the paper), or every
    image weighs p_k, so that a bin is drawn in proportion to n_k p_k ("weight per image", the authors' code), or p_k times
    its weight in U-dist ("distance-weighted"): with equal p_k this is U-dist itself."""
    rho: float | None = None
    """The share of triplets whose negative is a true positive, where a curriculum adapts it too; None: that of the draw."""
    bound: float | None = None
    """No p_k leaves [e^-bound, e^bound] times its initial value; None: they may go anywhere."""
    initial_K: Tensor | None = None
    """The initial p_k, where there is a bound to it."""
    dim: int = 128
    """D of the embedding, which U-dist depends on."""

    @property
    def num_bins(self) -> int:
        return len(self.weights_K)

    @property
    def probabilities_K(self) -> Tensor:
        return self.weights_K / self.weights_K.sum()

    @property
    def edges(self) -> Tensor:
        """The K + 1 limits of the bins."""
        return torch.linspace(*self.interval, self.num_bins + 1, dtype=torch.float64)

    @property
    def centres(self) -> Tensor:
        edges = self.edges
        return (edges[:-1] + edges[1:]) / 2

    @property
    def perplexity(self) -> float:
        """The number of bins that p is effectively spread over: exp of its entropy."""
        p_K = self.probabilities_K
        return math.exp(-torch.special.xlogy(p_K, p_K).sum().item())

    @property
    def clipped_share(self) -> float:
        """The share of bins that stand at a bound of `clip`, at the `floor` or at the `bound`."""
        if self.bound is not None:
            low_K, high_K = self.limits_K
            p_K = self.probabilities_K
            return ((p_K <= low_K * (1 + 1e-9)) | (p_K >= high_K * (1 - 1e-9))).double().mean().item()
        low, high = self.clip or (0.0, math.inf)
        at_bound_K = (self.weights_K <= low) | (self.weights_K >= high)
        at_floor_K = self.probabilities_K <= self.floor * (1 + 1e-9)
        return (at_bound_K | at_floor_K).double().mean().item() if self.clip or self.floor else 0.0

    @property
    def limits_K(self) -> tuple[Tensor, Tensor]:
        """Between which each p_k stays, where there is a bound."""
        assert self.bound is not None and self.initial_K is not None
        low_K, high_K = (self.initial_K * math.exp(sign * self.bound) for sign in (-1, 1))
        return low_K.clamp(min=self.floor), high_K

    def bin_of(self, distances: Tensor) -> Tensor:
        """The index of the bin of each distance; outside the interval, the nearest bin."""
        low, high = self.interval
        position = (distances - low) * (self.num_bins / (high - low))
        # the clamp comes last: it would keep a nan, whose whole number is no index of a bin
        return position.long().clamp(0, self.num_bins - 1)

    def covers(self, distances: Tensor) -> Tensor:
        """Whether a distance has a bin at all, which the tails decide."""
        low, high = self.interval
        if self.tails == "merge":
            return torch.ones_like(distances, dtype=torch.bool)
        if self.tails == "clip low, drop high":
            return distances <= high
        return (distances >= low) & (distances <= high)

    def at(self, distances: Tensor) -> Tensor:
        """p_k of the bin that each distance falls in, 0 where it has none."""
        p_K = self.probabilities_K.to(distances.device)
        return torch.where(self.covers(distances), p_K[self.bin_of(distances)], 0.0)

    def scaled(self, factors_K: Tensor) -> BinDistribution:
        """p_k <- p_k * a_k for every bin, then re-normalised (paper, Sec. 4.2, "Adjustments a")."""
        weights_K = self.weights_K * factors_K.to(self.weights_K)
        if self.clip:
            return replace(self, weights_K=weights_K.clamp(*self.clip))
        if self.bound is not None:
            return replace(self, weights_K=scaled_into(weights_K / weights_K.sum(), *self.limits_K))
        return replace(self, weights_K=raised_to_floor(weights_K / weights_K.sum(), self.floor))


def raised_to_floor(p_K: Tensor, floor: float) -> Tensor:
    """p with no entry below `floor`, the rest shrunk in proportion, sum 1."""
    if floor == 0:
        return p_K
    while True:  # shrinking the others can bring one of them below the floor; at most K rounds
        low_K = p_K <= floor
        p_K = torch.where(low_K, floor, p_K * (1 - floor * int(low_K.sum())) / p_K[~low_K].sum())
        if not (p_K < floor).any():
            return p_K


def scaled_into(p_K: Tensor, low_K: Tensor, high_K: Tensor) -> Tensor:
    """clamp(s p_k, low_k, high_k) with the common factor s that makes it sum to 1.

    Within the limits it is the distribution nearest to p by Kullback-Leibler divergence: one that obeys them stays as it
    is, and bins that meet none keep their proportions. The sum is piecewise linear in s; it bends where a bin meets one.
    """
    if bool((p_K >= low_K).all()) and bool((p_K <= high_K).all()):
        return p_K
    used_K = p_K > 0  # a bin of the initial weight 0 has no part in it
    meets = torch.cat([low_K[used_K] / p_K[used_K], high_K[used_K] / p_K[used_K]]).sort().values
    sums = (meets[:, None] * p_K).clamp(low_K, high_K).sum(1)
    after = int((sums < 1).sum())  # at the first all are at their low limits, at the last at their high ones
    before = after - 1
    share = (1 - sums[before]) / (sums[after] - sums[before])
    return (meets[before].lerp(meets[after], share) * p_K).clamp(low_K, high_K)


def scaled_odds(share: float, factor: float, limits: tuple[float, float]) -> float:
    """The share whose odds, share / (1 - share), are `factor` times what they were; within the limits."""
    odds = share / (1 - share) * factor
    return min(max(odds / (1 + odds), limits[0]), limits[1])


MOST_BINS = 1_000_000


def bin_distribution(
    num_bins: int = 30,
    interval: Sequence[float] = (0.1, 1.4),
    initial: str | Sequence[float] = "U[0.3, 0.7]",
    *,
    outside: float = 0.01,
    evaluated_at: str = "centres",
    tails: str = "exclude",
    floor: float = 0.0,
    clip: Sequence[float] | None = None,
    drawing: str = "bin then image",
    rho: float | None = None,
    bound: float | None = None,
    dim: int = 128,
) -> BinDistribution:
    """The initial distribution.

    initial: "uniform" over the whole interval, "U[a, b]" with low mass outside [a, b], "N(mean, sd)", or K numbers.
    outside: the weight of a bin outside the emphasis, where 1 is the weight of a bin inside (the authors' code: 1e-15).
    evaluated_at: the point of a bin that decides; "shifted" is the authors' left edge + 2 / (K + 1), about one bin off.
    bound: however it is scaled, each p_k stays within [e^-bound, e^bound] times its initial value.
    dim: D of the embedding; the drawing "distance-weighted" takes it from there.
    """
    low, high = check_interval(interval)
    if num_bins < 1:
        raise UserError(f"num_bins is {num_bins}: the distribution needs at least one bin.")
    if num_bins > MOST_BINS:
        raise UserError(f"num_bins is {num_bins}: it must be at most {MOST_BINS}.")
    check_choice("tails", tails, TAILS)
    check_choice("evaluated_at", evaluated_at, EVALUATED_AT)
    check_choice("drawing", drawing, DRAWINGS)
    if not 0 <= floor * num_bins < 1:
        raise UserError(f"floor is {floor}: it must be at least 0 and below 1 / num_bins = {1 / num_bins:.4g}.")
    if clip is not None and not (len(clip) == 2 and 0 < clip[0] < clip[1]):
        raise UserError(f"clip is {list(clip)}: it must hold two growing positive numbers, such as [1e-25, 1e25].")
    if rho is not None and not 0 <= rho <= 1:
        raise UserError(f"rho is {rho}: it is the share of flipped triplets, between 0 and 1.")
    if bound is not None and not 0.001 <= bound <= 50:
        raise UserError(
            f"bound is {bound}: it limits |log(p_k / initial p_k)|; give a number from 0.001 to 50, such as 1."
        )
    if bound is not None and clip is not None:
        raise UserError("bound and clip are two ways to the same end: give one of them.")
    edges = torch.linspace(low, high, num_bins + 1, dtype=torch.float64)
    points_K = (edges[:-1] + edges[1:]) / 2 if evaluated_at == "centres" else edges[:-1] + 2 / (num_bins + 1)
    weights_K = initial_weights(initial, points_K, outside)
    if clip is None:
        weights_K = raised_to_floor(weights_K / weights_K.sum(), floor)
    initial_K = None if bound is None else weights_K
    limits = (clip[0], clip[1]) if clip is not None else None
    return BinDistribution((low, high), weights_K, tails, floor, limits, drawing, rho, bound, initial_K, dim)


def initial_weights(initial: str | Sequence[float], points_K: Tensor, outside: float) -> Tensor:
    """The initial shapes of the paper's Tab. 5c, or the user's own K numbers."""
    if not isinstance(initial, str):
        return given_weights(initial, len(points_K))
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


def given_weights(values: Sequence[float], num_bins: int) -> Tensor:
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
