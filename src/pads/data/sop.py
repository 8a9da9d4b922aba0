"""Stanford Online Products (Oh Song et al. 2016): things for sale, each a class of its own, with a published split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pads.data.benchmark import Benchmark, ImageList
from pads.data.published import Published, checked_benchmark, dataset_folder, is_number, lines_of
from pads.errors import UserError

COLUMNS = ["image_id", "class_id", "super_class_id", "path"]
PUBLISHED = Published(
    "Stanford Online Products",
    "the folder Stanford_Online_Products with Ebay_train.txt, Ebay_test.txt and the folders bicycle_final and so on",
    {"train": (59_551, 11_318), "test": (60_502, 11_316)},
)


def sop(root: str | Path | None = None) -> Benchmark:
    """Stanford Online Products with its published split."""
    return read(root, PUBLISHED)


def read(root: str | Path | None, published: Published) -> Benchmark:
    root = dataset_folder(root, published)
    inner = root / "Stanford_Online_Products"
    lists = {split: listed_images(inner if inner.is_dir() else root, split, published) for split in ("train", "test")}
    return checked_benchmark("sop", lists, published, root)


def listed_images(root: Path, split: str, published: Published) -> ImageList:
    """What Ebay_train.txt or Ebay_test.txt lists, classes in the order of their numbers."""
    path = root / f"Ebay_{split}.txt"
    if not path.is_file():
        raise UserError(f"there is no {path}; --data takes {published.layout}.")
    header, *rows = [line.split() for line in lines_of(path)] or [[]]
    if header != COLUMNS or any(len(row) != len(COLUMNS) or not is_number(row[1]) for row in rows):
        raise UserError(f"{path} is not as published: its lines should be {' '.join(COLUMNS)}.")
    numbers_C, labels_N = np.unique([int(row[1]) for row in rows], return_inverse=True)
    kinds = {int(row[1]): row[3].partition("/")[0].removesuffix("_final") for row in rows}
    return ImageList(
        paths=tuple(root / row[3] for row in rows),
        labels=labels_N.astype(np.int64),
        class_names=tuple(f"{kinds[number]} {number}" for number in numbers_C.tolist()),
    )
