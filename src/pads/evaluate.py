"""How good an embedding is: embed a split, compute the metrics, return a dict of fractions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.config import Config
from pads.data.roles import View
from pads.errors import UserError
from pads.metrics import compute_metrics
from pads.metrics.queries import Interval, Queries, estimate_mean, measure_queries
from pads.runtime.team import ALONE, Team

REPORTED = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "r-precision", "nmi", "intra", "inter")

BASELINES = ("pretrained features", "raw pixels", "untrained")
"""What a trained network is compared with, the first that there is before all."""


class Figures(dict[str, float]):
    """Metrics by their names, and what every query found where that was asked for."""

    queries: Queries | None = None


def evaluate(
    network: Callable[[Tensor], Tensor],
    images: Iterable[tuple[Tensor, Tensor]],
    metrics: Sequence[str] = REPORTED,
    *,
    team: Team = ALONE,
    each_query: bool = False,
    **options: int,
) -> Figures:
    """Measure the network's embeddings of `images`, which gives batches of (images, labels).

    team: of several processes, each embeds its part of a `View`, and the first measures the whole.
    each_query: the figures also say what every query found, for `compare_rows`.
    A split that is divided into queries and gallery says so by `is_query_N` and `is_gallery_N`. Options go to
    `compute_metrics` (seed, num_restarts).
    """
    if not metrics:
        return Figures()
    own = images.batches(team) if isinstance(images, View) else images
    embeddings_ND, labels_N = team.on_first(*embed(network, own))
    is_query_N, is_gallery_N = getattr(images, "is_query_N", None), getattr(images, "is_gallery_N", None)

    def measure() -> Figures:
        flags: dict[str, Any] = {"is_query_N": is_query_N, "is_gallery_N": is_gallery_N}
        figures = Figures(compute_metrics(embeddings_ND, labels_N, metrics, **{**flags, **options}))
        if each_query:
            figures.queries = measure_queries(embeddings_ND, labels_N, **flags)
        return figures

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


def compare_rows(rows: Mapping[str, Mapping[str, float]], own: str = "trained") -> dict[str, Any]:
    """Return how far the figures of one row can be trusted, and what it gains over the baselines; JSON-ready.

    Each is [mean, low, high], a 95 % interval over classes (metrics/queries.py); a gain is paired, query by query. Rows that
    do not know what every query found are passed over, and nothing is returned where the own one does not.
    """
    known = {name: row.queries for name, row in rows.items() if isinstance(row, Figures) and row.queries is not None}
    if own not in known:
        return {}
    found = known[own]
    counts = {"queries": len(found.classes_Q), "classes": len(np.unique(found.classes_Q))}
    gains = {
        name: as_lists(found, found.recalls_Q - known[name].recalls_Q, found.precisions_Q - known[name].precisions_Q)
        for name in BASELINES
        if name in known and name != own
    }
    return {**counts, own: as_lists(found, found.recalls_Q, found.precisions_Q), "gain_over": gains}


def as_lists(queries: Queries, recalls_Q: np.ndarray, precisions_Q: np.ndarray) -> dict[str, list[float]]:
    """Return mean and interval of both metrics; one that has none, for want of classes, is left out."""
    values = {"recall@1": recalls_Q, "map@r": precisions_Q}
    estimates = {name: estimate_mean(each_Q, queries.classes_Q) for name, each_Q in values.items()}
    return {name: list(found) for name, found in estimates.items() if isinstance(found, Interval)}


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
