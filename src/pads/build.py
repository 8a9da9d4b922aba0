"""The parts of a run, built from its config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pads.config import Config, Optimiser
from pads.curricula import Curriculum, make_curriculum
from pads.data.roles import Views
from pads.errors import UserError
from pads.losses import build_loss
from pads.losses.distillation import S2SD, make_distillation
from pads.networks import EmbeddingNetwork, Head, build_backbone, find_weights, load_weights, use_seed
from pads.networks.depth import layer_numbers, rate_scales
from pads.pml.miners import mine_tuples
from pads.pml.names import is_theirs
from pads.pml.tuples import Tuples
from pads.runtime.team import ALONE, LedCurriculum, Team, share_batch_norms
from pads.sampling import draw_triplets


def build_network(config: Config) -> EmbeddingNetwork:
    """The network with random weights, for a state dict to be loaded into: the same for the same seed."""
    options = config.network
    with use_seed(config.seed):
        backbone = build_backbone(options.backbone, pooling=options.pooling, image_size=config.data.image_size)
        return EmbeddingNetwork(
            backbone,
            options.embedding_dim,
            frozen_batch_norm=options.frozen_batch_norm,
            normalise=options.normalise,
            bfloat16=config.precision == "bfloat16",
        )


FREEZES = ("none", "backbone")


def start_network(config: Config, head: Head | None = None) -> EmbeddingNetwork:
    """The network as it is before training: with the weights from elsewhere in its backbone, where there are any.

    head: what its embedding layer starts from, random numbers if nothing is given.
    """
    network = build_network(config)
    if head is not None:
        network.start_from(head)
    if config.network.weights is not None:
        weights = find_weights(config.network.weights, config.network.backbone)
        network.weights_used = load_weights(network.backbone, weights)
    return network


def build_parts(config: Config, views: Views, team: Team = ALONE) -> tuple[EmbeddingNetwork, nn.Module, Curriculum]:
    network = start_network(config).to(views.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if config.network.freeze == "backbone":
        network.freeze_backbone()
    if team.size > 1 and not config.network.frozen_batch_norm:
        share_batch_norms(network.modules())
    if config.compiled and views.device.type == "cuda":
        network.compile(dynamic=False)
    loss_fn = make_loss(config, views.train.num_labels).to(views.device)
    curriculum = make_curriculum(config)
    return network, loss_fn, LedCurriculum(curriculum, team) if team.size > 1 else curriculum


def build_distillation(config: Config, network: EmbeddingNetwork, views: Views) -> S2SD | None:
    """Return what teaches the network in training, if anything does; the network then gives its features."""
    if config.distillation.name != "none":
        network.give_features()
    distillation = check_distillation(config, network.embedding.in_features, views.train.num_labels)
    return None if distillation is None else distillation.to(views.device)


def check_distillation(config: Config, num_features: int, num_classes: int) -> S2SD | None:
    """Make the distillation of the config, or refuse its options."""
    with use_seed(config.seed):
        return make_distillation(
            config.distillation, num_features=num_features, make_loss=partial(make_loss, config, num_classes)
        )


def make_loss(config: Config, num_classes: int, embedding_size: int | None = None) -> nn.Module:
    """Return the loss for embeddings of that size, the network's unless told otherwise."""
    size = embedding_size or config.network.embedding_dim
    return build_loss(config.loss, num_classes=num_classes, embedding_size=size, seed=config.seed)


def build_draw(config: Config) -> Callable[..., Tuples]:
    """Return what draws the triplets of a batch: `draw_triplets` with its options, or a miner of pytorch-metric-learning."""
    return mine_tuples if is_theirs(config.curriculum) else partial(draw_triplets, **asdict(config.sampling))


def build_optimiser(
    options: Optimiser, network: nn.Module, loss_fn: nn.Module, distillation: S2SD | None = None
) -> torch.optim.Adam:
    """Adam; the parameters of the loss have a rate of their own and no weight decay.

    The heads of a distillation learn at the network's rate, and their losses at the loss's.
    """
    heads, losses = ([*distillation.heads.parameters()], distillation.losses) if distillation else ([], nn.Module())
    of_losses = [p for p in (*loss_fn.parameters(), *losses.parameters()) if p.requires_grad]
    groups: list[dict[str, Any]] = [
        *network_groups(options, network),
        {"params": heads, "initial_lr": options.learning_rate, "weight_decay": options.weight_decay},
        {"params": of_losses, "initial_lr": options.loss_learning_rate},
    ]
    on_gpu = next(network.parameters()).is_cuda
    used = [group for group in groups if group["params"]]
    return torch.optim.Adam(used, lr=options.learning_rate, fused=on_gpu, capturable=on_gpu)


def network_groups(options: Optimiser, network: nn.Module) -> list[dict[str, Any]]:
    """The network's parameters, by layer where the layers have rates of their own."""

    def group(parameters: list[nn.Parameter], scale: float) -> dict[str, Any]:
        rate = options.learning_rate * scale
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        return {"params": learning, "initial_lr": rate, "weight_decay": options.weight_decay}

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
