"""From files to batches: data sets, the image store, the splits, the batches and the crops."""

from __future__ import annotations

from collections.abc import Callable

from pads.data.augment import (
    AUGMENTATIONS,
    centre_crops,
    normalise,
    random_resized_crop_boxes,
    resample,
    resize_and_crop_boxes,
    whole_boxes,
)
from pads.data.batches import class_batches
from pads.data.benchmark import Benchmark, ImageList, QueryGallery
from pads.data.cars196 import cars196
from pads.data.cub200 import cub200
from pads.data.emoji import emoji
from pads.data.folder import folder
from pads.data.hf import hf
from pads.data.inshop import inshop
from pads.data.sop import sop
from pads.data.splits import Roles, split_roles
from pads.data.store import ImageStore, decode, load_store, place_store, read_stored, squeeze
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

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "OWN_IMAGES",
    "Benchmark",
    "ImageList",
    "ImageStore",
    "QueryGallery",
    "Roles",
    "cars196",
    "centre_crops",
    "class_batches",
    "cub200",
    "decode",
    "emoji",
    "folder",
    "hf",
    "inshop",
    "load_store",
    "normalise",
    "place_store",
    "random_resized_crop_boxes",
    "read_stored",
    "resample",
    "resize_and_crop_boxes",
    "sop",
    "split_roles",
    "squeeze",
    "table",
    "whole_boxes",
]
