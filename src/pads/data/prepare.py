"""Decoding once for all runs: a data set as a folder of pixels that a run maps into memory.

    pixels.npy     (N, 3, S, L) uint8: the images of train, then of test, then of selection if the data set has one
    chunks.jsonl   a line per finished chunk of images: what it was made of, its checksum, the sizes of the originals
    data.jsonl     what the look found: the images, those that were left out and why, the copies (`manifest.py`)
    store.json     what the images are: data set, splits, classes, paths; written last, so that it marks a whole store

Such a folder needs the originals no more: copied elsewhere, it is `--data STORE` for the data set it was made of.

Dimensions: N images, S pixels of the shorter side, L of the longer.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import shutil
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pads.config import Data, call, lookup
from pads.data import DATASETS
from pads.data.benchmark import Benchmark, ImageList, LeftOut, QueryGallery, base_of, boxes_of, drop_files, split_lists
from pads.data.duplicates import Signatures
from pads.data.look import Looks, check_bad_images, find_copies
from pads.data.manifest import (
    NAME,
    OF_STORE,
    Manifest,
    base_of_data,
    drop_known,
    list_looks,
    read_manifest,
    sample_files,
    write_manifest,
)
from pads.data.store import BadImage, ImageStore, compute_stored_shape, cut_kept, map_pixels, read_stored
from pads.errors import UserError
from pads.runtime.files import AGAIN as FILES_AGAIN
from pads.runtime.files import (
    NotWritten,
    append_line,
    make_array,
    make_folder,
    make_inner_folder,
    open_to_append,
    overwrite,
    remove_file,
    sync_file,
    write_atomically,
)
from pads.runtime.reading import Misfit, describe_damage, is_count, is_positive, read_array, read_json, read_json_lines
from pads.runtime.reading import has_shape as is_shaped

PIXELS, CHUNKS, STORE = "pixels.npy", "chunks.jsonl", "store.json"
AGAIN = "run `pads prepare` again."
HIDDEN = ".pads-"
"""How the name of a store beside the images begins: in a folder that may be a stranger's, so that no link is followed."""
FORMAT = 2
CHUNK_IMAGES = 128
SPLIT = {
    "class_names": [str],
    "labels": [is_count],
    "paths": [str],
    "boxes": [(None, [float])],
    "is_query?": [bool],
    "is_gallery?": [bool],
}
USED = {**SPLIT, "rows": [is_count]}
CONTENTS = {
    "format": int,
    "dataset": str,
    "options": dict,
    "size": is_positive,
    "longer": is_positive,
    "notes": [str],
    "splits": {"train": SPLIT, "test": SPLIT, "selection?": SPLIT},
    "used?": {"train": USED, "test": USED, "selection?": USED},
}
"""Of store.json: `splits` as the pixels have them; `used` without what cannot be read, where there is any."""
RECORD = {
    "chunk": is_count,
    "source": str,
    "sha256": str,
    "sizes": [lambda size: is_shaped(size, [is_count]) and len(size) == 2],
    "bad": lambda bad: is_shaped(bad, {str: str}) and all(row.isdecimal() and len(row) < 18 for row in bad),
}
"""Of chunks.jsonl."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many images are done, and of how many."""


class Chunk(NamedTuple):
    """Neighbouring images, decoded and checked together."""

    number: int
    paths: tuple[Path, ...]
    boxes: tuple[list[float] | None, ...]
    source: str
    """Digest of what it is made of: names, bytes and times of change of the files, and boxes."""

    @property
    def first(self) -> int:
        return self.number * CHUNK_IMAGES


