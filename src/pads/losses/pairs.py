"""Losses over all pairs of a batch, which need no triplets: multi-similarity and contrastive.

Every shape follows from the batch alone, and pairs are picked by masks, so that a CUDA graph can hold each of them.

Dimensions: B batch, D embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.errors import UserError
from pads.losses.margin import mean_over_active
from pads.pml.tuples import Tuples


def cosine_similarities(rows_BD: Tensor) -> Tensor:
    unit_BD = F.normalize(rows_BD, dim=1)
    return unit_BD @ unit_BD.T


def pair_masks(labels_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return which pairs are positive (one class, two images) and which are negative (two classes)."""
    same_BB = labels_B[:, None] == labels_B[None, :]
    self_BB = torch.eye(len(labels_B), dtype=torch.bool, device=labels_B.device)
    return same_BB & ~self_BB, ~same_BB


def log_one_plus_sum_exp(values: Tensor, allowed: Tensor, dim: int) -> Tensor:
    """Return log(1 + sum of exp(value)) along `dim` over the allowed values: 0 where none is allowed."""
    values = values.masked_fill(~allowed, -torch.inf)
    return torch.logsumexp(torch.cat([values, torch.zeros_like(values.narrow(dim, 0, 1))], dim), dim)


class MultiSimilarityLoss(nn.Module):
    """Weighs every pair by its similarity relative to the other pairs of its anchor (Wang et al. 2019)."""

    triplets = "all"
    """It forms its own pairs, and the triplets that were drawn mean nothing to it."""

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float | None = None) -> None:
        """
        alpha, beta: how sharply positive and negative pairs are weighed.
        base: the cosine similarity that positive pairs should exceed and negative pairs stay below.
        epsilon: keep only positive pairs that are less similar than the anchor's most similar negative pair plus this,
            and negative pairs that are more similar than its least similar positive pair minus this; null keeps all.
        """
        super().__init__()
        if alpha <= 0 or beta <= 0:
            raise UserError(f"alpha is {alpha} and beta {beta}: both must be above 0.")
        self.alpha, self.beta, self.base, self.epsilon = alpha, beta, base, epsilon

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples | None = None) -> Tensor:
        similarities_BB = cosine_similarities(embeddings_BD)
        positives_BB, negatives_BB = self.mine(similarities_BB.detach(), *pair_masks(labels_B))
        of_positives_B = log_one_plus_sum_exp(self.alpha * (self.base - similarities_BB), positives_BB, 1)
        of_negatives_B = log_one_plus_sum_exp(self.beta * (similarities_BB - self.base), negatives_BB, 1)
        return (of_positives_B / self.alpha + of_negatives_B / self.beta).mean()

    def mine(self, similarities_BB: Tensor, positives_BB: Tensor, negatives_BB: Tensor) -> tuple[Tensor, Tensor]:
        """Return the masks of the pairs that are hard for their anchor; an anchor without a positive keeps none."""
        if self.epsilon is None:
            return positives_BB, negatives_BB
        least_B1 = similarities_BB.masked_fill(~positives_BB, torch.inf).amin(1, keepdim=True)
        most_B1 = similarities_BB.masked_fill(~negatives_BB, -torch.inf).amax(1, keepdim=True)
        return (
            positives_BB & (similarities_BB - self.epsilon < most_B1),
            negatives_BB & (similarities_BB + self.epsilon > least_B1),
        )


class ContrastiveLoss(nn.Module):
    """Pulls positive pairs together and pushes negative pairs apart, up to a distance (Hadsell et al. 2006).

    The mean over the active positive pairs plus the mean over the active negative pairs.
    """

    triplets = "all"

    def __init__(self, positive_margin: float = 0.0, negative_margin: float = 1.0) -> None:
        """
        positive_margin: a positive pair nearer than this costs nothing.
        negative_margin: a negative pair farther than this costs nothing.
        """
        super().__init__()
        self.positive_margin, self.negative_margin = positive_margin, negative_margin

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples | None = None) -> Tensor:
        # below 1e-8 the root has no gradient: that of two equal images would be infinite
        distances_BB = (2 - 2 * cosine_similarities(embeddings_BD)).clamp(min=1e-8).sqrt()
        positives_BB, negatives_BB = pair_masks(labels_B)
        of_positives_BB = (distances_BB - self.positive_margin).relu() * positives_BB
        of_negatives_BB = (self.negative_margin - distances_BB).relu() * negatives_BB
        return mean_over_active(of_positives_BB) + mean_over_active(of_negatives_BB)
