"""Margin loss (Wu et al. 2017), with a boundary beta per class that is learned or constant.

Dimensions: B batch, D embedding, T triplets, C classes.
"""

import torch
from torch import Tensor, nn

from pads.errors import UserError
from pads.losses.triplet import share
from pads.sampling.triplets import Tuples, as_triplets


def pair_losses(embeddings_BD: Tensor, triplets: Tuples, beta_T: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """max(0, d_ap - beta + gamma) and max(0, beta - d_an + gamma), beta that of the anchor's class."""
    anchors_TD, positives_TD, negatives_TD = (embeddings_BD[index_T] for index_T in as_triplets(triplets))
    positive_T = distance(anchors_TD, positives_TD)
    negative_T = distance(anchors_TD, negatives_TD)
    return (positive_T - beta_T + margin).relu(), (beta_T - negative_T + margin).relu()


def distance(a_TD: Tensor, b_TD: Tensor) -> Tensor:
    # 1e-8 keeps the gradient of the root finite where the anchor is its own positive
    return ((a_TD - b_TD).square().sum(1) + 1e-8).sqrt()


def mean_over_active(losses: Tensor) -> Tensor:
    """The sum over the number of positive terms, 0 if there are none.

    The authors count `(pos > 0) + (neg > 0)`: a sum before torch 1.2, a logical or ever since, so that their loss changes
    scale with the torch version. One concatenated mask cannot.
    """
    return losses.sum() / (losses > 0).sum().clamp(min=1)


class MarginLoss(nn.Module):
    """Average the margin loss over the active pairs; beta is a parameter with a learning rate of its own."""

    risen: Tensor

    def __init__(
        self,
        num_classes: int = 1,
        beta: float = 1.2,
        margin: float = 0.2,
        learn_beta: bool = True,
        rise: float = 0.0,
        rise_until: float = 1 / 3,
        pace: float | None = None,
    ) -> None:
        """
        num_classes: one beta for each class, indexed by the labels; with 1, one beta for all.
        rise: how far every boundary is raised, beside what it learns: a low one pulls classes together soon, a high one
            goes on to push them apart. In even steps until the share `rise_until` of the training is over, or
        pace: self-paced: after each batch by this much times the share of triplets that cost nothing any more.
        """
        super().__init__()
        if not 0 < rise_until <= 1:
            raise UserError(f"rise_until is {rise_until}: it is a share of the training, above 0 and at most 1.")
        if pace is not None and not (pace > 0 and rise > 0):
            raise UserError(
                f"pace is {pace} and rise {rise}: a self-paced boundary needs both above 0, such as 0.05 and 0.6; "
                "rise 0 without a pace (null) is a constant one."
            )
        if num_classes < 1:
            raise UserError(f"num_classes is {num_classes}: the margin loss needs at least one boundary.")
        self.margin = margin
        self.beta = nn.Parameter(torch.full((num_classes,), float(beta)), requires_grad=learn_beta)
        self.rise, self.rise_until, self.pace = rise, rise_until, pace
        # without a pace it follows from the progress alone, and is no part of the state
        self.register_buffer("risen", torch.zeros(()), persistent=pace is not None)

    def set_progress(self, progress: float) -> None:
        """Tell the loss how much of the training is over, from 0 to 1; in place, for a CUDA graph that goes on reading it."""
        if self.pace is None:
            self.risen.fill_(self.rise * min(1.0, progress / self.rise_until))

    def boundaries(self, labels_B: Tensor, triplets: Tuples) -> Tensor:
        """Return the boundary of every triplet: that of its anchor's class."""
        beta = self.beta[labels_B[as_triplets(triplets).anchors]] if len(self.beta) > 1 else self.beta
        return beta + self.risen if self.rise else beta

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples) -> Tensor:
        positive_T, negative_T = pair_losses(embeddings_BD, triplets, self.boundaries(labels_B, triplets), self.margin)
        if self.pace is not None and self.training and torch.is_grad_enabled():
            costless = 1 - share((positive_T > 0) | (negative_T > 0))
            self.risen.add_(self.pace * costless).clamp_(max=self.rise)
        return mean_over_active(torch.cat([positive_T, negative_T]))

    def summary(self) -> dict[str, float]:
        """Return what to log: the mean boundary, of one that rises."""
        return {"boundary": (self.beta.mean() + self.risen).item()} if self.rise else {}

    def violations(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples) -> Tensor:
        """Return the share of triplets with an active pair."""
        positive_T, negative_T = pair_losses(embeddings_BD, triplets, self.boundaries(labels_B, triplets), self.margin)
        return share((positive_T > 0) | (negative_T > 0))
