"""What pads reads, kind by kind: valid files, how they are spoilt, and who reads them.

One sentence holds for all of them: any bytes in any file that we read give success or one `UserError` sentence, and nothing
else changes on the disk.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from crash.commands import QUIET, SET, draw_photos, import_all
from crash.trial import run_here
from fuzz.mutations import (
    DEEP,
    mutate,
    mutate_array,
    mutate_json,
    mutate_lines,
    mutate_safetensors,
    mutate_table,
    mutate_text,
)
from PIL import Image

import pads
from pads.errors import UserError

SECONDS = 30
"""After which a reader counts as hanging."""
LONGEST = 2000
"""Letters of a sentence."""


@dataclass(frozen=True)
class Kind:
    """Files of one kind in a folder, and who reads them."""

    name: str
    folder: Path
    files: tuple[str, ...]
    """Those that are spoilt, below the folder."""
    mutate: Callable[[bytes, random.Random, Sequence[bytes]], bytes]
    read: Callable[[Path], Any]
    """Is told which file was spoilt."""
    examples: tuple[tuple[str, bytes], ...] = ()
    """The first seeds: a file, and its content that was once found to do harm."""
    may_change: tuple[str, ...] = ()
    """Files that the reader may make or change, below the folder."""
    close: Callable[[], None] = lambda: None
    """To be called at the end."""
    originals: dict[str, bytes] = field(default_factory=dict)

    def content(self, name: str) -> bytes:
        if name not in self.originals:
            self.originals[name] = (self.folder / name).read_bytes()
        return self.originals[name]


class Hang(BaseException):
    """A reader that does not come back in time."""


def trial(kind: Kind, chance: random.Random) -> str | None:
    """Spoils one file by chance and reads it; what went wrong, if anything did."""
    name = chance.choice(kind.files)
    others = [kind.content(each) for each in kind.files]
    return read_spoilt(kind, name, kind.mutate(kind.content(name), chance, others))


def read_spoilt(kind: Kind, name: str, content: bytes) -> str | None:
    """Puts this content in the place of a file, reads it, and puts the file back."""
    path = kind.folder / name
    original = kind.content(name)
    path.write_bytes(content)
    before = state_of(kind.folder)
    try:
        problem = outcome(lambda: kind.read(path))
        changed = sorted(set(state_of(kind.folder).items()) ^ set(before.items()))
        strange = sorted({each for each, _ in changed if each not in kind.may_change})
        if strange:
            problem = f"{problem or ''} changed on the disk: {', '.join(strange)}"
        return problem and f"{name}: {problem}"
    finally:
        path.write_bytes(original)


def outcome(read: Callable[[], Any]) -> str | None:
    """What went wrong, None if all went well or one sentence was said."""
    signal.signal(signal.SIGALRM, raise_hang)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read()
    except UserError as error:
        words = str(error)
        if "\n" in words or not words or len(words) > LONGEST:
            return f"not one sentence: {words[:300]!r}"
    except Hang:
        return f"hangs: {traceback.format_exc()[-1500:]}"
    except Exception:
        return traceback.format_exc()[-2500:]
    finally:
        signal.alarm(0)
    return None


def raise_hang(number: int, frame: Any) -> None:
    raise Hang


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(parent, name))
            found[os.path.relpath(os.path.join(parent, name), folder)] = (status.st_size, status.st_mtime_ns)
    return found


# -- what is read ------------------------------------------------------------------------------------------------------


def make_kinds(place: Path) -> dict[str, Kind]:
    """Everything that can be spoilt, made once in `place`."""
    import_all()
    torch.set_num_threads(1)
    photos = draw_photos(place / "photos")
    run = place / "run"
    quietly("train", "folder-pads", "--data", str(photos), "--run", str(run), *QUIET, *SET)
    kinds = [
        image_kind(place, run),
        csv_kind(place, photos),
        lists_kind(place),
        config_kind(place, run),
        set_kind(place),
        events_kind(place, run),
        figures_kind(place, run),
        checkpoint_kind(place, run),
        state_kind(place, run),
        index_kind(place, run, photos),
        codes_kind(place, run, photos),
        pending_kind(place, run),
        weights_kind(place),
        model_kind(place, run),
        export_kind(place, run),
        store_kind(place, photos),
        study_kind(place, photos),
        http_kind(place, run, photos),
    ]
    return {kind.name: kind for kind in kinds}


def quietly(*arguments: str) -> None:
    """The command line in this process; its sentence is raised again."""
    from pads.cli import main

    said = io.StringIO()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said), mock.patch("subprocess.run", run_here):
            main(arguments)
    except SystemExit as end:
        words = end.code if isinstance(end.code, str) else said.getvalue().strip()
        if "Mend that" in words or "not enough memory" in words:
            raise RuntimeError(words) from end  # the net under the net
        if end.code not in (0, None):
            raise UserError(words) from end


def copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target, symlinks=True))


def image_kind(place: Path, run: Path) -> Kind:
    folder = place / "images"
    folder.mkdir()
    noise = np.random.default_rng(1).integers(0, 255, (12, 18, 3), dtype=np.uint8)
    for suffix in ("png", "jpg", "webp", "gif", "bmp", "tiff", "avif"):
        Image.fromarray(noise).save(folder / f"a.{suffix}")
    Image.fromarray(noise).convert("P").save(folder / "p.png")
    Image.fromarray(noise).save(folder / "c.tiff", compression="tiff_lzw")
    Image.fromarray(noise).save(folder / "e.jpg", exif=exif(), progressive=True)
    Image.fromarray(np.dstack([noise, noise[..., :1]])).save(folder / "t.png")
    model = pads.load(run, device="cpu")

    def read(path: Path) -> None:
        model.embed([path])

    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    names = tuple(sorted(path.name for path in folder.iterdir()))
    return Kind("image", folder, names, mutate, read, (("a.jpg", eps), ("a.png", b""), ("a.png", huge_png())))


def exif() -> bytes:
    data = Image.Exif()
    data[0x0112], data[0x010E] = 6, "a title"
    return data.tobytes()


def huge_png() -> bytes:
    """A picture of 177 megapixels whose data is missing."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 13300, 13300, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def csv_kind(place: Path, photos: Path) -> Kind:
    folder = place / "csv"
    folder.mkdir()
    plain, boxed = ["path,label,split"], ["path,label,split,is_query,is_gallery,x_1,x_2,y_1,y_2"]
    for label in range(6):
        split = "train" if label < 3 else "test"
        for number in range(3):
            path = os.path.relpath(photos / f"class-{label:02d}" / f"{number}.png", folder)
            plain.append(f"{path},class {label},{split}")
            boxed.append(f"{path},{label},{split},{number == 0},{number != 0},0,8,1,{9 + number}")
    (folder / "plain.csv").write_text("\n".join(plain) + "\n")
    (folder / "boxed.csv").write_text("\n".join(boxed) + "\n")

    def read(path: Path) -> None:
        pads.DATASETS["csv"](root=path)

    long = f"path,label,split\n{'x' * 5000}.png,a,train\n".encode()
    line = b'path,label,split\na.png,"a\nb","tr\nain"\n'
    number = (folder / "plain.csv").read_bytes().replace(b"class 0", b"9" * 5000)
    return Kind(
        "csv",
        folder,
        ("plain.csv", "boxed.csv"),
        mutate_table,
        read,
        (("plain.csv", long), ("plain.csv", line), ("plain.csv", number)),
    )


