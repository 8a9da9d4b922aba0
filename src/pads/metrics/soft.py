"""A smooth Recall@1: what a neighbour drawn by its nearness would find, where Recall@1 asks the nearest alone.

A step of training that moves an image without changing who is nearest moves this and not Recall@1, so it tells a
sampling policy more; and it has a gradient. N images, D embedding, Q queries of a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pads.metrics.neighbours import full_precision

CHUNK = 2**25
"""Queries x images at once: a tenth of a gigabyte."""


def soft_recall(embeddings_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Mean over the images of the probability that a neighbour j, drawn by exp(-d_ij² / w), has the image's label.

    The softmax of neighbourhood components analysis (Goldberger et al. 2004). w is the mean squared distance to the nearest
    neighbour, so that the scale of the embedding does not matter, to the gradient neither.
    """
    squares_N = embeddings_ND.square().sum(1)
    rows = [slice(at, at + CHUNK // len(labels_N) + 1) for at in range(0, len(labels_N), CHUNK // len(labels_N) + 1)]
    gradients = torch.is_grad_enabled()
    with full_precision(embeddings_ND.device.type), torch.set_grad_enabled(gradients):
        width = _width(embeddings_ND, squares_N, rows)
        found = embeddings_ND.new_zeros(())
        for at in rows:
            log_weights_QN = _squared_distances(embeddings_ND, squares_N, at) / -width
            same_QN = labels_N[at, None] == labels_N
            found = found + (log_weights_QN.softmax(1) * same_QN).sum()
    return found / len(labels_N)


def _width(embeddings_ND: Tensor, squares_N: Tensor, rows: list[slice]) -> Tensor:
    nearest_N = torch.cat([_squared_distances(embeddings_ND, squares_N, at).amin(1) for at in rows])
    return nearest_N.mean().clamp(min=torch.finfo(torch.float32).eps)


def _squared_distances(embeddings_ND: Tensor, squares_N: Tensor, at: slice) -> Tensor:
    """Of these images to all; to itself infinite."""
    products_QN = embeddings_ND[at] @ embeddings_ND.T
    distances_QN = (squares_N[at, None] + squares_N - 2 * products_QN).clamp(min=0)
    own_QN = torch.arange(len(squares_N), device=squares_N.device)[at, None] == torch.arange(
        len(squares_N), device=squares_N.device
    )
    return distances_QN.masked_fill(own_QN, torch.inf)
