"""The metrics by name, and one call that computes any of them together.

N images, D embedding, Q queries, K neighbours.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pads.errors import UserError
from pads.metrics.clustering import AT_HAND, class_ids, nmi_from, start_draws
from pads.metrics.neighbours import find_marked, nearest_neighbours
from pads.metrics.retrieval import map_at_r, r_precision, recall_at
from pads.metrics.spread import inter_class_distance, intra_class_distance
from pads.runtime.graphs import Replayed


class Evaluated(NamedTuple):
    """What a metric may look at."""

    embeddings_ND: Tensor
    """float32, all finite"""
    labels_N: Tensor
    """the classes, renamed 0 … num_classes - 1"""
    num_classes: int
    matches_QK: Tensor
    """which neighbours have the query's label, nearest first; empty if no metric asked for needs neighbours"""
    num_relevant_Q: Tensor
    """R: the gallery images with the query's label, itself not counted"""
    max_relevant: int
    """the largest R; K reaches it for every metric that does not itself say how many neighbours it needs"""
    seed: int
    num_restarts: int
    draws_CRL: Tensor
    """the random numbers of k-means for this seed and these restarts; empty if NMI was not asked for"""


METRICS: dict[str, Callable[..., Tensor]] = {
    "recall": lambda e, k: recall_at(e.matches_QK, k),
    "map@r": lambda e: map_at_r(e.matches_QK[:, : e.max_relevant], e.num_relevant_Q),
    "r-precision": lambda e: r_precision(e.matches_QK[:, : e.max_relevant], e.num_relevant_Q),
    "nmi": lambda e: nmi_from(e.embeddings_ND, e.labels_N, e.draws_CRL),
    "intra": lambda e: intra_class_distance(e.embeddings_ND, e.labels_N),
    "inter": lambda e: inter_class_distance(e.embeddings_ND, e.labels_N),
}
"""Look up a metric by name: a function of `Evaluated` that returns one number.

One that needs a second argument, k, is asked for as "name@k", such as "recall@1". `intra` and `inter` are the mean cosine
distances within a class and between the centres of classes.
"""

WITHOUT_NEIGHBOURS = {"nmi", "intra", "inter"}
"""Metrics for which no neighbours need to be found."""

OUR_OWN = dict(METRICS)
"""Metrics that wait for nothing on the host."""


@torch.no_grad()
def compute_metrics(
    embeddings_ND: Tensor,
    labels_N: Tensor,
    names: Sequence[str],
    *,
    is_query_N: Tensor | None = None,
    is_gallery_N: Tensor | None = None,
    seed: int = 0,
    num_restarts: int = 3,
) -> dict[str, float]:
    """Return the metrics asked for, as fractions, in the order asked for; the neighbours are found once for all of them.

    Without flags every image is query and gallery. The flags concern retrieval; clustering and spread see all images. A
    metric that has nothing to average over (MAP@R where no class has two images) is nan.
    """
    asked = check_metric_names(names)
    if not asked:
        return {}
    if embeddings_ND.ndim != 2 or labels_N.shape != embeddings_ND.shape[:1] or not len(labels_N):
        raise UserError(
            f"metrics need embeddings of shape (images, dimension) and one label each, "
            f"not {tuple(embeddings_ND.shape)} and {tuple(labels_N.shape)}"
        )
    embeddings_ND, classes_N = embeddings_ND.float(), class_ids(labels_N)
    queries_Q = find_marked(is_query_N, embeddings_ND, "query")
    num_relevant_Q = _num_relevant(classes_N, find_marked(is_gallery_N, embeddings_ND, "gallery"))[queries_Q]
    # Without flags, the only wait for the device before the end.
    num_broken, last_class, max_relevant = torch.stack(
        [(~embeddings_ND.isfinite()).any(1).sum(), classes_N.max(), num_relevant_Q.amax()]
    ).tolist()
    if num_broken:
        raise UserError(
            f"{num_broken} of {len(embeddings_ND)} embeddings are not finite: the training that made them diverged; "
            "lower its learning rate"
        )
    families = [family for family, _ in asked.values()]
    ks = [k or max_relevant for family, k in asked.values() if family not in WITHOUT_NEIGHBOURS]
    draws_CRL = embeddings_ND.new_empty(0)
    if "nmi" in families:
        draws_CRL = start_draws(last_class + 1, range(seed, seed + num_restarts), embeddings_ND.device)
    # What a GPU does here for few images is launching; where nothing waits for the host, it launches all at once.
    is_small = is_query_N is None and is_gallery_N is None and len(embeddings_ND) ** 2 <= AT_HAND
    measure = _measure_at_once if is_small and all(METRICS[f] is OUR_OWN.get(f) for f in families) else _measure
    values_M = measure(
        embeddings_ND,
        classes_N,
        num_relevant_Q,
        draws_CRL,
        asked=tuple(asked.values()),
        num_neighbours=max(ks, default=0),
        num_classes=last_class + 1,
        max_relevant=max_relevant,
        seed=seed,
        num_restarts=num_restarts,
        is_query_N=is_query_N,
        is_gallery_N=is_gallery_N,
    )
    return dict(zip(asked, values_M.tolist(), strict=True))


