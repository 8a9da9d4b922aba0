"""The manifest of a data set: which images there are, so that a run knows its own again.

The first line of the file holds the splits with their classes and a digest of each; every image has a line after it:

    ["mugs/1.jpg", 20311, "0f3a...", 4]     path below the data's root, bytes, hash of its content, number of its class

and a fifth value where only a box of the picture is used, or where it is a query or in the gallery. The content is sampled:
the first and the last 16 KiB of the file are hashed. A prepared store has checksums of its own, which stand in the first line
(`source`), as does the version of a package that brings the images; of a package no images are listed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pads.config import Data
from pads.data.benchmark import Benchmark, ImageList, QueryGallery, classes_with_two, list_few
from pads.data.emoji import package_folder, package_version
from pads.data.formats import open_regular
from pads.data.hf import hub_place
from pads.data.prepare import Prepared, base_of, boxes_of, split_lists
from pads.errors import UserError
from pads.runtime.files import RESUME, write_atomically
from pads.runtime.reading import Misfit, describe_damage, is_count, read_json_lines

FORMAT = 1
SAMPLE = 16 * 1024
"""Bytes at the beginning and at the end of a file that are hashed."""
BATCH = 256
"""Files that a thread samples at a time."""
NUM_THREADS = 4
FILES, STORE = "files", "store "
UNREADABLE = ""
"""The content of a file that is not there or cannot be read."""
WRITTEN_OUT = re.compile(r"(^|/)\.pads-images/[0-9a-f]{16}/")
"""Where `hf` writes images to: the name of the folder changes when the files of the data set are merely touched."""
REMEDY = "put back the file that the run wrote, or train anew."
HEADER = {
    "format": int,
    "source": str,
    "changed": [str],
    "splits": {str: {"images": is_count, "sha256": str, "class_names": [str]}},
}


Look = Callable[[Sequence[Path]], Iterable[tuple[int | None, str | None]]]
"""Returns size and content of each of many files."""


class Entry(NamedTuple):
    """An image as a split uses it."""

    path: str
    """Below the root of the data, or whole if it lies elsewhere."""
    size: int | None
    """Bytes; None where the file was not looked at."""
    content: str | None
    """A hash; None where it was not looked at."""
    label: str
    part: str = ""
    """The box of the picture, and whether it asks or answers, as text; empty for all of it."""


@dataclass(frozen=True)
class Manifest:
    """The images of every split, in their order."""

    source: str
    """By what the content is known: `files`, `store CHECKSUM`, or the name and version of a package."""
    splits: Mapping[str, Sequence[Entry]]
    digests: Mapping[str, str]
    """Of each split, order included."""
    class_names: Mapping[str, Sequence[str]]
    changed: tuple[str, ...] = ()
    """What became different while the run knew of it, in sentences."""

    @property
    def is_listed(self) -> bool:
        return self.source == FILES or self.source.startswith(STORE)


@dataclass(frozen=True)
class Changes:
    """What differs between two manifests, image by image."""

    of_images: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By what happened to them, such as `removed`."""
    otherwise: str = ""
    """What differs where no single image does."""

    def __bool__(self) -> bool:
        return bool(self.of_images) or bool(self.otherwise)

    def count(self) -> str:
        """Say how many images changed, without their names."""
        return ", ".join(f"{len(names):,} {what}" for what, names in self.of_images.items()) or self.otherwise

    def name(self) -> str:
        """Say which images changed, up to five of each kind by name."""
        named = [f"{len(names):,} {what} ({list_few(names)})" for what, names in self.of_images.items()]
        return ", ".join(named) or self.otherwise


# -- making ------------------------------------------------------------------------------------------------------------


def list_data(data: Data, benchmark: Benchmark, prepared: Prepared | None, before: Manifest | None = None) -> Manifest:
    """List the images of a data set by what is known of their content, or as `before` does, to compare them with it."""
    if data.root is None:
        return list_package(benchmark)
    if prepared is not None and (before is None or before.source != FILES):
        digest = hashlib.sha256("".join(prepared.log[number]["sha256"] for number in sorted(prepared.log)).encode())
        return list_images(benchmark, base_of_data(data), STORE + digest.hexdigest(), stat_files)
    return list_images(benchmark, base_of_data(data), FILES, sample_files)


