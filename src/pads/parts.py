"""The parts of a run, built from its config; and the door where settings that cannot work are refused."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from pads.config import AUTO, Config, Optimiser, Sampling, lookup
from pads.curricula import Curriculum, FixedCurriculum, make_curriculum
from pads.data import DATASETS
from pads.data.augment import check_crop
from pads.data.views import Views
from pads.errors import UserError
from pads.losses import build_loss
from pads.losses.pml import PmlLoss
from pads.metrics import check_metric_names
from pads.networks import EmbeddingNetwork, build_backbone, check_backbone, find_weights, load_weights, seeded
from pads.networks.depth import layer_numbers, rate_scales
from pads.pml import is_theirs
from pads.runs.distributed import ALONE, LedCurriculum, Team, num_processes, share_batch_norms
from pads.sampling.triplets import check_draw


def build_network(config: Config) -> EmbeddingNetwork:
    """The network with random weights, for a state dict to be loaded into: the same for the same seed."""
    options = config.network
    with seeded(config.seed):
        backbone = build_backbone(options.backbone, pooling=options.pooling, image_size=config.data.image_size)
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
    if views.team.size > 1 and not config.network.frozen_batch_norm:
        share_batch_norms(network.modules())
    if config.compiled and views.device.type == "cuda":
        network.compile(dynamic=False)
    loss_fn = make_loss(config, views.train.num_labels).to(views.device)
    curriculum = make_curriculum(config)
    if curriculum.metrics and config.adapt_every and len(views.reward) == 0:
        raise UserError("this curriculum learns from the reward split, which is empty: set data.reward_share above 0.")
    return network, loss_fn, LedCurriculum(curriculum, views.team) if views.team.size > 1 else curriculum


def make_loss(config: Config, num_classes: int) -> nn.Module:
    return build_loss(
        config.loss, num_classes=num_classes, embedding_size=config.network.embedding_dim, seed=config.seed
    )


def build_optimiser(options: Optimiser, network: nn.Module, loss_fn: nn.Module) -> torch.optim.Adam:
    """Adam; the parameters of the loss have a rate of their own and no weight decay."""
    groups: list[dict[str, Any]] = [
        *network_groups(options, network),
        {"params": [p for p in loss_fn.parameters() if p.requires_grad], "initial_lr": options.loss_learning_rate},
    ]
    on_gpu = groups[0]["params"][0].is_cuda
    used = [group for group in groups if group["params"]]
    return torch.optim.Adam(used, lr=options.learning_rate, fused=on_gpu, capturable=on_gpu)


def network_groups(options: Optimiser, network: nn.Module) -> list[dict[str, Any]]:
    """The network's parameters, by layer where the layers have rates of their own."""

    def group(parameters: list[nn.Parameter], scale: float) -> dict[str, Any]:
        rate = options.learning_rate * scale
        return {"params": parameters, "initial_lr": rate, "weight_decay": options.weight_decay}

    if options.layer_decay == 1 and options.head_factor == 1:
        return [group(list(network.parameters()), 1.0)]
    assert isinstance(network, EmbeddingNetwork)
    head = list(network.embedding.parameters())
    if options.layer_decay == 1:
        return [group(list(network.backbone.parameters()), 1.0), group(head, options.head_factor)]
    names, parameters = zip(*network.backbone.named_parameters(), strict=True)
    numbers = layer_numbers(names)
    by_scale: dict[float, list[nn.Parameter]] = {options.head_factor: head}
    for parameter, scale in zip(parameters, rate_scales(numbers, options.layer_decay), strict=True):
        by_scale.setdefault(scale, []).append(parameter)
    if not any(numbers):
        raise UserError(
            "optimiser.layer_decay needs a backbone that is made of blocks, and this one is not: set it to 1."
        )
    return [group(parameters, scale) for scale, parameters in by_scale.items()]


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


def pick_device(name: str, team: Team = ALONE) -> torch.device:
    if team.size > 1:
        name = own_device(name, team)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {name!r} is not there: take `cpu`, or `auto` for what the machine has.") from error
    return torch.device(name)


def own_device(name: str, team: Team) -> str:
    """A GPU for each process of a machine, or the CPU for all."""
    num_gpus = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and not num_gpus):
        return "cpu"
    if name not in ("auto", "cuda"):
        raise UserError(f"device {name!r} cannot be shared by several processes: take `cpu`, or `cuda` for a GPU each.")
    if team.local_rank >= num_gpus:
        raise UserError(
            f"every process needs a GPU of its own, and there are {num_gpus} here: start at most {num_gpus} "
            "processes on this machine with --nproc-per-node, or take --device cpu."
        )
    torch.cuda.set_device(team.local_rank)
    return f"cuda:{team.local_rank}"


