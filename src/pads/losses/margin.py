"""Margin loss (Wu et al. 2017), with a boundary beta per class that is learned or constant.

Dimensions: B batch, D embedding, T triplets, C classes.
"""

import torch
from torch import Tensor, nn

from pads.errors import UserError
from pads.losses.triplet import measure_share
from pads.pml.tuples import Tuples, as_triplets
from pads.sampling.triplets import Triplets


def pair_losses(embeddings_BD: Tensor, triplets: Triplets, beta_T: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """max(0, d_ap - beta + gamma) and max(0, beta - d_an + gamma), beta that of the anchor's class."""
    anchors_TD, positives_TD, negatives_TD = (embeddings_BD[index_T] for index_T in triplets)
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
    """The mean over the active pairs; beta is a parameter with a learning rate of its own."""

    risen: Tensor

    def __init__(
        self,
        num_classes: int = 1,
        beta: float = 1.2,
        margin: float = 0.2,
        learn_beta: bool = True,
        rise: float = 0.0,
        pace: float | None = None,
    ) -> None:
        """
        num_classes: one beta for each class, indexed by the labels; with 1, one beta for all.
        rise, pace: a self-paced boundary. After each batch every boundary is raised, beside what it learns, by `pace` times
            the share of triplets that cost nothing any more, and by `rise` in all: a low one pulls classes together soon,
            a high one goes on to push them apart.
        """
        super().__init__()
        is_constant, is_paced = rise == 0 and pace is None, rise > 0 and pace is not None and pace > 0
        if not (is_constant or is_paced):
            raise UserError(
                f"rise is {rise} and pace {'null' if pace is None else pace}: a self-paced boundary needs both above 0, such "
                "as 0.6 and 0.05; rise 0 without a pace (null) is a constant one."
            )
        if num_classes < 1:
            raise UserError(f"num_classes is {num_classes}: the margin loss needs at least one boundary.")
        self.margin = margin
        self.beta = nn.Parameter(torch.full((num_classes,), float(beta)), requires_grad=learn_beta)
        self.rise, self.pace = rise, pace
        if pace is not None:
            self.register_buffer("risen", torch.zeros(()))

    def boundaries(self, labels_B: Tensor, triplets: Triplets) -> Tensor:
        beta = self.beta[labels_B[triplets.anchors]] if len(self.beta) > 1 else self.beta
        return beta if self.pace is None else beta + self.risen

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples) -> Tensor:
        return self.value_and_share(embeddings_BD, labels_B, triplets)[0]

    def value_and_share(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples) -> tuple[Tensor, Tensor]:
        """Return the loss, and the share of triplets with an active pair. A self-paced boundary rises after it."""
        triplets = as_triplets(triplets)
        positive_T, negative_T = pair_losses(embeddings_BD, triplets, self.boundaries(labels_B, triplets), self.margin)
        share = measure_share((positive_T > 0) | (negative_T > 0))
        if self.pace is not None and self.training and torch.is_grad_enabled():
            self.risen.add_(self.pace * (1 - share)).clamp_(max=self.rise)
        return mean_over_active(torch.cat([positive_T, negative_T])), share

    def summary(self) -> dict[str, float]:
        """For the log: the mean boundary, of one that rises."""
        return {} if self.pace is None else {"boundary": (self.beta.mean() + self.risen).item()}
