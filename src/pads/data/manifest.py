"""The manifest of a data set: which images there are and which were left out, so that a run knows its own again.

The first line of the file holds the splits with their classes and a digest of each, and how many copies the look found. Then
come the files that were left out, those that cannot be read first, then copies in different classes or splits, then the images:

    ["mugs/7.jpg", 512, "b5bb...", "image file is truncated"]    path below the data's root, bytes, hash, reason
    ["mugs/3.jpg", "cups/9.jpg", "near copy", "class"]           two files, what they are, in what they differ
    ["mugs/1.jpg", 20311, "0f3a...", 4]                          path, bytes, hash, number of the class in its split

An image has a fifth value where only a box of the picture is used, or where it is a query or in the gallery. The content is
sampled: the first and the last 16 KiB of the file are hashed; null where a file was not looked at. A prepared store has
checksums of its own, which stand in the first line (`source`), as does the version of a package that brings the images; of a
package no images are listed. An index lists here only what it left out, since its images have a file of their own.
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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pads.config import Data
from pads.data.benchmark import (
    Benchmark,
    ImageList,
    QueryGallery,
    base_of,
    boxes_of,
    classes_with_two,
    drop_files,
    list_few,
    split_lists,
)
from pads.data.emoji import package_folder, package_version
from pads.data.hf import hub_place
from pads.data.look import UNREADABLE, Copies, Sample, describe_bad_images, describe_copies, sample_file
from pads.errors import UserError
from pads.runtime.files import RESUME, write_atomically
from pads.runtime.reading import Misfit, describe_damage, is_count, open_regular, read_json_lines

if TYPE_CHECKING:
    from pads.data.prepare import Prepared

NAME = "data.jsonl"
"""Of the file, in a run, a store and an index."""
FORMAT = 2
FORMATS = (1, 2)
"""Those that are read: the first had nothing but the images."""
BATCH = 256
"""Files that a thread samples at a time."""
NUM_THREADS = 4
FILES, OF_STORE = "files", "store "
WRITTEN_OUT = re.compile(r"(^|/)\.pads-images/[0-9a-f]{16}/")
"""Where `hf` writes images to: the name of the folder changes when the files of the data set are merely touched."""
REMEDY = "put back the file that the run wrote, or train anew."
HEADER = {
    "format": int,
    "source": str,
    "changed": [str],
    "copies?": is_count,
    "near_copies?": is_count,
    "left_out?": {"files": is_count, "sha256": str},
    "alike?": is_count,
    "splits": {str: {"images": is_count, "sha256": str, "class_names": [str]}},
}


Look = Callable[[Sequence[Path]], Iterable[Sample]]
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


class LeftOutEntry(NamedTuple):
    """A file that is in no split."""

    path: str
    size: int | None
    content: str | None
    """None where the file was not looked at: it was not meant to be used."""
    reason: str

    @property
    def is_bad(self) -> bool:
        """Whether it was meant to be used, and cannot be read."""
        return self.content is not None

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


class AlikeEntry(NamedTuple):
    """Two images that are the same or look the same, in different classes or splits."""

    first: str
    second: str
    kind: str
    """`copy` or `near copy`."""
    differ: str
    """`class`, `split`, or `class and split`."""


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
    left_out: tuple[LeftOutEntry, ...] = ()
    """The files that are in no split, those that cannot be read first."""
    num_copies: int = 0
    """Files with the bytes of an earlier one."""
    num_near: int = 0
    """Images that look like an earlier one."""
    alike: tuple[AlikeEntry, ...] = ()
    """Copies and near copies in different classes or splits."""

    @property
    def bad(self) -> tuple[LeftOutEntry, ...]:
        """Return the images that cannot be read."""
        return tuple(entry for entry in self.left_out if entry.is_bad)

    @property
    def num_images(self) -> int:
        """Return how many images are used."""
        return sum(len(entries) for entries in self.splits.values())

    @property
    def is_listed(self) -> bool:
        return is_listed(self.source)


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


def is_listed(source: str) -> bool:
    """Tell whether the images of such a source are listed one by one."""
    return source == FILES or source.startswith(OF_STORE)


# -- making ------------------------------------------------------------------------------------------------------------


def list_data(data: Data, benchmark: Benchmark, prepared: Prepared | None, before: Manifest | None = None) -> Manifest:
    """List the images of a data set by what is known of their content, or as `before` does, to compare them with it."""
    if data.root is None:
        return list_package(benchmark)
    if prepared is not None and (before is None or before.source != FILES):
        return prepared.manifest or list_images(benchmark, base_of_data(data), prepared.source, stat_files)
    return list_images(benchmark, base_of_data(data), FILES, sample_files)


def list_looks(benchmark: Benchmark, base: Path, source: str, seen: Mapping[Path, Sample], copies: Copies) -> Manifest:
    """List the images of a data set by what the look saw of them, with the copies that it found."""

    def look(paths: Sequence[Path]) -> list[Sample]:
        return [seen[path] if path in seen else sample_file(path) for path in paths]

    return add_copies(list_images(benchmark, base, source, look), copies, base)


def add_copies(manifest: Manifest, copies: Copies, base: Path) -> Manifest:
    alike = (
        AlikeEntry(shorten_path(first, base), shorten_path(second, base), kind, differ)
        for first, second, kind, differ in copies.named
    )
    return replace(manifest, num_copies=copies.num_copies, num_near=copies.num_near, alike=tuple(alike))


def list_package(benchmark: Benchmark) -> Manifest:
    """List images that came with a package, by names alone: whoever has that version has these files."""
    folder, _ = package_folder()
    listing = list_images(benchmark, folder, package_version(), lambda paths: [Sample(None, None)] * len(paths))
    return replace(listing, splits=dict.fromkeys(listing.splits, ()))


def list_images(benchmark: Benchmark, base: Path, source: str, look: Look) -> Manifest:
    """List every image of every split, and every file that was left out."""
    splits: dict[str, Sequence[Entry]] = {}
    lists = split_lists(benchmark)
    for split, images in lists.items():
        names = [shorten_path(path, base) for path in images.paths]
        labels = [images.class_names[label] for label in images.labels]
        columns = zip(names, look(images.paths), labels, describe_parts(benchmark, split, images), strict=True)
        splits[split] = [Entry(name, size, content, label, part) for name, (size, content), label, part in columns]
    class_names = {split: images.class_names for split, images in lists.items()}
    digests = {split: digest_split(entries, class_names[split]) for split, entries in splits.items()}
    return Manifest(source, splits, digests, class_names, left_out=list_left_out(benchmark, base, look))


def list_left_out(benchmark: Benchmark, base: Path, look: Look) -> tuple[LeftOutEntry, ...]:
    """List the files that are in no split by name, those that cannot be read first, each file once."""
    bad = {each.path: each.reason for each in benchmark.left_out if each.is_bad}
    samples = [Sample(size, content or UNREADABLE) for size, content in look(tuple(bad))]
    entries = [
        LeftOutEntry(shorten_path(path, base), *sample, reason)
        for (path, reason), sample in zip(bad.items(), samples, strict=True)
    ]
    others = {each.path: each.reason for each in benchmark.left_out if each.path not in bad}
    rest = [LeftOutEntry(shorten_path(path, base), None, None, reason) for path, reason in others.items()]
    return (*sorted(entries), *sorted(rest, key=lambda entry: entry.path))


def drop_known(benchmark: Benchmark, known: Manifest, base: Path) -> Benchmark:
    """Return the data set without the images that could not be read when the manifest was made."""
    reasons = {entry.path: entry.reason for entry in known.bad}
    if not reasons:
        return benchmark
    paths = [path for images in split_lists(benchmark).values() for path in images.paths]
    named = {path: shorten_path(path, base) for path in paths}
    return drop_files(benchmark, {path: reasons[name] for path, name in named.items() if name in reasons})


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


def sample_files(paths: Sequence[Path]) -> list[Sample]:
    """Return size and sampled hash of each file, by threads: a disk that is far away answers many at a time."""
    batches = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return [each for batch in pool.map(lambda batch: [*map(sample_file, batch)], batches) for each in batch]


def stat_files(paths: Sequence[Path]) -> Iterator[Sample]:
    """Yield the size of each original of a store, None where it is gone: the store does without."""
    for path in paths:
        try:
            yield Sample(os.stat(path).st_size, None)
        except OSError:
            yield Sample(None, None)


# -- comparing ---------------------------------------------------------------------------------------------------------


def find_changes(before: Manifest, now: Manifest) -> Changes:
    """Find what differs; sizes and contents that one of the two does not know are not compared."""
    if (before.source, before.digests, before.bad) == (now.source, now.digests, now.bad):
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
    if before.source.startswith(OF_STORE) and now.source.startswith(OF_STORE) and before.source != now.source:
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
    for bad in manifest.bad:
        content = None if manifest.source.startswith(OF_STORE) else bad.content  # a store does without the originals
        files.setdefault(bad.path, File(bad.size, content, [])).uses.append(("left out", "", ""))
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


def describe_manifest(manifest: Manifest, path: Path) -> tuple[str, ...]:
    """Say what the look found that a person should know; `path` is the file that lists it."""
    notes = (describe_bad_images(manifest.bad, path),) if manifest.bad else ()
    return notes + describe_copies(manifest.num_copies, manifest.num_near, manifest.alike)


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


def format_left_out(left_out: Sequence[LeftOutEntry]) -> list[str]:
    return [json.dumps(entry, separators=(",", ":")) for entry in left_out]


def digest_left_out(left_out: Sequence[LeftOutEntry]) -> str:
    return hashlib.sha256("\n".join(format_left_out(left_out)).encode()).hexdigest()


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
    header = {
        "format": FORMAT,
        "source": manifest.source,
        "changed": list(manifest.changed),
        "copies": manifest.num_copies,
        "near_copies": manifest.num_near,
        "left_out": {"files": len(manifest.left_out), "sha256": digest_left_out(manifest.left_out)},
        "alike": len(manifest.alike),
        "splits": splits,
    }
    alike = (json.dumps(entry, separators=(",", ":")) for entry in manifest.alike)
    rows = (row for split, each in manifest.splits.items() for row in format_rows(each, manifest.class_names[split]))
    lines = (json.dumps(header), *format_left_out(manifest.left_out), *alike, *rows)
    return "".join(f"{line}\n" for line in lines)


def write_manifest(path: Path, manifest: Manifest, *, again: str = RESUME) -> None:
    write_atomically(path, format_manifest(manifest), again=again)


def read_manifest(path: Path, remedy: str = REMEDY) -> Manifest | None:
    """Read what `write_manifest` wrote; None where there is none, as in runs of earlier versions."""
    if not path.exists():
        return None
    lines = read_json_lines(path, (HEADER, is_row, is_left_out, is_alike), remedy)
    try:
        header: Any = next(lines, None)
        if not isinstance(header, dict) or header["format"] not in FORMATS:
            raise Misfit("its first line is not that of a manifest")
        rows: Iterator[Any] = iter(lines)
        about_left_out = header.get("left_out", {"files": 0, "sha256": ""})
        left_out = tuple(LeftOutEntry(*take(rows, is_left_out)) for _ in range(about_left_out["files"]))
        alike = tuple(AlikeEntry(*take(rows, is_alike)) for _ in range(header.get("alike", 0)))
        splits, class_names = {}, {}
        for split, about in header["splits"].items():
            class_names[split] = tuple(about["class_names"])
            splits[split] = [make_entry(take(rows, is_row), class_names[split]) for _ in range(about["images"])]
        digests = {split: about["sha256"] for split, about in header["splits"].items()}
        numbers = header.get("copies", 0), header.get("near_copies", 0)
        changed = tuple(header["changed"])
        manifest = Manifest(header["source"], splits, digests, class_names, changed, left_out, *numbers, alike)
        if next(rows, None) is not None:
            raise Misfit("it has more lines than images")
        if manifest.is_listed and any(digest_split(splits[s], class_names[s]) != digests[s] for s in splits):
            raise Misfit("its checksum does not fit")
        if left_out and digest_left_out(left_out) != about_left_out["sha256"]:
            raise Misfit("its checksum does not fit")
        return manifest
    except (Misfit, IndexError, StopIteration) as error:
        raise describe_damage(path, error, remedy) from error


def take(rows: Iterator[Any], is_kind: Callable[[Any], bool]) -> Any:
    """Return the next line, which is of this kind."""
    row = next(rows)
    if not is_kind(row):
        raise Misfit("its lines are not in order")
    return row


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


def is_left_out(value: Any) -> bool:
    """Tell whether this is a line of a file that was left out."""
    if not isinstance(value, list) or len(value) != 4:
        return False
    path, size, content, reason = value
    is_known = (size is None or is_count(size)) and (content is None or isinstance(content, str))
    return isinstance(path, str) and is_known and isinstance(reason, str)


def is_alike(value: Any) -> bool:
    """Tell whether this is a line of two images that look the same."""
    return isinstance(value, list) and len(value) == 4 and all(isinstance(each, str) for each in value)


def make_entry(row: Sequence[Any], class_names: Sequence[str]) -> Entry:
    path, size, content, label, *part = row
    return Entry(path, size, content, class_names[label], *part)
