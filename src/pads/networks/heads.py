"""Where the head of a network starts: from random numbers, or in closed form from the features of the training images.

A backbone that knows something gives features that are worth measuring before any training; a random head throws much of
that away. Each function here returns the linear map that loses least of it. Everything is computed in float64.

Dimensions: N images, F features, D embedding, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pads.errors import UserError


class Head(NamedTuple):
    """A linear map: weight_DF @ features_F + bias_D."""

    weight_DF: Tensor
    bias_D: Tensor


def leave_random(features_NF: Tensor, labels_N: Tensor, dim: int, shrinkage: float) -> None:
    """Leave the head as it was drawn."""


def keep_features(features_NF: Tensor, labels_N: Tensor, dim: int, shrinkage: float) -> Head:
    """Keep the pooled features as they are; in fewer dimensions, keep the directions that carry most of their length."""
    num_features = features_NF.shape[1]
    if dim == num_features:
        return Head(torch.eye(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64))
    features_NF = features_NF.double()
    weight_DF = find_leading_directions(features_NF.T @ features_NF / len(features_NF), dim)
    return Head(weight_DF, torch.zeros(dim, dtype=torch.float64))


def centre_and_rotate(features_NF: Tensor, labels_N: Tensor, dim: int, shrinkage: float) -> Head:
    """Centre the features and keep the directions in which they vary most (PCA)."""
    mean_F, covariance_FF = measure_spread(features_NF)
    weight_DF = find_leading_directions(covariance_FF, dim)
    return Head(weight_DF, -weight_DF @ mean_F)


def whiten_within_classes(features_NF: Tensor, labels_N: Tensor, dim: int, shrinkage: float) -> Head:
    """Centre the features, divide by how they vary within a class, and keep the directions that then vary most.

    The covariance within classes is shrunk towards a sphere of the same size: few images say little about many features.
    """
    mean_F, covariance_FF = measure_spread(features_NF)
    whiten_FF = invert_root(shrink(covariance_within(features_NF, labels_N), shrinkage))
    weight_DF = scale_rows(find_leading_directions(whiten_FF @ covariance_FF @ whiten_FF, dim) @ whiten_FF)
    return Head(weight_DF, -weight_DF @ mean_F)


def discriminate_classes(features_NF: Tensor, labels_N: Tensor, dim: int, shrinkage: float) -> Head:
    """Whiten within classes, then keep each direction by the share of its variance that lies between classes.

    It is a discriminant analysis that also serves classes it has not seen: the variances between classes are shrunk towards
    their mean, too, so that directions in which the training classes do not differ still count. Few classes say little about
    it, and their mean is not that of all others, so there is more shrinking and less centring then. The leading directions of
    what results are kept.
    """
    num_classes = len(labels_N.unique())
    share, centring = min(1.0, max(0.5, 12 / num_classes)), min(1.0, num_classes / 16)
    features_NF = features_NF.double()
    mean_F, covariance_FF = measure_spread(features_NF)
    within_FF, degrees = covariance_within(features_NF, labels_N), count_degrees(labels_N)
    whiten_FF = invert_root(shrink(within_FF * (len(features_NF) / degrees), shrinkage))
    variance = (whiten_FF @ within_FF @ whiten_FF).trace() * (len(features_NF) / degrees) / len(mean_F)
    between_FF = whiten_FF @ (covariance_FF - within_FF) @ whiten_FF
    between_F, vectors_FF = torch.linalg.eigh((between_FF + between_FF.T) / 2)
    between_F = torch.lerp(between_F.clamp(min=0), between_F.clamp(min=0).mean(), share)
    # classes that do not differ at all say nothing about directions
    kept_F = (between_F / (between_F + variance)).sqrt() if between_F.sum() > 0 else torch.ones_like(between_F)
    map_FF = whiten_FF @ (vectors_FF * kept_F) @ vectors_FF.T
    weight_DF = find_leading_directions(map_FF.T @ covariance_FF @ map_FF, dim) @ map_FF.T
    weight_DF = scale_rows(weight_DF)
    return Head(weight_DF, -weight_DF @ mean_F * centring)


HEADS: dict[str, Callable[[Tensor, Tensor, int, float], Head | None]] = {
    "random": leave_random,
    "plain": keep_features,
    "pca": centre_and_rotate,
    "whitening": whiten_within_classes,
    "discriminant": discriminate_classes,
}
"""Look up a start of the head by name: `--set network.head=whitening`."""


def make_head(name: str, features_NF: Tensor, labels_N: Tensor, dim: int, shrinkage: float) -> Head | None:
    """Return the head that starts from these features, None where it stays random."""
    if name == "random":
        return None
    num_features = features_NF.shape[1]
    if dim > num_features:
        raise UserError(
            f"the head starts from {num_features} features, which cannot fill network.embedding_dim={dim}: set it to at most "
            f"{num_features}, or take --set network.head=random."
        )
    if not features_NF.isfinite().all():
        raise UserError(
            "the backbone gives features that are no finite numbers, so the head cannot start from them: look at its "
            "weights, or take --set precision=float32."
        )
    return HEADS[name](features_NF, labels_N, dim, shrinkage)


# -- what they are made of ---------------------------------------------------------------------------------------------


def measure_spread(features_NF: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of the features."""
    features_NF = features_NF.double()
    mean_F = features_NF.mean(0)
    centred_NF = features_NF - mean_F
    return mean_F, centred_NF.T @ centred_NF / len(centred_NF)


