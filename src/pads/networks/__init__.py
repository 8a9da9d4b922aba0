"""Embedding networks. A backbone is an `nn.Module` that maps images to features and knows its `num_features`."""

from collections.abc import Callable

from torch import nn

from pads.config import lookup, option_names
from pads.errors import UserError
from pads.networks.embedding import EmbeddingNetwork, seeded
from pads.networks.inception_bn import InceptionBN
from pads.networks.pooling import POOLINGS
from pads.networks.resnet import resnet18, resnet34, resnet50, resnet50_he
from pads.networks.small import SmallNetwork
from pads.networks.weights import WeightsUsed, find_weights, load_weights

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "small": SmallNetwork,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "resnet50-he": resnet50_he,
    "inception-bn": InceptionBN,
}


def build_backbone(name: str, *, pooling: str = "mean") -> nn.Module:
    """The backbone of that name. One from outside need not know `pooling`, as long as it is left alone."""
    maker = lookup(BACKBONES, name, "backbone")
    if pooling == "mean":
        return maker()
    if "pooling" not in option_names(maker):
        raise UserError(f"the backbone {name} has its own pooling: leave network.pooling at mean.")
    return maker(pooling=pooling)


__all__ = [
    "BACKBONES",
    "POOLINGS",
    "EmbeddingNetwork",
    "WeightsUsed",
    "build_backbone",
    "find_weights",
    "load_weights",
    "seeded",
]
