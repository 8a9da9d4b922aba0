"""How good an embedding is: embed a split, compute the metrics, return a dict of fractions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.config import Config
from pads.data.roles import View
from pads.errors import UserError
from pads.metrics import compute_metrics
from pads.runtime.team import ALONE, Team

REPORTED = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "r-precision", "nmi", "intra", "inter")


def evaluate(
    network: Callable[[Tensor], Tensor],
    images: Iterable[tuple[Tensor, Tensor]],
    metrics: Sequence[str] = REPORTED,
    *,
    team: Team = ALONE,
    **options: int,
) -> dict[str, float]:
    """Measure the network's embeddings of `images`, which gives batches of (images, labels).

    team: of several processes, each embeds its part of a `View`, and the first measures the whole.
    A split that is divided into queries and gallery says so by `is_query_N` and `is_gallery_N`. Options go to
    `compute_metrics` (seed, num_restarts).
    """
    if not metrics:
        return {}
    own = images.batches(team) if isinstance(images, View) else images
    embeddings_ND, labels_N = team.on_first(*embed(network, own))
    is_query_N, is_gallery_N = getattr(images, "is_query_N", None), getattr(images, "is_gallery_N", None)

    def measure() -> dict[str, float]:
        return compute_metrics(
            embeddings_ND, labels_N, metrics, is_query_N=is_query_N, is_gallery_N=is_gallery_N, **options
        )

    return team.lead(measure)


def embed(network: Callable[[Tensor], Tensor], images: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return embeddings and labels of all images. The network is in evaluation mode meanwhile and as it was afterwards.

    A batch may be filled up with images beyond its labels, to keep its shape; these are left out.
    """
    with evaluation_mode(network), torch.no_grad():
        pairs = [(network(images_BCHW)[: len(labels_B)], labels_B) for images_BCHW, labels_B in images]
    if not pairs:
        raise UserError("there is no image to evaluate: give a split that is not empty.")
    return torch.cat([embeddings for embeddings, _ in pairs]), torch.cat([labels for _, labels in pairs])


def metrics_to_report(config: Config) -> tuple[str, ...]:
    """Return the metrics of the test split that a run reports."""
    return (*(f"recall@{k}" for k in config.recall_at), "map@r", "r-precision", "nmi", "intra", "inter")


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
    """Return the picture itself as its embedding, at most 32 x 32 pixels of it: what a trained network has to beat."""
    if images_BCHW.shape[-1] > 32:
        images_BCHW = F.adaptive_avg_pool2d(images_BCHW, 32)
    return F.normalize(images_BCHW.flatten(1), dim=1)
