"""An index: the images of a folder as vectors, with the network that made them, in one folder that needs nothing else.

    index.json              what it is: root, model, calibration, and the names of the files below; written last
    model-ID.safetensors    the network and the run's config, preprocessing included
    rows-G.json             path, bytes, time of change and checksum of every image
    vectors-G.npy           (N, D) float32
    codes-G.safetensors     beyond 100,000 images: what faiss searches
    data.jsonl              the files that were left out and why, if any were (`pads.data.manifest`)
    pending/                while it is being made: chunks of embedded images, so that a killed process loses one chunk

G counts how often the index was written; a reader sees the files of one G or of the next, never a mixture.

Dimensions: N images, D embedding, Q queries, K neighbours.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

import pads
from pads.config import lookup
from pads.data.benchmark import NOT_BY_NAME, count, list_few
from pads.data.look import check_bad_images, describe_bad_images, sample_file
from pads.data.manifest import NAME, LeftOutEntry, Manifest
from pads.data.manifest import read_manifest as read_data_manifest
from pads.data.manifest import write_manifest as write_data_manifest
from pads.errors import UserError, missing_extra, one_line
from pads.model import Model, fingerprint, load, load_file, save_file
from pads.runs import RunFolder
from pads.runs.backbone import is_backbone
from pads.runs.checkpoint import load_state, save_state
from pads.runtime.files import (
    AGAIN,
    hold_lock,
    make_folder,
    make_inner_folder,
    remove_file,
    remove_folder,
    write_array,
    write_atomically,
)
from pads.runtime.reading import (
    Misfit,
    describe_damage,
    has_shape,
    is_count,
    is_file_name,
    is_positive,
    open_regular,
    read_array,
    read_json,
)
from pads.search.calibration import Calibration, calibrate_by_labels, calibrate_run, check_precision
from pads.search.engines import CODES, has_faiss, make_codes, nearest_of_all, needs_codes, pick_engine, rank_candidates
from pads.search.files import Bad, Found, Read, Row, existing_images_folder, find_below, label_of, read_chunks

FORMAT = 1
IN_MEMORY = 2**30
"""Bytes of vectors that are read as a whole. Larger files are mapped: to shorten one in its place ends who searches it."""
MANIFEST, PENDING, LOCK = "index.json", "pending", "lock"
REBUILD = "make the index anew with `pads index --rebuild`."
CURVE = {
    "num_images": is_positive,
    "num_classes": is_positive,
    "distances_P": [float],
    "same_P": [is_count],
    "strangers_P": [is_count],
    "on?": str,
    "far_distances_P?": [float],
    "far_strangers_P?": [is_count],
    "far_same_P?": [is_count],
}


def is_curve(values: Any) -> bool:
    """Tell whether this is a Calibration in JSON's words."""
    if not has_shape(values, CURVE):
        return False
    near, far = ([len(values[name]) for name in values if is_column(name, start)] for start in ("", "far_"))
    return len(near) == 3 and len(set(near)) == 1 and len(far) in (0, 3) and len(set(far)) <= 1


def is_column(name: str, start: str) -> bool:
    """Tell whether this names the distances or a count of one of the two curves."""
    return name in (f"{start}distances_P", f"{start}same_P", f"{start}strangers_P")


def make_calibration(values: Mapping[str, Any]) -> Calibration:
    """Make a Calibration of JSON's words."""
    return Calibration(**{name: values[name] for name in (key.rstrip("?") for key in CURVE) if name in values})


CONTENTS = {
    "format": int,
    "run": str,
    "model": str,
    "root": str,
    "num_images": is_positive,
    "calibration": (str, is_curve),
    "codes": (None, {"num_probes": is_positive, "recall": float}),
    "files": {"model": is_file_name, "rows": is_file_name, "vectors": is_file_name, "codes?": is_file_name},
    "checksums?": {str: str},
    "sha256?": (str, None),
}
"""Of index.json."""
PENDING_CHUNK = {"model": str, "rows": list, "vectors": torch.Tensor}
OURS = re.compile(r"lock|pending|(index\.json|data\.jsonl|map\.npz|(model|rows|vectors|codes)-\w+\.\w+)(\.partial)?")
"""What a process that did not come to its end may leave behind, and the map that `pads serve` keeps."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many images are done, and of how many."""


