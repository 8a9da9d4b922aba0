"""Embedding networks. A backbone is an `nn.Module` that maps images to features and knows its `num_features`."""

from collections.abc import Callable

from torch import nn

from pads.networks.embedding import EmbeddingNetwork, seeded
from pads.networks.resnet import resnet18, resnet34, resnet50
from pads.networks.small import SmallNetwork

BACKBONES: dict[str, Callable[[], nn.Module]] = {
    "small": SmallNetwork,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
}

__all__ = ["BACKBONES", "EmbeddingNetwork", "seeded"]
