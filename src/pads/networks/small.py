"""A small residual network for small images on a CPU: 0.3 million parameters, 32x32 pixels and up."""

from torch import Tensor, nn
from torch.nn import functional as F

from pads.config import lookup
from pads.networks.pooling import POOLINGS


class ResidualBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.relu(self.bn1(self.conv1(images)))
        return F.relu(self.bn2(self.conv2(hidden)) + self.shortcut(images))


class SmallNetwork(nn.Module):
    """A strided stem and three residual blocks."""

    def __init__(self, width: int = 32, pooling: str = "mean") -> None:
        super().__init__()
        self.pool = lookup(POOLINGS, pooling, "pooling")
        self.num_features = 4 * width
        self.conv1 = nn.Conv2d(3, width, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(
            ResidualBlock(width, width, 1), ResidualBlock(width, 2 * width, 2), ResidualBlock(2 * width, 4 * width, 2)
        )

    def forward(self, images: Tensor) -> Tensor:
        maps = self.blocks(F.relu(self.bn1(self.conv1(images))))
        return self.pool(maps)
