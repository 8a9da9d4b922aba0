"""ResNet-18, 34 and 50 (He et al. 2016) with torchvision's state-dict names, so that its weights load unchanged.

Where a bottleneck halves the map, torchvision does it in the 3x3 convolution (`resnet50`), He et al. in the first 1x1
(`resnet50-he`). The weights of one fit into the other without any error, and give features they were not trained for.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from pads.config import lookup
from pads.networks.fused import convolve_norm_add_relu, convolve_norm_relu
from pads.networks.pooling import POOLINGS


def convolution(in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, bias=False)


def shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    """The projection where the shape changes; torchvision calls it `downsample`."""
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(convolution(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))


class BasicBlock(nn.Module):
    expansion = 1
    stride_in = "3x3"

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(in_channels, channels, 3, stride), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = convolution(channels, channels, 3), nn.BatchNorm2d(channels)
        self.downsample = shortcut(in_channels, channels, stride)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = convolve_norm_relu(maps, self.conv1, self.bn1)
        return convolve_norm_add_relu(hidden, self.conv2, self.bn2, maps, self.downsample)


class Bottleneck(nn.Module):
    expansion = 4
    stride_in = "3x3"

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        first, second = (stride, 1) if self.stride_in == "1x1" else (1, stride)
        self.conv1, self.bn1 = convolution(in_channels, channels, 1, first), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = convolution(channels, channels, 3, second), nn.BatchNorm2d(channels)
        self.conv3, self.bn3 = convolution(channels, 4 * channels, 1), nn.BatchNorm2d(4 * channels)
        self.downsample = shortcut(in_channels, 4 * channels, stride)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = convolve_norm_relu(maps, self.conv1, self.bn1)
        hidden = convolve_norm_relu(hidden, self.conv2, self.bn2)
        return convolve_norm_add_relu(hidden, self.conv3, self.bn3, maps, self.downsample)


class HeBottleneck(Bottleneck):
    stride_in = "1x1"


class ResNet(nn.Module):
    """The trunk without its classification head."""

    layer1: nn.Module
    layer2: nn.Module
    layer3: nn.Module
    layer4: nn.Module

    def __init__(self, block: type[BasicBlock | Bottleneck], depths: Sequence[int], pooling: str = "mean") -> None:
        super().__init__()
        self.stride_in = block.stride_in
        self.pool = lookup(POOLINGS, pooling, "pooling")
        self.num_features = 512 * block.expansion
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        in_channels = 64
        for number, depth in enumerate(depths, 1):
            channels, stride = 32 * 2**number, 1 if number == 1 else 2
            blocks = [block(in_channels, channels, stride)]
            in_channels = channels * block.expansion
            blocks += [block(in_channels, channels, 1) for _ in range(depth - 1)]
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps = F.max_pool2d(convolve_norm_relu(images, self.conv1, self.bn1), 3, 2, 1)
        maps = self.layer4(self.layer3(self.layer2(self.layer1(maps))))
        return self.pool(maps)


def resnet18(pooling: str = "mean") -> ResNet:
    """Build torchvision's ResNet-18: 512 features."""
    return ResNet(BasicBlock, (2, 2, 2, 2), pooling)


def resnet34(pooling: str = "mean") -> ResNet:
    """Build torchvision's ResNet-34: 512 features."""
    return ResNet(BasicBlock, (3, 4, 6, 3), pooling)


def resnet50(pooling: str = "mean") -> ResNet:
    """Build torchvision's ResNet-50: 2048 features."""
    return ResNet(Bottleneck, (3, 4, 6, 3), pooling)


def resnet50_he(pooling: str = "mean") -> ResNet:
    """Build the ResNet-50 of He et al. (2015), with the stride in the first convolution of a block: 2048 features."""
    return ResNet(HeBottleneck, (3, 4, 6, 3), pooling)
