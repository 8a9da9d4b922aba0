"""What a trained network finds: neighbours, average precision of each query, and the classes it takes for one another.

Dimensions: N images, D embedding, Q queries, K neighbours, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pads.metrics.neighbours import nearest_neighbours

SHOWN = 8
"""Neighbours that a picture shows of each query."""


@dataclass(frozen=True)
class Retrieval:
    """Every query with its nearest images, nearest first."""

    queries_Q: np.ndarray
    """Which images asked."""
    neighbours_QK: np.ndarray
    """What they found; K reaches the largest R and SHOWN, as far as there are images."""
    distances_QK: np.ndarray
    matches_QK: np.ndarray
    """Whether it is of the query's class."""
    num_relevant_Q: np.ndarray
    """R: what there is to find."""
    precisions_Q: np.ndarray
    """Average precision among the R nearest, whose mean is MAP@R; nan where there is nothing to find."""


def retrieve(
    embeddings_ND: Tensor, labels_N: Tensor, is_query_N: Tensor | None = None, is_gallery_N: Tensor | None = None
) -> Retrieval:
    num_images, device = len(labels_N), labels_N.device
    everyone_N = torch.ones(num_images, dtype=torch.bool, device=device)
    is_query_N = everyone_N if is_query_N is None else is_query_N
    is_gallery_N = everyone_N if is_gallery_N is None else is_gallery_N
    queries_Q = is_query_N.nonzero().squeeze(1)
    in_gallery_C = torch.bincount(labels_N[is_gallery_N], minlength=int(labels_N.max()) + 1)
    num_relevant_Q = in_gallery_C[labels_N[queries_Q]] - is_gallery_N[queries_Q].long()
    k = max(SHOWN, int(num_relevant_Q.max()))
    neighbours_QK = nearest_neighbours(embeddings_ND, k, is_query_N=is_query_N, is_gallery_N=is_gallery_N)
    matches_QK = (labels_N[neighbours_QK] == labels_N[queries_Q, None]).cpu().numpy()
    return Retrieval(
        queries_Q.cpu().numpy(),
        neighbours_QK.cpu().numpy(),
        pair_distances(embeddings_ND, queries_Q, neighbours_QK),
        matches_QK,
        num_relevant_Q.cpu().numpy(),
        average_precisions(matches_QK, num_relevant_Q.cpu().numpy()),
    )


def pair_distances(embeddings_ND: Tensor, queries_Q: Tensor, neighbours_QK: Tensor) -> np.ndarray:
    columns = [(embeddings_ND[queries_Q] - embeddings_ND[found_Q]).norm(dim=1) for found_Q in neighbours_QK.T]
    return torch.stack(columns, 1).cpu().numpy()


def average_precisions(matches_QK: np.ndarray, num_relevant_Q: np.ndarray) -> np.ndarray:
    """The precision at each match among the R nearest, summed and divided by R; nan where R is 0."""
    ranks_K = np.arange(1, matches_QK.shape[1] + 1)
    hits_QK = matches_QK & (ranks_K <= num_relevant_Q[:, None])
    sums_Q = (hits_QK * hits_QK.cumsum(1) / ranks_K).sum(1)
    return np.divide(sums_Q, num_relevant_Q, out=np.full(len(sums_Q), np.nan), where=num_relevant_Q > 0)


def good_and_bad(found: Retrieval, labels_N: np.ndarray, most: int = 6) -> tuple[list[int], list[int]]:
    """The queries (as rows of `found`) that fare best and worst, at most one of each class.

    Among equals, the good ones with the nearest neighbours come first, and the bad ones with the nearest wrong answer.
    """
    nearness_Q = found.distances_QK[:, :SHOWN].mean(1)
    rows = np.flatnonzero(~np.isnan(found.precisions_Q))
    best = rows[np.lexsort((rows, nearness_Q[rows], -found.precisions_Q[rows]))]
    worst = rows[np.lexsort((rows, found.distances_QK[rows, 0], found.precisions_Q[rows]))]
    labels_Q = labels_N[found.queries_Q]
    good = one_of_each_class(best, labels_Q, most)
    bad = one_of_each_class([row for row in worst if found.precisions_Q[row] < 1 and row not in good], labels_Q, most)
    return good, bad


def one_of_each_class(rows: Sequence[int] | np.ndarray, labels_Q: np.ndarray, most: int) -> list[int]:
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(int(labels_Q[row]), int(row))
        if len(first) == most:
            break
    return list(first.values())


class Confusion(NamedTuple):
    """Two classes that are taken for one another."""

    first: int
    second: int
    share: float
    """Of the places among the R nearest of both classes' queries, those that the other class holds."""
    query: int
    """The image whose wrong answer is nearest,"""
    found: int
    """and that answer."""


def find_confused_classes(found: Retrieval, labels_N: np.ndarray, most: int = 12) -> list[Confusion]:
    """Find the pairs of classes that hold most of one another's places among the R nearest, most first."""
    num_classes = int(labels_N.max()) + 1
    ranks_K = np.arange(1, found.neighbours_QK.shape[1] + 1)
    is_wrong_QK = ~found.matches_QK & (ranks_K <= found.num_relevant_Q[:, None])
    rows_M, columns_M = np.nonzero(is_wrong_QK)
    if not len(rows_M):
        return []
    own_M = labels_N[found.queries_Q[rows_M]]
    other_M = labels_N[found.neighbours_QK[rows_M, columns_M]]
    pairs_M = np.minimum(own_M, other_M) * num_classes + np.maximum(own_M, other_M)
    pairs_P, pair_of_M, counts_P = np.unique(pairs_M, return_inverse=True, return_counts=True)
    places_C = np.bincount(labels_N[found.queries_Q], weights=found.num_relevant_Q, minlength=num_classes)
    first_P, second_P = np.divmod(pairs_P, num_classes)
    shares_P = counts_P / (places_C[first_P] + places_C[second_P])
    order_M = np.lexsort((np.arange(len(rows_M)), found.distances_QK[rows_M, columns_M]))
    nearest_P = np.full(len(pairs_P), -1)
    nearest_P[pair_of_M[order_M][::-1]] = order_M[::-1]  # the nearest is written last
    made = []
    for pair in np.lexsort((pairs_P, -shares_P))[:most]:
        row, column = rows_M[nearest_P[pair]], columns_M[nearest_P[pair]]
        query, answer = int(found.queries_Q[row]), int(found.neighbours_QK[row, column])
        made.append(Confusion(int(first_P[pair]), int(second_P[pair]), float(shares_P[pair]), query, answer))
    return made