def _measure(
    embeddings_ND: Tensor,
    classes_N: Tensor,
    num_relevant_Q: Tensor,
    draws_CRL: Tensor,
    *,
    asked: Sequence[tuple[str, int | None]],
    num_neighbours: int,
    num_classes: int,
    max_relevant: int,
    seed: int,
    num_restarts: int,
    is_query_N: Tensor | None,
    is_gallery_N: Tensor | None,
) -> Tensor:
    """Compute the metrics asked for."""
    matches_QK = torch.empty(len(num_relevant_Q), 0, dtype=torch.bool, device=classes_N.device)
    if num_neighbours:
        neighbours_QK = nearest_neighbours(
            embeddings_ND, num_neighbours, is_query_N=is_query_N, is_gallery_N=is_gallery_N
        )
        matches_QK = classes_N[neighbours_QK] == classes_N[find_marked(is_query_N, embeddings_ND, "query"), None]
    evaluated = Evaluated(
        embeddings_ND, classes_N, num_classes, matches_QK, num_relevant_Q, max_relevant, seed, num_restarts, draws_CRL
    )
    values = [METRICS[family](evaluated, *([] if k is None else [k])) for family, k in asked]
    return torch.stack([torch.as_tensor(value, dtype=torch.float32, device=classes_N.device) for value in values])


_measure_at_once = Replayed(_measure)


def check_metric_names(names: Sequence[str]) -> dict[str, tuple[str, int | None]]:
    """Each name with its key in METRICS and its k, if any; an unknown one is refused with the nearest right ones."""
    return {name: _parse(name) for name in names}


def _parse(name: str) -> tuple[str, int | None]:
    if name in METRICS and not _takes_k(name):
        return name, None
    family, _, k = name.partition("@")
    if family in METRICS and _takes_k(family) and re.fullmatch("[1-9][0-9]*", k):
        return family, int(k)
    right = [f"{key}@1" if _takes_k(key) else key for key in METRICS]
    near = difflib.get_close_matches(name, right, cutoff=0.5) or right
    raise UserError(f"there is no metric {name!r}; did you mean {', '.join(near)}?")


def _takes_k(family: str) -> bool:
    parameters = inspect.signature(METRICS[family]).parameters.values()
    return sum(parameter.default is parameter.empty for parameter in parameters) > 1


def _num_relevant(classes_N: Tensor, gallery_G: Tensor) -> Tensor:
    in_gallery_N = torch.zeros_like(classes_N).index_fill_(0, gallery_G, 1)
    counts_N = torch.zeros_like(classes_N).index_add_(0, classes_N, in_gallery_N)
    return counts_N[classes_N] - in_gallery_N
