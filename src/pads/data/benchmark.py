"""What a data set is: lists of labelled image files, one to train on and one to test on.

Dimensions: N images, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pads.errors import UserError, one_line

ONLY_ONE = "the only image of its class"
"""Why an image is left out that has nothing to be found by."""
NOT_BY_NAME = "not an image by its name"
"""Why any other file is."""


@dataclass(frozen=True, eq=False)
class ImageList:
    """Image files with their classes."""

    paths: tuple[Path, ...]
    labels: np.ndarray
    """(N,) int64, 0..C-1, each of them in use."""
    class_names: tuple[str, ...]
    boxes: np.ndarray | None = None
    """(N, 4) left, top, right, bottom in pixels of the upright picture, cut out before anything else; NaN for none."""

    def __post_init__(self) -> None:
        assert self.labels.shape == (len(self.paths),)
        assert self.labels.dtype == np.int64
        assert np.array_equal(np.unique(self.labels), np.arange(len(self.class_names))), "labels must be 0..C-1"
        assert self.boxes is None or self.boxes.shape == (len(self.paths), 4)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def subset(self, indices: np.ndarray | Sequence[int]) -> ImageList:
        """The images at these indices (or of this mask); classes without images vanish, the others keep their order."""
        indices_N = np.arange(len(self))[indices]
        classes_C, labels_N = np.unique(self.labels[indices_N], return_inverse=True)
        return ImageList(
            paths=tuple(self.paths[index] for index in indices_N),
            labels=labels_N.astype(np.int64),
            class_names=tuple(self.class_names[label] for label in classes_C),
            boxes=None if self.boxes is None else self.boxes[indices_N],
        )


@dataclass(frozen=True, eq=False)
class QueryGallery:
    """A test in which some images ask and others answer; an image may be both, and is never its own answer."""

    images: ImageList
    is_query: np.ndarray
    is_gallery: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: np.ndarray | Sequence[int]) -> QueryGallery:
        """The images at these indices, with their parts in the test."""
        indices_N = np.arange(len(self))[indices]
        return QueryGallery(self.images.subset(indices_N), self.is_query[indices_N], self.is_gallery[indices_N])


class LeftOut(NamedTuple):
    """A file that is in no split, and why."""

    path: Path
    reason: str
    is_bad: bool = False
    """Whether it was meant to be used, and cannot be read."""

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A data set with its roles."""

    name: str
    train: ImageList
    test: ImageList | QueryGallery
    selection: ImageList | None = None
    """Images that the data set itself gives for selecting the epoch."""
    notes: tuple[str, ...] = ()
    """Sentences that a run prints: what was left out, and why."""
    left_out: tuple[LeftOut, ...] = ()
    """The files that these sentences speak of, as far as they are known one by one."""
    pool: ImageList | None = None
    """All images, where the splits were not given but drawn from them."""
    draw_splits: Callable[[ImageList], Benchmark] | None = None
    """Draws the splits from what is left of the pool."""


def split_lists(benchmark: Benchmark) -> dict[str, ImageList]:
    """Return the lists of the splits, in the order in which a store holds them."""
    test = benchmark.test.images if isinstance(benchmark.test, QueryGallery) else benchmark.test
    lists = {"train": benchmark.train, "test": test}
    return lists if benchmark.selection is None else {**lists, "selection": benchmark.selection}


def boxes_of(images: ImageList) -> list[list[float] | None]:
    """Return the box of each image, None for none: in JSON, NaN is not a number at all."""
    if images.boxes is None:
        return [None] * len(images)
    return [None if np.isnan(box).any() else box.tolist() for box in images.boxes]


def base_of(root: Path) -> Path:
    """Return the folder below which images are named."""
    return root if root.is_dir() else root.parent


def image_list(classes: Sequence[tuple[str, Sequence[Path]]]) -> ImageList:
    """An image list from (class name, its files), class by class."""
    return ImageList(
        paths=tuple(path for _, paths in classes for path in paths),
        labels=np.repeat(np.arange(len(classes), dtype=np.int64), [len(paths) for _, paths in classes]),
        class_names=tuple(name for name, _ in classes),
    )


def classes_with_two(images: ImageList, skip_small_classes: bool, where: str) -> tuple[ImageList, tuple[str, ...]]:
    """The images of classes that have a second image to be found by, with a note on what was left out."""
    small_C = np.bincount(images.labels, minlength=images.num_classes) < 2
    if not small_C.any():
        return images, ()
    names = list_few([images.class_names[label] for label in np.flatnonzero(small_C)])
    what = f"{count(int(small_C.sum()), 'class', 'classes')} with a single image in {where}: {names}"
    if small_C.all():
        raise UserError(f"there is nothing but {what}; every class needs at least two images, so add some.")
    if not skip_small_classes:
        raise UserError(
            f"there {'is' if small_C.sum() == 1 else 'are'} {what}; every class needs at least two images: add some, "
            "or leave these classes out with --set data.options.skip_small_classes=true."
        )
    return images.subset(~small_C[images.labels]), (f"Left out {what}.",)