def list_package(benchmark: Benchmark) -> Manifest:
    """List images that came with a package, by names alone: whoever has that version has these files."""
    folder, _ = package_folder()
    listing = list_images(benchmark, folder, package_version(), lambda paths: [(None, None)] * len(paths))
    return replace(listing, splits=dict.fromkeys(listing.splits, ()))


def list_images(benchmark: Benchmark, base: Path, source: str, look: Look) -> Manifest:
    """List every image of every split."""
    splits: dict[str, Sequence[Entry]] = {}
    lists = split_lists(benchmark)
    for split, images in lists.items():
        names = [shorten_path(path, base) for path in images.paths]
        labels = [images.class_names[label] for label in images.labels]
        columns = zip(names, look(images.paths), labels, describe_parts(benchmark, split, images), strict=True)
        splits[split] = [Entry(name, size, content, label, part) for name, (size, content), label, part in columns]
    class_names = {split: images.class_names for split, images in lists.items()}
    digests = {split: digest_split(entries, class_names[split]) for split, entries in splits.items()}
    return Manifest(source, splits, digests, class_names)


def describe_parts(benchmark: Benchmark, split: str, images: ImageList) -> list[str]:
    """Say what is used of each image: a box, and as query or gallery."""
    parts = ["" if box is None else json.dumps(box) for box in boxes_of(images)]
    test = benchmark.test
    if split == "test" and isinstance(test, QueryGallery):
        roles = zip(parts, test.is_query, test.is_gallery, strict=True)
        parts = [part + "q" * int(asks) + "g" * int(answers) for part, asks, answers in roles]
    return parts


def base_of_data(data: Data) -> Path:
    """Return the folder below which the images of a data set are named."""
    assert data.root is not None
    root = Path(data.root).expanduser()
    return base_of(root) if root.exists() else hub_place(data.root)


def shorten_path(path: Path, base: Path) -> str:
    name = str(path)
    name = name.removeprefix(f"{base}{os.sep}")
    return WRITTEN_OUT.sub(r"\1.pads-images/", name)


def sample_files(paths: Sequence[Path]) -> list[tuple[int, str]]:
    """Return size and sampled hash of each file, by threads: a disk that is far away answers many at a time."""
    batches = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return [each for batch in pool.map(lambda batch: [*map(sample_file, batch)], batches) for each in batch]


def sample_file(path: Path) -> tuple[int, str]:
    try:
        with open_regular(path) as file:
            handle = file.fileno()
            size = os.fstat(handle).st_size
            content = os.pread(handle, SAMPLE, 0)
            if size > SAMPLE:
                content += os.pread(handle, SAMPLE, max(SAMPLE, size - SAMPLE))
        return size, hashlib.sha256(content).hexdigest()[:16]
    except OSError:
        return 0, UNREADABLE


def stat_files(paths: Sequence[Path]) -> Iterator[tuple[int | None, None]]:
    """Yield the size of each original of a store, None where it is gone: the store does without."""
    for path in paths:
        try:
            yield os.stat(path).st_size, None
        except OSError:
            yield None, None


# -- comparing ---------------------------------------------------------------------------------------------------------


def find_changes(before: Manifest, now: Manifest) -> Changes:
    """Find what differs; sizes and contents that one of the two does not know are not compared."""
    if (before.source, before.digests) == (now.source, now.digests):
        return Changes()
    if not (before.is_listed and now.is_listed):
        is_other = before.source != now.source
        return Changes(otherwise=f"{now.source} instead of {before.source}" if is_other else f"other {now.source}")
    was, now_is = collect_files(before), collect_files(now)
    gone = [path for path in was if not was[path].is_missing and (path not in now_is or now_is[path].is_missing)]
    new = [path for path in now_is if not now_is[path].is_missing and (path not in was or was[path].is_missing)]
    renamed = match_renamed({path: was[path] for path in gone}, {path: now_is[path] for path in new})
    both = [path for path in was if path in now_is and not was[path].is_missing and not now_is[path].is_missing]
    changed = [path for path in both if not was[path].looks_like(now_is[path])]
    others = set(changed)
    moved = [path for path in both if path not in others and was[path].uses != now_is[path].uses]
    kinds = {
        "removed": [path for path in gone if path not in renamed],
        "added": [path for path in new if path not in set(renamed.values())],
        "renamed": [f"{old} to {name}" for old, name in renamed.items()],
        "changed": changed,
        "in another class or split, or with another box": moved,
    }
    found = {what: names for what, names in kinds.items() if names}
    return Changes(found, "" if found else describe_other(before, now))