def lists_kind(place: Path) -> Kind:
    """The lists of published data sets; the images are missing, which is one sentence too."""
    folder = place / "lists"
    lists = {
        "sop/Ebay_train.txt": "image_id class_id super_class_id path\n1 1 1 bike_final/1.JPG\n2 2 1 bike_final/2.JPG\n",
        "sop/Ebay_test.txt": "image_id class_id super_class_id path\n3 3 1 sofa_final/3.JPG\n4 4 1 sofa_final/4.JPG\n",
        "inshop/list_eval_partition.txt": "2\nimage_name item_id evaluation_status\nimg/a.jpg id_1 train\nimg/b.jpg id_2 query\n",
    }
    for name, text in lists.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    annotations = "cars196/cars_annos.mat"
    save_annotations(folder / annotations)

    def read(path: Path) -> None:
        pads.DATASETS[path.parent.name](root=path.parent)

    long = lists["sop/Ebay_train.txt"].replace("bike_final/2", "x" * 5000).encode()
    numbers = lists["sop/Ebay_train.txt"].replace(" 2 1", " \u00b2 1").encode()
    examples = (
        *((name, b"\xff\xfe\0") for name in (*lists, annotations)),
        (annotations, bytes(124) + b"\0\1IM" + b"\x0e\0\0\0\xff\xff\xff\xff"),
        ("sop/Ebay_train.txt", numbers),
        ("sop/Ebay_train.txt", long),
    )
    return Kind("lists", folder, (*lists, annotations), mutate_words, read, examples)


