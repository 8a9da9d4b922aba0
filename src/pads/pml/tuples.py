"""What miners of pytorch-metric-learning give: triplets, or positive and negative pairs apart.

Dimensions: P positive pairs, N negative pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pads.sampling.triplets import Triplets


class Pairs(NamedTuple):
    """Positive and negative pairs apart, as some miners form them: pytorch-metric-learning's `indices_tuple` of four."""

    anchors_of_positives: Tensor
    positives: Tensor
    anchors_of_negatives: Tensor
    negatives: Tensor


Tuples = Triplets | Pairs


def as_triplets(tuples: Tuples) -> Triplets:
    """Return the triplets themselves; of pairs, every positive with every negative of the same anchor."""
    if len(tuples) == 3:
        return Triplets(*tuples)
    anchors_P, positives_P, anchors_N, negatives_N = tuples
    positive, negative = torch.where(anchors_P[:, None] == anchors_N[None, :])
    return Triplets(anchors_P[positive], positives_P[positive], negatives_N[negative])
