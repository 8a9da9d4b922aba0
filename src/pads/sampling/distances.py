"""Distances between the embeddings of a batch.

Dimensions: B batch, D embedding, R references.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def pairwise_distances(embeddings_BD: Tensor) -> Tensor:
    """Euclidean distances d_ij between the unit vectors of a batch, in float32, diagonal 0.

    Bins are intervals of distances on the unit sphere, so the embeddings are brought to unit length here, and a
    surrounding autocast is switched off: half precision would move a distance by whole bins.
    """
    with torch.autocast(embeddings_BD.device.type, enabled=False):
        unit_BD = F.normalize(embeddings_BD.float(), dim=1)
        squared_BB = (2 - 2 * unit_BD @ unit_BD.T).clamp(min=0)
        return squared_BB.fill_diagonal_(0).sqrt()


def distances_to(embeddings_BD: Tensor, references_RD: Tensor) -> Tensor:
    """The same to other embeddings; that of a vector to itself is 0 up to rounding, about 1e-3."""
    with torch.autocast(embeddings_BD.device.type, enabled=False):
        unit_BD, unit_RD = (F.normalize(rows.float(), dim=1) for rows in (embeddings_BD, references_RD))
        return (2 - 2 * unit_BD @ unit_RD.T).clamp(min=0).sqrt()
