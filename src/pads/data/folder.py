"""A user's own images: a folder per class."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pads.data.benchmark import (
    NOT_BY_NAME,
    ONLY_ONE,
    Benchmark,
    ImageList,
    LeftOut,
    classes_with_two,
    count,
    find_left_out,
    image_list,
    list_few,
    overlap_notes,
)
from pads.data.formats import SUFFIXES, is_image
from pads.errors import UserError

MIN_CLASSES = 2
"""Of training or test: with one class, everything is a positive."""
VALIDATION = ("val", "valid", "validation")
HOLD_OUTS = ("auto", "classes", "images")
OUTSIDE = "outside any class"
ARRANGE = "put the images of each class into a folder of its own, like CLASS/picture.jpg"


def folder(
    root: str | Path | None = None,
    test_share: float = 0.2,
    skip_small_classes: bool = True,
    hold_out: str = "auto",
    depth: int = 1,
    class_pattern: str | None = None,
) -> Benchmark:
    """The images below root: root/CLASS/*, or root/train/CLASS/* and root/test/CLASS/* (and root/val/CLASS/*).

    Without train and test folders, test_share is held out to test on: of the `classes`, so that the test measures unseen
    ones, or of the `images` of each; `auto` takes images only where there are too few classes. depth: how many folders deep
    a class lies. class_pattern: a regular expression that finds the class in a file's name, instead of folders.
    """
    root = existing_folder(root)
    if not isinstance(test_share, float) or not 0 < test_share < 1:
        raise UserError(f"data.options.test_share (of the classes) must lie between 0 and 1, and is {test_share!r}.")
    if hold_out not in HOLD_OUTS:
        raise UserError(
            f"data.options.hold_out must be {', '.join(HOLD_OUTS[:-1])} or {HOLD_OUTS[-1]}, not {hold_out!r}."
        )
    if depth < 1:
        raise UserError(f"data.options.depth is {depth}: a class lies at least 1 folder deep.")
    sort = Sorting(depth, compile_pattern(class_pattern), skip_small_classes)
    splits, notes = split_folders(root)
    if splits:
        return read_split(root, splits, notes, sort)
    images, notes, left_out = class_folders(root, sort)
    return replace(hold_out_test(images, test_share, hold_out, root, notes), left_out=left_out)


@dataclass(frozen=True)
class Sorting:
    """How images are sorted into classes."""

    depth: int
    pattern: re.Pattern[str] | None
    skip_small_classes: bool


def compile_pattern(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise UserError(f"data.options.class_pattern {pattern!r} is no regular expression: {error}.") from error


# -- splits ------------------------------------------------------------------------------------------------------------


def split_folders(root: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """The folders of a split that is given: train and test, and val if there is one; none of it otherwise."""
    val = next((root / name for name in VALIDATION if visible_folders(root / name)), None)
    if not visible_folders(root / "train"):
        return {}, ()
    if visible_folders(root / "test"):
        return {"train": root / "train", "test": root / "test"} | ({"val": val} if val else {}), ()
    if val is None:
        return {}, ()
    return {"train": root / "train", "test": val}, (f"The test split is {val}, since there is no test folder.",)


def read_split(root: Path, folders: Mapping[str, Path], notes: tuple[str, ...], sort: Sorting) -> Benchmark:
    splits: dict[str, ImageList] = {}
    left_out: tuple[LeftOut, ...] = ()
    for split, path in folders.items():
        splits[split], split_notes, of_split = class_folders(path, sort)
        check_num_classes(splits[split], path, MIN_CLASSES, "so that there are positives and negatives")
        notes, left_out = notes + split_notes, left_out + of_split
    others = [path for path in visible_folders(root) if path not in folders.values()]
    if others:
        names = list_few(path.name for path in others)
        notes += (f"Left out what lies beside the train and test folders of {root}: {names}.",)
    beside = [file for path in others for files in files_below(path) for file in files]
    beside += sorted(path for path in root.iterdir() if is_plain(path))
    left_out += tuple(LeftOut(file, "beside the train and test folders") for file in beside)
    train, test, selection = splits["train"], splits["test"], splits.get("val")
    return Benchmark("folder", train, test, selection, notes + overlap_notes(train, test, selection), left_out)


def hold_out_test(images: ImageList, share: float, what: str, root: Path, notes: tuple[str, ...]) -> Benchmark:
    """Hold out classes that training never sees; or, where there are too few or if asked for, images of the same classes."""
    draw_splits = functools.partial(hold_out_test, share=share, what=what, root=root, notes=notes)
    has_enough = images.num_classes >= 2 * MIN_CLASSES
    if what == "classes" or (what == "auto" and has_enough):
        check_num_classes(images, root, 2 * MIN_CLASSES, "two to train on and two to test on")
        is_test_N = np.isin(images.labels, pick_test_classes(images.num_classes, share))
        notes += (f"Held out {len(np.unique(images.labels[is_test_N]))} of {images.num_classes} classes to test on.",)
    else:
        is_test_N = pick_test_images(images.labels, share)
        if len(np.unique(images.labels[is_test_N])) < MIN_CLASSES:
            why = "two to train on and two to test on, or two with four images each to test on some of these"
            check_num_classes(images, root, 2 * MIN_CLASSES, why)
            raise UserError(f"{root} has no two classes with four images, of which two could be held out to test on.")
        notes += (
            f"Held out {count(int(is_test_N.sum()), 'image', 'images')} of the same "
            f"{count(images.num_classes, 'class', 'classes')} to test on, so the figures say how well these are told "
            "apart and nothing about unseen ones"
            + ("." if has_enough else ": there are too few classes to hold some out."),
        )
    train, test = images.subset(~is_test_N), images.subset(is_test_N)
    return Benchmark("folder", train, test, notes=notes, pool=images, draw_splits=draw_splits)


def pick_test_classes(num_classes: int, share: float) -> np.ndarray:
    """Pick classes spread over the alphabet, since neighbours there are often alike; the same for every seed."""
    return spread(num_classes, min(max(round(share * num_classes), MIN_CLASSES), num_classes - MIN_CLASSES))


def pick_test_images(labels_N: np.ndarray, share: float) -> np.ndarray:
    """Pick images of each class that can spare two and keep two, spread over its files."""
    is_held_out_N = np.zeros(len(labels_N), dtype=bool)
    for label in np.unique(labels_N):
        indices = np.flatnonzero(labels_N == label)
        if len(indices) >= 4:
            is_held_out_N[indices[spread(len(indices), min(max(round(share * len(indices)), 2), len(indices) - 2))]] = (
                True
            )
    return is_held_out_N


def spread(num: int, num_picked: int) -> np.ndarray:
    return np.floor((np.arange(num_picked) + 0.5) * num / num_picked).astype(np.int64)


# -- classes -----------------------------------------------------------------------------------------------------------


def class_folders(root: Path, sort: Sorting) -> tuple[ImageList, tuple[str, ...], tuple[LeftOut, ...]]:
    """The images below root by class, with notes on what was left out, and these files."""
    found = {path.name: files_below(path) for path in visible_folders(root)}
    top = sorted(path for path in root.iterdir() if is_image(path.name))
    classes, loose = in_classes(root, [*top, *(path for images, _ in found.values() for path in images)], sort)
    if not classes:
        raise no_classes(root, loose, sort)
    beside = sorted(path for path in root.iterdir() if is_plain(path) and not is_image(path.name))
    left_out = tuple(LeftOut(path, OUTSIDE if sort.pattern is None else "no class in its name") for path in loose)
    empty = [name for name, (images, _) in found.items() if not images]
    others = [path for _, others in found.values() for path in others]
    left_out += tuple(LeftOut(path, NOT_BY_NAME) for path in [*beside, *others])
    notes: tuple[str, ...] = ()
    if loose:
        where = (
            f"directly in {root}, outside any class"
            if sort.pattern is None
            else f"in {root} without a class in its name"
        )
        if sort.depth > 1:
            where = f"below {root}, less than {sort.depth} folders deep"
        notes += (f"Left out {count(len(loose), 'image', 'images')} {where}.",)
    if empty:
        notes += (f"Left out {count(len(empty), 'folder', 'folders')} of {root} without images: {list_few(empty)}.",)
    if others:
        kinds = sorted({path.suffix.lower() or path.name for path in others})
        notes += (f"Left out {count(len(others), 'file', 'files')} below {root} of other kinds: {list_few(kinds)}.",)
    inner, num_inner, is_all = inner_folders(root, classes, sort)
    if len(classes) == 1 and len(inner) > 1 and is_all:
        raise UserError(
            f"{root} holds the single folder {next(iter(classes))}; if that holds the classes, give it as --data."
        )
    if inner and not (is_all and len(inner) == len(classes)):  # with one in each, nothing can be meant by them
        how_many = "All" if is_all else f"{num_inner:,}"
        images_lie = "image lies" if num_inner == 1 and not is_all else "images lie"
        notes += (
            f"{how_many} {images_lie} in folders within the class folders, such as {list_few(inner, 2)}; a class is the outer "
            f"folder. If the inner ones are the classes, say so with --set data.options.depth={sort.depth + 1}.",
        )
    listed = image_list([*classes.items()])
    images, small_notes = classes_with_two(listed, sort.skip_small_classes, str(root))
    return images, notes + small_notes, left_out + find_left_out(listed, images, ONLY_ONE)


def in_classes(root: Path, paths: Iterable[Path], sort: Sorting) -> tuple[dict[str, list[Path]], list[Path]]:
    """Files by class, and those that are in none."""
    classes: dict[str, list[Path]] = {}
    loose = []
    for path in paths:
        name = class_of(path.relative_to(root), sort)
        if name is None:
            loose.append(path)
        else:
            classes.setdefault(name, []).append(path)
    return dict(sorted(classes.items())) if sort.pattern else classes, loose


def class_of(path: Path, sort: Sorting) -> str | None:
    """By its name, or by the folders that it lies in."""
    if sort.pattern is not None:
        match = sort.pattern.search(path.stem)
        return None if match is None else match[1 if match.re.groups else 0]
    return "/".join(path.parts[: sort.depth]) if len(path.parts) > sort.depth else None


def inner_folders(root: Path, classes: Mapping[str, list[Path]], sort: Sorting) -> tuple[list[str], int, bool]:
    """Find the folders within class folders, how many images lie in such, and whether all do."""
    if sort.pattern is not None:
        return [], 0, False
    parts = [path.relative_to(root).parts for paths in classes.values() for path in paths]
    within = ["/".join(each[: sort.depth + 1]) for each in parts if len(each) > sort.depth + 1]
    return list(dict.fromkeys(within)), len(within), len(within) == len(parts)


def no_classes(root: Path, loose: Sequence[Path], sort: Sorting) -> UserError:
    """Why there are no classes, and how there could be."""
    if not loose:
        return UserError(f"there are no images ({', '.join(sorted(SUFFIXES))}) in folders of {root}; {ARRANGE}.")
    images = count(len(loose), "image", "images")
    if sort.pattern is not None:
        found = f"the name of none of the {images} in {root}, such as {loose[0].name}"
        return UserError(f"data.options.class_pattern {sort.pattern.pattern!r} finds a class in {found}.")
    if sort.depth > 1:
        return UserError(f"none of the {images} in {root} lies {sort.depth} folders deep: lower data.options.depth.")
    guess = guess_pattern([path.stem for path in loose])
    by_name = (
        f", or tell the class by the files' names with --set 'data.options.class_pattern={guess}'" if guess else ""
    )
    return UserError(f"{root} holds {images} but no class folders; {ARRANGE}{by_name}.")


def guess_pattern(stems: Sequence[str]) -> str | None:
    """Guess a pattern that sorts most of the names into classes of two or more: what stands before the last sign or number."""
    for pattern in (r"^(.+)[-_ ]", r"^(.*\D)\d"):
        sizes = Counter(match[1] for match in map(re.compile(pattern).search, stems) if match)
        in_pairs = [size for size in sizes.values() if size >= 2]
        if len(in_pairs) >= 2 * MIN_CLASSES and sum(in_pairs) > len(stems) / 2:
            return pattern
    return None


def is_plain(path: Path) -> bool:
    """Tell whether this is a file that is not hidden."""
    return not path.name.startswith(".") and path.is_file()


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


def check_num_classes(images: ImageList, root: Path, needed: int, why: str) -> None:
    if images.num_classes < needed:
        found = f"{count(images.num_classes, 'class', 'classes')} ({list_few(images.class_names)})"
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