# -- using -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared store, opened."""

    path: Path
    benchmark: Benchmark
    """Without the images that cannot be read."""
    rows: Mapping[str, np.ndarray]
    """Where the images of each split are in the pixels."""
    contents: Mapping[str, Any]
    """Of store.json."""
    log: Mapping[int, Mapping[str, Any]]
    """Of chunks.jsonl, by the number of the chunk."""

    @property
    def shape(self) -> tuple[int, int, int]:
        return (3, int(self.contents["size"]), int(self.contents["longer"]))

    def store(self, images: ImageList) -> ImageStore:
        """The images of one split of the benchmark, mapped from the file."""
        split = next(split for split, each in split_lists(self.benchmark).items() if each is images)
        rows, first = self.rows[split], int(self.rows[split].min())
        pixels = pixels_of(self.path)[first : int(rows.max()) + 1]
        return ImageStore(
            pixels=map_pixels(pixels),
            sizes_N2=torch.from_numpy(np.array(self.sizes, dtype=np.int64)[rows]),
            labels_N=torch.from_numpy(images.labels.copy()),
            images=images,
            kept=np.arange(len(images)),
            is_on_disk=True,
            rows_N=None if len(rows) == len(pixels) and (np.diff(rows) == 1).all() else torch.from_numpy(rows - first),
        )

    @property
    def sizes(self) -> list[list[int]]:
        return [size for number in sorted(self.log) for size in self.log[number]["sizes"]]

    @property
    def source(self) -> str:
        """Return by what a manifest knows the content: the checksums of the pixels."""
        digest = hashlib.sha256("".join(self.log[number]["sha256"] for number in sorted(self.log)).encode())
        return OF_STORE + digest.hexdigest()

    @property
    def manifest(self) -> Manifest | None:
        """Return what the look found when the store was made; None in a store of an earlier version."""
        found = read_manifest(self.path / NAME, AGAIN)
        return found if found is not None and found.source == self.source else None


def read_data(data: Data, known: Manifest | None = None) -> tuple[Benchmark, Prepared | None]:
    """The data set of a config, and its prepared store if there is one; a note says which, or why it is not used.

    known: what a look found before, so that what it could not read is left out here already. A store knows that itself.
    """
    root = None if data.root is None else Path(data.root).expanduser()
    shape = compute_stored_shape(data.store_size, data.store_ratio)
    if root is not None and (root / PIXELS).is_file():
        prepared = open_prepared(root)
        check_is_of(prepared, data.name, data.options, shape)
        return prepared.benchmark, prepared
    benchmark = read_listing(data)
    place = None if root is None else usual_place(data.name, root, shape)
    if root is not None and place is not None and (place / STORE).is_file():
        prepared = open_prepared(place, base_of(root))
        is_same = prepared.contents["splits"] == describe_splits(benchmark, base_of(root))
        if is_same and is_fresh(prepared, benchmark, root):
            return name_store(prepared, benchmark, f"The images come decoded from {place}.")
        note = f"{place} was made of other files or options and is not used; `pads prepare` brings it up to date."
        benchmark = replace(benchmark, notes=(*benchmark.notes, note))
    return benchmark if known is None or root is None else drop_known(benchmark, known, base_of_data(data)), None


def read_listing(data: Data) -> Benchmark:
    """The data set of a config as its files are, whether or not they were prepared."""
    given = {} if data.root is None else {"root": Path(data.root).expanduser()}
    return call(lookup(DATASETS, data.name, "data set"), data.options, "data.options", **given)


def name_store(prepared: Prepared, listed: Benchmark, note: str) -> tuple[Benchmark, Prepared]:
    """Return the images of a store with what there is to say of the files that they were made of, and the store."""
    benchmark = prepared.benchmark
    notes, left_out = (listed if not benchmark.left_out else benchmark).notes, listed.left_out + benchmark.left_out
    benchmark = replace(benchmark, notes=(*notes, note), left_out=left_out)
    return benchmark, replace(prepared, benchmark=benchmark)


def open_prepared(path: Path, base: Path | None = None) -> Prepared:
    """The store in this folder; its images are named by where they were below base, if the originals are there."""
    if not (path / STORE).is_file():
        raise UserError(f"the store {path} is not finished; run the same `pads prepare` again to go on with it.")
    if read_json(path / STORE, {"format": int}, AGAIN)["format"] != FORMAT:
        raise UserError(f"the store {path} was made by another version of pads; run `pads prepare` again.")
    contents, log = read_json(path / STORE, CONTENTS, AGAIN), read_log(path)
    try:
        whole = benchmark_of(contents, "splits", base or path)
        num_all = sum(len(images) for images in split_lists(whole).values())
        benchmark, rows = find_used(contents, whole, find_bad(whole, log), base or path)
    except UserError:
        raise
    except (ValueError, LookupError, TypeError, AssertionError, OverflowError) as error:
        raise describe_damage(path / STORE, error, AGAIN) from error
    prepared = Prepared(path, benchmark, rows, contents, log)
    fits = has_shape(path, (num_all, *prepared.shape)) and len(prepared.sizes) == num_all
    if not fits or any(
        len(rows[split]) != len(images) or not len(images) for split, images in split_lists(benchmark).items()
    ):
        raise UserError(f"the store {path} is damaged: its files do not fit together; run `pads prepare` again.")
    if any(each.max(initial=0) >= num_all for each in rows.values()):
        raise describe_damage(path / STORE, Misfit("rows that its pixels do not have"), AGAIN)
    return prepared


