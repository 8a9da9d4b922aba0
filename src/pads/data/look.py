"""The look at the data before the work: one pass that decodes every image, and what it saw of each.

It finds the files that cannot be read, and the copies. What it finds is kept in the manifest of the run or of the store
(`manifest.py`): there is no second list.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pads.data.benchmark import Benchmark, count, list_few, split_lists
from pads.data.duplicates import Signatures, find_near_pairs
from pads.data.formats import open_regular
from pads.errors import UserError

SAMPLE = 16 * 1024
"""Bytes at the beginning and at the end of a file that are hashed."""
UNREADABLE = ""
"""The content of a file that is not there or cannot be read."""
COPY, NEAR_COPY = "copy", "near copy"
DIFFERENT = {"class": "classes", "split": "splits", "class and split": "classes and splits"}
"""In what two copies may differ, one and many."""
FIELD = {"class": "label", "split": "split"}


class Sample(NamedTuple):
    """A file by its size and a hash of its beginning and end."""

    size: int | None
    """Bytes; None where the file was not looked at."""
    content: str | None
    """A hash; None where it was not looked at."""


class Alike(NamedTuple):
    """Two images that are the same or look the same, in different classes or splits."""

    first: Path
    second: Path
    kind: str
    """COPY or NEAR_COPY."""
    differ: str
    """In what they differ: `class`, `split`, or `class and split`."""


@dataclass(frozen=True)
class Copies:
    """What the look found of copies."""

    num_copies: int = 0
    """Files with the bytes of an earlier one."""
    num_near: int = 0
    """Images that look like an earlier one, without being a copy."""
    named: tuple[Alike, ...] = ()
    """Those that are in different classes or splits."""


@dataclass(frozen=True, eq=False)
class Looks:
    """What was seen of N images while they were decoded, to be filled in by threads."""

    samples: list[Sample]
    signatures: Signatures

    @classmethod
    def empty(cls, num_images: int) -> Looks:
        return cls([Sample(None, None)] * num_images, Signatures.empty(num_images))


def sample_file(path: Path) -> Sample:
    """Return size and sampled hash of a file; of one that cannot be read, what says so."""
    try:
        with open_regular(path) as file:
            handle = file.fileno()
            size = os.fstat(handle).st_size
            content = os.pread(handle, SAMPLE, 0)
            if size > SAMPLE:
                content += os.pread(handle, SAMPLE, max(SAMPLE, size - SAMPLE))
        return Sample(size, hashlib.sha256(content).hexdigest()[:16])
    except OSError:
        return Sample(0, UNREADABLE)


def hash_file(path: Path) -> str:
    """Return a hash of all of a file; of one that cannot be read, one that no other has."""
    try:
        digest = hashlib.sha256()
        with open_regular(path) as file:
            while part := file.read(2**20):
                digest.update(part)
        return digest.hexdigest()
    except OSError:
        return str(path)


# -- copies ------------------------------------------------------------------------------------------------------------


class Use(NamedTuple):
    """An image where it is used: a file may be used in several places."""

    path: Path
    label: str
    split: str


def find_copies(benchmark: Benchmark, looks: Looks) -> Copies:
    """Find images that are the same file content, or look the same; looks are those of the splits, one after the other."""
    uses = list(list_uses(benchmark))
    groups = group_copies([use.path for use in uses], looks.samples)
    first_of = {row: group[0] for group in groups for row in group}
    copies = [(group[0], row) for group in groups for row in group[1:]]
    near = [
        (first, second)
        for first, second in find_near_pairs(looks.signatures).tolist()
        if first_of.get(first, first) != first_of.get(second, second) and uses[first].path != uses[second].path
    ]
    named = [*name_pairs(uses, copies, COPY), *name_pairs(uses, near, NEAR_COPY)]
    is_copy = {second for _, second in copies}
    return Copies(len(copies), len({second for _, second in near} - is_copy), tuple(dict.fromkeys(named)))


def list_uses(benchmark: Benchmark) -> Iterator[Use]:
    for split, images in split_lists(benchmark).items():
        for path, label in zip(images.paths, images.labels, strict=True):
            yield Use(path, images.class_names[label], split)


def group_copies(paths: Sequence[Path], samples: Sequence[Sample]) -> list[list[int]]:
    """Group the rows of different files with the same content; only those whose samples agree are read as a whole."""
    by_sample: dict[Sample, list[int]] = defaultdict(list)
    for row, sample in enumerate(samples):
        if sample.content:
            by_sample[sample].append(row)
    groups = []
    for rows in by_sample.values():
        if len({paths[row] for row in rows}) < 2:  # a file that is used twice is no copy of itself
            continue
        by_content: dict[str, dict[Path, int]] = defaultdict(dict)
        for row in rows:
            by_content[hash_file(paths[row])].setdefault(paths[row], row)
        groups += [list(files.values()) for files in by_content.values() if len(files) > 1]
    return groups


def name_pairs(uses: Sequence[Use], pairs: Iterable[tuple[int, int]], kind: str) -> Iterator[Alike]:
    """Yield the pairs in different classes or splits, of each image the first."""
    seen = set()
    for first, second in pairs:
        one, other = uses[first], uses[second]
        differ = [what for what in ("class", "split") if getattr(one, FIELD[what]) != getattr(other, FIELD[what])]
        if differ and second not in seen:
            seen.add(second)
            yield Alike(one.path, other.path, kind, " and ".join(differ))


# -- in words ----------------------------------------------------------------------------------------------------------


def check_bad_images(bad_images: Sequence[object], num_good: int, strict: bool) -> None:
    """Refuse images that cannot be read if that was asked for, or if no other is left."""
    if not bad_images:
        return
    num_all = count(len(bad_images) + num_good, "image", "images")
    what = f"{len(bad_images):,} of {num_all} cannot be used: {list_few(bad_images)}"
    if strict:
        raise UserError(f"{what}; mend or remove them (`pads check` lists all), or leave them out: without --strict.")
    if not num_good:
        raise UserError(f"{what}; none is left.")


def describe_bad_images(bad: Sequence[object], where: Path | str | None = None) -> str:
    """Say how many images cannot be read, the first by name, and where the list of all is."""
    more = f"; {where} lists them" if where is not None else ""
    return f"Left out {count(len(bad), 'image', 'images')} that cannot be read: {list_few(bad)}{more}."


def describe_copies(
    num_copies: int, num_near: int, alike: Sequence[tuple[object, object, str, str]]
) -> tuple[str, ...]:
    """Say how many copies there are, and name those that cannot be right."""
    notes = []
    if num_copies:
        notes.append(f"{count(num_copies, 'file is a copy of another', 'files are copies of others')}.")
    if num_near:
        notes.append(f"{count(num_near, 'image looks', 'images look')} the same as another.")
    for kind, words in ((COPY, "copies"), (NEAR_COPY, "near copies")):
        for differ, where in DIFFERENT.items():
            pairs = [f"{first} and {second}" for first, second, *how in alike if how == [kind, differ]]
            if pairs:
                what = words if len(pairs) > 1 else f"pair of {words}"
                notes.append(f"{len(pairs):,} {what} in different {where}: {list_few(pairs, 3)}.")
    return tuple(notes)
