"""What each single query found, and how far a mean over queries can be trusted.

Images of one class fare alike: what makes one query easy makes its neighbours easy. So the classes are what was drawn at
random, and not the queries, and an interval over queries would promise too much. The mean m over queries is a ratio of two
sums over classes, of the values s_c and of the counts n_c, and its variance is estimated from r_c = s_c - m n_c:

    m ± t(C - 1) sqrt(C / (C - 1) Σ r_c²) / Σ n_c

Student's t with C - 1 degrees keeps its 95 % where there are few classes; a percentile bootstrap over classes does not:
of simulated splits with 4, 8 and 20 classes it covers the truth in 80, 88 and 92 % and this interval in 94 to 95 %.

Dimensions: N images, D embedding, Q queries, K neighbours, C classes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pads.metrics.neighbours import find_marked, nearest_neighbours
from pads.metrics.retrieval import average_precisions
from pads.metrics.student import t_quantile


class Queries(NamedTuple):
    """What each query found."""

    classes_Q: np.ndarray
    recalls_Q: np.ndarray
    """1 where the nearest image is of the query's class, whose mean is Recall@1."""
    precisions_Q: np.ndarray
    """Average precision among the R nearest, whose mean is MAP@R; nan where there is nothing to find."""


class Interval(NamedTuple):
    """A mean over queries and where it may lie, by the classes."""

    mean: float
    low: float
    high: float


@torch.no_grad()
def measure_queries(
    embeddings_ND: Tensor, labels_N: Tensor, *, is_query_N: Tensor | None = None, is_gallery_N: Tensor | None = None
) -> Queries:
    """Measure every query by itself, as `compute_metrics` does them together."""
    embeddings_ND = embeddings_ND.float()
    queries_Q = find_marked(is_query_N, embeddings_ND, "query")
    gallery_G = find_marked(is_gallery_N, embeddings_ND, "gallery")
    _, classes_N = labels_N.unique(return_inverse=True)
    in_gallery_N = torch.zeros_like(classes_N).index_fill_(0, gallery_G, 1)
    sizes_C = torch.zeros_like(classes_N).index_add_(0, classes_N, in_gallery_N)
    num_relevant_Q = (sizes_C[classes_N] - in_gallery_N)[queries_Q]
    k = max(1, int(num_relevant_Q.max()))
    neighbours_QK = nearest_neighbours(embeddings_ND, k, is_query_N=is_query_N, is_gallery_N=is_gallery_N)
    matches_QK = classes_N[neighbours_QK] == classes_N[queries_Q, None]
    precisions_Q = average_precisions(matches_QK, num_relevant_Q).double()
    precisions_Q[num_relevant_Q == 0] = math.nan
    parts = classes_N[queries_Q], matches_QK[:, 0].double(), precisions_Q
    return Queries(*(part.cpu().numpy() for part in parts))


def estimate_mean(values_Q: np.ndarray, classes_Q: np.ndarray, confidence: float = 0.95) -> Interval | None:
    """The mean of the values that are numbers, and its interval over classes; None where there are not two classes."""
    is_number_Q = ~np.isnan(values_Q)
    _, classes_Q = np.unique(classes_Q[is_number_Q], return_inverse=True)
    counts_C, sums_C = np.bincount(classes_Q), np.bincount(classes_Q, weights=values_Q[is_number_Q])
    if len(counts_C) < 2:
        return None
    mean = float(sums_C.sum() / counts_C.sum())
    residuals_C, degrees = sums_C - mean * counts_C, len(counts_C) - 1
    error = math.sqrt((degrees + 1) / degrees * float((residuals_C**2).sum())) / counts_C.sum()
    half = t_quantile((1 + confidence) / 2, degrees) * float(error)
    return Interval(mean, mean - half, mean + half)
