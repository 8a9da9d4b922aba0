"""Parts of pytorch-metric-learning by name: `pml:MultiSimilarityLoss`, `pml:DistanceWeightedMiner`.

What the run knows is filled in where a constructor asks for it, and an option that is itself a part of theirs is given by
name: `--set loss.options.distance.name=LpDistance --set loss.options.distance.options.power=2`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from pads.config import Part, call, fit_type, lookup
from pads.errors import UserError, missing_extra

PREFIX = "pml:"
FAMILIES = {
    "distance": "distances",
    "reducer": "reducers",
    "embedding_regularizer": "regularizers",
    "weight_regularizer": "regularizers",
}
"""Options that are parts themselves, and the module of theirs that has them."""
NOT_IN_A_CONFIG = ("weight_init_func", "collect_stats", "mat_based_loss")


def is_theirs(part: Part) -> bool:
    return part.name.startswith(PREFIX)


def suggest_names(name: str, family: str) -> list[str]:
    """Return the names to suggest for one that may be theirs without the prefix."""
    try:
        return list(their_parts(family)) if name[:1].isupper() else []
    except UserError:  # it is not installed
        return []


def their_parts(family: str, prefix: str = PREFIX) -> dict[str, type[nn.Module]]:
    """The classes of one of their modules (`losses`, `miners`, ...) by name."""
    try:
        module = importlib.import_module(f"pytorch_metric_learning.{family}")
    except ModuleNotFoundError as error:
        raise missing_extra("pytorch-metric-learning", "pml") from error
    kinds = [kind for kind in vars(module).values() if inspect.isclass(kind) and issubclass(kind, nn.Module)]
    return {prefix + kind.__name__: kind for kind in kinds if not kind.__name__.startswith("Base")}


def maker(kind: type[nn.Module], where: str) -> Callable[..., nn.Module]:
    """The constructor as a function whose signature names every option, and which answers what is wrong in one sentence."""
    signature = constructor_signature(kind)

    def make(**options: Any) -> nn.Module:
        for name, parameter in signature.parameters.items():
            if parameter.default is parameter.empty and name not in options:
                raise UserError(f"{kind.__name__} needs {where}.{name}: give it with --set {where}.{name}=...")
        for name in FAMILIES.keys() & options.keys():
            options[name] = part_of(FAMILIES[name], options[name], f"{where}.{name}")
        try:
            return kind(**options)
        except (AssertionError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"{kind.__name__} cannot be made with these {where}: {error}.") from error

    make.__signature__ = signature  # type: ignore[attr-defined]
    return make


def part_of(family: str, value: Any, where: str) -> nn.Module | None:
    """One of their distances, reducers or regularizers: a name, or a group of name and options."""
    if value is None:
        return None
    part = Part(value) if isinstance(value, str) else fit_type(value, Part, where)
    kind = lookup(their_parts(family, prefix=""), part.name, family.removesuffix("s"))
    return call(maker(kind, f"{where}.options"), part.options, f"{where}.options")


def constructor_signature(kind: type) -> inspect.Signature:
    """All keywords that reach a constructor, also through the **kwargs that it hands to its bases."""
    found: dict[str, inspect.Parameter] = {}
    bases = kind.__mro__[: kind.__mro__.index(nn.Module)]
    for constructor in (vars(base)["__init__"] for base in bases if "__init__" in vars(base)):
        for parameter in list(inspect.signature(constructor).parameters.values())[1:]:  # without self
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                found.setdefault(parameter.name, keyword(parameter))
    wanted = [parameter for name, parameter in found.items() if name not in NOT_IN_A_CONFIG]
    return inspect.Signature(sorted(wanted, key=lambda parameter: parameter.default is not parameter.empty))


def keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with the type that its default shows, where it is a plain one: they annotate little."""
    kind = {bool: bool, int: float, float: float}.get(type(parameter.default), Any)
    return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind)


@contextmanager
def own_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """They draw from torch's global generators, whose states are no part of a run: here from a seed, and put back after."""
    on_gpu = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