class Marks(NamedTuple):
    """The distances by which a neighbour is called the same item or another one."""

    same: float | None
    """Nearer ones are the same item; None where that cannot be promised."""
    other: float | None
    """Farther ones are another item; None where that cannot be promised."""

    def call(self, distance: float) -> str | None:
        """Return `same`, `unsure` or `other`; None where neither can be promised of any neighbour."""
        if self == (None, None):
            return None
        if self.same is not None and distance < self.same:
            return "same"
        return "other" if self.other is not None and distance > self.other else "unsure"


class Index:
    """Search images by vectors. Safe to use from several threads."""

    def __init__(
        self, path: Path, manifest: Mapping[str, Any], model: Model, vectors_ND: np.ndarray, rows: Sequence[Row]
    ) -> None:
        self.path, self.manifest, self.model, self.vectors_ND = path, manifest, model, vectors_ND
        self.root = Path(manifest["root"])
        self.paths = [row.path for row in rows]
        self.checksums = [row.sha256 for row in rows]
        """Of the content of each image."""
        self.labels = [label_of(path) for path in self.paths]
        self.rows_of_label = rows_of_labels(self.paths)
        """Every label, in order, with its rows."""
        codes = read_codes(path, manifest)
        try:
            self._engine = pick_engine(vectors_ND, codes)
        except ValueError as error:
            raise describe_damage(path / manifest["files"]["codes"], error, REBUILD) from error
        self.engine = self._engine.name
        values = manifest["calibration"]
        self.calibration = make_calibration(values) if isinstance(values, dict) else None
        self.not_calibrated = values if isinstance(values, str) else ""
        """Why there is no calibration."""

    @classmethod
    def open(cls, path: Path | str) -> Index:
        """Open the index in this folder; it needs neither the run nor the images."""
        path = Path(path).expanduser()
        for _ in range(2):  # a second time if it was written anew between reading index.json and the files it names
            manifest = read_manifest(path)
            with contextlib.suppress(FileNotFoundError):
                check_files(path, manifest)
                model, vectors_ND = load_file(path / manifest["files"]["model"]), read_vectors(path, manifest)
                if vectors_ND.shape[1] != model.config.network.embedding_dim:
                    raise describe_damage(path, Misfit("its vectors are not those of its model"), REBUILD)
                return cls(path, manifest, model, vectors_ND, read_rows(path, manifest))
        raise UserError(
            f"{path} is damaged: files that its {MANIFEST} names are missing. Make it anew with `pads index`."
        )

    def __len__(self) -> int:
        return len(self.paths)

    def embed(self, images: Any) -> np.ndarray:
        """Return vectors_QD of a path, a Pillow image or an array (height, width, 3), or of an iterable of these."""
        return self.model.embed(images).numpy()

    def search(self, queries: Any, k: int = 10, *, label: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return distances_QK and rows_QK of the k nearest, or of as many as there are, with that label if one is given.

        Queries are vectors_QD of floats, as `embed` gives them, or images, as it takes them.
        """
        vectors_QD = self._as_vectors(queries)
        if k < 1:
            raise UserError(f"k is {k}: ask for at least 1 neighbour.")
        if label is not None:
            rows = lookup(self.rows_of_label, label, "label")
            labelled_ND = self.vectors_ND[rows.start : rows.stop]
            k = min(k, len(rows))
            rows_QM = rows.start + nearest_of_all(vectors_QD, labelled_ND, k)
        else:
            k = min(k, len(self))
            rows_QM = self._engine.candidates(vectors_QD, k)
        return rank_candidates(self.vectors_ND, vectors_QD, rows_QM, k)

    def threshold(self, precision: float) -> float | None:
        """Return the distance below which neighbours show the same item, so that of those it accepts this share does.

        It is None if the run had no selection split to calibrate on, or if no distance has that precision there.
        """
        check_precision(precision)
        if self.calibration is None:
            return None
        point = self.calibration.point(precision, len(self))
        return None if point is None else self.calibration.distances_P[point]

    def other_threshold(self, precision: float) -> float | None:
        """Return the distance beyond which neighbours show another item, so that of those it refuses this share does.

        It is None where no distance is known to have that precision; nearer ones down to `threshold` may be either.
        """
        check_precision(precision)
        if self.calibration is None:
            return None
        point = self.calibration.far_point(precision, len(self))
        same = self.threshold(precision)
        return None if point is None else max(self.calibration.far_distances_P[point], same or 0.0)

    def marks(self, precision: float) -> Marks:
        """Return what calls neighbours the same item, another one, or neither, with this precision."""
        return Marks(self.threshold(precision), self.other_threshold(precision))

    def _as_vectors(self, queries: Any) -> np.ndarray:
        if isinstance(queries, torch.Tensor):
            queries = queries.detach().cpu().numpy()
        if not isinstance(queries, np.ndarray) or not np.issubdtype(queries.dtype, np.floating):
            queries = self.embed(queries)
        vectors_QD = np.ascontiguousarray(np.atleast_2d(queries), dtype=np.float32)
        if vectors_QD.ndim != 2 or vectors_QD.shape[1] != self.vectors_ND.shape[1]:
            dim = self.vectors_ND.shape[1]
            raise UserError(f"vectors to search with must be of shape (queries, {dim}), not {queries.shape}.")
        return vectors_QD


def rows_of_labels(paths: Sequence[str]) -> dict[str, range]:
    """The rows of each label, which lie together because the paths are sorted."""
    rows: dict[str, range] = {}
    start = 0
    while start < len(paths):
        label = label_of(paths[start])
        # "0" is what follows "/"
        stop = start + 1 if label is None else bisect_left(paths, label + "0", start)
        if label is not None:
            rows[label] = range(start, stop)
        start = stop
    return rows


# -- making ------------------------------------------------------------------------------------------------------------


def build_index(
    run: RunFolder | Path | str,
    images: Path | str,
    out: Path | str,
    *,
    checkpoint: str = "selected",
    rebuild: bool = False,
    data: str | None = None,
    device: str = "auto",
    strict: bool = False,
    num_workers: int | None = None,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Index:
    """Embed the images below a folder with the network of a run or `backbone:NAME`, or bring an index of them up to date.

    Only files that are new or have changed are embedded; those that are gone leave. `rebuild` begins anew, and is needed
    for another network. `data` says where the images that the run was trained on are now, for the calibration. Images that
    cannot be read are left out and listed in data.jsonl; `strict` refuses them.
    """
    tell, say = progress or (lambda what, done, total: None), note or (lambda sentence: None)
    root, path = existing_images_folder(images), Path(out).expanduser()
    model = load(run, checkpoint=checkpoint, device=device)
    if data is not None:
        model.config = replace(model.config, data=replace(model.config.data, root=data))
    made_by = fingerprint(model)
    check_place(path, made_by, rebuild)
    found = find_below(root, path)
    if not found.images and not found.bad:
        raise UserError(f"there are no images below {root}: nothing was indexed.")
    if found.others:
        kinds = sorted({Path(name).suffix.lower() or Path(name).name for name in found.others})
        say(f"Left out {count(len(found.others), 'file', 'files')} of other kinds: {list_few(kinds)}.")
    with one_writer(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # large photographs; a true bomb is an error
        before = None if rebuild or not (path / MANIFEST).is_file() else read_manifest(path)
        rows_before = [] if before is None else read_rows(path, before)
        known, pending = Known(), Pending(path, made_by)
        if before is not None:
            check_files(path, before)
            known.add(rows_before, read_vectors(path, before))
        for chunk in pending.chunks():
            known.add(*chunk)
        embed_files(model, root, found, known, pending, num_workers, tell)
        rows = [known.rows[name] for name in sorted(found.images) if name not in found.bad]
        left_out = list_found(root, found)
        bad = [entry for entry in left_out if entry.is_bad]
        if not rows:
            raise UserError(
                f"none of the {count(len(bad), 'image', 'images')} below {root} can be read: {list_few(bad)}."
            )
        check_bad_images(bad, len(rows), strict)
        if bad:
            say(describe_bad_images(bad, path / NAME))
        say(changes_note(rows_before, rows))
        manifest = {
            "format": FORMAT,
            "pads": pads.__version__,
            "run": str(run.path if isinstance(run, RunFolder) else run),
            "model": made_by,
            "root": str(root),
            "num_images": len(rows),
            "calibration": (
                calibrate_vectors(known, rows)
                if is_backbone(run)
                else calibrate_model(model, before, tell, read_known(run))
            ),
        }
        write_left_out(path, left_out)
        if before is not None and rows == rows_before and needs_codes(len(rows)) == has_codes(before):
            write_manifest(path, {**before, **manifest})
        else:
            write_index(path, manifest, model, rows, known.vectors(rows))
    return Index.open(path)


class Known:
    """Rows and vectors that need not be made again."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.vector_of: dict[str, np.ndarray] = {}
        """By the checksum of the content."""

    def add(self, rows: Sequence[Row], vectors_BD: np.ndarray) -> None:
        for row, vector_D in zip(rows, vectors_BD, strict=True):
            self.rows[row.path] = row
            self.vector_of[row.sha256] = vector_D

    def is_current(self, path: str, status: tuple[int, int]) -> bool:
        return path in self.rows and self.rows[path][1:3] == status

    def vectors(self, rows: Sequence[Row]) -> np.ndarray:
        return np.stack([self.vector_of[row.sha256] for row in rows])


def embed_files(
    model: Model, root: Path, found: Found, known: Known, pending: Pending, num_workers: int | None, tell: Progress
) -> None:
    """Embeds what is not known, and saves each chunk as soon as it is."""
    todo = [name for name in sorted(found.images) if not known.is_current(name, found.images[name])]
    num_done = len(found.images) - len(todo)
    tell("embedding", num_done, len(found.images))
    for chunk in read_chunks(root, todo, model, known.vector_of.__contains__, num_workers):
        found.bad.update(bad for bad in chunk if isinstance(bad, Bad))
        reads = [read for read in chunk if isinstance(read, Read)]
        fresh = [read for read in reads if read.picture]
        if fresh:
            stored, sizes = zip(*(read.picture for read in fresh if read.picture), strict=True)
            known.add([read.row for read in fresh], model.embed_stored(stored, sizes).numpy())
        known.rows.update((read.row.path, read.row) for read in reads)
        if reads:
            rows = [read.row for read in reads]
            pending.save(rows, known.vectors(rows))
        num_done += len(chunk)
        tell("embedding", num_done, len(found.images))


def read_known(run: RunFolder | Path | str) -> Manifest | None:
    """Return what the look of a run found, if this is a run folder."""
    folder = run if isinstance(run, RunFolder) else RunFolder(run)
    return read_data_manifest(folder.manifest_path) if folder.path.is_dir() else None


def list_found(root: Path, found: Found) -> tuple[LeftOutEntry, ...]:
    """List the files below a folder that are not in its index, in the words and the order of a manifest."""
    bad = [LeftOutEntry(name, *sample_file(root / name), found.bad[name]) for name in sorted(found.bad)]
    return (*bad, *(LeftOutEntry(name, None, None, NOT_BY_NAME) for name in sorted(found.others)))


def write_left_out(path: Path, left_out: tuple[LeftOutEntry, ...]) -> None:
    """Write the list of what was left out beside the index; where nothing was, there is none."""
    if left_out:
        write_data_manifest(path / NAME, Manifest("index", {}, {}, {}, left_out=left_out), again=AGAIN)
    else:
        remove_file(path / NAME)


def calibrate_model(
    model: Model, before: Mapping[str, Any] | None, tell: Progress, known: Manifest | None
) -> dict[str, Any] | str:
    """What the index has already, or else from the images of the run: in JSON's words, or why there is none."""
    if before is not None and isinstance(before["calibration"], dict):
        return before["calibration"]

    def watch(kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "decoding":
            tell("calibrating", step, values["total"])

    calibration = calibrate_run(model, watch, known)
    return calibration if isinstance(calibration, str) else asdict(calibration)


def calibrate_vectors(known: Known, rows: Sequence[Row]) -> dict[str, Any] | str:
    """From the images of the index: in JSON's words, or why there is none."""
    calibration = calibrate_by_labels(known.vectors(rows), [label_of(row.path) for row in rows])
    return calibration if isinstance(calibration, str) else asdict(calibration)


def changes_note(before: Sequence[Row], now: Sequence[Row]) -> str:
    known, paths = {row.path: row.sha256 for row in before}, {row.path for row in now}
    num_new = sum(row.path not in known for row in now)
    num_changed = sum(known.get(row.path, row.sha256) != row.sha256 for row in now)
    num_gone = sum(path not in paths for path in known)
    return (
        f"{num_new:,} new, {num_changed:,} changed, {num_gone:,} gone, {len(now) - num_new - num_changed:,} as before."
    )


def describe_index(index: Index) -> list[str]:
    """An index in a few sentences."""
    labels = count(len(index.rows_of_label), "label", "labels")
    sentences = [
        f"{index.path} holds {count(len(index), 'image', 'images')} ({labels}) of {one_line(str(index.root))}."
    ]
    sentences.append(f"Search: {index.engine}.")
    if not has_faiss():
        sentences.append(f"{missing_extra('faiss', 'faiss')}, and searching will be faster.")
    if index.calibration is None:
        sentences.append(f"Same item or not cannot be said. {index.not_calibrated}")
    else:
        num_images, num_classes = index.calibration.num_images, index.calibration.num_classes
        split = f"{num_images:,} images of {num_classes:,} classes"
        sentences.append(f"Same item or not: calibrated on {index.calibration.on} ({split}).")
    return sentences


# -- the door ----------------------------------------------------------------------------------------------------------


def check_place(path: Path, made_by: str, rebuild: bool) -> None:
    """Refuses a place that is not an index of this model, and not a new one either."""
    if (path / MANIFEST).is_file():
        before = None if rebuild else read_manifest(path)
        if before is not None and before["model"] != made_by:
            raise UserError(
                f"{path} was made with another model (of {before['run']}): give another --out, or embed everything anew "
                "with --rebuild."
            )
    elif path.exists() and (not path.is_dir() or not all(map(OURS.fullmatch, os.listdir(path)))):
        raise UserError(f"{path} exists and is not an index of pads: give a new folder as --out.")


@contextlib.contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Holds the folder's lock, which the system releases with the process; a folder that stayed empty is taken away."""
    make_folder(path)
    with hold_lock(path / LOCK, f"another process is indexing into {path}: wait for it, or give another --out."):
        try:
            yield
        finally:
            if set(os.listdir(path)) <= {LOCK}:
                remove_folder(path)


# -- files -------------------------------------------------------------------------------------------------------------


def read_manifest(path: Path) -> dict[str, Any]:
    if not (path / MANIFEST).is_file():
        if (path / PENDING).is_dir():
            raise UserError(f"{path} is not finished: run the same `pads index` again, and it goes on.")
        what = "is not an index" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}. `pads index RUN IMAGES --out {path}` makes one.")
    if read_json(path / MANIFEST, {"format": int}, REBUILD)["format"] != FORMAT:
        raise UserError(f"{path} was made by another version of pads: {REBUILD}")
    manifest: dict[str, Any] = read_json(path / MANIFEST, CONTENTS, REBUILD)
    if manifest.pop("sha256", None) not in (None, digest_manifest(manifest)):  # the first versions had none
        raise describe_damage(path / MANIFEST, Misfit("its checksum does not fit"), REBUILD)
    return manifest


def read_rows(path: Path, manifest: Mapping[str, Any]) -> list[Row]:
    """Rows in the order of their paths, as many as the manifest says."""
    file = path / manifest["files"]["rows"]
    rows = [Row(*values) for values in read_json(file, [is_row], REBUILD)]
    paths = [row.path for row in rows]
    if len(rows) != manifest["num_images"] or paths != sorted(set(paths)):
        raise describe_damage(file, Misfit("its rows are not those of the index"), REBUILD)
    return rows


def read_vectors(path: Path, manifest: Mapping[str, Any]) -> np.ndarray:
    """In memory up to IN_MEMORY; beyond that mapped, so that writing, which torch insists on, would not reach the file."""
    file = path / manifest["files"]["vectors"]
    mapped = "c" if file.stat().st_size > IN_MEMORY else None
    vectors_ND = read_array(file, np.float32, 2, REBUILD, mapped=mapped)
    if len(vectors_ND) != manifest["num_images"]:
        raise describe_damage(file, Misfit(f"{len(vectors_ND):,} vectors of {manifest['num_images']:,}"), REBUILD)
    return vectors_ND


def read_codes(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    codes = manifest["codes"]
    if codes is None:
        return None
    if "codes" not in manifest["files"]:
        raise describe_damage(path / MANIFEST, Misfit("files.codes is missing"), REBUILD)
    if not has_codes(manifest):
        return None
    content = load_state(path / manifest["files"]["codes"], dict.fromkeys(CODES, torch.Tensor))
    return {**codes, "content": {name: content[name].numpy() for name in CODES}}


def has_codes(manifest: Mapping[str, Any]) -> bool:
    """Tell whether an index has codes that are read; those of the first versions were faiss's own, which believes anything."""
    return manifest["codes"] is not None and manifest["files"].get("codes", "").endswith(".safetensors")


def is_row(values: Any) -> bool:
    """Tell whether this is a Row in JSON's words, of a file below the root."""
    kinds = [str, is_count, int, str]
    if not isinstance(values, list) or len(values) != len(kinds):
        return False
    return all(has_shape(*pair) for pair in zip(values, kinds, strict=True)) and values[0] not in ("", ".")


class Pending:
    """Chunks that were embedded and are not in the index yet."""

    def __init__(self, path: Path, made_by: str) -> None:
        self.folder, self.made_by = path / PENDING, made_by
        self.files = sorted(file for file in self.folder.glob("*.safetensors") if file.stem.isdecimal())
        self.next_number = max((int(file.stem) for file in self.files), default=-1) + 1

    def chunks(self) -> Iterator[tuple[list[Row], np.ndarray]]:
        """Those of a process that did not come to its end."""
        for file in self.files:
            with contextlib.suppress(UserError):  # not whole: its images are embedded again
                state = load_state(file, PENDING_CHUNK)
                is_whole = all(map(is_row, state["rows"])) and len(state["rows"]) == len(state["vectors"])
                if state["model"] == self.made_by and is_whole:
                    yield [Row(*row) for row in state["rows"]], state["vectors"].numpy()

    def save(self, rows: Sequence[Row], vectors_BD: np.ndarray) -> None:
        make_inner_folder(self.folder)
        state = {"model": self.made_by, "rows": rows, "vectors": torch.from_numpy(vectors_BD)}
        save_state(self.folder / f"{self.next_number:08d}.safetensors", state)
        self.next_number += 1


def write_index(
    path: Path, manifest: Mapping[str, Any], model: Model, rows: Sequence[Row], vectors_ND: np.ndarray
) -> None:
    """Writes the files of the next generation, then the manifest that names them; then the old ones go."""
    numbers = [each.stem.partition("-")[2] for each in path.glob("rows-*.json")]
    generation = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
    files = {
        "model": f"model-{manifest['model'][:12]}.safetensors",
        "rows": f"rows-{generation}.json",
        "vectors": f"vectors-{generation}.npy",
    }
    if not (path / files["model"]).is_file():
        save_file(path / files["model"], model)
    write_atomically(path / files["rows"], json.dumps(rows))
    write_array(path / files["vectors"], vectors_ND)
    codes = make_codes(vectors_ND) if needs_codes(len(rows)) else None
    if codes is not None:
        files["codes"] = f"codes-{generation}.safetensors"
        save_state(path / files["codes"], {name: torch.from_numpy(part) for name, part in codes.pop("content").items()})
    checksums = {kind: checksum_of(path / name) for kind, name in files.items()}
    write_manifest(path, {**manifest, "files": files, "checksums": checksums, "codes": codes})


def checksum_of(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse an index with a file that is not as it was written: a flipped bit would be another neighbour."""
    for kind, expected in manifest.get("checksums", {}).items():
        file = path / manifest["files"].get(kind, MANIFEST)
        try:
            if checksum_of(file) != expected:
                raise Misfit("its checksum does not fit")
        except FileNotFoundError:
            raise
        except (OSError, Misfit) as error:
            raise describe_damage(file, error, REBUILD) from error


def digest_manifest(manifest: Mapping[str, Any]) -> str:
    """Return a checksum of what index.json says: a digit that flips in the calibration would be another threshold."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """From here on the index is what the manifest says; files of an index that it does not name go."""
    manifest = json.loads(json.dumps(manifest))  # as it is read back
    content = {**manifest, "sha256": digest_manifest(manifest)}
    write_atomically(path / MANIFEST, json.dumps(content, indent=2) + "\n")
    for each in path.iterdir():
        if each.name == PENDING:
            remove_folder(each)
        elif OURS.fullmatch(each.name) and each.name not in (LOCK, MANIFEST, NAME, *manifest["files"].values()):
            remove_file(each)
