"""Sampling rules: a weight for every candidate pair of the batch.

A rule is called `rule(distances_BB, candidates_BB, positives_B) -> weights_BB`: row a holds, for each image that may be
the negative of anchor a, a weight proportional to its probability of being drawn. A row of zeros means that the rule
has no opinion; the draw is then uniform over the candidates.

Dimensions: B batch, D embedding, K bins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pads.errors import UserError
from pads.sampling.bins import BinDistribution, bin_distribution, check_choice

NegativeRule = Callable[[Tensor, Tensor, Tensor], Tensor]

SEMIHARD_FORMS = ("nearest", "in band")


@dataclass(frozen=True)
class Random:
    """Weigh every candidate alike."""

    def __call__(self, distances_BB: Tensor, candidates_BB: Tensor, positives_B: Tensor) -> Tensor:
        return candidates_BB.float()


@dataclass(frozen=True)
class Hard:
    """Take the nearest candidate: argmin d_an (paper, Sec. 3.1)."""

    def __call__(self, distances_BB: Tensor, candidates_BB: Tensor, positives_B: Tensor) -> Tensor:
        return nearest_of(candidates_BB, distances_BB)


@dataclass(frozen=True)
class Semihard:
    """Take a candidate beyond the positive: the nearest, argmin over d_an > d_ap (paper, Sec. 3.1), or any within the margin."""

    form: str = "nearest"
    margin: float = 0.2

    def __post_init__(self) -> None:
        check_choice("form", self.form, SEMIHARD_FORMS)

    def __call__(self, distances_BB: Tensor, candidates_BB: Tensor, positives_B: Tensor) -> Tensor:
        positive_B1 = distances_BB.gather(1, positives_B[:, None])
        beyond_BB = candidates_BB & (distances_BB > positive_B1)
        if self.form == "nearest":
            return nearest_of(beyond_BB, distances_BB)
        return (beyond_BB & (distances_BB < positive_B1 + self.margin)).float()


@dataclass(frozen=True)
class Softhard:
    """Take any candidate nearer than the farthest image of the anchor's class (Roth & Brattoli 2019)."""

    def __call__(self, distances_BB: Tensor, candidates_BB: Tensor, positives_B: Tensor) -> Tensor:
        # What is no candidate is of the anchor's class; where positives are candidates too, the drawn one stands for them.
        of_class_BB = (~candidates_BB).scatter(1, positives_B[:, None], True)
        farthest_B1 = distances_BB.masked_fill(~of_class_BB, 0).amax(1, keepdim=True)
        return (candidates_BB & (distances_BB < farthest_B1)).float()


@dataclass(frozen=True)
class DistanceWeighted:
    """Weigh by min(lambda, 1 / q(d_an)), distance-weighted sampling (Wu et al. 2017; the paper's U-dist, Eq. 2)."""

    dim: int = 128
    """D of the embedding: q is the law of distances on the unit sphere of that dimension."""
    cutoff: float = 0.5
    """lambda = 1 / q(cutoff): below this distance the weight stays what it is there."""
    ignore_above: float | None = None
    """Candidates farther than this are not drawn (Wu et al.: 1.4; the authors of PADS: none)."""

    def __post_init__(self) -> None:
        if self.dim < 3:
            raise UserError(
                f"dim is {self.dim}: distance-weighted sampling needs an embedding of at least 3 dimensions."
            )
        if not 0 < self.cutoff < 2:
            raise UserError(f"cutoff is {self.cutoff}: it is a distance on the unit sphere, between 0 and 2.")

    def __call__(self, distances_BB: Tensor, candidates_BB: Tensor, positives_B: Tensor) -> Tensor:
        if self.ignore_above is not None:
            candidates_BB = candidates_BB & (distances_BB <= self.ignore_above)
        log_lambda = -log_density(torch.tensor(self.cutoff), self.dim)
        log_weights_BB = -log_density(distances_BB.clamp(self.cutoff, 1.99), self.dim)
        return relative_weights(log_weights_BB.clamp(max=log_lambda.item()), candidates_BB)


class BinRule:
    """The learned distribution: a negative from bin u_k with probability p_k (paper, Sec. 4.1)."""

    def __init__(self, distribution: BinDistribution) -> None:
        self.distribution = distribution
        self._log_p_K: Tensor | None = None

    def adjust(self, distribution: BinDistribution) -> None:
        """From now on draws by this distribution. The device's copy is overwritten in place: a CUDA graph keeps reading it."""
        self.distribution = distribution
        if self._log_p_K is not None:
            self._log_p_K.copy_(distribution.probabilities_K.log())

    def log_p_K(self, device: torch.device) -> Tensor:
        if self._log_p_K is None or self._log_p_K.device != device:
            self._log_p_K = self.distribution.probabilities_K.log().float().to(device)
        return self._log_p_K

    def __call__(self, distances_BB: Tensor, candidates_BB: Tensor, positives_B: Tensor) -> Tensor:
        candidates_BB = candidates_BB & self.distribution.covers(distances_BB)
        bins_BB = self.distribution.bin_of(distances_BB)
        counts_BK = torch.zeros(len(bins_BB), self.distribution.num_bins, device=bins_BB.device)
        counts_BK.scatter_add_(1, bins_BB, candidates_BB.float())
        log_weights_BK = self.log_p_K(distances_BB.device).expand_as(counts_BK)
        if self.distribution.drawing == "bin then image":
            log_weights_BK = log_weights_BK - counts_BK.clamp(min=1).log()
        return relative_weights(log_weights_BK, counts_BK > 0).gather(1, bins_BB) * candidates_BB


@functools.wraps(bin_distribution)
def bins(*arguments: Any, **options: Any) -> BinRule:
    """A bin distribution that stays as it starts."""
    return BinRule(bin_distribution(*arguments, **options))


def in_dimension(rule: Any, dim: int) -> Any:
    """Return the rule for an embedding of `dim` dimensions: distance-weighted sampling depends on it, the others do not."""
    return replace(rule, dim=dim) if isinstance(rule, DistanceWeighted) else rule


def log_density(distances: Tensor, dim: int) -> Tensor:
    """log q(d), q(d) proportional to d^(D-2) (1 - d^2 / 4)^((D-3)/2): distances on the unit sphere (paper, Sec. 3.1)."""
    return (dim - 2) * distances.log() + (dim - 3) / 2 * torch.log1p(-(distances**2) / 4)


def relative_weights(log_weights: Tensor, allowed: Tensor) -> Tensor:
    """exp of log-weights relative to the largest allowed one of each row: spans of 1e50 and more overflow float32."""
    log_weights = log_weights.masked_fill(~allowed, -torch.inf)
    largest = log_weights.amax(1, keepdim=True)
    return torch.exp(log_weights - largest.masked_fill(largest == -torch.inf, 0))


def nearest_of(allowed_BB: Tensor, distances_BB: Tensor) -> Tensor:
    """Weight 1 for the nearest allowed image of each row, 0 for the others."""
    nearest_B = distances_BB.masked_fill(~allowed_BB, torch.inf).argmin(1)
    chosen_BB = torch.zeros_like(distances_BB).scatter_(1, nearest_B[:, None], 1.0)
    return chosen_BB * allowed_BB


NEGATIVE_RULES: dict[str, Callable[..., NegativeRule]] = {
    "random": Random,
    "hard": Hard,
    "semihard": Semihard,
    "softhard": Softhard,
    "distance-weighted": DistanceWeighted,
    "bins": bins,
}
"""Look up a static sampling rule by name; each is a curriculum of the same name, too."""
