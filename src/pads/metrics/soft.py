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

    The softmax of neighbourhood components analysis (Goldberger et al. 2004). w is a quarter of the mean squared distance
    to the nearest neighbour, so that the scale of the embedding does not matter, to the gradient neither; with four times
    as much, an embedding that squeezes all images together beats one with twice its Recall@1.
    """
    squares_N = embeddings_ND.square().sum(1)
    chunk = CHUNK // len(labels_N) + 1
    rows = [slice(at, at + chunk) for at in range(0, len(labels_N), chunk)]
    gradients = torch.is_grad_enabled()
    with full_precision(embeddings_ND.device.type), torch.set_grad_enabled(gradients):
        nearest_N = torch.cat([_squared_distances(embeddings_ND, squares_N, at, own=torch.inf).amin(1) for at in rows])
        width = (nearest_N.mean() / 4).clamp(min=torch.finfo(torch.float32).eps)
        found = embeddings_ND.new_zeros(())
        for at in rows:
            log_weights_QN = _squared_distances(embeddings_ND, squares_N, at, own=0.0) / -width
            log_weights_QN = log_weights_QN.masked_fill(_is_own(squares_N, at), -torch.inf)
            found = found + (log_weights_QN.softmax(1) * (labels_N[at, None] == labels_N)).sum()
    return found / len(labels_N)


def _squared_distances(embeddings_ND: Tensor, squares_N: Tensor, at: slice, own: float) -> Tensor:
    """Of these images to all, with this as the distance to itself."""
    products_QN = embeddings_ND[at] @ embeddings_ND.T
    distances_QN = (squares_N[at, None] + squares_N - 2 * products_QN).clamp(min=0)
    return distances_QN.masked_fill(_is_own(squares_N, at), own)


def _is_own(squares_N: Tensor, at: slice) -> Tensor:
    numbers_N = torch.arange(len(squares_N), device=squares_N.device)
    return numbers_N[at, None] == numbers_N
