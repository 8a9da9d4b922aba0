"""The samplers inside other people's code. Names are imported when first used: each needs its own library."""

# ruff: noqa: F401 (the imports are for type checkers)

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pads.adapters.batches import ClassBalancedBatchSampler
    from pads.adapters.lightning import AdaptiveSampling
    from pads.adapters.open_metric_learning import AdaptiveTripletsMiner
    from pads.adapters.pytorch_metric_learning import AdaptiveMiner, RuleMiner
    from pads.adapters.sampler import AdaptiveController, TripletSampler
    from pads.adapters.torchmetrics import EmbeddingRetrieval

_HOMES = {
    "AdaptiveController": "sampler",
    "AdaptiveMiner": "pytorch_metric_learning",
    "AdaptiveSampling": "lightning",
    "AdaptiveTripletsMiner": "open_metric_learning",
    "ClassBalancedBatchSampler": "batches",
    "EmbeddingRetrieval": "torchmetrics",
    "RuleMiner": "pytorch_metric_learning",
    "TripletSampler": "sampler",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pads.adapters' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pads.adapters.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