def find_bad(whole: Benchmark, log: Mapping[int, Mapping[str, Any]]) -> dict[Path, str]:
    """Find the images of a store that could not be read, with their reasons, in the order of the store."""
    paths = [path for images in split_lists(whole).values() for path in images.paths]
    reasons = {int(row): reason for number in sorted(log) for row, reason in log[number]["bad"].items()}
    return {paths[row]: without_path(reasons[row], paths[row]) for row in sorted(reasons)}


def without_path(reason: str, path: Path) -> str:
    """Return a reason alone; earlier versions wrote `PATH (REASON)`."""
    _, found, rest = reason.partition(f"{path.name} (")
    return rest.removesuffix(")") if found else reason


def find_used(
    contents: Mapping[str, Any], whole: Benchmark, bad: Mapping[Path, str], base: Path
) -> tuple[Benchmark, dict[str, np.ndarray]]:
    """Return the data set without what cannot be read, and where its images are in the pixels."""
    if bad and "used" in contents:
        rows = {split: np.array(values["rows"], dtype=np.int64) for split, values in contents["used"].items()}
        left_out = tuple(LeftOut(*each, is_bad=True) for each in bad.items())
        return replace(benchmark_of(contents, "used", base), left_out=left_out), rows
    if bad:
        benchmark = drop_files(whole, bad)
        return benchmark, find_rows(whole, benchmark)
    lengths = {split: len(images) for split, images in split_lists(whole).items()}
    return whole, dict(
        zip(lengths, np.split(np.arange(sum(lengths.values())), np.cumsum([*lengths.values()])), strict=False)
    )


def find_rows(whole: Benchmark, benchmark: Benchmark) -> dict[str, np.ndarray]:
    """Find where the images of a data set are among those of a larger one, split after split."""
    rows_of: dict[tuple[Path, str], list[int]] = defaultdict(list)
    for row, use in enumerate(list_files(whole)):
        rows_of[use].append(row)
    firsts = {use: iter(rows) for use, rows in rows_of.items()}  # a file may be listed twice, and then has two rows
    found = iter([next(firsts[use]) for use in list_files(benchmark)])
    return {
        split: np.array([next(found) for _ in range(len(images))], dtype=np.int64)
        for split, images in split_lists(benchmark).items()
    }


def list_files(benchmark: Benchmark) -> Iterator[tuple[Path, str]]:
    """Yield the file and the box of every image, split after split."""
    for images in split_lists(benchmark).values():
        yield from zip(images.paths, map(str, boxes_of(images)), strict=True)


def check_is_of(prepared: Prepared, name: str, options: Mapping[str, Any], shape: tuple[int, int, int]) -> None:
    contents, path = prepared.contents, prepared.path
    if contents["dataset"] != name:
        raise UserError(f"the store {path} holds {contents['dataset']}, not {name}.")
    if contents["options"] != dict(options):
        raise UserError(f"the store {path} was made with the options {contents['options']}, not {dict(options)}.")
    if prepared.shape != shape:
        _, shorter, longer = prepared.shape
        raise UserError(
            f"the store {path} was made with {shorter} x {longer} pixels, not {shape[1]} x {shape[2]}; take it with "
            f"--set data.store_size={shorter} --set data.store_ratio={longer / shorter:.5g}, or prepare another."
        )


def is_fresh(prepared: Prepared, benchmark: Benchmark, root: Path) -> bool:
    chunks = chunks_of(benchmark, base_of(root))
    return all(prepared.log[chunk.number]["source"] == chunk.source for chunk in chunks)


def usual_size(name: str) -> int:
    """Of the shorter side: most photographs of these two then stay as they are, and figures are those of the files."""
    return 384 if name in ("cub200", "cars196") else Data.store_size


