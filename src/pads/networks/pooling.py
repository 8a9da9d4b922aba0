"""From the last feature maps to one vector for each image: maps_BCHW -> features_BC."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F


def mean_of_maps(maps: Tensor) -> Tensor:
    return torch.flatten(F.adaptive_avg_pool2d(maps, 1), 1)


def maximum_of_maps(maps: Tensor) -> Tensor:
    return maps.amax((2, 3))


def mean_plus_maximum(maps: Tensor) -> Tensor:
    """The sum of both, which keeps the number of features."""
    return mean_of_maps(maps) + maximum_of_maps(maps)


def pool_twice(pool: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return a pooling that gives the features of `pool`, and mean plus maximum beside them."""

    def pool_both(maps: Tensor) -> tuple[Tensor, Tensor]:
        return pool(maps), mean_plus_maximum(maps)

    return pool_both


POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": mean_of_maps,
    "max": maximum_of_maps,
    "mean+max": mean_plus_maximum,
}
