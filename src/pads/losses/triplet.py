"""Triplet loss (Schroff et al. 2015; paper, Eq. 1).

Dimensions: B batch, D embedding, T triplets.
"""

from torch import Tensor, nn

from pads.errors import UserError
from pads.pml.tuples import Tuples, as_triplets
from pads.sampling.triplets import Triplets


def triplet_losses(embeddings_BD: Tensor, triplets: Triplets, margin: float) -> Tensor:
    """max(0, d_ap^2 - d_an^2 + gamma) for each triplet, with squared distances."""
    anchors_TD, positives_TD, negatives_TD = (embeddings_BD[index_T] for index_T in triplets)
    positive_T = (anchors_TD - positives_TD).square().sum(1)
    negative_T = (anchors_TD - negatives_TD).square().sum(1)
    return (positive_T - negative_T + margin).relu()


def measure_share(active_T: Tensor) -> Tensor:
    """Return the share of active triplets, 0 of none: a miner may find no triplet in a batch."""
    return active_T.float().mean() if len(active_T) else active_T.sum().float()


class TripletLoss(nn.Module):
    """The mean over the triplets, or their sum as in the authors' code."""

    def __init__(self, margin: float = 0.2, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum"):
            raise UserError(f"reduction is {reduction!r}: choose 'mean' or 'sum'.")
        self.margin, self.reduction = margin, reduction

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples) -> Tensor:
        return self.value_and_share(embeddings_BD, labels_B, triplets)[0]

    def value_and_share(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples) -> tuple[Tensor, Tensor]:
        """Return the loss, and the share of triplets that violate the margin."""
        losses_T = triplet_losses(embeddings_BD, as_triplets(triplets), self.margin)
        loss = losses_T.mean() if self.reduction == "mean" and len(losses_T) else losses_T.sum()
        return loss, measure_share(losses_T > 0)