def describe_other(before: Manifest, now: Manifest) -> str:
    """Say what differs between two manifests of the same files, if anything does."""
    if before.source.startswith(STORE) and now.source.startswith(STORE) and before.source != now.source:
        return "the same names in a store with other pixels"
    sequences = [[(e.path, e.label, e.part) for s in m.splits for e in m.splits[s]] for m in (before, now)]
    if sequences[0] != sequences[1] or before.class_names != now.class_names:
        return "the same images in another order"
    return ""


class File(NamedTuple):
    """A file with all uses that the splits make of it."""

    size: int | None
    content: str | None
    uses: list[tuple[str, str, str]]

    @property
    def is_missing(self) -> bool:
        return self.content == UNREADABLE

    def looks_like(self, other: File) -> bool:
        return all(mine == its for mine, its in zip(self[:2], other[:2], strict=True) if None not in (mine, its))


def collect_files(manifest: Manifest) -> dict[str, File]:
    files: dict[str, File] = {}
    for split, entries in manifest.splits.items():
        for entry in entries:
            file = files.setdefault(entry.path, File(entry.size, entry.content, []))
            file.uses.append((split, entry.label, entry.part))
    for file in files.values():
        file.uses.sort()
    return files


def match_renamed(gone: Mapping[str, File], new: Mapping[str, File]) -> dict[str, str]:
    """Match files that went with files that came and have the same content."""
    came: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    for path in reversed(list(new)):
        if content := new[path].content:
            came[new[path].size, content].append(path)
    renamed = {}
    for path, file in gone.items():
        if file.content and came[file.size, file.content]:
            renamed[path] = came[file.size, file.content].pop()
    return renamed


def find_unchanged(before: Manifest, now: Manifest, split: str) -> list[tuple[int, str, int]]:
    """Find the images of a split that are as they were: the row of each, the split that it is in now, and its row there."""
    places = {
        (entry.path, entry.label, entry.part): (name, row, entry)
        for name, entries in now.splits.items()
        for row, entry in enumerate(entries)
        if entry.content != UNREADABLE
    }
    found = []
    for row, entry in enumerate(before.splits[split]):
        name, row_now, is_now = places.get((entry.path, entry.label, entry.part), ("", 0, entry))
        if name and File(entry.size, entry.content, []).looks_like(File(is_now.size, is_now.content, [])):
            found.append((row, name, row_now))
    return found


def pick_unchanged(before: Manifest, now: Manifest, benchmark: Benchmark) -> ImageList | QueryGallery:
    """Pick the test images of `before` that are as they were, wherever in the benchmark they are now."""
    lists, found = split_lists(benchmark), find_unchanged(before, now, "test")
    if not found:
        raise UserError("none of the test images is as it was when the run began.")
    entries = [before.splits["test"][row] for row, _, _ in found]
    numbers = {name: number for number, name in enumerate(before.class_names["test"])}
    used_C, labels_N = np.unique([numbers[entry.label] for entry in entries], return_inverse=True)
    boxes_now = {split: boxes_of(images) for split, images in lists.items()}
    boxes = [boxes_now[split][row] for _, split, row in found]
    images = ImageList(
        paths=tuple(lists[split].paths[row] for _, split, row in found),
        labels=labels_N.astype(np.int64),
        class_names=tuple(before.class_names["test"][number] for number in used_C),
        boxes=np.array([box or [np.nan] * 4 for box in boxes]) if any(boxes) else None,
    )
    if isinstance(benchmark.test, ImageList):
        return classes_with_two(images, True, "what is left of the test split")[0]
    flags = [["q" in entry.part, "g" in entry.part] for entry in entries]
    return QueryGallery(images, *np.array(flags).T)


