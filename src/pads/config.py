"""What a run is: one frozen Config, JSON in and out. Options have one home for their defaults, and it is here."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pads.errors import UserError
from pads.runtime.reading import Misfit, parse_json

T = TypeVar("T")

AUTO: Any = "auto"
"""In the place of a value: chosen from the data or the network when a run begins (`autoconfig.py`), which keeps the choice."""

CHOSEN = frozenset(
    {
        "data.image_size",
        "data.resize",
        "data.store_size",
        "data.classes_per_batch",
        "data.samples_per_class",
        "data.selection_share",
        "data.reward_share",
        "network.backbone",
        "network.frozen_batch_norm",
        "network.mean",
        "network.std",
        "optimiser.learning_rate",
        "optimiser.milestones",
        "num_epochs",
        "precision",
    }
)
"""The settings that may be `auto`."""

MODEL_INPUT = ("data.image_size", "data.resize", "data.store_size", "network.mean", "network.std")
"""What a timm model says about its own input."""


@dataclass(frozen=True)
class Part:
    """A registered part by name, with its own options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Data:
    name: str = "emoji"
    """A data set of `pads.DATASETS`: emoji, cub200, cars196, sop, inshop, folder, csv, hf."""
    root: str | None = None
    """Where the images are (`--data DIR`)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the data set."""
    image_size: int = 224
    """Pixels on a side of what the network sees."""
    resize: int = 256
    """The shorter side, from which evaluation cuts the centre; the side of the square from which `resize and crop` cuts."""
    store_size: int = 320
    """Pixels of the shorter side of what is kept of each image."""
    store_ratio: float = 4 / 3
    """The longer side over the shorter of what is kept: that of most photographs, or 1 for squares."""
    augmentation: str = "resize and crop"
    """The crop in training: `resize and crop` (the paper), `random resized crop` (the authors' code), or `none`."""
    flip: bool = True
    """Mirror half of the training images."""
    classes_per_batch: int = 56
    """P of the P x S images in a batch."""
    samples_per_class: int = 2
    """S of the P x S images in a batch."""
    selection_share: float = 0.10
    """Share of the training classes held out to select the epoch, for every arm alike."""
    reward_share: float = 0.15
    """Share of the rest held out as the reward split, what the policy sees (the paper's I_val)."""
    reward_split: str = "per class"
    """The reward split takes images `per class`, or whole classes: `by class`."""
    reward_pick: str = "random"
    """Images per class are picked `random` or `evenly spaced`."""
    reward_resample_every: int | None = None
    """Epochs after which train and reward are drawn anew from the images of both (paper, Tab. 7); null for never."""
    split_seed: int = 0
    """Seed of the splits; the same for all seeds of a run, so that these are compared on the same split."""
    store_on: str = "auto"
    """Where the decoded images are kept: `gpu`, `memory`, `disk` (a prepared store), or `auto`, what there is room for."""
    skip_bad_images: bool = False
    """Go on without images that cannot be read (`--skip-bad-images`)."""
    paper_protocol: bool = False
    """Select the epoch on the test split, as the authors did; every figure is then marked "test-selected"."""


@dataclass(frozen=True)
class Network:
    backbone: str = "resnet50"
    """A backbone of `pads.BACKBONES`, or any model of timm: `timm:vit_small_patch14_dinov2.lvd142m`."""
    embedding_dim: int = 128
    """D of the embedding."""
    weights: str | None = None
    """What the backbone starts from (`--weights FILE`): a file, `imagenet` or `pretrained` for a download, or null for random."""
    pooling: str = "mean"
    """How the last feature maps become a vector: `mean`, `max`, or `mean+max` (their sum)."""
    normalise: bool = True
    """Embeddings have unit length."""
    frozen_batch_norm: bool = True
    """Batch norms keep their statistics in training."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Of the input, in RGB from 0 to 1, as the weights want it; inception-bn's: (128, 117, 104) / 255."""
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """Likewise; inception-bn's: 1 / 255 for all three."""


@dataclass(frozen=True)
class Sampling:
    """Arguments of the draw, whatever the rule."""

    negatives_from: str = "other classes"
    """`other classes`, `all but the anchor` (self-regularisation), or `all`."""
    anchor_as_positive: bool = False
    """The anchor may be its own positive (the authors' code)."""
    rho: float = 0.0
    """Share of triplets whose negative is a true positive (R-Margin)."""


