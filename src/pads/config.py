"""What a run is: one frozen Config, JSON in and out. Options have one home for their defaults, and it is here.

An AutoConfig is a Config of which some settings are still to be chosen; `autoconfig.resolve_auto` makes a Config of it.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
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

AUTO = "auto"
"""How a person writes that a setting is to be chosen: `--set num_epochs=auto`. No Config holds it."""

CHOSEN = frozenset(
    {
        "before",
        "checkpoint_every",
        "data.image_size",
        "data.resize",
        "data.store_size",
        "data.classes_per_batch",
        "data.samples_per_class",
        "data.selection_share",
        "data.reward_share",
        "loss",
        "network.backbone",
        "network.embedding_dim",
        "network.freeze",
        "network.frozen_batch_norm",
        "network.head",
        "network.mean",
        "network.std",
        "network.weights",
        "optimiser.learning_rate",
        "optimiser.milestones",
        "optimiser.weight_decay",
        "num_epochs",
        "precision",
        "select_every",
    }
)
"""The settings that may be left to be chosen, from the images, the network and the machine."""

RETIRED = frozenset({"data.skip_bad_images"})
"""Settings of earlier versions, which the configs of runs may hold and which change nothing."""

MODEL_INPUT = ("data.image_size", "data.resize", "data.store_size", "network.mean", "network.std")
"""What a timm model says about its own input; any other backbone says the last two."""


@dataclass(frozen=True)
class Part:
    """Name a registered part, with its own options."""

    name: str
    """Pick the part by its name in the registry."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Set the part's own options, its keyword arguments."""


@dataclass(frozen=True)
class Data:
    """Choose the images: the data set, what is kept of each image, the batches, and the splits."""

    name: str = "emoji"
    """Pick a data set of `pads.DATASETS`: emoji, cub200, cars196, sop, inshop, folder, csv or hf."""
    root: str | None = None
    """Read the images from this folder (`--data DIR`)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Set options of the data set, such as `data.options.test_share`."""
    image_size: int = 224
    """Show the network squares of this many pixels on a side."""
    resize: int = 256
    """Resize the shorter side to this before evaluation cuts the centre; `resize and crop` cuts from a square of this side."""
    store_size: int = 320
    """Keep each decoded image with a shorter side of at most this many pixels."""
    store_ratio: float = 4 / 3
    """Keep a longer side of at most this many times the shorter: that of most photographs, or 1 for squares."""
    augmentation: str = "resize and crop"
    """Crop training images by `resize and crop` (the paper), `random resized crop` (the authors' code), or `none`."""
    flip: bool = True
    """Mirror half of the training images."""
    classes_per_batch: int = 56
    """Put this many classes into a batch: P of P x S images."""
    samples_per_class: int = 2
    """Put this many images of each class into a batch: S of P x S images."""
    batches: str = "distinct classes"
    """Draw the classes of a batch without repeating one (`distinct classes`), or as the authors' code does (`with
    replacement`: a class or an image may come again)."""
    selection_share: float = 0.10
    """Hold out this share of the training classes to select the epoch, for every arm alike."""
    reward_share: float = 0.15
    """Hold out this share of the rest as the reward split, which the policy sees (the paper's I_val)."""
    reward_split: str = "per class"
    """Hold out images `per class`, or whole classes, `by class`, as the reward split."""
    reward_pick: str = "random"
    """Pick the held-out images of a class `random` or `evenly spaced`."""
    reward_resample_every: int | None = None
    """Draw train and reward anew from the images of both after this many epochs (paper, Tab. 7); null for never."""
    split_seed: int = 0
    """Seed the splits; it is the same for all seeds of a run, so that these are compared on the same split."""
    store_on: str = "auto"
    """Keep the decoded images on the `gpu`, in `memory`, on `disk` (a prepared store), or `auto`: where there is room."""
    strict: bool = False
    """Refuse images that cannot be read (`--strict`), instead of leaving them out with a list of them."""
    paper_protocol: bool = False
    """Select the epoch on the test split, as the authors did; every figure is then marked "test-selected"."""

    @property
    def batch_size(self) -> int:
        """Return the number of images in a batch: P x S."""
        return self.classes_per_batch * self.samples_per_class


