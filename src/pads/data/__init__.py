"""From files to batches: data sets, the image store, the splits, the batches and the crops."""

from __future__ import annotations

from collections.abc import Callable

from pads.data.benchmark import Benchmark
from pads.data.cars196 import cars196
from pads.data.cub200 import cub200
from pads.data.emoji import emoji
from pads.data.folder import folder
from pads.data.hf import hf
from pads.data.inshop import inshop
from pads.data.sop import sop
from pads.data.table import table

DATASETS: dict[str, Callable[..., Benchmark]] = {
    "emoji": emoji,
    "cub200": cub200,
    "cars196": cars196,
    "sop": sop,
    "inshop": inshop,
    "folder": folder,
    "csv": table,
    "hf": hf,
}
"""Look up a data set by name: `--set data.name=folder`."""
OWN_IMAGES = ("folder", "csv", "hf")
"""Those that are another data set in another place."""

__all__ = ["DATASETS", "OWN_IMAGES"]