@dataclass(frozen=True)
class Optimiser:
    """Adam; both rates are multiplied by `factor` at each milestone."""

    learning_rate: float = 1e-5
    weight_decay: float = 4e-4
    loss_learning_rate: float = 5e-4
    """For the parameters of the loss (the margin loss's beta), without weight decay."""
    milestones: tuple[int, ...] = ()
    """Epochs after which the rates fall."""
    factor: float = 0.3
    layer_decay: float = 1.0
    """Each block of the backbone learns at this fraction of the rate of the block above it; 1 for all alike."""
    head_factor: float = 1.0
    """The embedding layer, which starts from random weights, learns at this multiple of the rate."""


@dataclass(frozen=True)
class Config:
    recipe: str = ""
    """The recipe that this config came from."""
    seed: int = 0
    data: Data = Data()
    network: Network = Network()
    loss: Part = Part("margin")
    curriculum: Part = Part("distance-weighted")
    sampling: Sampling = Sampling()
    optimiser: Optimiser = Optimiser()
    num_epochs: int = 150
    adapt_every: int | None = 30
    """M: training steps between two adjustments of the sampling distribution; null for never."""
    log_every: int = 30
    """Steps between two records of the loss and of what was drawn."""
    select_every: int = 1
    """Epochs between two measurements on the selection split."""
    select_by: str = "map@r"
    """The metric of the selection split that picks the epoch. Recall@1 of a few held-out classes soon has no room to grow;
    with `data.paper_protocol` it picks all the same, as the authors do."""
    test_curve_every: int | None = None
    """Epochs between two measurements on the test split, written to a file that nothing in training reads."""
    checkpoint_every: int = 1
    """Epochs between two checkpoints."""
    recall_at: tuple[int, ...] = (1, 2, 4, 8)
    """k of the Recall@k that are reported."""
    threads: int | None = None
    """CPU threads; null for torch's own choice. The same number gives the same bits."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, ..."""
    precision: str = "float32"
    """Of the backbone: `float32`, `tf32` or `bfloat16`."""
    compiled: bool = False
    """On a GPU: compile the network and replay the training step as one CUDA graph. It takes a minute and pays on long runs."""

    @property
    def picked_by(self) -> str:
        """The metric that picks the epoch: `select_by`, but Recall@1 on the test split where the authors' protocol is asked for."""
        return "recall@1" if self.data.paper_protocol else self.select_by


# -- JSON --------------------------------------------------------------------------------------------------------------


def to_dict(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config)


def to_json(config: Config) -> str:
    return json.dumps(to_dict(config), indent=2) + "\n"


def from_dict(values: Mapping[str, Any], kind: type[T] = Config, where: str = "") -> T:  # type: ignore[assignment]
    """A config from plain values; a key or a type that does not fit is refused by its full name."""
    hints = typing.get_type_hints(kind)
    for key in values:
        if key not in hints:
            raise unknown("key", key, hints, where)
    for needed in dataclasses.fields(kind):  # type: ignore[arg-type]
        has_default = needed.default is not dataclasses.MISSING or needed.default_factory is not dataclasses.MISSING
        if needed.name not in values and not has_default:
            raise UserError(f"{where}{needed.name} is missing: say which one.")
    return kind(**{key: fitted(value, hints[key], where + key) for key, value in values.items()})