def usual_place(name: str, root: Path, shape: tuple[int, int, int]) -> Path:
    """Beside the images, so that `--data DIR` finds it; hidden, so that it is not taken for a class."""
    return base_of(root) / f"{HIDDEN}{name}-{shape[1]}x{shape[2]}"


def find_prepared_sizes(name: str, root: Path, ratio: float) -> tuple[int, ...]:
    """Find the sizes of the stores of this ratio, smallest first: of the one that root is, or of those beside the images."""
    alone = (root / PIXELS).is_file()
    paths = [root] if alone else [path.parent for path in base_of(root).glob(f".pads-{name}-*/{STORE}")]
    shapes = [open_prepared(path).shape for path in paths]
    return tuple(sorted(shape[1] for shape in shapes if shape == compute_stored_shape(shape[1], ratio)))


# -- making ------------------------------------------------------------------------------------------------------------


def prepare(
    name: str,
    root: str | Path,
    out: str | Path | None = None,
    *,
    size: int | None = None,
    ratio: float = Data.store_ratio,
    options: Mapping[str, Any] | None = None,
    strict: bool = False,
    num_workers: int | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Makes a store, goes on with one that was interrupted, or checks a finished one and mends what has changed.

    Everything is read back and compared with its checksum. With several workers (as many as there are cores, unless
    told otherwise) a script must call this below `if __name__ == "__main__":`, since they are processes.
    """
    root, options = Path(root).expanduser(), dict(options or {})
    tell = progress or (lambda what, done, total: None)
    num_workers = num_workers or os.cpu_count() or 1
    size = usual_size(name) if size is None else size
    if size < 1:
        raise UserError(f"--size is {size}: pixels of the shorter side, at least 1.")
    if not 1 <= ratio < math.inf:
        raise UserError(f"--ratio is {ratio}: the longer side over the shorter, at least 1.")
    shape = compute_stored_shape(size, ratio)
    if (root / PIXELS).is_file():
        return check_alone(root, name, options, shape, num_workers, tell)
    benchmark = call(lookup(DATASETS, name, "data set"), options, "data.options", root=root)
    path = usual_place(name, root, shape) if out is None else Path(out).expanduser()
    chunks = chunks_of(benchmark, base_of(root))
    log = start_files(path, chunks, shape)
    fill(path, chunks, log, num_workers, tell)
    bad = find_bad(benchmark, log)
    check_bad_images([LeftOut(*each) for each in bad.items()], num_images(chunks) - len(bad), strict)
    used = drop_files(benchmark, bad)
    rows = find_rows(benchmark, used)
    contents: dict[str, Any] = {
        "format": FORMAT,
        "dataset": name,
        "options": options,
        "size": shape[1],
        "longer": shape[2],
        "notes": used.notes,
        "splits": describe_splits(benchmark, base_of(root)),
    }
    if bad:
        contents["used"] = describe_splits(used, base_of(root))
        for split, values in contents["used"].items():
            values["rows"] = rows[split].tolist()
    sync_file(path / PIXELS)
    write_looks(Prepared(path, used, rows, contents, log), root, num_workers, tell)
    write_atomically(path / STORE, json.dumps(contents))
    return open_prepared(path, base_of(root))


def write_looks(prepared: Prepared, root: Path, num_workers: int, tell: Progress) -> None:
    """Writes what the look found: the files that were left out, the copies, and the images."""
    used, pixels, sizes = prepared.benchmark, pixels_of(prepared.path), prepared.sizes
    rows = np.concatenate(list(prepared.rows.values()))
    signatures, base = Signatures.empty(len(rows)), base_of(root)
    paths = [path for images in split_lists(used).values() for path in images.paths]

    def sign(at: int) -> None:
        signatures.fill_in(at, cut_kept(pixels[rows[at]], sizes[rows[at]]))

    with ThreadPoolExecutor(num_workers) as pool:
        for done, _ in enumerate(pool.map(sign, range(len(rows))), start=1):
            tell("looking for copies", done, len(rows))
    seen = dict(zip(paths, sample_files(paths), strict=True))
    copies = find_copies(used, Looks([seen[path] for path in paths], signatures))
    write_manifest(prepared.path / NAME, list_looks(used, base, prepared.source, seen, copies), again=FILES_AGAIN)


def check_alone(
    path: Path,
    name: str,
    options: Mapping[str, Any],
    shape: tuple[int, int, int],
    num_workers: int,
    tell: Progress,
) -> Prepared:
    """A store without its originals can be checked, not mended."""
    prepared = open_prepared(path)
    check_is_of(prepared, name, options, shape)
    if find_broken_chunks(path, prepared.log, num_workers, tell):
        raise UserError(f"the store {path} is damaged: its pixels do not fit their checksums; copy it again.")
    return prepared


def start_files(path: Path, chunks: Sequence[Chunk], image_shape: tuple[int, int, int]) -> dict[int, dict[str, Any]]:
    """Make the files, or find them; return what is in the log of the chunks that need not be made again."""
    shape = (num_images(chunks), *image_shape)
    sources = {chunk.number: chunk.source for chunk in chunks}
    try:
        (make_inner_folder if path.name.startswith(HIDDEN) else make_folder)(path)
        log = {number: record for number, record in read_log(path).items() if record["source"] == sources.get(number)}
        if not has_shape(path, shape):
            log = {}
            check_room(path, int(np.prod(shape)))
            make_array(path / PIXELS, shape, np.uint8)
        if len(log) < len(chunks):
            remove_file(path / STORE)
        write_atomically(path / CHUNKS, "".join(json.dumps(record) + "\n" for record in log.values()))
    except NotWritten as error:
        raise UserError(f"cannot write to {path} ({error.reason}); say where to with --out DIR.") from error
    return log


def fill(path: Path, chunks: Sequence[Chunk], log: dict[int, dict[str, Any]], num_workers: int, tell: Progress) -> None:
    """Decodes what the log does not have, reads everything back, and does what differs once more."""
    for _ in range(2):
        todo = [chunk for chunk in chunks if chunk.number not in log]
        num_done = num_images(chunks) - num_images(todo)
        with open_to_append(path / CHUNKS) as lines:
            for record in results(decode_chunk, [(path, chunk) for chunk in todo], num_workers):
                log[record["chunk"]] = record
                append_line(path / CHUNKS, lines, json.dumps(record))
                num_done += len(record["sizes"])
                tell("decoding", num_done, num_images(chunks))
        broken = find_broken_chunks(path, log, num_workers, tell)
        if not broken:
            return
        for number in broken:
            del log[number]
    raise UserError(f"{path / PIXELS} reads back otherwise than it was written; is the disk sound?")


def decode_chunk(path: Path, chunk: Chunk) -> dict[str, Any]:
    """Writes the chunk's pixels; its line in the log, which is written once they are."""
    array = pixels_of(path)
    _, shorter, longer = array.shape[1:]
    pixels = np.zeros((len(chunk.paths), *array.shape[1:]), dtype=np.uint8)
    sizes, bad = [[0, 0] for _ in chunk.paths], {}
    for index, (image, box) in enumerate(zip(chunk.paths, chunk.boxes, strict=True)):
        try:
            pixels[index], (width, height) = read_stored(image, shorter, longer / shorter, box)
            sizes[index] = [width, height]
        except BadImage as error:
            bad[str(chunk.first + index)] = error.reason
    overwrite(path / PIXELS, array.offset + chunk.first * array[0].nbytes, pixels.data)
    return {"chunk": chunk.number, "source": chunk.source, "sha256": digest(pixels), "sizes": sizes, "bad": bad}


def results(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], num_workers: int) -> Iterator[Any]:
    """function(*job) for each job in processes, in the order in which they are done."""
    if num_workers == 1 or len(jobs) < 2:
        yield from (function(*job) for job in jobs)
        return
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads, such as torch's, may hang
    with ProcessPoolExecutor(min(num_workers, len(jobs)), context, initializer=follow_parent) as pool:
        try:
            for future in as_completed([pool.submit(function, *job) for job in jobs]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def follow_parent() -> None:
    """A worker leaves Ctrl-C to its parent, and ends when that does, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def find_broken_chunks(path: Path, log: Mapping[int, Mapping[str, Any]], num_workers: int, tell: Progress) -> list[int]:
    """Find the chunks whose pixels do not fit their checksums."""
    array, num_done, broken = pixels_of(path), 0, []

    def fits(number: int) -> bool:
        first = number * CHUNK_IMAGES
        return digest(array[first : first + len(log[number]["sizes"])]) == log[number]["sha256"]

    with ThreadPoolExecutor(num_workers) as pool:  # hashing works outside Python's lock
        for number, is_sound in zip(log, pool.map(fits, log), strict=True):
            if not is_sound:
                broken.append(number)
            num_done += len(log[number]["sizes"])
            tell("verifying", num_done, len(array))
    return broken


def check_room(path: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(path).free
    if free < num_bytes:
        raise UserError(
            f"the store needs {num_bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free at {path}; "
            "say where there is room with --out DIR, or keep smaller images with --size."
        )


# -- files -------------------------------------------------------------------------------------------------------------


def describe_splits(benchmark: Benchmark, base: Path) -> dict[str, Any]:
    """Describe the splits in JSON's words."""
    splits: dict[str, Any] = {
        split: {
            "class_names": list(images.class_names),
            "labels": images.labels.tolist(),
            "paths": [name_below(base, path) for path in images.paths],
            "boxes": boxes_of(images),
        }
        for split, images in split_lists(benchmark).items()
    }
    if isinstance(benchmark.test, QueryGallery):
        splits["test"]["is_query"] = benchmark.test.is_query.tolist()
        splits["test"]["is_gallery"] = benchmark.test.is_gallery.tolist()
    return splits


def benchmark_of(contents: Mapping[str, Any], key: str, base: Path) -> Benchmark:
    """Make a benchmark of what `describe_splits` wrote, under this key of store.json."""
    lists = {split: image_list_of(values, base) for split, values in contents[key].items()}
    test: ImageList | QueryGallery = lists["test"]
    values = contents[key]["test"]
    if "is_query" in values:
        test = QueryGallery(lists["test"], np.array(values["is_query"]), np.array(values["is_gallery"]))
    return Benchmark(contents["dataset"], lists["train"], test, lists.get("selection"), tuple(contents["notes"]))


def image_list_of(values: Mapping[str, Any], base: Path) -> ImageList:
    boxes = None
    if any(box is not None for box in values["boxes"]):
        boxes = np.array([box or [np.nan] * 4 for box in values["boxes"]])
    paths = tuple(base / path for path in values["paths"])
    return ImageList(paths, np.array(values["labels"], dtype=np.int64), tuple(values["class_names"]), boxes)


def chunks_of(benchmark: Benchmark, base: Path) -> list[Chunk]:
    lists = split_lists(benchmark).values()
    paths = [path for images in lists for path in images.paths]
    boxes = [box for images in lists for box in boxes_of(images)]
    firsts = range(0, len(paths), CHUNK_IMAGES)
    pairs = [(tuple(paths[at : at + CHUNK_IMAGES]), tuple(boxes[at : at + CHUNK_IMAGES])) for at in firsts]
    return [Chunk(number, *pair, source_digest(*pair, base)) for number, pair in enumerate(pairs)]


def source_digest(paths: Sequence[Path], boxes: Sequence[list[float] | None], base: Path) -> str:
    rows = []
    for path, box in zip(paths, boxes, strict=True):
        status = path.stat() if path.exists() else None
        rows.append([name_below(base, path), status and [status.st_size, status.st_mtime_ns], box])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def name_below(base: Path, path: Path) -> str:
    prefix, name = f"{base}{os.sep}", str(path)
    return name[len(prefix) :] if name.startswith(prefix) else os.path.relpath(path, base)  # which is slow


def num_images(chunks: Sequence[Chunk]) -> int:
    return sum(len(chunk.paths) for chunk in chunks)


def pixels_of(path: Path) -> np.memmap:
    """Mapped for reading only: what might be written to counts as memory, and a store may be larger than that."""
    return np.load(path / PIXELS, mmap_mode="r")


def has_shape(path: Path, shape: tuple[int, ...]) -> bool:
    try:
        return read_array(path / PIXELS, np.uint8, len(shape), "make it anew.", mapped="r").shape == shape
    except (OSError, UserError):  # not there, or cut short
        return False


def digest(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()


def read_log(path: Path) -> dict[int, dict[str, Any]]:
    """The newest line of each chunk; one that was cut short does not count."""
    log: dict[int, dict[str, Any]] = {}
    if (path / CHUNKS).is_file():
        for record in read_json_lines(path / CHUNKS, RECORD, "run `pads prepare` again.", strict=False):
            log[record["chunk"]] = record
    return log
