"""Embedding networks. A backbone is an `nn.Module` that maps images to features and knows its `num_features`.

It may say what its weights want to see, `mean` and `std` of RGB from 0 to 1; those of ImageNet, if it does not.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch import nn

from pads.config import Network, lookup, option_names
from pads.errors import UserError
from pads.networks.efficientnet_lite import EfficientNetLite0
from pads.networks.embedding import EmbeddingNetwork, PooledFeatures, count_features, use_seed
from pads.networks.heads import HEADS, Head, make_head
from pads.networks.inception_bn import InceptionBN
from pads.networks.pooling import POOLINGS
from pads.networks.resnet import resnet18, resnet34, resnet50, resnet50_he
from pads.networks.small import SmallNetwork
from pads.networks.timm_models import find_timm_record, is_timm, model_input, timm_backbone
from pads.networks.weights import WeightsUsed, find_weights, has_package, load_weights, match_tensors, read_tensors

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "small": SmallNetwork,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "resnet50-he": resnet50_he,
    "inception-bn": InceptionBN,
    "efficientnet-lite0": EfficientNetLite0,
}
"""Look up a backbone by name: `--set network.backbone=resnet50`."""


def check_backbone(name: str) -> None:
    if is_timm(name):
        find_timm_record(name)
    else:
        lookup(BACKBONES, name, "backbone")


def find_input(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of the pixels that the backbone's weights were made for."""
    if is_timm(name):
        made_for = model_input(name)
        return made_for.mean, made_for.std
    maker = lookup(BACKBONES, name, "backbone")
    return getattr(maker, "mean", Network.mean), getattr(maker, "std", Network.std)


def find_num_features(name: str) -> int:
    """Return how many features the backbone gives."""
    with torch.device("cpu" if is_timm(name) else "meta"):
        return count_features(build_backbone(name))


def backbone_of(path: Path) -> str:
    """The backbone that a file of weights was made for."""
    tensors, about = read_tensors(path)
    for name in BACKBONES:
        with torch.device("meta"):
            backbone = build_backbone(name)
        with suppress(UserError):
            match_tensors(backbone, tensors, about, path)
            return name
    raise UserError(f"{path} fits none of the backbones {', '.join(BACKBONES)}: say which by network.backbone.")


def build_backbone(name: str, *, pooling: str = "mean", image_size: int | None = None) -> nn.Module:
    """The backbone of that name. One from outside need not know `pooling`, as long as it is left alone."""
    maker = partial(timm_backbone, name, image_size) if is_timm(name) else lookup(BACKBONES, name, "backbone")
    if pooling == "mean":
        return maker()
    if "pooling" not in option_names(maker):
        raise UserError(f"the backbone {name} has its own pooling: leave network.pooling at mean.")
    return maker(pooling=pooling)


__all__ = [
    "BACKBONES",
    "HEADS",
    "POOLINGS",
    "EmbeddingNetwork",
    "Head",
    "PooledFeatures",
    "WeightsUsed",
    "backbone_of",
    "build_backbone",
    "check_backbone",
    "find_input",
    "find_num_features",
    "find_weights",
    "has_package",
    "load_weights",
    "make_head",
    "use_seed",
]
