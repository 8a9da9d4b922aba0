"""Inception with batch normalisation (Ioffe and Szegedy 2015, Fig. 5), as the metric-learning papers use it.

The state-dict names are those of the published file, which came from Caffe (`inception_3a_1x1.weight`,
`conv1_7x7_s2_bn.running_mean`, ...), so that it loads unchanged; that is why the convolutions have biases, which the
batch norms make superfluous. Those weights want BGR pixels from 0 to 255 less (104, 117, 128). Here the images come in
as RGB and are turned round inside; the rest is `mean` and `std`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.config import lookup
from pads.networks.fused import convolve_norm_relu
from pads.networks.pooling import POOLINGS


class Block(NamedTuple):
    """The channels of one Inception block. Without a 1x1 branch it halves the map, and its pooling is not projected."""

    name: str
    single: int
    reduce: int
    three: int
    double_reduce: int
    double: int
    pool: str
    projection: int

    @property
    def stride(self) -> int:
        return 1 if self.single else 2


BLOCKS = (
    #        1x1  reduce 3x3  reduce double  pool
    Block("3a", 64, 64, 64, 64, 96, "mean", 32),
    Block("3b", 64, 64, 96, 64, 96, "mean", 64),
    Block("3c", 0, 128, 160, 64, 96, "max", 0),
    Block("4a", 224, 64, 96, 96, 128, "mean", 128),
    Block("4b", 192, 96, 128, 96, 128, "mean", 128),
    Block("4c", 160, 128, 160, 128, 160, "mean", 128),
    Block("4d", 96, 128, 192, 160, 192, "mean", 128),
    Block("4e", 0, 128, 192, 192, 256, "max", 0),
    Block("5a", 352, 192, 320, 160, 224, "mean", 128),
    Block("5b", 352, 192, 320, 192, 224, "max", 128),
)


class InceptionBN(nn.Module):
    """The trunk without its classification head: 1024 features."""

    mean, std = (128 / 255, 117 / 255, 104 / 255), (1 / 255,) * 3

    def __init__(self, pooling: str = "mean") -> None:
        super().__init__()
        self.pool = lookup(POOLINGS, pooling, "pooling")
        self._add("conv1_7x7_s2", 3, 64, 7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        channels = 192
        for block in BLOCKS:
            channels = self._add_block(block, channels)
        self.num_features = channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        maps = self._layer("conv1_7x7_s2", images.flip(1))  # RGB to BGR
        maps = self._layer("conv2_3x3_reduce", halve_maps(maps))
        maps = halve_maps(self._layer("conv2_3x3", maps))
        for block in BLOCKS:
            maps = self._block(block, maps)
        return self.pool(maps)

    def _add(self, name: str, in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(out_channels))

    def _layer(self, name: str, maps: Tensor) -> Tensor:
        return convolve_norm_relu(maps, getattr(self, name), getattr(self, f"{name}_bn"))

    def _add_block(self, block: Block, channels: int) -> int:
        """Adds the block's layers; returns the channels that come out of it."""
        name = f"inception_{block.name}"
        if block.single:
            self._add(f"{name}_1x1", channels, block.single, 1)
        self._add(f"{name}_3x3_reduce", channels, block.reduce, 1)
        self._add(f"{name}_3x3", block.reduce, block.three, 3, block.stride)
        self._add(f"{name}_double_3x3_reduce", channels, block.double_reduce, 1)
        self._add(f"{name}_double_3x3_1", block.double_reduce, block.double, 3)
        self._add(f"{name}_double_3x3_2", block.double, block.double, 3, block.stride)
        if block.projection:
            self._add(f"{name}_pool_proj", channels, block.projection, 1)
        return block.single + block.three + block.double + (block.projection or channels)

    def _block(self, block: Block, maps: Tensor) -> Tensor:
        name = f"inception_{block.name}"
        three = self._layer(f"{name}_3x3", self._layer(f"{name}_3x3_reduce", maps))
        double = self._layer(f"{name}_double_3x3_1", self._layer(f"{name}_double_3x3_reduce", maps))
        double = self._layer(f"{name}_double_3x3_2", double)
        if not block.single:
            return torch.cat([three, double, halve_maps(maps)], 1)
        pooled = F.avg_pool2d(maps, 3, 1, 1) if block.pool == "mean" else F.max_pool2d(maps, 3, 1, 1)
        branches = [self._layer(f"{name}_1x1", maps), three, double, self._layer(f"{name}_pool_proj", pooled)]
        return torch.cat(branches, 1)


def halve_maps(maps: Tensor) -> Tensor:
    """Halve the size of the maps, rounded up as in Caffe, where torch would round it down."""
    return F.max_pool2d(maps, 3, 2, ceil_mode=True)
