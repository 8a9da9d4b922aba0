"""A copy of a published data set, against the counts in the literature (Oh Song et al. 2016, Liu et al. 2016).

Dimensions: N images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pads.data.benchmark import Benchmark, ImageList, counted, image_list
from pads.data.folder import files_below, visible_folders
from pads.errors import UserError


@dataclass(frozen=True)
class Published:
    """What a data set is known to hold."""

    title: str
    layout: str
    """What to point at, as it follows "--data takes ..."."""
    splits: Mapping[str, tuple[int, int]]
    """Images and classes of each split."""


def dataset_folder(root: str | Path | None, published: Published) -> Path:
    if root is None:
        raise UserError(f"say where {published.title} is: --data takes {published.layout}.")
    root = Path(root).expanduser()
    if not root.is_dir():
        raise UserError(f"there is no folder {root}; --data takes {published.layout}.")
    return root


def class_folders(folder: Path) -> list[tuple[str, list[Path]]]:
    """Each class with its images by file name, so that a copy dealt into train and test has the same order."""
    dealt = [folder / "train", folder / "test"]
    files: dict[str, list[Path]] = defaultdict(list)
    for parent in dealt if all(part.is_dir() for part in dealt) else [folder]:
        for class_folder in visible_folders(parent):
            files[class_folder.name] += files_below(class_folder)[0]
    return [(name, sorted(paths, key=lambda path: path.name)) for name, paths in sorted(files.items()) if paths]


def halves(classes: Sequence[tuple[str, Sequence[Path]]]) -> dict[str, ImageList]:
    """The first half of the classes to train on, the other half to test on."""
    half = len(classes) // 2
    return {"train": image_list(classes[:half]), "test": image_list(classes[half:])}


def checked_benchmark(name: str, lists: Mapping[str, ImageList], published: Published, root: Path) -> Benchmark:
    """What there is of the images in these lists, with notes on what is missing."""
    train, test = (images.subset(are_there(images.paths)) for images in (lists["train"], lists["test"]))
    found = {"train": (len(train), lists["train"].num_classes), "test": (len(test), lists["test"].num_classes)}
    return Benchmark(name, train, test, notes=check_counts(found, published, root))


def are_there(paths: Sequence[Path]) -> np.ndarray:
    """Which files are there; an empty one, which a broken download leaves, is not."""
    return np.array([is_full_file(path) for path in paths], dtype=bool)


def is_full_file(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:  # such as a name that is too long for any file
        return False


def check_counts(found: Mapping[str, tuple[int, int]], published: Published, root: Path) -> tuple[str, ...]:
    """Notes on missing images. A copy without half of them, or with other classes, is taken for something else."""
    num_all = sum(images for images, _ in published.splits.values())
    num_missing = {split: images - found[split][0] for split, (images, _) in published.splits.items()}
    has_other_classes = any(classes != found[split][1] for split, (_, classes) in published.splits.items())
    if has_other_classes or sum(num_missing.values()) > num_all / 2:
        raise UserError(
            f"{root} does not look like {published.title}: it holds {in_words(found)}, and there should be "
            f"{in_words(published.splits)}; --data takes {published.layout}."
        )
    if not any(num_missing.values()):
        return ()
    shares = ", ".join(f"{split} {found[split][0]:,} of {images:,}" for split, (images, _) in published.splits.items())
    num_lacking = sum(max(number, 0) for number in num_missing.values())
    num_more = sum(max(-number, 0) for number in num_missing.values())
    notes = {
        f"{counted(num_lacking, 'image is', 'images are')} missing": num_lacking,
        f"{counted(num_more, 'image is', 'images are')} too many": num_more,
    }
    what = " and ".join(note for note, number in notes.items() if number)
    return (f"{what} in this copy of {published.title}, which has {num_all:,} ({shares}).",)


def in_words(splits: Mapping[str, tuple[int, int]]) -> str:
    each = ((split, counted(n, "image", "images"), counted(c, "class", "classes")) for split, (n, c) in splits.items())
    return ", ".join(f"{split} {images} of {classes}" for split, images, classes in each)


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a published list that are not empty."""
    try:
        return [line for line in path.read_text().splitlines() if line.strip()]
    except ValueError as error:
        raise UserError(f"{path} is not as published: it is no text.") from error


def is_number(text: str) -> bool:
    """Tells whether this is the number of a class."""
    return text.isascii() and text.isdecimal() and len(text) < 10
