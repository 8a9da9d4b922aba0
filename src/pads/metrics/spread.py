"""How far apart images lie within a class, and classes from each other, by cosine distance (1 - cosine, 0 to 2).

N images, D embedding, E = D + 1, C classes, padded to N with empty ones that add nothing: the device need not be asked for C.
Closed forms: the mean product x·y over the pairs of n vectors with sum s is (|s|² - Σ|x|²) / n(n-1). Without any pair
to average over, a distance is nan.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pads.metrics.clustering import class_ids, class_sums
from pads.runtime.graphs import Replayed


def _intra(embeddings_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Mean over the classes of the mean distance between two different images; a class with one image is left out."""
    units_ND, classes_N = normalize(embeddings_ND.float(), dim=1), class_ids(labels_N)
    squares_N1 = units_ND.square().sum(1, keepdim=True)
    sums_CE, counts_C = class_sums(torch.cat([units_ND, squares_N1], dim=1), classes_N, len(classes_N))
    num_pairs_C = counts_C * (counts_C - 1)
    similarities_C = (sums_CE[:, :-1].square().sum(1) - sums_CE[:, -1]) / num_pairs_C.clamp(min=1)
    has_pairs_C = num_pairs_C > 0
    return ((1 - similarities_C) * has_pairs_C).sum() / has_pairs_C.sum()


def _inter(embeddings_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Mean distance between the means of two different classes, each mean scaled to unit length."""
    units_ND = normalize(embeddings_ND.float(), dim=1)
    sums_CD, counts_C = class_sums(units_ND, class_ids(labels_N), len(labels_N))
    means_CD = normalize(sums_CD, dim=1)
    num_classes = (counts_C > 0).sum()
    total = means_CD.sum(0).square().sum() - means_CD.square().sum()
    return 1 - total / (num_classes * (num_classes - 1))


# a few dozen small kernels each, which a GPU launches at once
intra_class_distance = Replayed(_intra)
inter_class_distance = Replayed(_inter)
