"""Credit per bin: each bin is raised or lowered by what its own triplets would do to the reward split, not by one sign for all.

The smooth Recall@1 of the reward split has a gradient, which says how every embedding would have to move. Were a linear map
behind the network to follow it, images that are trained on would move too; the triplets of a bin deserve credit if they pull
these images the same way (the inner product of two gradients, at a layer where it costs next to nothing).

Dimensions: B images that are trained on, N images of the reward split, D embedding, K bins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.curricula.learned import RHO_LIMITS, make_rule
from pads.errors import UserError
from pads.metrics.soft import soft_recall
from pads.sampling.bins import BinDistribution, check_choice, scaled_odds
from pads.sampling.distances import pairwise_distances
from pads.sampling.triplets import Triplets, draw

CREDITS = ("own", "shuffled", "opposite")


class AlignedCurriculum:
    """Owns the bin distribution; `advance` is one step of mirror ascent on it along the credits."""

    metrics: tuple[str, ...] = ("recall@1", "soft-recall")

    def __init__(
        self,
        *,
        bins: Mapping[str, Any] | None = None,
        credit: str = "own",
        rate: float = 0.3,
        average: float = 0.1,
        bound: float = 3.0,
        dim: int = 128,
        seed: int = 0,
    ) -> None:
        """
        bins: options of the distribution, see `pads.bin_distribution`; with a `rho` there, that is adapted too.
        credit: "own"; or a control: "shuffled" among the bins, or "opposite".
        rate: of log p for a credit of one standard deviation. average: how much of the running credit is new each time.
        bound: log p stays within this of the initial one. dim: D of the embedding.
        """
        check_choice("credit", credit, CREDITS)
        if rate <= 0 or not 0 < average <= 1 or bound <= 0:
            raise UserError("rate and bound must be above 0, and average above 0 and at most 1.")
        self.rule = make_rule(bins or {}, dim)
        self.initial = self.distribution
        self.credit, self.rate, self.average, self.bound = credit, rate, average, bound
        self.generator = torch.Generator().manual_seed(seed)
        self.running: list[float] | None = None

    @property
    def distribution(self) -> BinDistribution:
        return self.rule.distribution

    def look(
        self,
        embeddings_ND: Tensor,
        labels_N: Tensor,
        seen: tuple[Tensor, Tensor],
        loss_fn: nn.Module | None = None,
    ) -> dict[str, Any]:
        """What `advance` needs besides the metrics: the credit of each bin and, last, of flipped triplets.

        seen: embeddings and labels of images that are trained on, prepared like those of the reward split.
        """
        embeddings_BD, labels_B = seen
        rates_BD = improving_rates(embeddings_ND, labels_N, embeddings_BD)
        return {"credits": bin_credits(embeddings_BD, labels_B, rates_BD, self.distribution, loss_fn).tolist()}

    def advance(self, metrics: Mapping[str, Any], progress: float) -> dict[str, Any]:
        """Raises the bins with more credit than the average draw, lowers the others; returns what to log."""
        credits = self.changed(list(metrics["credits"]))
        self.running = credits if self.running is None else blended(self.running, credits, self.average)
        steps_K, flip_step = ascent(self.running, self.distribution.probabilities_K)
        log_p_K = self.distribution.probabilities_K.log() + self.rate * steps_K
        p_K = bounded(log_p_K, self.initial.probabilities_K.log(), self.bound).softmax(0)
        rho = self.distribution.rho
        if rho is not None and self.initial.rho:
            low, high = (scaled_odds(self.initial.rho, math.exp(sign * self.bound), RHO_LIMITS) for sign in (-1, 1))
            rho = scaled_odds(rho, math.exp(self.rate * flip_step), (low, high))
        self.rule.adjust(replace(self.distribution, weights_K=p_K, rho=rho))
        return {
            "running_credits": self.running,
            "distribution": p_K.tolist(),
            "perplexity": self.distribution.perplexity,
            **({} if rho is None else {"rho": rho}),
        }

    def changed(self, credits: list[float]) -> list[float]:
        """The credits, or what a control makes of them."""
        if self.credit == "opposite":
            return [-value for value in credits]
        if self.credit == "shuffled":
            order = torch.randperm(len(credits) - 1, generator=self.generator).tolist()
            return [*(credits[index] for index in order), credits[-1]]
        return credits

    def state_dict(self) -> dict[str, Any]:
        distribution = self.distribution
        return {
            "weights": distribution.weights_K,
            "rho": distribution.rho,
            "running": self.running,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rule.adjust(replace(self.distribution, weights_K=state["weights"], rho=state["rho"]))
        self.running = state["running"]
        self.generator.set_state(state["generator"])


def improving_rates(embeddings_ND: Tensor, labels_N: Tensor, embeddings_BD: Tensor) -> Tensor:
    """How fast each of the B embeddings moves when a linear map follows the gradient of the reward split's soft recall.

    For e -> normalise(A e), A = I: dJ/dA = G_DD, and an embedding moves by (I - e e^T) G e; of root mean square 1.
    """
    units_ND = F.normalize(embeddings_ND.detach().float(), dim=1)
    with torch.enable_grad():
        moved_ND = units_ND.requires_grad_()
        (gradient_ND,) = torch.autograd.grad(soft_recall(F.normalize(moved_ND, dim=1), labels_N), moved_ND)
    map_DD = gradient_ND.T @ units_ND.detach()
    units_BD = F.normalize(embeddings_BD.detach().float(), dim=1)
    moves_BD = units_BD @ map_DD.T
    rates_BD = moves_BD - units_BD * (units_BD * moves_BD).sum(1, keepdim=True)
    return rates_BD / rates_BD.square().sum(1).mean().sqrt().clamp(min=torch.finfo(torch.float32).tiny)


def bin_credits(
    embeddings_BD: Tensor, labels_B: Tensor, rates_BD: Tensor, bins: BinDistribution, loss_fn: nn.Module | None
) -> Tensor:
    """credits_(K + 1): how fast the loss of each bin's triplets falls at these rates, 0 for an empty bin; last, of flipped ones.

    Every pair of the images counts, not only what is drawn in a training. Without a loss, how fast the pairs of a bin come apart.
    """
    units_BD = F.normalize(embeddings_BD.detach().float(), dim=1).requires_grad_()
    distances_BB = pairwise_distances(units_BD.detach())
    same_BB = labels_B[:, None] == labels_B[None, :]
    self_BB = torch.eye(len(labels_B), dtype=torch.bool, device=labels_B.device)
    generator = torch.Generator(labels_B.device).manual_seed(0)
    positives_B = draw((same_BB & ~self_BB).float(), self_BB, generator)
    bins_BB = bins.bin_of(distances_BB)
    allowed_BB = ~same_BB & bins.covers(distances_BB)

    def credit(anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        if not len(anchors):
            return torch.zeros((), device=labels_B.device)
        triplets = Triplets(anchors, positives, negatives)
        with torch.enable_grad():
            loss = loss_fn(units_BD, labels_B, triplets) if loss_fn else -pair_distances(units_BD, triplets).mean()
            (gradient_BD,) = torch.autograd.grad(loss, units_BD, allow_unused=True)
        return -(gradient_BD * rates_BD).sum() if gradient_BD is not None else torch.zeros_like(loss.detach())

    found = []
    for number in range(bins.num_bins):
        anchors, negatives = torch.where(allowed_BB & (bins_BB == number))
        found.append(credit(anchors, positives_B[anchors], negatives))
    own_B = torch.arange(len(labels_B), device=labels_B.device)
    with_positive = torch.where(positives_B != own_B)[0]
    found.append(credit(with_positive, with_positive, positives_B[with_positive]))
    return torch.stack(found)


def pair_distances(units_BD: Tensor, triplets: Triplets) -> Tensor:
    return ((units_BD[triplets.anchors] - units_BD[triplets.negatives]).square().sum(1) + 1e-8).sqrt()


def blended(old: list[float], new: list[float], share: float) -> list[float]:
    return [(1 - share) * before + share * now for before, now in zip(old, new, strict=True)]


def ascent(credits: list[float], p_K: Tensor) -> tuple[Tensor, float]:
    """The step of each log p_k and of the odds of rho: credit above that of the average draw, in standard deviations, at most 2."""
    credits_K = torch.tensor(credits[:-1], dtype=torch.float64)
    mean = (p_K * credits_K).sum()
    spread = (p_K * (credits_K - mean).square()).sum().sqrt().clamp(min=1e-12)
    steps_K = ((credits_K - mean) / spread).clamp(-2, 2)
    return steps_K, float(((credits[-1] - mean) / spread).clamp(-2, 2))


def bounded(log_p_K: Tensor, initial_K: Tensor, bound: float) -> Tensor:
    """log p within the bound of the initial one, the mean change under the initial distribution being none."""
    change_K = log_p_K - initial_K
    return initial_K + (change_K - (initial_K.exp() * change_K).sum()).clamp(-bound, bound)