# -- the door -----------------------------------------------------------------------------------------------------------

AT_LEAST = {
    "seed": 0,
    "data.split_seed": 0,
    "data.reward_resample_every": 1,
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


def check_share(config: Config) -> None:
    """The classes of a batch can be dealt out to the processes."""
    num_classes, size = config.data.classes_per_batch, num_processes()
    if num_classes % size:
        right = [str(number) for number in range(1, num_classes + 1) if num_classes % number == 0]
        raise UserError(
            f"the {num_classes} classes of a batch cannot be dealt out to {size} processes: start {', '.join(right[:-1])} "
            f"or {right[-1]}, or set data.classes_per_batch to a multiple of {size}."
        )


def check(config: Config) -> None:
    """Settings that cannot work are refused before a run folder is made; what is still to be chosen will be right."""
    for name, least in AT_LEAST.items():
        value: Any = functools.reduce(getattr, name.split("."), config)
        if value == AUTO:
            continue
        most = math.inf if isinstance(value, float) else 2**63
        if value is not None and not least <= value < most:
            null = (
                ", or null for never"
                if name in ("adapt_every", "test_curve_every", "data.reward_resample_every")
                else ""
            )
            raise UserError(f"{name} is {value}: it must be at least {least}{null}.")
    if config.threads is not None and config.threads > MOST_THREADS:
        raise UserError(f"threads is {config.threads}: it must be at most {MOST_THREADS}.")
    if config.network.std != AUTO and min(config.network.std) <= 0:
        raise UserError(f"network.std is {list(config.network.std)}: each must be above 0.")
    if not config.recall_at or min(config.recall_at) < 1:
        raise UserError(f"recall_at is {list(config.recall_at)}: name at least one k, each at least 1.")
    if config.data.classes_per_batch != AUTO:
        check_share(config)
    if AUTO not in (config.data.resize, config.data.image_size):
        check_crop(config.data.resize, config.data.image_size)
    check_draw(config.sampling.negatives_from, config.sampling.rho)
    check_metric_names([config.select_by])
    if config.data.reward_resample_every and config.data.reward_pick != "random":
        raise UserError(
            "data.reward_resample_every draws images at random: set data.reward_pick=random, or leave it at null."
        )
    lookup(DATASETS, config.data.name, "data set")
    if not 0 < config.optimiser.layer_decay <= 1:
        raise UserError(f"optimiser.layer_decay is {config.optimiser.layer_decay}: it must be above 0 and at most 1.")
    if not config.optimiser.head_factor > 0:
        raise UserError(f"optimiser.head_factor is {config.optimiser.head_factor}: it must be above 0.")
    if config.network.backbone != AUTO:
        check_backbone(config.network.backbone)
        if config.network.weights is not None:
            find_weights(config.network.weights, config.network.backbone)
    loss_fn, curriculum = make_loss(config, num_classes=1), make_curriculum(config)
    check_theirs(config, loss_fn, curriculum)
    if curriculum.metrics and config.adapt_every and config.data.reward_share == 0:
        raise UserError("this curriculum learns from the reward split, which is empty: set data.reward_share above 0.")


def check_theirs(config: Config, loss_fn: nn.Module, curriculum: Curriculum) -> None:
    """Losses and miners of pytorch-metric-learning work with most settings, but not with all."""
    mined = is_theirs(config.curriculum)
    theirs = [part.name for part in (config.loss, config.curriculum) if is_theirs(part)]
    if theirs and config.compiled:
        raise UserError(
            f"{theirs[0]} forms tuples of changing length, which no CUDA graph can hold: add --set compiled=false."
        )
    if mined and config.sampling != Sampling():
        given, plain = asdict(config.sampling), asdict(Sampling())
        settings = [f"--set sampling.{name}={json.dumps(plain[name])}" for name in plain if given[name] != plain[name]]
        raise UserError(
            f"{config.curriculum.name} forms its triplets itself, so what this run says of sampling cannot hold: "
            f"add {' '.join(settings)}."
        )
    adapts = mined or not isinstance(curriculum, FixedCurriculum)
    if adapts and isinstance(loss_fn, PmlLoss) and loss_fn.triplets == "all":
        raise UserError(
            f"{config.loss.name} forms its own pairs, so nothing would follow from what the curriculum {config.curriculum.name!r} "
            "draws: add --set curriculum.name=random."
        )
