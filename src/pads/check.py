"""The door: settings that cannot work are refused before a run folder is made."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

from torch import nn

from pads.build import FREEZES, check_distillation, make_loss
from pads.config import (
    AutoConfig,
    Config,
    Sampling,
    drop_auto,
    flatten_settings,
    from_dict,
    lookup,
    split_stages,
    to_dict,
    value_of,
)
from pads.curricula import Curriculum, FixedCurriculum, make_curriculum
from pads.data import DATASETS
from pads.data.augment import check_crop
from pads.data.batches import BATCHES
from pads.errors import UserError
from pads.metrics import check_metric_names
from pads.networks import HEADS, check_backbone, find_weights
from pads.pml.names import is_theirs
from pads.runtime.team import num_processes
from pads.sampling.triplets import check_draw

MOST_DIMENSIONS = 2**17
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
    "network.crops": 0,
    "optimiser.learning_rate": 0,
    "optimiser.loss_learning_rate": 0,
    "optimiser.weight_decay": 0,
    "optimiser.factor": 0,
    "num_epochs": 0,
    "adapt_every": 1,
    "log_every": 1,
    "select_every": 1,
    "test_curve_every": 1,
    "checkpoint_every": 1,
    "threads": 1,
}
OF_A_STAGE = (
    "network.freeze",
    "network.crops",
    "data.augmentation",
    "data.flip",
    "data.classes_per_batch",
    "data.samples_per_class",
)
"""Settings of the images and the network that may differ from stage to stage."""
MOST_THREADS = 1024
"""Far more of them, and torch dies without a word."""


def check_share(config: Config) -> None:
    """Refuse a batch whose classes cannot be dealt out to the processes."""
    num_classes, size = config.data.classes_per_batch, num_processes()
    if num_classes % size:
        right = [str(number) for number in range(1, num_classes + 1) if num_classes % number == 0]
        raise UserError(
            f"the {num_classes} classes of a batch cannot be dealt out to {size} processes: start {', '.join(right[:-1])} "
            f"or {right[-1]}, or set data.classes_per_batch to a multiple of {size}."
        )


def check(given: Config | AutoConfig) -> None:
    """Refuse settings that cannot work, before a run folder is made; what is still to be chosen will be right."""
    config, auto = drop_auto(given), given.auto if isinstance(given, AutoConfig) else frozenset()
    from_dict(to_dict(config))  # what was made in Python is held to its types, as what comes from a file is
    for stage in split_stages(config):
        check_stage(stage, auto)
    check_stages(config)


def check_stages(config: Config) -> None:
    """Refuse a stage before that has other images or another network: they hold for the whole run."""
    *before, last = (flatten_settings(to_dict(stage)) for stage in split_stages(config))
    for stage in before:
        other = [key for key in stage if stage[key] != last.get(key) and key.startswith(("data.", "network."))]
        whole = [key for key in other if key not in OF_A_STAGE]
        if whole:
            raise UserError(f"{whole[0]} holds for the whole run: leave it out of `before`.")


def check_stage(config: Config, auto: frozenset[str]) -> None:
    """Refuse settings of one stage."""
    for name, least in AT_LEAST.items():
        value = value_of(config, name)
        most = math.inf if isinstance(value, float) else 2**63
        if value is not None and not least <= value < most:
            null = (
                ", or null for never"
                if name in ("adapt_every", "test_curve_every", "data.reward_resample_every")
                else ""
            )
            raise UserError(f"{name} is {value}: it must be at least {least}{null}.")
    if config.network.embedding_dim > MOST_DIMENSIONS:
        raise UserError(
            f"network.embedding_dim is {config.network.embedding_dim}: it must be at most {MOST_DIMENSIONS}."
        )
    if config.threads is not None and config.threads > MOST_THREADS:
        raise UserError(f"threads is {config.threads}: it must be at most {MOST_THREADS}.")
    if min(config.network.std) <= 0:
        raise UserError(f"network.std is {list(config.network.std)}: each must be above 0.")
    if not config.recall_at or min(config.recall_at) < 1:
        raise UserError(f"recall_at is {list(config.recall_at)}: name at least one k, each at least 1.")
    if "data.classes_per_batch" not in auto:
        check_share(config)
    if not auto & {"data.resize", "data.image_size"}:
        check_crop(config.data.resize, config.data.image_size)
    check_draw(config.sampling.negatives_from, config.sampling.rho)
    check_metric_names([config.select_by])
    if config.data.reward_resample_every and config.data.reward_pick != "random":
        raise UserError(
            "data.reward_resample_every draws images at random: set data.reward_pick=random, or leave it at null."
        )
    lookup(DATASETS, config.data.name, "data set")
    lookup(BATCHES, config.data.batches, "way to draw data.batches,")
    if not 0 < config.optimiser.layer_decay <= 1:
        raise UserError(f"optimiser.layer_decay is {config.optimiser.layer_decay}: it must be above 0 and at most 1.")
    if not config.optimiser.head_factor > 0:
        raise UserError(f"optimiser.head_factor is {config.optimiser.head_factor}: it must be above 0.")
    lookup(HEADS, config.network.head, "head")
    check_freeze(config)
    if not 0 < config.network.shrinkage <= 1:
        raise UserError(f"network.shrinkage is {config.network.shrinkage}: it must be above 0 and at most 1.")
    if "network.backbone" not in auto:
        check_backbone(config.network.backbone)
        if config.network.weights is not None:
            find_weights(config.network.weights, config.network.backbone)
    loss_fn, curriculum = make_loss(config, num_classes=1), make_curriculum(config)
    check_theirs(config, loss_fn, curriculum)
    check_distillation(config, num_features=1, num_classes=1)
    if curriculum.metrics and config.adapt_every and config.data.reward_share == 0:
        raise UserError("this curriculum learns from the reward split, which is empty: set data.reward_share above 0.")


def check_freeze(config: Config) -> None:
    """Refuse what needs more of an image than the features of its backbone."""
    lookup(dict.fromkeys(FREEZES), config.network.freeze, "freeze")
    if config.network.freeze == "none":
        return
    if config.distillation.name != "none":
        raise UserError(
            "a distillation needs the feature maps, and of a frozen backbone only the pooled features are kept: add "
            "--set distillation.name=none, or --set network.freeze=none."
        )
    if config.data.reward_resample_every:
        raise UserError(
            "the features of a frozen backbone are computed once for each role: add --set data.reward_resample_every=null."
        )


def check_choices(config: Config, auto: frozenset[str]) -> None:
    """Refuse what the door could not judge before these settings were chosen."""
    if "data.classes_per_batch" in auto:
        check_share(config)
    if auto & {"data.resize", "data.image_size"}:
        check_crop(config.data.resize, config.data.image_size)
    if "network.backbone" in auto and config.network.weights is not None:
        find_weights(config.network.weights, config.network.backbone)


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
    if adapts and getattr(loss_fn, "triplets", "drawn") == "all":
        raise UserError(
            f"{config.loss.name} forms its own pairs, so nothing would follow from what the curriculum {config.curriculum.name!r} "
            "draws: add --set curriculum.name=random."
        )
