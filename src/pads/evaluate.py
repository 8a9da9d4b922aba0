"""How good an embedding is: embed a split, compute the metrics, return a dict of fractions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.errors import UserError
from pads.metrics import compute_metrics
from pads.runtime.team import ALONE

REPORTED = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "r-precision", "nmi", "intra", "inter")


def evaluate(
    network: Callable[[Tensor], Tensor],
    images: Iterable[tuple[Tensor, Tensor]],
    metrics: Sequence[str] = REPORTED,
    also: Callable[[Tensor, Tensor], Mapping[str, Any]] | None = None,
    **options: int,
) -> dict[str, Any]:
    """Measure the network's embeddings of `images`, which gives batches of (images, labels).

    also: a further look at the embeddings and labels; what it finds is added to the metrics.

    A split that is divided into queries and gallery says so by `is_query_N` and `is_gallery_N`. Options go to
    `compute_metrics` (seed, num_restarts).
    """
    if not metrics:
        return {}
    team = getattr(images, "team", ALONE)  # of several processes each embeds its part, and the first measures the whole
    embeddings_ND, labels_N = team.on_first(*embed(network, images))
    is_query_N, is_gallery_N = getattr(images, "is_query_N", None), getattr(images, "is_gallery_N", None)

    def measured() -> dict[str, Any]:
        found = compute_metrics(
            embeddings_ND, labels_N, metrics, is_query_N=is_query_N, is_gallery_N=is_gallery_N, **options
        )
        return {**found, **also(embeddings_ND, labels_N)} if also else found

    return team.lead(measured)


def embed(network: Callable[[Tensor], Tensor], images: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Embeddings and labels of all images. The network is in evaluation mode meanwhile and as it was afterwards.

    A batch may be filled up with images beyond its labels, to keep its shape; these are left out.
    """
    with evaluation_mode(network), torch.no_grad():
        pairs = [(network(images_BCHW)[: len(labels_B)], labels_B) for images_BCHW, labels_B in images]
    if not pairs:
        raise UserError("there is no image to evaluate: give a split that is not empty.")
    return torch.cat([embeddings for embeddings, _ in pairs]), torch.cat([labels for _, labels in pairs])


@contextmanager
def evaluation_mode(network: Callable[[Tensor], Tensor]) -> Iterator[None]:
    if not isinstance(network, nn.Module):
        yield
        return
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:  # each by itself: some of them may have been frozen by hand
            module.training = mode


def raw_pixels(images_BCHW: Tensor) -> Tensor:
    """The picture itself as its embedding, at most 32 x 32 pixels of it: what a trained network has to beat."""
    if images_BCHW.shape[-1] > 32:
        images_BCHW = F.adaptive_avg_pool2d(images_BCHW, 32)
    return F.normalize(images_BCHW.flatten(1), dim=1)
