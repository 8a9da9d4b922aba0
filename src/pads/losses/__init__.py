"""Ranking losses, called `loss(embeddings_BD, labels_B, triplets)` as in pytorch-metric-learning."""

from collections.abc import Callable
from typing import Any

from torch import nn

from pads.config import Part, build, unknown
from pads.losses.margin import MarginLoss
from pads.losses.pairs import ContrastiveLoss, MultiSimilarityLoss
from pads.losses.proxies import NormalisedSoftmaxLoss, ProxyAnchorLoss
from pads.losses.triplet import TripletLoss
from pads.pml.losses import pml_loss
from pads.pml.names import is_theirs, meant

LOSSES: dict[str, Callable[..., nn.Module]] = {
    "triplet": TripletLoss,
    "margin": MarginLoss,
    "multi-similarity": MultiSimilarityLoss,
    "contrastive": ContrastiveLoss,
    "proxy-anchor": ProxyAnchorLoss,
    "normalised-softmax": NormalisedSoftmaxLoss,
}


def build_loss(part: Part, **given: Any) -> nn.Module:
    """The loss of that name, ours or `pml:` theirs; given: num_classes, embedding_size and seed."""
    if is_theirs(part):
        return pml_loss(part, **given)
    if part.name not in LOSSES:
        raise unknown("loss", part.name, [*LOSSES, *meant(part.name, "losses")])
    return build(LOSSES, part, "loss", **given)


__all__ = [
    "LOSSES",
    "ContrastiveLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NormalisedSoftmaxLoss",
    "ProxyAnchorLoss",
    "TripletLoss",
    "build_loss",
]
