"""Ranking losses, called `loss(embeddings_BD, labels_B, triplets)` as in pytorch-metric-learning."""

from collections.abc import Callable

from torch import nn

from pads.losses.margin import MarginLoss
from pads.losses.triplet import TripletLoss

LOSSES: dict[str, Callable[..., nn.Module]] = {"triplet": TripletLoss, "margin": MarginLoss}

__all__ = ["LOSSES", "MarginLoss", "TripletLoss"]