@dataclass(frozen=True)
class Network:
    """Choose the network: a backbone, and the linear embedding on top of it."""

    backbone: str = "resnet50"
    """Take a backbone of `pads.BACKBONES`, or any model of timm: `timm:vit_small_patch14_dinov2.lvd142m`."""
    embedding_dim: int = 128
    """Embed in this many dimensions."""
    weights: str | None = None
    """Start the backbone from this file (`--weights FILE`), from what is published for it (`imagenet`, `pretrained`), or from
    random weights (`none`)."""
    head: str = "random"
    """Start the embedding layer from `random` numbers, or in closed form from the pooled features of the training images:
    `plain` (as they are), `pca` (centred, leading directions), `whitening` (divided by how they vary within a class), or
    `discriminant` (the same, and weighed by how they vary between classes)."""
    shrinkage: float = 0.5
    """Mix the covariance within classes with a sphere by this share, for `whitening` and `discriminant`; at most 1."""
    freeze: str = "none"
    """Keep the `backbone` as it is and train the head alone, on features that are computed once; or `none`."""
    crops: int = 0
    """Compute the features of this many random crops of each training image, beside the centre, where the backbone is frozen."""
    pooling: str = "mean"
    """Pool the last feature maps by `mean`, `max`, or `mean+max` (their sum)."""
    normalise: bool = True
    """Give embeddings unit length."""
    frozen_batch_norm: bool = True
    """Keep the statistics of batch norms as they are in training."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Subtract this mean from the input, in RGB from 0 to 1; ImageNet's, or what the weights of the backbone want."""
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """Divide the input by this; ImageNet's, or what the weights of the backbone want."""


@dataclass(frozen=True)
class Sampling:
    """Set the arguments of the draw, whatever the rule."""

    negatives_from: str = "other classes"
    """Draw negatives from `other classes`, from `all but the anchor` (self-regularisation), or from `all`."""
    anchor_as_positive: bool = False
    """Let the anchor be its own positive (the authors' code)."""
    rho: float = 0.0
    """Flip this share of the triplets: their negative is a true positive (R-Margin)."""


@dataclass(frozen=True)
class Optimiser:
    """Set the rates of Adam; both rates are multiplied by `factor` at each milestone."""

    learning_rate: float = 1e-5
    """Train the network at this rate."""
    weight_decay: float = 4e-4
    """Decay the weights of the network by this."""
    loss_learning_rate: float = 5e-4
    """Train the parameters of the loss (the margin loss's beta) at this rate, without weight decay."""
    milestones: tuple[int, ...] = ()
    """Lower the rates after these epochs."""
    factor: float = 0.3
    """Multiply the rates by this at a milestone."""
    layer_decay: float = 1.0
    """Train each block of the backbone at this fraction of the rate of the block above it; 1 for all alike."""
    head_factor: float = 1.0
    """Train the embedding layer, which starts from random weights, at this multiple of the rate."""