def fitted(value: Any, hint: Any, where: str) -> Any:
    """The value as the annotated type, where JSON or a command line blurs it (lists for tuples, 1 for 1.0)."""
    if value == AUTO and where in CHOSEN:
        return AUTO
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise UserError(
                f"{where} is a group of settings, not {value!r}: set one of its keys, such as {where}.{first_field(hint)}."
            )
        return from_dict(value, hint, where + ".")  # type: ignore[arg-type]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        if value is None and type(None) in arguments:
            return None
        return fitted(value, next(a for a in arguments if a is not type(None)), where)
    if origin is tuple and isinstance(value, list | tuple):
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise UserError(f"{where} needs {len(arguments)} values, not {len(value)}.")
        if AUTO in value:
            raise UserError(f"{where} is {AUTO} as a whole or not at all: write {where}={AUTO}, or a list of numbers.")
        return tuple(fitted(item, arguments[0], where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**63 else math.inf if value > 0 else -math.inf
    expected: Any = Mapping if origin is not None and origin is not tuple else origin or hint
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise UserError(f"{where} must be {readable(hint)}, not {value!r}.")
    return value


def first_field(kind: Any) -> str:
    return dataclasses.fields(kind)[0].name


def readable(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        plain = [argument for argument in typing.get_args(hint) if argument in names or typing.get_origin(argument)]
        return " or ".join(map(readable, plain))
    return names.get(hint, "a list" if origin in (tuple, Sequence) else "a group of options")


def from_json(text: str) -> Config:
    values = parse_json(text)
    if not isinstance(values, Mapping):
        raise UserError(f"a config is a group of settings in braces, not {values!r}.")
    return from_dict(values)


# -- --set a.b=c -------------------------------------------------------------------------------------------------------


def with_settings(config: Config, settings: Iterable[str]) -> Config:
    """The config with each `a.b=c` applied. Values are read as JSON where they are JSON, else as text."""
    values, settings = to_dict(config), list(settings)
    if any(is_timm_backbone(setting) for setting in settings):
        for key in MODEL_INPUT:  # the recipe's were meant for another network
            set_value(values, key, AUTO)
    # names first: a new name drops the options of the old part, and must not drop those that were given with it
    for setting in sorted(settings, key=lambda setting: not setting.partition("=")[0].strip().endswith(".name")):
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write it as key=value, for example --set loss.options.beta=0.6.")
        set_value(values, key.strip(), parsed(text.strip()))
    return from_dict(values)


def is_timm_backbone(setting: str) -> bool:
    key, _, text = setting.partition("=")
    return key.strip() == "network.backbone" and str(parsed(text.strip())).startswith("timm:")


def set_value(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    group, free = values, False
    for depth, parent in enumerate(parents):
        free = free or parent == "options"
        if parent not in group and not free:
            raise unknown("key", key, all_keys(values))
        group = group.setdefault(parent, {})
        if not isinstance(group, dict):
            raise UserError(f"{'.'.join(parents[: depth + 1])} is a single setting, so {key} does not exist.")
    if last not in group and not free:
        raise unknown("key", key, all_keys(values))
    if last == "name" and not free and group["name"] != value:
        group["options"] = {}  # options belong to the part that they were written for
    group[last] = value


def all_keys(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for key, value in values.items():
        keys.append(prefix + key)
        if isinstance(value, Mapping):
            keys += all_keys(value, prefix + key + ".")
    return keys


def parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except json.JSONDecodeError:
        return text
    except Misfit as error:
        raise UserError(f"--set {text[:40]} ...: the value is {error}.") from error


# -- building parts ----------------------------------------------------------------------------------------------------


def lookup(registry: Mapping[str, T], name: str, kind: str) -> T:
    if name not in registry:
        raise unknown(kind, name, list(registry))
    return registry[name]


def build(registry: Mapping[str, Callable[..., T]], part: Part, kind: str, **given: Any) -> T:
    """The part of that name with its options. What the run knows (`given`) goes to the parts that ask for it."""
    maker = lookup(registry, part.name, kind)
    return call(maker, part.options, f"{kind}.options", **given)


def call(maker: Callable[..., T], options: Mapping[str, Any], where: str, **given: Any) -> T:
    """maker(**options); an option that it does not have, or of a wrong type, is refused by its full name."""
    names = option_names(maker)
    for key, value in options.items():
        if key not in names:
            raise unknown("option", key, [name for name in names if name not in given], f"{where}.")
        hint = option_types(maker).get(key, Any)
        if not fits(value, hint):
            raise UserError(f"{where}.{key} must be {readable(hint)}, not {value!r}.")
    try:
        return maker(**{**{key: value for key, value in given.items() if key in names}, **options})
    except (OverflowError, MemoryError, RuntimeError) as error:  # torch has no numbers or no room that large
        if not options:
            raise
        raise UserError(
            f"{where} cannot be used ({str(error).partition(chr(10))[0][:200]}): take smaller values."
        ) from error


def option_names(maker: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(maker).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]


def option_types(maker: Callable[..., Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(maker, eval_str=True).parameters.values()
    except NameError:  # a stranger's annotations may name what is imported for type checkers only
        return {}
    return {parameter.name: parameter.annotation for parameter in parameters}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the annotated type, as far as that is a plain one; the part itself looks at the others."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return any(fits(value, argument) for argument in arguments)
    if origin in (tuple, Sequence):
        return isinstance(value, list | tuple) and all(fits(item, arguments[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping)
    if hint in (int, float):
        is_number = isinstance(value, int | hint) and not isinstance(value, bool)
        return is_number and not (isinstance(value, int) and abs(value) >= 2**63)
    return isinstance(value, hint) if hint in (str, bool, type(None)) else True


def unknown(kind: str, name: str, right: Iterable[str], where: str = "") -> UserError:
    """Refuses a name; `where` goes before it and before the right ones, and would make all of them look alike."""
    right = list(right)
    near = difflib.get_close_matches(name, right, n=3, cutoff=0.5)
    if near:
        advice = f"did you mean {' or '.join(where + name for name in near)}?"
    else:
        advice = f"there are: {', '.join(where + name for name in right)}." if right else "there are none."
    return UserError(f"there is no {kind} {where + name!r}; {advice}")
