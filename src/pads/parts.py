"""The parts of a run, built from its config; and the door where settings that cannot work are refused."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from pads.config import Config, Optimiser, build, lookup
from pads.curricula import Curriculum, build_curriculum
from pads.data import DATASETS
from pads.data.augment import check_crop
from pads.data.views import Views
from pads.errors import UserError
from pads.losses import LOSSES
from pads.networks import BACKBONES, EmbeddingNetwork, build_backbone, find_weights, load_weights, seeded
from pads.sampling.triplets import check_draw


def build_network(config: Config) -> EmbeddingNetwork:
    """The network with random weights, for a state dict to be loaded into: the same for the same seed."""
    options = config.network
    with seeded(config.seed):
        backbone = build_backbone(options.backbone, pooling=options.pooling)
        return EmbeddingNetwork(
            backbone,
            options.embedding_dim,
            frozen_batch_norm=options.frozen_batch_norm,
            normalise=options.normalise,
            bfloat16=config.precision == "bfloat16",
        )


def start_network(config: Config) -> EmbeddingNetwork:
    """The network as it is before training: with the weights from elsewhere in its backbone, where there are any."""
    network = build_network(config)
    if config.network.weights is not None:
        weights = find_weights(config.network.weights, config.network.backbone)
        network.weights_used = load_weights(network.backbone, weights)
    return network


def build_parts(config: Config, views: Views) -> tuple[EmbeddingNetwork, nn.Module, Curriculum]:
    network = start_network(config).to(views.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if config.compiled and views.device.type == "cuda":
        network.compile(dynamic=False)
    loss_fn = build(LOSSES, config.loss, "loss", num_classes=views.train.num_classes).to(views.device)
    curriculum = make_curriculum(config)
    if curriculum.metrics and config.adapt_every and len(views.reward) == 0:
        raise UserError("this curriculum learns from the reward split, which is empty: set data.reward_share above 0.")
    return network, loss_fn, curriculum


def make_curriculum(config: Config) -> Curriculum:
    return build_curriculum(
        config.curriculum, dim=config.network.embedding_dim, recall_at=config.recall_at, seed=config.seed
    )


def build_optimiser(options: Optimiser, network: nn.Module, loss_fn: nn.Module) -> torch.optim.Adam:
    """Adam; the parameters of the loss have a rate of their own and no weight decay."""
    groups: list[dict[str, Any]] = [
        {
            "params": list(network.parameters()),
            "initial_lr": options.learning_rate,
            "weight_decay": options.weight_decay,
        },
        {"params": [p for p in loss_fn.parameters() if p.requires_grad], "initial_lr": options.loss_learning_rate},
    ]
    on_gpu = groups[0]["params"][0].is_cuda
    used = [group for group in groups if group["params"]]
    return torch.optim.Adam(used, lr=options.learning_rate, fused=on_gpu, capturable=on_gpu)


def set_learning_rates(optimiser: torch.optim.Optimizer, options: Optimiser, epoch: int) -> None:
    """Each rate times `factor` for every milestone passed."""
    decay = options.factor ** sum(epoch >= milestone for milestone in options.milestones)
    for group in optimiser.param_groups:
        rate, device = group["initial_lr"] * decay, group["params"][0].device
        if isinstance(group["lr"], Tensor) and group["lr"].device == device:
            group["lr"].fill_(rate)  # in place: a CUDA graph keeps reading it
        else:
            group["lr"] = torch.tensor(rate, device=device) if device.type == "cuda" else rate


def match_layouts(optimiser: torch.optim.Optimizer) -> None:
    """A checkpoint forgets the order in memory (channels_last); the fused Adam wants its moments as the weights have it."""
    for weights, state in optimiser.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weights.shape:
                state[name] = torch.empty_like(weights, dtype=value.dtype).copy_(value)


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {name!r} is not there: take `cpu`, or `auto` for what the machine has.") from error
    return torch.device(name)


# -- the door -----------------------------------------------------------------------------------------------------------

AT_LEAST = {
    "seed": 0,
    "data.split_seed": 0,
    "data.classes_per_batch": 2,
    "data.samples_per_class": 2,
    "data.image_size": 1,
    "data.store_size": 1,
    "data.store_ratio": 1,
    "network.embedding_dim": 1,
    "optimiser.learning_rate": 0,
    "optimiser.loss_learning_rate": 0,
    "optimiser.weight_decay": 0,
    "optimiser.factor": 0,
    "num_epochs": 1,
    "adapt_every": 1,
    "log_every": 1,
    "select_every": 1,
    "test_curve_every": 1,
    "checkpoint_every": 1,
    "threads": 1,
}
MOST_THREADS = 1024
"""Far more of them, and torch dies without a word."""


def check(config: Config) -> None:
    """Settings that cannot work are refused before a run folder is made."""
    for name, least in AT_LEAST.items():
        value: Any = functools.reduce(getattr, name.split("."), config)
        most = math.inf if isinstance(value, float) else 2**63
        if value is not None and not least <= value < most:
            null = ", or null for never" if name in ("adapt_every", "test_curve_every") else ""
            raise UserError(f"{name} is {value}: it must be at least {least}{null}.")
    if config.threads is not None and config.threads > MOST_THREADS:
        raise UserError(f"threads is {config.threads}: it must be at most {MOST_THREADS}.")
    if min(config.network.std) <= 0:
        raise UserError(f"network.std is {list(config.network.std)}: each must be above 0.")
    if not config.recall_at or min(config.recall_at) < 1:
        raise UserError(f"recall_at is {list(config.recall_at)}: name at least one k, each at least 1.")
    check_crop(config.data.resize, config.data.image_size)
    check_draw(config.sampling.negatives_from, config.sampling.rho)
    lookup(DATASETS, config.data.name, "data set")
    lookup(BACKBONES, config.network.backbone, "backbone")
    if config.network.weights is not None:
        find_weights(config.network.weights, config.network.backbone)
    build(LOSSES, config.loss, "loss", num_classes=1)
    if make_curriculum(config).metrics and config.adapt_every and config.data.reward_share == 0:
        raise UserError("this curriculum learns from the reward split, which is empty: set data.reward_share above 0.")