def find_left_out(before: ImageList, after: ImageList, reason: str) -> tuple[LeftOut, ...]:
    """Find the files of one list that another no longer has."""
    kept = set(after.paths)
    return tuple(LeftOut(path, reason) for path in before.paths if path not in kept)


# -- without what cannot be read ---------------------------------------------------------------------------------------


def drop_files(benchmark: Benchmark, bad: Mapping[Path, str]) -> Benchmark:
    """Return the data set without these files, which are listed with their reasons; drawn splits are drawn anew.

    A class that loses all its images, or all but one, is named; if too few are left, that is refused.
    """
    if not bad:
        return benchmark
    benchmark = replace(
        benchmark, left_out=(*benchmark.left_out, *(LeftOut(*each, is_bad=True) for each in bad.items()))
    )
    if benchmark.pool is not None and benchmark.draw_splits is not None:
        pool, notes, single = drop_from_list(benchmark.pool, bad)
        drawn = benchmark.draw_splits(pool)
        return replace(drawn, notes=drawn.notes + notes, left_out=benchmark.left_out + single)
    train, notes, single = drop_from_list(benchmark.train, bad)
    selection = benchmark.selection
    if selection is not None:
        selection, more, others = drop_from_list(selection, bad)
        notes, single = notes + more, single + others
    test = benchmark.test
    if isinstance(test, QueryGallery):
        test = test.subset(~is_among(test.images, bad))
        test = replace(test, is_query=find_answerable(test))
    else:
        test, more, others = drop_from_list(test, bad)
        notes, single = notes + more, single + others
    notes, left_out = benchmark.notes + tuple(dict.fromkeys(notes)), benchmark.left_out + single
    return replace(benchmark, train=train, test=test, selection=selection, notes=notes, left_out=left_out)


def drop_from_list(
    images: ImageList, bad: Mapping[Path, str]
) -> tuple[ImageList, tuple[str, ...], tuple[LeftOut, ...]]:
    """Return what is left of a list, sentences on the classes that are not, and the last images of such classes."""
    left = images.subset(~is_among(images, bad))
    sizes_C = np.bincount(left.labels, minlength=left.num_classes)
    if (sizes_C < 2).all():
        raise UserError("the images that cannot be read leave no class with two images: mend or replace them.")
    notes: tuple[str, ...] = ()
    gone = sorted(set(images.class_names) - set(left.class_names))
    if gone:
        what = count(len(gone), "class", "classes")
        notes += (f"Left out {what} of which no image can be read: {list_few(gone)}.",)
    single_C = sizes_C == 1
    if single_C.any():
        names = [left.class_names[label] for label in np.flatnonzero(single_C)]
        what = count(len(names), "class that bad images leave", "classes that bad images leave")
        notes += (f"Left out {what} with a single image: {list_few(names)}.",)
    kept = left.subset(~single_C[left.labels]) if single_C.any() else left
    return kept, notes, find_left_out(left, kept, ONLY_ONE)


def is_among(images: ImageList, bad: Mapping[Path, str]) -> np.ndarray:
    return np.array([path in bad for path in images.paths], dtype=bool)


def find_answerable(test: QueryGallery) -> np.ndarray:
    """Find the queries that bad images have left something to find: another image of the class in the gallery."""
    labels_N = test.images.labels
    in_gallery_C = np.bincount(labels_N, weights=test.is_gallery)
    is_query = test.is_query & (in_gallery_C[labels_N] > test.is_gallery)
    if not is_query.any():
        raise UserError("the test images that cannot be read leave no query with an answer: mend or replace them.")
    return is_query


# -- in words ----------------------------------------------------------------------------------------------------------


def overlap_notes(train: ImageList, test: ImageList | QueryGallery, selection: ImageList | None) -> tuple[str, ...]:
    test_images = test.images if isinstance(test, QueryGallery) else test
    notes: tuple[str, ...] = ()
    for name, images in (("test", test_images), ("val", selection)):
        shared = set(train.class_names) & set(images.class_names if images else ())
        if shared:
            classes = count(len(shared), "class is", "classes are")
            notes += (f"{classes} in both the train and the {name} split, which is then no measure of unseen classes.",)
    return notes


def list_few(names: Iterable[object], most: int = 5) -> str:
    """List the first few by name, the others by number."""
    texts = [one_line(str(name)) for name in names]
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def count(number: int, one: str, many: str) -> str:
    """Return the number and its noun: "1 class", "2 classes"."""
    return f"{number:,} {one if number == 1 else many}"
