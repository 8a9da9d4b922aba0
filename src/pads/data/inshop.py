"""In-Shop Clothes Retrieval (Liu et al. 2016): queries against a gallery, of clothes not trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pads.data.benchmark import Benchmark, ImageList, QueryGallery
from pads.data.published import Published, are_there, check_counts, dataset_folder, lines_of
from pads.errors import UserError

COLUMNS = ["image_name", "item_id", "evaluation_status"]
PUBLISHED = Published(
    "In-Shop",
    "a folder with Eval/list_eval_partition.txt (or without Eval/) and the images below Img/ or img/",
    {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)},
)


def inshop(root: str | Path | None = None) -> Benchmark:
    """In-Shop with its published split."""
    return read(root, PUBLISHED)


def read(root: str | Path | None, published: Published) -> Benchmark:
    root = dataset_folder(root, published)
    paths, items_N, splits_N = partition(root, published)
    there_N = are_there(paths)
    found = {
        split: (int((there_N & (splits_N == split)).sum()), len(np.unique(items_N[splits_N == split])))
        for split in published.splits
    }
    notes = check_counts(found, published, root)
    items_C, labels_N = np.unique(items_N, return_inverse=True)
    images = ImageList(tuple(paths), labels_N.astype(np.int64), tuple(map(str, items_C)))
    is_train_N = splits_N == "train"
    test = there_N & ~is_train_N
    queries = QueryGallery(images.subset(test), (splits_N == "query")[test], (splits_N == "gallery")[test])
    return Benchmark("inshop", images.subset(there_N & is_train_N), queries, notes=notes)


def partition(root: Path, published: Published) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """Path, item and split of each image that the list names: a line with their number, the columns, the rows."""
    places = [root / "Eval" / "list_eval_partition.txt", root / "list_eval_partition.txt"]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(f"there is no list_eval_partition.txt in {root}; --data takes {published.layout}.")
    lines = [line.split() for line in lines_of(path)]
    rows = lines[2:]
    if lines[1:2] != [COLUMNS] or any(len(row) != len(COLUMNS) or row[2] not in published.splits for row in rows):
        raise UserError(f"{path} is not as published: its lines should be {' '.join(COLUMNS)}.")
    folders = [root / "Img" / "img", root / "img", root / "Img"]
    folder = next((folder for folder in folders if folder.is_dir()), root / "img")
    paths = [folder / row[0].removeprefix("img/") for row in rows]
    return paths, np.array([row[1] for row in rows], dtype=str), np.array([row[2] for row in rows], dtype=str)