def save_annotations(path: Path) -> None:
    """The annotations of CARS196, for four images."""
    from scipy.io import savemat

    rows = [(f"car_ims/{number:06}.jpg", number % 2 + 1) for number in range(1, 5)]
    annotations = np.array(rows, dtype=[("relative_im_path", "O"), ("class", "O")])
    path.parent.mkdir()
    savemat(path, {"annotations": annotations[None], "class_names": np.array(["a car", "another"], dtype=object)[None]})


def mutate_words(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Words of a list as cells of a table; bytes of what is no text."""
    if chance.random() < 0.5 or content.startswith(b"MATLAB"):
        return mutate(content, chance, others)
    return mutate_table(content.replace(b" ", b","), chance).replace(b",", b" ")


def config_kind(place: Path, run: Path) -> Kind:
    from pads.check import check

    folder = copy(run, place / "config")
    values = json.loads((folder / "config.json").read_text())

    def edited(**changes: Any) -> tuple[str, bytes]:
        return "config.json", json.dumps({**values, **changes}).encode()

    def read(path: Path) -> None:
        check(pads.RunFolder.open(folder).config)
        pads.load(folder, device="cpu")

    zero = edited(data={**values["data"], "classes_per_batch": 0})
    auto = edited(data={**values["data"], "classes_per_batch": "auto"})
    deep = ("config.json", DEEP.encode())
    network = values["network"]
    examples = (
        *(zero, auto, deep, edited(num_epochs=0)),
        edited(network={**network, "std": ["auto", 0.2, 0.2]}),
        edited(network={**network, "mean": [10**400, 0, 0]}),
        edited(network={**network, "embedding_dim": 2**31}),
    )
    return Kind("config", folder, ("config.json",), mutate_json, read, examples)


def set_kind(place: Path) -> Kind:
    from pads.check import check
    from pads.config import to_dict, with_settings

    folder = place / "settings"
    folder.mkdir()
    base = pads.RECIPES["folder-pads"]()
    names = []
    for number, (key, value) in enumerate(leaves(to_dict(base))):
        (folder / str(number)).write_text(f"{key}={json.dumps(value)}")
        names.append(str(number))

    def read(path: Path) -> None:
        check(with_settings(base, [path.read_bytes().decode("utf-8", "surrogateescape")]))

    deep = ("0", f"loss.options.x={DEEP}".encode())
    large = (
        b"loss.options.beta=1e308",
        b"loss.options.beta=1" + b"0" * 400,
        b'curriculum.options.bins={"num_bins": 2147483648}',
    )
    examples = (deep, *(("0", setting) for setting in (b"a.b.c=1", b"=", *large)))
    return Kind("set", folder, tuple(names), mutate_text, read, examples)


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        yield prefix + key, value


LINES = (
    *(b"garbage\n", b"3\n", b"null\n", b"{}\n", b"\xff\xfe\n", b'{"event": 1, "step": 2}\n', DEEP.encode() + b"\n"),
    b'{"event": "adaptation", "step": 3, "distribution": "x"}\n',
    b'{"event": "selection", "step": 3, "epoch": 0}\n',
)


def events_kind(place: Path, run: Path) -> Kind:
    from pads.data.manifest import read_changed, read_manifest
    from pads.reports.series import series_of
    from pads.search.serve.live import LiveRun

    folder = copy(run, place / "events")

    def read(path: Path) -> None:
        run = pads.RunFolder.open(folder)
        json.dumps(LiveRun(run).answer(), allow_nan=False)  # without an exception at all
        series_of(run)
        read_changed(run.manifest_path)
        read_manifest(run.manifest_path)

    names = ("events.jsonl", "timing.jsonl", "data.jsonl", "test_curve.jsonl")
    examples = tuple((name, line) for name in names[:3] for line in LINES)
    return Kind("events", folder, names, mutate_lines, read, examples)


def figures_kind(place: Path, run: Path) -> Kind:
    from pads.search.serve.live import LiveRun

    folder = copy(run, place / "figures")
    figures = json.loads((folder / "metrics.json").read_text())

    def read(path: Path) -> None:
        run = pads.RunFolder.open(folder)
        json.dumps(LiveRun(run).answer(), allow_nan=False)
        quietly("train", "--resume", str(folder), *QUIET)

    def edited(**changes: Any) -> tuple[str, bytes]:
        return "metrics.json", json.dumps({**figures, **changes}).encode()

    examples = (
        ("metrics.json", b'{"steps": 3, "test": 1}'),
        edited(test={**figures["test"], "trained": {}}),
        edited(protocol="x"),
        edited(selection=None),
        edited(splits={}),
    )
    return Kind("figures", folder, ("metrics.json",), mutate_json, read, examples)


def checkpoint_kind(place: Path, run: Path) -> Kind:
    folder = copy(run, place / "checkpoint")
    newest = sorted((folder / "checkpoints").iterdir())[-1].relative_to(folder).as_posix()

    def read(path: Path) -> None:
        for checkpoint in ("last", "selected"):
            pads.load(folder, checkpoint=checkpoint, device="cpu")

    names = (newest, "selected.safetensors")
    return Kind("checkpoint", folder, names, mutate_safetensors, read, tuple((name, b"") for name in names))


def state_kind(place: Path, run: Path) -> Kind:
    """A checkpoint with another content and the right checksum: what a stranger could make."""
    from pads.runs.checkpoint import load_state, save_state

    folder = copy(run, place / "state")
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    whole = load_state(newest)
    scratch, figures = place / "scratch.safetensors", (folder / "metrics.json").read_bytes()

    def mutate_state(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
        save_state(scratch, swap_state(whole, chance))
        return scratch.read_bytes()

    def read(path: Path) -> None:
        (folder / "metrics.json").unlink(missing_ok=True)
        try:
            quietly("train", "--resume", str(folder), *QUIET)
        finally:
            (folder / "metrics.json").write_bytes(figures)

    name = newest.relative_to(folder).as_posix()
    logs = ("events.jsonl", "timing.jsonl", "test_curve.jsonl", "selected.safetensors", "lock")
    checkpoints = tuple(path.relative_to(folder).as_posix() for path in (folder / "checkpoints").iterdir())
    return Kind("state", folder, (name,), mutate_state, read, may_change=("metrics.json", *logs, *checkpoints))


def swap_state(state: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A deep copy with one value changed: a tensor of another shape or kind, a plain value, or none at all."""
    spots: list[tuple[Any, Any]] = []

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            made: Any = {key: copied(item) for key, item in value.items()}
            spots.extend((made, key) for key in made)
            return made
        if isinstance(value, list | tuple):
            made = [copied(item) for item in value]
            spots.extend((made, at) for at in range(len(made)))
            return made
        return value

    made = copied(state)
    group, key = chance.choice(spots) if chance.random() < 0.8 else (made, chance.choice(list(made)))
    old = group[key]
    if chance.random() < 0.15:
        del group[key]
    elif isinstance(old, torch.Tensor) and chance.random() < 0.6:
        flat = old.reshape(-1)
        group[key] = chance.choice((flat[:0], flat[:1], flat, old.double(), old.unsqueeze(0), old * 0, old * 0 + 7))
    else:
        group[key] = chance.choice(
            (None, -1, 0, 1, 10**9, 0.5, "x", "", [], {}, [1, 2], {"a": 1}, True, torch.zeros(2))
        )
    return made


def index_kind(place: Path, run: Path, photos: Path) -> Kind:
    folder = place / "index"
    pads.build_index(run, photos, folder, device="cpu")
    manifest = json.loads((folder / "index.json").read_text())
    manifest.pop("sha256")
    manifest.pop("checksums", None)  # as of a version that had none: else nothing would come further than these
    (folder / "index.json").write_text(json.dumps(manifest))
    model, rows, vectors = (manifest["files"][kind] for kind in ("model", "rows", "vectors"))
    spoil = {"index.json": mutate_json, rows: mutate_json, vectors: mutate_array, model: mutate_safetensors}
    query = np.ones((1, 8), np.float32)

    def mutate_by_name(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
        name = next(name for name in spoil if (folder / name).read_bytes() == content)
        return spoil[name](content, chance, others)

    def read(path: Path) -> None:
        index = pads.Index.open(folder)
        index.search(query, 3)
        index.threshold(0.9)

    examples = tuple((name, content) for name in spoil for content in (b"", b"null", b"[]", b"{}", DEEP.encode()))
    return Kind("index", folder, ("index.json", "index.json", rows, vectors, model), mutate_by_name, read, examples)


def codes_kind(place: Path, run: Path, photos: Path) -> Kind:
    """What faiss searches in a large index, with another content and the right checksum: what a stranger could make."""
    from pads.runs.checkpoint import load_state, save_state

    folder, scratch = place / "coded", place / "scratch-codes.safetensors"
    with mock.patch("pads.search.engines.EXACT_UP_TO", 20):
        index = pads.build_index(run, photos, folder, device="cpu")
    manifest = json.loads((folder / "index.json").read_text())
    manifest.pop("sha256")
    manifest.pop("checksums")
    (folder / "index.json").write_text(json.dumps(manifest))
    name = manifest["files"]["codes"]
    whole = load_state(folder / name)

    def mutate_codes(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
        if chance.random() < 0.3:
            return mutate_safetensors(content, chance, others)
        state = swap_state(whole, chance)
        part = chance.choice(list(state))
        if chance.random() < 0.5 and isinstance(state[part], torch.Tensor) and state[part].numel():
            state[part] = state[part].clone()
            values = (-1, 0, 1, 7, 127, 10**9) if state[part].dtype == torch.int32 else (0, 1, 15, 255)
            state[part].reshape(-1)[chance.randrange(state[part].numel())] = chance.choice(values)
        save_state(scratch, state)
        return scratch.read_bytes()

    def read(path: Path) -> None:
        pads.Index.open(folder).search(index.vectors_ND[:3], 3)

    return Kind("codes", folder, (name,), mutate_codes, read, ((name, b""), (name, b"IwPf" + bytes(100))))


def pending_kind(place: Path, run: Path) -> Kind:
    """A chunk that a killed `pads index` left, and its checksum is right or not."""
    from crash.trial import run as run_child

    photos, work = draw_photos(place / "few", 2, 3), place / "pending-work"
    work.mkdir()
    arguments = ("index", str(run), str(photos), "--out", str(work / "index"), "--device", "cpu")
    log = run_child(arguments, work).log
    at = next(number for number, (_, path) in enumerate(log) if path.startswith("index/model-"))
    shutil.rmtree(work)
    work.mkdir()
    run_child(arguments, work, "kill", at)
    chunk = "index/pending/00000000.safetensors"
    kept = {path.relative_to(work).as_posix(): path.read_bytes() for path in work.rglob("*") if path.is_file()}

    def read(path: Path) -> None:
        spoilt = path.read_bytes()
        try:
            index = pads.build_index(run, photos, work / "index", device="cpu", num_workers=1)
            assert len(index) == 6 and np.isfinite(index.vectors_ND).all()
        finally:
            shutil.rmtree(work / "index")
            (work / "index" / "pending").mkdir(parents=True)
            for name, content in {**kept, chunk: spoilt}.items():
                (work / name).write_bytes(content)

    return Kind("pending", work, (chunk,), mutate_safetensors, read, may_change=tuple(kept))


def weights_kind(place: Path) -> Kind:
    import safetensors.torch

    from pads.networks.weights import load_weights

    folder = place / "weights"
    folder.mkdir()
    backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    torch.save({"state_dict": backbone.state_dict(), "epoch": 3}, folder / "a.pth")
    torch.save(backbone.state_dict(), folder / "old.pth", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(backbone.state_dict(), folder / "a.safetensors", {"arch": "x"})

    def mutate_by_kind(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
        spoil = mutate_safetensors if content[8:9] == b"{" else mutate
        return spoil(content, chance, others)

    def read(path: Path) -> None:
        load_weights(backbone, path)

    return Kind(
        "weights", folder, ("a.pth", "old.pth", "a.safetensors"), mutate_by_kind, read, (("a.pth", b"\x80\x02."),)
    )


def model_kind(place: Path, run: Path) -> Kind:
    """An exported network."""
    folder = place / "model"
    quietly("export", str(run), "--to", "safetensors", "--out", str(folder))

    def read(path: Path) -> None:
        pads.load(folder / "model.safetensors", device="cpu")

    return Kind("model", folder, ("model.safetensors",), mutate_safetensors, read)


def export_kind(place: Path, run: Path) -> Kind:
    """A folder of exports to which another is added."""
    folder = copy(place / "model", place / "export")

    def read(path: Path) -> None:
        quietly("export", str(run), "--to", "safetensors", "--out", str(folder))

    files = tuple(path.name for path in folder.iterdir())
    unknown = (folder / "export.json").read_bytes().replace(b'"safetensors"', b'"x"')
    return Kind("export", folder, ("export.json",), mutate_json, read, (("export.json", unknown),), may_change=files)


def store_kind(place: Path, photos: Path) -> Kind:
    from pads.config import Data
    from pads.data.prepare import read_data

    folder = place / "store"
    quietly("prepare", "folder", "--data", str(photos), "--out", str(folder), "--size", "16")
    data = Data(name="folder", root=str(folder), store_size=16)
    spoil = {"store.json": mutate_json, "chunks.jsonl": mutate_lines, "pixels.npy": mutate_array}

    def mutate_by_name(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
        name = next(name for name in spoil if (folder / name).read_bytes() == content)
        return spoil[name](content, chance, others)

    def read(path: Path) -> None:
        benchmark, prepared = read_data(data)
        if prepared is not None:
            for images in (benchmark.train, benchmark.test):
                len(prepared.store(images).sizes_N2)

    chunk = json.loads((folder / "chunks.jsonl").read_text())
    sizes = json.dumps({**chunk, "sizes": [[1], *chunk["sizes"][1:]]}).encode() + b"\n"
    bad = json.dumps({**chunk, "bad": {"x": "y"}}).encode() + b"\n"
    header = (folder / "pixels.npy").read_bytes().replace(b"}", b" ", 1)
    examples = (("chunks.jsonl", sizes), ("chunks.jsonl", bad), ("pixels.npy", header))
    return Kind("store", folder, tuple(spoil), mutate_by_name, read, examples)


def study_kind(place: Path, photos: Path) -> Kind:
    folder = place / "study"
    arms = ("--arms", "udist", "--seeds", "0", "--epochs", "1", "--commit", "abc1234", "--plain")
    study = ("study", "controls", "--recipe-base", "folder", "--data", str(photos), "--out", str(folder), *arms, *SET)
    quietly(*study)
    spoil = {"seeds.csv": mutate_table, "udist.json": mutate_json, "study.json": mutate_json}

    def mutate_by_name(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
        name = next(name for name in spoil if (folder / name).read_bytes() == content)
        return spoil[name](content, chance, others)

    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def read(path: Path) -> None:
        try:
            quietly(*study)
        finally:
            for path, content in kept.items():
                if path.name not in spoil:
                    path.write_bytes(content)

    files = tuple(path.relative_to(folder).as_posix() for path in kept)
    return Kind("study", folder, tuple(spoil), mutate_by_name, read, may_change=(*files, "errors/udist-0.txt"))


# -- HTTP --------------------------------------------------------------------------------------------------------------


def http_kind(place: Path, run: Path, photos: Path) -> Kind:
    """Requests as the server's own parser would hand them on, to the whole application."""
    folder = place / "http"
    folder.mkdir()
    index = place / "served"
    pads.build_index(run, photos, index, device="cpu")
    picture = (photos / "class-00" / "0.png").read_bytes()
    form = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + picture + b"\r\n--b--\r\n"
    head = b"Host: localhost\r\nOrigin: http://localhost\r\nAuthorization: Bearer x\r\nCookie: pads-token=y\r\n"
    upload = head + b"Content-Type: multipart/form-data; boundary=b\r\n"
    requests = {
        "about": b"GET /api/about HTTP/1.1\r\n" + head + b"\r\n",
        "search": b"GET /api/search?row=3&k=5&label=class-00&precision=0.9 HTTP/1.1\r\n" + head + b"\r\n",
        "sample": b"GET /api/sample?k=5&label=class-01&seed=4 HTTP/1.1\r\n" + head + b"\r\n",
        "image": b"GET /api/image/3?v=abc HTTP/1.1\r\n" + head + b"If-None-Match: x\r\n\r\n",
        "thumbnail": b"GET /api/thumbnail/7 HTTP/1.1\r\n" + head + b"Range: bytes=0-3\r\n\r\n",
        "static": b"GET /static/app.js HTTP/1.1\r\n" + head + b"\r\n",
        "map": b"GET /api/map HTTP/1.1\r\n" + head + b"\r\n",
        "upload": b"POST /api/search?k=3 HTTP/1.1\r\n" + upload + b"\r\n" + form,
        "embed": b"POST /api/embed HTTP/1.1\r\n" + upload + b"\r\n" + form,
    }
    for name, content in requests.items():
        (folder / name).write_bytes(content)
    asker: list[Asker] = []

    def read(path: Path) -> None:
        if not asker:
            asker.append(Asker(index))  # here, in the process that asks: it has threads
        asker[0].ask(path.read_bytes())

    def request(line: bytes, more: bytes = b"") -> tuple[str, bytes]:
        return "about", line + b" HTTP/1.1\r\nHost: localhost\r\n" + more + b"\r\n"

    examples = (
        *(
            request(b"GET /api/about", b"Origin: " + origin + b"\r\n")
            for origin in (b"http://[", b"//localhost", b"http://")
        ),
        *(
            request(b"GET /api/about", b"Host: " + host + b"\r\n")
            for host in (b"[::1].evil.example", b"localhost:80@evil")
        ),
        *(
            request(line)
            for line in (b"GET /api/image/-1", b"GET /api/image/99999999999999999999999", b"GET /api/search?row=nan")
        ),
        request(b"GET /api/about", b"Content-Length: " + b"9" * 5000 + b"\r\n"),
        request(b"GET /api/about?x=\x80"),
        *(
            request(line)
            for line in (b"GET /static/../app.js", b"GET /api/sample?seed=" + b"9" * 400, b"POST /api/search")
        ),
    )

    def close() -> None:
        for each in asker:
            each.close()

    return Kind("http", folder, tuple(requests), mutate, read, examples, close=close)


class Asker:
    """An application without a network."""

    def __init__(self, index: Path) -> None:
        from pads.search.serve.served import Served
        from pads.search.serve.server import make_app

        self.served = Served(index)
        self.app = make_app(self.served)
        self.loop = asyncio.new_event_loop()
        self.statuses: dict[int, int] = {}

    def close(self) -> None:
        self.served.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def ask(self, content: bytes) -> None:
        """Sends one request; an answer of 500 or an error without its sentence is an exception."""
        head, _, body = content.partition(b"\r\n\r\n")
        line, *rest = head.split(b"\r\n")
        method, _, target = line.partition(b" ")
        target = target.rpartition(b" ")[0] or target
        path, _, query = target.partition(b"?")
        headers = [(key.strip().lower(), value.strip()) for key, _, value in (each.partition(b":") for each in rest)]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method.decode("latin-1").upper(),
            "scheme": "http",
            "path": unquoted(path),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        sent: list[dict[str, Any]] = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return parts.pop(0) if parts else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        self.loop.run_until_complete(self.app(scope, receive, send))  # type: ignore[arg-type]
        status = sent[0]["status"]
        self.statuses[status] = self.statuses.get(status, 0) + 1
        answer = b"".join(message.get("body", b"") for message in sent[1:])
        assert status < 500, f"answered {status}: {answer[:500]!r}"
        if status >= 400 and scope["method"] != "HEAD":
            words = json.loads(answer)["error"]
            assert isinstance(words, str) and words and "\n" not in words, f"answered {status}: {answer[:500]!r}"


def unquoted(path: bytes) -> str:
    from urllib.parse import unquote

    return unquote(path.decode("latin-1"))


@contextmanager
def silence() -> Iterator[None]:
    """Without what C libraries print: the terminal is for the table."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