def check_unchanged(before: Manifest, now: Manifest, run: Path, *, is_known: bool) -> Changes:
    """Return what changed since a run began; refuse it unless the user knows."""
    changes = find_changes(before, now)
    if changes and not is_known:
        raise UserError(
            f"the images of {run} are not those that it began with: {changes.name()}. Put them back, or go on knowingly with "
            "--data-changed, which is written into the figures."
        )
    return changes


# -- the file ----------------------------------------------------------------------------------------------------------


def format_rows(entries: Sequence[Entry], class_names: Sequence[str]) -> Iterator[str]:
    numbers = {name: number for number, name in enumerate(class_names)}
    for path, size, content, label, part in entries:
        yield json.dumps([path, size, content, numbers[label], *([part] if part else [])], separators=(",", ":"))


def digest_split(entries: Sequence[Entry], class_names: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps(list(class_names)).encode())
    for row in format_rows(entries, class_names):
        digest.update(b"\n" + row.encode())
    return digest.hexdigest()


def format_manifest(manifest: Manifest) -> str:
    """Return a manifest as the text of its file."""
    splits = {
        split: {
            "images": len(entries),
            "sha256": manifest.digests[split],
            "class_names": list(manifest.class_names[split]) if manifest.is_listed else [],
        }
        for split, entries in manifest.splits.items()
    }
    header = {"format": FORMAT, "source": manifest.source, "changed": list(manifest.changed), "splits": splits}
    rows = (row for split, each in manifest.splits.items() for row in format_rows(each, manifest.class_names[split]))
    return "".join(f"{line}\n" for line in (json.dumps(header), *rows))


def write_manifest(path: Path, manifest: Manifest) -> None:
    write_atomically(path, format_manifest(manifest), again=RESUME)


def read_manifest(path: Path) -> Manifest | None:
    """Read what `write_manifest` wrote; None where there is none, as in runs of earlier versions."""
    if not path.exists():
        return None
    lines = read_json_lines(path, (HEADER, is_row), REMEDY)
    try:
        header: Any = next(lines, None)
        if not isinstance(header, dict) or header["format"] != FORMAT:
            raise Misfit("its first line is not that of a manifest")
        rows: Iterator[Any] = iter(lines)
        splits, class_names = {}, {}
        for split, about in header["splits"].items():
            class_names[split] = about["class_names"]
            splits[split] = [make_entry(next(rows), class_names[split]) for _ in range(about["images"])]
        digests = {split: about["sha256"] for split, about in header["splits"].items()}
        manifest = Manifest(header["source"], splits, digests, class_names, tuple(header["changed"]))
        if next(rows, None) is not None:
            raise Misfit("it has more lines than images")
        if manifest.is_listed and any(digest_split(splits[s], class_names[s]) != digests[s] for s in splits):
            raise Misfit("its checksum does not fit")
        return manifest
    except (Misfit, IndexError, StopIteration) as error:
        raise describe_damage(path, error, REMEDY) from error


def read_changed(path: Path) -> str:
    """Read from the first line what became different while the run knew of it; empty if nothing did."""
    try:
        with open_regular(path) as file:
            header = json.loads(file.readline())
        return " ".join(header["changed"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise describe_damage(path, error, REMEDY) from error


def is_row(value: Any) -> bool:
    """Tell whether this is a line of an image."""
    if not isinstance(value, list) or len(value) not in (4, 5):
        return False
    path, size, content, label, *part = value
    is_known = (size is None or is_count(size)) and (content is None or isinstance(content, str))
    return isinstance(path, str) and is_known and is_count(label) and all(isinstance(each, str) for each in part)


def make_entry(row: Sequence[Any], class_names: Sequence[str]) -> Entry:
    path, size, content, label, *part = row
    return Entry(path, size, content, class_names[label], *part)
