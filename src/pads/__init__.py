"""pads: train similarity models on your own images; a reproduction of PADS (CVPR 2020) with controls.

Names are imported when first used, so that `import pads` and `pads --help` do not wait for torch.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pads.agents import AGENTS
    from pads.config import AutoConfig, Config, Part
    from pads.curricula import CURRICULA, FixedCurriculum, LearnedCurriculum
    from pads.data import DATASETS
    from pads.errors import UserError
    from pads.evaluate import evaluate
    from pads.losses import LOSSES, MarginLoss, TripletLoss
    from pads.metrics import METRICS, compute_metrics
    from pads.model import Model, load
    from pads.networks import BACKBONES, EmbeddingNetwork
    from pads.publish.hub import push
    from pads.recipes import RECIPES
    from pads.runs import RunFolder
    from pads.sampling import NEGATIVE_RULES, BinDistribution, Triplets, bin_distribution, draw_triplets
    from pads.search import Index, build_index
    from pads.train import resume, train

_HOMES = {
    "AGENTS": "agents",
    "AutoConfig": "config",
    "BACKBONES": "networks",
    "BinDistribution": "sampling",
    "CURRICULA": "curricula",
    "Config": "config",
    "DATASETS": "data",
    "EmbeddingNetwork": "networks",
    "FixedCurriculum": "curricula",
    "Index": "search",
    "LOSSES": "losses",
    "LearnedCurriculum": "curricula",
    "METRICS": "metrics",
    "MarginLoss": "losses",
    "Model": "model",
    "NEGATIVE_RULES": "sampling",
    "Part": "config",
    "RECIPES": "recipes",
    "RunFolder": "runs",
    "TripletLoss": "losses",
    "Triplets": "sampling",
    "UserError": "errors",
    "bin_distribution": "sampling",
    "build_index": "search",
    "compute_metrics": "metrics",
    "draw_triplets": "sampling",
    "evaluate": "evaluate",
    "load": "model",
    "push": "publish.hub",
    "resume": "train",
    "train": "train",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pads' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"pads.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


class _Package(types.ModuleType):
    """Keeps `pads.train` the function when the file train.py is imported.

    No plainer way was found. Python sets a submodule on its package after the submodule has run, so neither train.py nor
    `__getattr__` has the last word. Importing the functions here would make `import pads` wait for torch. Other names for
    the files would break `from pads.train import train`.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, types.ModuleType) and name in _HOMES:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