@dataclass(frozen=True)
class Config:
    """Hold everything that a run is; `--set KEY=VALUE` changes one option."""

    recipe: str = ""
    """Name the recipe that this config came from."""
    seed: int = 0
    """Seed the weights, the batches, the drawing and the policy."""
    data: Data = Data()
    network: Network = Network()
    loss: Part = Part("margin")
    """Pick a loss of `pads.LOSSES`, or `pml:` and a name of pytorch-metric-learning."""
    curriculum: Part = Part("distance-weighted")
    """Pick a curriculum of `pads.CURRICULA`, or `pml:` and a miner of pytorch-metric-learning."""
    sampling: Sampling = Sampling()
    distillation: Part = Part("none")
    """Larger heads that teach the embedding in training: `none` or `s2sd`."""
    optimiser: Optimiser = Optimiser()
    before: Mapping[str, Any] = field(default_factory=dict)
    """Train a stage before this one, with these settings instead: {"network": {"freeze": "backbone"}, "num_epochs": 20}."""
    num_epochs: int = 150
    """Train for this many epochs; 0 measures the network as it starts, and trains nothing."""
    adapt_every: int | None = 30
    """Adjust the sampling distribution after every M training steps; null for never."""
    log_every: int = 30
    """Record the loss and what was drawn after this many steps."""
    select_every: int = 1
    """Measure the selection split after this many epochs."""
    select_by: str = "map@r"
    """Select the epoch by this metric of the selection split. Recall@1 of a few held-out classes soon has no room to grow;
    with `data.paper_protocol` it picks all the same, as the authors do."""
    test_curve_every: int | None = None
    """Measure the test split after this many epochs, into a file that nothing in training reads; null for never."""
    checkpoint_every: int = 1
    """Write a checkpoint after this many epochs."""
    recall_at: tuple[int, ...] = (1, 2, 4, 8)
    """Report Recall@k for these k."""
    threads: int | None = None
    """Use this many CPU threads; null for torch's own choice. The same number gives the same bits."""
    device: str = "auto"
    """Train on `auto`, `cpu`, `cuda`, ..."""
    precision: str = "float32"
    """Run the backbone in `float32`, `tf32` or `bfloat16`."""
    compiled: bool = False
    """Compile the network on a GPU and replay the training step as one CUDA graph. It takes a minute and pays on long runs."""

    @property
    def picked_by(self) -> str:
        """Return the metric that picks the epoch: `select_by`, but Recall@1 on the test split with the authors' protocol."""
        return "recall@1" if self.data.paper_protocol else self.select_by


@dataclass(frozen=True)
class AutoConfig:
    """Hold a config of which some settings are still to be chosen, when a run begins and has seen its images."""

    config: Config
    """All other settings. Those to be chosen have their defaults here, which mean nothing."""
    auto: frozenset[str]
    """The keys to be chosen, each of them in `CHOSEN`."""


def split_stages(config: Config) -> tuple[Config, ...]:
    """Return the config of each stage of a run: that of `before`, if there is one, and the config itself."""
    last = dataclasses.replace(config, before={})
    if not config.before:
        return (last,)
    values = to_dict(last)
    try:
        settings = flatten_settings(config.before)
        for key in sorted(
            settings, key=lambda key: not key.endswith(".name")
        ):  # a new name drops the options of the old
            set_value(values, key, settings[key])
        return from_dict(values, Config), last
    except UserError as error:
        raise UserError(f"in `before`, the settings of the first stage: {error}") from error


