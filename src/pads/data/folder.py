"""A user's own images: a folder per class."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pads.data.benchmark import Benchmark, ImageList, classes_with_two, counted, image_list, listed
from pads.errors import UserError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})
MIN_CLASSES = 2
"""Of training or test: with one class, everything is a positive."""
ARRANGE = "put the images of each class into a folder of its own, like CLASS/picture.jpg"


def folder(root: str | Path | None = None, test_share: float = 0.2, skip_small_classes: bool = False) -> Benchmark:
    """The images below root: root/CLASS/*, or root/train/CLASS/* and root/test/CLASS/* (and root/val/CLASS/*).

    Without train and test folders, test_share of the classes is held out, so that the test measures unseen classes.
    """
    root = existing_folder(root)
    if not isinstance(test_share, float) or not 0 < test_share < 1:
        raise UserError(f"data.options.test_share (of the classes) must lie between 0 and 1, and is {test_share!r}.")
    if visible_folders(root / "train") and visible_folders(root / "test"):
        return given_split(root, skip_small_classes)
    images, notes = class_folders(root, skip_small_classes)
    check_num_classes(images, root, 2 * MIN_CLASSES, "two to train on and two to test on")
    is_test_N = np.isin(images.labels, held_out_classes(images.num_classes, test_share))
    notes += (f"Held out {len(np.unique(images.labels[is_test_N]))} of {images.num_classes} classes to test on.",)
    return Benchmark("folder", train=images.subset(~is_test_N), test=images.subset(is_test_N), notes=notes)


def given_split(root: Path, skip_small_classes: bool) -> Benchmark:
    splits: dict[str, ImageList] = {}
    notes: tuple[str, ...] = ()
    for split in ("train", "test", "val"):
        if split == "val" and not visible_folders(root / "val"):
            continue
        splits[split], split_notes = class_folders(root / split, skip_small_classes)
        check_num_classes(splits[split], root / split, MIN_CLASSES, "so that there are positives and negatives")
        notes += split_notes
    others = [path.name for path in visible_folders(root) if path.name not in splits]
    if others:
        notes += (f"Left out what lies beside the train and test folders of {root}: {listed(others)}.",)
    return Benchmark("folder", splits["train"], splits["test"], selection=splits.get("val"), notes=notes)


def class_folders(root: Path, skip_small_classes: bool) -> tuple[ImageList, tuple[str, ...]]:
    """The images below root, a class for each of its folders, with notes on what was left out."""
    found = {path.name: files_below(path) for path in visible_folders(root)}
    classes = [(name, images) for name, (images, _) in found.items() if images]
    loose = [path for path in root.iterdir() if is_image(path.name)]
    if not classes and loose:
        raise UserError(f"{root} holds {counted(len(loose), 'image', 'images')} but no class folders; {ARRANGE}.")
    if not classes:
        raise UserError(f"there are no images ({', '.join(sorted(SUFFIXES))}) in folders of {root}; {ARRANGE}.")
    empty = [name for name, (images, _) in found.items() if not images]
    others = [path for _, others in found.values() for path in others]
    notes: tuple[str, ...] = ()
    if loose:
        notes += (f"Left out {counted(len(loose), 'image', 'images')} directly in {root}, outside any class.",)
    if empty:
        notes += (f"Left out {counted(len(empty), 'folder', 'folders')} of {root} without images: {listed(empty)}.",)
    if others:
        kinds = sorted({path.suffix.lower() or path.name for path in others})
        notes += (f"Left out {counted(len(others), 'file', 'files')} below {root} of other kinds: {listed(kinds)}.",)
    images, small_notes = classes_with_two(image_list(classes), skip_small_classes, str(root))
    return images, notes + small_notes


def files_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """Images and other files below a folder, each in the order of their paths; hidden ones are passed over."""
    images: list[Path] = []
    others: list[Path] = []

    def refuse(error: OSError) -> None:
        raise error  # os.walk would pass over a folder that it may not read as if it were empty

    for parent, subfolders, names in os.walk(folder, onerror=refuse):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                (images if is_image(name) else others).append(Path(parent, name))
    return sorted(images), sorted(others)


def held_out_classes(num_classes: int, share: float) -> np.ndarray:
    """Spread over the sorted classes, since neighbours in the alphabet are often alike; the same for every seed."""
    num_held_out = min(max(round(share * num_classes), MIN_CLASSES), num_classes - MIN_CLASSES)
    return np.floor((np.arange(num_held_out) + 0.5) * num_classes / num_held_out).astype(np.int64)


def check_num_classes(images: ImageList, root: Path, needed: int, why: str) -> None:
    if images.num_classes < needed:
        found = f"{counted(images.num_classes, 'class', 'classes')} ({listed(images.class_names)})"
        raise UserError(f"{root} holds {found} but needs at least {needed}, {why}; {ARRANGE}.")


def existing_folder(root: str | Path | None) -> Path:
    if root is None:
        raise UserError("say where the images are: --data DIR, a folder that holds a folder of images per class.")
    root = Path(root).expanduser()
    if not root.exists():
        raise UserError(f"there is no folder {root}; --data takes a folder that holds a folder of images per class.")
    if not root.is_dir():
        raise UserError(f"{root} is a file; --data takes a folder that holds a folder of images per class.")
    return root


def visible_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def is_image(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