def covariance_within(features_NF: Tensor, labels_N: Tensor) -> Tensor:
    """Return the mean covariance of the features around the mean of their own class, each image alike."""
    features_NF = features_NF.double()
    _, numbers_N, sizes_C = labels_N.unique(return_inverse=True, return_counts=True)
    means_CF = features_NF.new_zeros(len(sizes_C), features_NF.shape[1]).index_add_(0, numbers_N, features_NF)
    apart_NF = features_NF - (means_CF / sizes_C[:, None])[numbers_N]
    return apart_NF.T @ apart_NF / len(features_NF)


def shrink(covariance_FF: Tensor, shrinkage: float) -> Tensor:
    """Mix a covariance with the sphere of the same mean variance; where nothing varies, return a sphere of size 1."""
    variance = covariance_FF.trace() / len(covariance_FF)
    sphere_FF = torch.eye(len(covariance_FF), dtype=covariance_FF.dtype)
    if variance <= 0:
        return sphere_FF
    return (1 - shrinkage) * covariance_FF + shrinkage * variance * sphere_FF


def count_degrees(labels_N: Tensor) -> int:
    """Return the degrees of freedom within classes: images less classes."""
    return max(1, len(labels_N) - len(labels_N.unique()))


def invert_root(covariance_FF: Tensor) -> Tensor:
    """Return the symmetric inverse root of a covariance."""
    values_F, vectors_FF = torch.linalg.eigh(covariance_FF)
    return (vectors_FF * values_F.rsqrt()) @ vectors_FF.T


def scale_rows(weight_DF: Tensor) -> Tensor:
    """Give the rows unit length on average, as those of a rotation have: a learning rate then means the same for every start."""
    return weight_DF / weight_DF.square().sum(1).mean().sqrt()


def find_leading_directions(covariance_FF: Tensor, dim: int) -> Tensor:
    """Return the eigenvectors of the largest eigenvalues as rows, largest first, each with its largest entry positive."""
    _, vectors_FF = torch.linalg.eigh(covariance_FF)
    rows_DF = vectors_FF.T.flip(0)[:dim]
    largest_D = rows_DF.gather(1, rows_DF.abs().argmax(1, keepdim=True))
    return rows_DF * torch.where(largest_D < 0, -1.0, 1.0)
