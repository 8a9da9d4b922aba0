"""CUB200-2011 (Wah et al. 2011): 200 species of birds, the first 100 to train on and the others to test on."""

from __future__ import annotations

from pathlib import Path

from pads.data.benchmark import Benchmark
from pads.data.published import Published, check_benchmark, class_folders, dataset_folder, halves

PUBLISHED = Published(
    "CUB200-2011",
    "the folder CUB_200_2011 with images/001.Black_footed_Albatross/*.jpg and so on below it, or one with these class "
    "folders, at once or dealt into train/ and test/",
    {"train": (5_864, 100), "test": (5_924, 100)},
)


def cub200(root: str | Path | None = None) -> Benchmark:
    """CUB200-2011 with its published split."""
    return read(root, PUBLISHED)


def read(root: str | Path | None, published: Published) -> Benchmark:
    root = dataset_folder(root, published)
    places = [root / "CUB_200_2011" / "images", root / "images", root]
    classes = class_folders(next(place for place in places if place.is_dir()))
    return check_benchmark("cub200", halves(classes), published, root)
