"""Exact nearest neighbours by Euclidean distance, in chunks, on whatever device the embeddings are.

N images, D embedding, Q queries, G gallery, K neighbours, M candidates.

The order is that of distances in float32. Between images that are equally far, or differ by less than rounding, the
choice is arbitrary but always the same for the same input, device and number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from pads.errors import UserError


def nearest_neighbours(
    embeddings_ND: Tensor,
    k: int,
    *,
    is_query_N: Tensor | None = None,
    is_gallery_N: Tensor | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """Indices_QK of the k nearest gallery images of every query, nearest first; an image never finds itself.

    Without flags every image is query and gallery. k is capped at what every query can find. `chunk_size` is the number
    of queries at once; unless told, a chunk's scores take 8 MB on a CPU, where they stay in the cache, else 512 MB.
    """
    queries_Q = find_marked(is_query_N, embeddings_ND, "query")
    gallery_G = find_marked(is_gallery_N, embeddings_ND, "gallery")
    own_N = torch.full((len(embeddings_ND),), -1, device=embeddings_ND.device)
    own_N[gallery_G] = torch.arange(len(gallery_G), device=embeddings_ND.device)
    own_Q = own_N[queries_Q]
    every_image_is_both = is_query_N is None and is_gallery_N is None
    some_find_themselves = every_image_is_both or bool((own_Q >= 0).any())
    k = min(k, len(gallery_G) - some_find_themselves)
    if k < 1:
        raise UserError("the gallery holds no image but the query itself; give at least two images")
    rows_QK, _ = nearest(
        embeddings_ND[queries_Q],
        embeddings_ND[gallery_G],
        k,
        own_Q=own_Q if some_find_themselves else None,
        chunk_size=chunk_size,
    )
    return gallery_G[rows_QK]


def nearest(
    queries_QD: Tensor, gallery_GD: Tensor, k: int, *, own_Q: Tensor | None = None, chunk_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Rows_QK of the k nearest in the gallery, and scores_QK, which are larger the nearer they are to the query.

    own_Q is the row that a query may not find, -1 where there is none.
    """
    if chunk_size is None:
        chunk_size = max(1, (2**21 if queries_QD.device.type == "cpu" else 2**27) // len(gallery_GD))
    chunk_size = min(chunk_size, len(queries_QD))
    with full_precision(queries_QD.device.type):
        queries_QD, gallery_GD = queries_QD.float(), gallery_GD.float()
        # |q - g|² falls as q·g - |g|²/2 rises, and |q|² does not change a query's order.
        bias_G = gallery_GD.square().sum(1) / -2
        # One buffer for all chunks: fresh pages cost a CPU as much as the product itself.
        buffer_QG = gallery_GD.new_empty(chunk_size, len(gallery_GD))
        rows_QK = torch.empty(len(queries_QD), k, dtype=torch.long, device=queries_QD.device)
        scores_QK = gallery_GD.new_empty(len(queries_QD), k)
        for start in range(0, len(queries_QD), chunk_size):
            chunk = slice(start, start + chunk_size)
            scores_QG = buffer_QG[: len(queries_QD[chunk])]
            torch.addmm(bias_G, queries_QD[chunk], gallery_GD.T, out=scores_QG)
            if own_Q is not None:
                _forbid(scores_QG, own_Q[chunk])
            rows_QK[chunk] = largest(scores_QG, k)
            scores_QK[chunk] = scores_QG.gather(1, rows_QK[chunk])
    return rows_QK, scores_QK


def largest(scores_QG: Tensor, k: int) -> Tensor:
    """Columns_QK of the k largest scores of each row, largest first: topk, which one cheap pass spares most columns.

    The k largest lie in the k groups of columns with the largest maxima: outside them, k maxima are above a score.
    """
    num_rows, num_columns = scores_QG.shape
    # Balances the maxima to choose from with the candidates after that; beyond 12 the first pass itself gets slower.
    group_size = min(12, math.isqrt(num_columns // k))
    if group_size < 4:
        return scores_QG.argmax(1, keepdim=True) if k == 1 else scores_QG.topk(k).indices
    num_groups = num_columns // group_size
    num_grouped = num_groups * group_size
    # A group is every num_groups-th column, so that the maxima are taken over whole rows at once.
    maxima_QM = scores_QG[:, :num_grouped].unflatten(1, (group_size, num_groups)).amax(1)
    groups_QK = largest(maxima_QM, k)
    columns_G = torch.arange(num_columns, device=scores_QG.device)
    members_QM = (groups_QK[:, None, :] + columns_G[:num_grouped:num_groups, None]).flatten(1)
    candidates_QM = torch.cat([members_QM, columns_G[num_grouped:].expand(num_rows, -1)], dim=1)
    scores_QM = scores_QG.gather(1, candidates_QM)
    best_QK = scores_QM.argmax(1, keepdim=True) if k == 1 else scores_QM.topk(k).indices
    return candidates_QM.gather(1, best_QK)


@contextmanager
def full_precision(device_type: str) -> Iterator[None]:
    """No gradients, and products in float32: the TF32 or autocast of a training would reorder close neighbours."""
    settings = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = "ieee"
    try:
        with torch.no_grad(), torch.autocast(device_type, enabled=False):
            yield
    finally:
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision


def find_marked(flags_N: Tensor | None, embeddings_ND: Tensor, role: str) -> Tensor:
    """Return the indices of the images that have a role: those flagged, or all without flags."""
    if flags_N is None:
        return torch.arange(len(embeddings_ND), device=embeddings_ND.device)
    if flags_N.dtype != torch.bool or flags_N.shape != embeddings_ND.shape[:1]:
        raise UserError(f"is_{role}_N must hold one bool per image, {len(embeddings_ND)} in all")
    indices = flags_N.nonzero().squeeze(1)
    if not len(indices):
        raise UserError(f"is_{role}_N marks no image; mark at least one")
    return indices


def _forbid(scores_QG: Tensor, own_Q: Tensor) -> None:
    columns_Q1 = own_Q.clamp(min=0).unsqueeze(1)
    kept_Q1 = scores_QG.gather(1, columns_Q1)
    scores_QG.scatter_(1, columns_Q1, torch.where(own_Q.unsqueeze(1) < 0, kept_Q1, -torch.inf))
