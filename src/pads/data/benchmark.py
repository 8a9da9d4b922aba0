"""What a data set is: lists of labelled image files, one to train on and one to test on.

Dimensions: N images, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pads.errors import UserError, one_line


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
