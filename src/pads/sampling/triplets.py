"""Drawing triplets: the only place that draws.

Dimensions: B batch, D embedding, K bins, R references.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pads.errors import UserError
from pads.sampling.bins import BinDistribution, check_choice
from pads.sampling.distances import pairwise_distances
from pads.sampling.rules import NegativeRule

NEGATIVES_FROM = ("other classes", "all but the anchor", "all")


class Triplets(NamedTuple):
    """Indices into the batch, one triplet for each image as anchor; pytorch-metric-learning's `indices_tuple`."""

    anchors: Tensor
    positives: Tensor
    negatives: Tensor


def draw_triplets(
    embeddings_BD: Tensor,
    labels_B: Tensor,
    rule: NegativeRule,
    *,
    negatives_from: str = "other classes",
    anchor_as_positive: bool = False,
    rho: float = 0.0,
    generator: torch.Generator | None = None,
) -> Triplets:
    """One triplet per image: a random positive, and a negative drawn by the rule's weights. No host synchronisation.

    negatives_from: who may be the negative. "all but the anchor" is the paper's self-regularisation: positives are
        merged into the negatives (Sec. 4.2). "all" adds the anchor itself, as the authors' code does.
    anchor_as_positive: the anchor may be drawn as its own positive (the authors' code). An anchor without another image
        of its class in the batch is its own positive in any case.
    rho: the share of triplets with the anchor as positive and a true positive as negative (R-Margin, Roth et al. 2020).
    """
    check_batch(embeddings_BD, labels_B, negatives_from, rho)
    distances_BB = pairwise_distances(embeddings_BD.detach())
    same_BB = labels_B[:, None] == labels_B[None, :]
    self_BB = torch.eye(len(labels_B), dtype=torch.bool, device=labels_B.device)
    return draw_among(distances_BB, same_BB, self_BB, rule, negatives_from, anchor_as_positive, rho, generator)


def draw_among(
    distances_BR: Tensor,
    same_BR: Tensor,
    self_BR: Tensor,
    rule: NegativeRule,
    negatives_from: str,
    anchor_as_positive: bool,
    rho: float,
    generator: torch.Generator | None,
) -> Triplets:
    """The same among R references, which may be the batch itself: who is of the anchor's class, and who is the anchor.

    An anchor without a positive and not among the references, or without a candidate, draws nothing of meaning.
    """
    anchors_B = torch.arange(len(same_BR), device=same_BR.device)
    positives_BR = same_BR if anchor_as_positive else same_BR & ~self_BR
    positives_B = draw(positives_BR.float(), self_BR, generator)

    candidates_BR = negative_candidates(same_BR, self_BR, negatives_from)
    negatives_B = draw(rule(distances_BR, candidates_BR, positives_B), candidates_BR, generator)

    if rho > 0:
        flipped_B = torch.rand(len(anchors_B), device=same_BR.device, generator=generator) < rho
        flipped_B &= self_BR.any(1)
        negatives_B = torch.where(flipped_B, positives_B, negatives_B)
        positives_B = torch.where(flipped_B, self_BR.float().argmax(1), positives_B)
    return Triplets(anchors_B, positives_B, negatives_B)


def negative_candidates(same_BR: Tensor, self_BR: Tensor, negatives_from: str) -> Tensor:
    return {"other classes": ~same_BR, "all but the anchor": ~self_BR, "all": torch.ones_like(same_BR)}[negatives_from]


def draw(weights_BB: Tensor, fallback_BB: Tensor, generator: torch.Generator | None) -> Tensor:
    """One index per row with probability proportional to its weight; by the fallback where a row has none.

    By the inverse of the cumulative sums: one random number per row. They are summed in float64, where a parallel sum cannot
    lift a weight of 0 above its neighbour.
    """
    relative_BB = weights_BB / weights_BB.amax(1, keepdim=True).clamp(min=torch.finfo(weights_BB.dtype).tiny)
    # 1e-30 of the fallback is lost beside any weight, and is all there is in a row without one
    sums_BB = torch.add(relative_BB, fallback_BB, alpha=1e-30).cumsum(1, dtype=torch.float64)
    uniform_B1 = torch.rand((len(sums_BB), 1), dtype=torch.float64, device=sums_BB.device, generator=generator)
    drawn_B1 = torch.searchsorted(sums_BB, uniform_B1 * sums_BB[:, -1:], right=True)
    return drawn_B1.squeeze(1).clamp(max=weights_BB.shape[1] - 1)


def check_draw(negatives_from: str, rho: float) -> None:
    check_choice("negatives_from", negatives_from, NEGATIVES_FROM)
    if not 0 <= rho <= 1:
        raise UserError(f"rho is {rho}: it is the share of flipped triplets, between 0 and 1.")


def check_batch(embeddings_BD: Tensor, labels_B: Tensor, negatives_from: str, rho: float) -> None:
    check_draw(negatives_from, rho)
    if embeddings_BD.ndim != 2 or labels_B.shape != embeddings_BD.shape[:1]:
        raise UserError(
            f"draw_triplets takes embeddings (B, D) and labels (B,), not {tuple(embeddings_BD.shape)} and {tuple(labels_B.shape)}."
        )
    # On a GPU this look would wait for the device, so there a batch of one class draws its own images as negatives.
    if not labels_B.is_cuda and negatives_from == "other classes" and bool((labels_B == labels_B[0]).all()):
        raise UserError(
            "all images of the batch are of one class, so there is no negative: draw batches of several classes."
        )


class TripletStatistics(NamedTuple):
    """Sums over triplets of what a reader wants to know of the sampler (device tensors, no host synchronisation)."""

    drawn_K: Tensor
    """Negatives drawn from each bin."""
    counts: Tensor
    """[triplets, below the bins, above the bins, positive is the anchor, negative is of the anchor's class, sum of d_an]."""


def triplet_statistics(
    embeddings_BD: Tensor, labels_B: Tensor, triplets: tuple[Tensor, ...], bins: BinDistribution
) -> TripletStatistics:
    """What was drawn: the histogram of the negatives' distances and the shares of the special cases.

    triplets: (anchors, positives, negatives), or (anchors, positives, anchors, negatives) where a miner forms pairs.
    """
    anchors_of_positives_B, positives_B, *others, negatives_B = triplets
    anchors_B = others[0] if others else anchors_of_positives_B
    with torch.no_grad():
        unit_BD = torch.nn.functional.normalize(embeddings_BD.detach().float(), dim=1)
        distances_B = (unit_BD[anchors_B] - unit_BD[negatives_B]).square().sum(1).sqrt()
        low, high = bins.interval
        inside_B = (distances_B >= low) & (distances_B <= high)
        drawn_K = torch.zeros(bins.num_bins, device=distances_B.device)
        drawn_K.scatter_add_(0, bins.bin_of(distances_B), inside_B.float())
        counts = torch.stack(
            [
                torch.ones_like(distances_B).sum(),
                (distances_B < low).sum(),
                (distances_B > high).sum(),
                (positives_B == anchors_of_positives_B).sum(),
                (labels_B[negatives_B] == labels_B[anchors_B]).sum(),
                distances_B.sum(),
            ]
        )
        return TripletStatistics(drawn_K, counts)
