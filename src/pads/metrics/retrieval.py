"""How many of the nearest neighbours are of the query's class, as shares between 0 and 1 averaged over the queries.

Q queries, K neighbours, nearest first. `matches_QK` says which neighbours have the query's label; `num_relevant_Q` is
R, the number of gallery images with that label, the query itself not counted.
"""

from __future__ import annotations

import torch
from torch import Tensor


def recall_at(matches_QK: Tensor, k: int) -> Tensor:
    """Share of the queries with a match among their k nearest: the field's Recall@k (Jegou et al. 2011).

    A query without any relevant image counts as a miss. With fewer than k neighbours all of them are looked at.
    """
    return matches_QK[:, :k].any(dim=1).float().mean()


def r_precision(matches_QK: Tensor, num_relevant_Q: Tensor) -> Tensor:
    """Mean share of matches among the R nearest (Musgrave et al. 2020).

    A query with R = 0 is left out. K must reach R.
    """
    return _mean_over_relevant(_within_r(matches_QK, num_relevant_Q).sum(dim=1), num_relevant_Q)


def map_at_r(matches_QK: Tensor, num_relevant_Q: Tensor) -> Tensor:
    """MAP@R: the precision at each match among the R nearest, summed and divided by R (Musgrave et al. 2020).

    A query with R = 0 is left out. K must reach R.
    """
    return _mean_over_relevant(_sum_precisions(matches_QK, num_relevant_Q), num_relevant_Q)


def average_precisions(matches_QK: Tensor, num_relevant_Q: Tensor) -> Tensor:
    """Precisions_Q of each query, whose mean is MAP@R; 0 where R = 0."""
    return _sum_precisions(matches_QK, num_relevant_Q) / num_relevant_Q.clamp(min=1)


def _sum_precisions(matches_QK: Tensor, num_relevant_Q: Tensor) -> Tensor:
    hits_QK = _within_r(matches_QK, num_relevant_Q)
    ranks_K = torch.arange(1, hits_QK.shape[1] + 1, device=hits_QK.device)
    precisions_QK = hits_QK.cumsum(dim=1, dtype=torch.int32) / ranks_K
    return (precisions_QK * hits_QK).sum(dim=1)


def _within_r(matches_QK: Tensor, num_relevant_Q: Tensor) -> Tensor:
    ranks_K = torch.arange(1, matches_QK.shape[1] + 1, device=matches_QK.device)
    return matches_QK & (ranks_K <= num_relevant_Q[:, None])


def _mean_over_relevant(sums_Q: Tensor, num_relevant_Q: Tensor) -> Tensor:
    has_relevant_Q = num_relevant_Q > 0
    return (sums_Q / num_relevant_Q.clamp(min=1)).sum() / has_relevant_Q.sum()
