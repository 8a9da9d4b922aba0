"""Ranking losses, called `loss(embeddings_BD, labels_B, triplets)` as in pytorch-metric-learning.

Ours also offer `value_and_share(embeddings_BD, labels_B, triplets)`: the loss, and the share of triplets that cost something,
from one computation.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pads.config import Part, build, unknown
from pads.losses.margin import MarginLoss
from pads.losses.pairs import ContrastiveLoss, MultiSimilarityLoss
from pads.losses.proxies import NormalisedSoftmaxLoss, ProxyAnchorLoss
from pads.losses.triplet import TripletLoss
from pads.pml.losses import pml_loss
from pads.pml.names import is_theirs, suggest_names
from pads.pml.tuples import Tuples

LOSSES: dict[str, Callable[..., nn.Module]] = {
    "triplet": TripletLoss,
    "margin": MarginLoss,
    "multi-similarity": MultiSimilarityLoss,
    "contrastive": ContrastiveLoss,
    "proxy-anchor": ProxyAnchorLoss,
    "normalised-softmax": NormalisedSoftmaxLoss,
}
"""Look up a loss by name: `--set loss.name=margin`."""


def build_loss(part: Part, **given: Any) -> nn.Module:
    """The loss of that name, ours or `pml:` theirs; given: num_classes, embedding_size and seed."""
    if is_theirs(part):
        return pml_loss(part, **given)
    if part.name not in LOSSES:
        raise unknown("loss", part.name, [*LOSSES, *suggest_names(part.name, "losses")])
    return build(LOSSES, part, "loss", **given)


def value_and_share(
    loss_fn: nn.Module, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples
) -> tuple[Tensor, Tensor]:
    """Return the loss, and the share of triplets that cost something: nan if the loss does not say it."""
    both: Any = getattr(loss_fn, "value_and_share", None)
    # a subclass with a `forward` of its own has not said that the method it inherits still gives its loss
    has_forward = next(kind for kind in type(loss_fn).__mro__ if "forward" in vars(kind))
    if "value_and_share" in vars(has_forward):
        return both(embeddings_BD, labels_B, triplets)
    loss = loss_fn(embeddings_BD, labels_B, triplets)
    return loss, torch.full_like(loss.detach(), torch.nan)


__all__ = [
    "LOSSES",
    "ContrastiveLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NormalisedSoftmaxLoss",
    "ProxyAnchorLoss",
    "TripletLoss",
    "build_loss",
    "value_and_share",
]