def flatten_settings(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their full names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        is_group = isinstance(value, Mapping) and value
        flat |= flatten_settings(value, f"{prefix}{key}.") if is_group else {prefix + key: value}
    return flat


def drop_auto(config: Config | AutoConfig) -> Config:
    """Return the settings that are known already: a Config is all of them."""
    return config.config if isinstance(config, AutoConfig) else config


PACED = Part("margin", {"beta": 0.6, "rise": 0.6, "pace": 0.05})
"""The loss for a user's own images: a boundary that begins low and rises as triplets cease to cost (docs/findings.md)."""


# -- JSON --------------------------------------------------------------------------------------------------------------


def to_dict(config: Any) -> dict[str, Any]:
    """Return the settings as plain values, with "auto" for those that are still to be chosen."""
    if not isinstance(config, AutoConfig):
        return dataclasses.asdict(config)
    values = dataclasses.asdict(config.config)
    for key in config.auto:
        set_value(values, key, AUTO)
    return values


def to_json(config: Config) -> str:
    """Write the config as `from_json` reads it; what that would refuse is refused here already."""
    values = to_dict(config)
    from_dict(values, Config)
    return json.dumps(values, indent=2) + "\n"


def from_dict(values: Mapping[str, Any], kind: type[T] = Config, where: str = "") -> T:  # type: ignore[assignment]
    """Make a config of plain values; a key or a type that does not fit is refused by its full name."""
    hints = typing.get_type_hints(kind)
    values = {key: value for key, value in values.items() if where + key not in RETIRED}
    for key in values:
        if key not in hints:
            raise unknown("key", key, hints, where)
    for needed in dataclasses.fields(kind):  # type: ignore[arg-type]
        has_default = needed.default is not dataclasses.MISSING or needed.default_factory is not dataclasses.MISSING
        if needed.name not in values and not has_default:
            raise UserError(f"{where}{needed.name} is missing: say which one.")
    return kind(**{key: fit_type(value, hints[key], where + key) for key, value in values.items()})


def fit_type(value: Any, hint: Any, where: str) -> Any:
    """Return the value as the annotated type, where JSON or a command line blurs it (lists for tuples, 1 for 1.0)."""
    if value == AUTO and where in CHOSEN:
        raise UserError(f"{where} is auto, but the config of a run holds what was chosen: give {readable(hint)}.")
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
        return fit_type(value, next(a for a in arguments if a is not type(None)), where)
    if origin is tuple and isinstance(value, list | tuple):
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise UserError(f"{where} needs {len(arguments)} values, not {len(value)}.")
        if AUTO in value and where in CHOSEN:
            raise UserError(f"{where} is {AUTO} as a whole or not at all: write {where}={AUTO}, or a list of numbers.")
        return tuple(fit_type(item, arguments[0], where) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**63 else math.inf if value > 0 else -math.inf
    expected: Any = Mapping if origin is not None and origin is not tuple else origin or hint
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise UserError(f"{where} must be {readable(hint)}, not {value!r}.")
    return value


def from_values(values: dict[str, Any]) -> Config | AutoConfig:
    """Make an AutoConfig where one of the values is "auto" and may be, else a Config. The dict is used up."""
    auto = frozenset(key for key in CHOSEN if take_auto(values, key))
    config = from_dict(values, Config)
    return AutoConfig(config, auto) if auto else config


def take_auto(values: dict[str, Any], key: str) -> bool:
    """Take the setting out of the values where it is "auto", so that its default stands in; say whether it was."""
    *parents, last = key.split(".")
    group: Any = functools.reduce(lambda group, parent: group.get(parent, {}), parents, values)
    is_auto = isinstance(group, dict) and group.get(last) == AUTO
    if is_auto:
        del group[last]
    return is_auto


def value_of(config: Config, key: str) -> Any:
    """Return the setting of that full name, such as `data.image_size`."""

    def get(group: Any, name: str) -> Any:
        return group[name] if isinstance(group, Mapping) else getattr(group, name)

    return functools.reduce(get, key.split("."), config)


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


def with_settings(config: Config | AutoConfig, settings: Iterable[str]) -> Config | AutoConfig:
    """Apply each `a.b=c` to the config. Values are read as JSON where they are JSON, else as text.

    `a.b=auto` leaves a setting of `CHOSEN` to be chosen, and a value ends that.
    """
    values, settings = to_dict(config), list(settings)
    before = values["network"]["backbone"]
    for key in {key for setting in settings for key in find_model_input(setting, before)}:
        set_value(values, key, AUTO)  # the recipe's were meant for another network
    # names first: a new name drops the options of the old part, and must not drop those that were given with it
    for setting in sorted(settings, key=lambda setting: not setting.partition("=")[0].strip().endswith(".name")):
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write it as key=value, for example --set loss.options.beta=0.6.")
        set_value(values, key.strip(), parse_value(text.strip()))
    if values["network"]["weights"] == "none":
        values["network"]["weights"] = None
    return from_values(values)


def find_model_input(setting: str, before: str) -> tuple[str, ...]:
    """Return the settings of the input that a backbone brings with it, where this setting is another one than before."""
    key, _, text = setting.partition("=")
    if key.strip() != "network.backbone" or (backbone := parse_value(text.strip())) == before:
        return ()
    return MODEL_INPUT if str(backbone).startswith("timm:") else MODEL_INPUT[3:]


def set_value(values: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    group, free = values, False
    for depth, parent in enumerate(parents):
        free = free or parent in ("options", "before")
        if parent not in group and not free:
            raise unknown("key", key, all_keys(values))
        if group.get(parent) == AUTO and parent in CHOSEN:  # one setting of a group that was to be chosen as a whole
            group[parent] = to_dict(Config())[parent]
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


def parse_value(text: str) -> Any:
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
