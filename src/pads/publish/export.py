"""`pads export`: a folder with the network in the formats asked for, all that is needed to use it, and a model card.

model.safetensors, model.onnx, model.pt2   the network, each with preprocessing and labels inside
preprocess.py                              reads pictures for the graphs, with numpy and Pillow alone
preprocessing.json                         what has to be done to a picture, in words
labels.json                                the classes that the network was trained on
export.json                                what was exported, checksums, and the difference to the original
README.md                                  the model card
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from pads.config import Config, lookup
from pads.data.loading import find_training_classes
from pads.data.manifest import Manifest, read_manifest
from pads.data.store import compute_stored_shape
from pads.errors import UserError
from pads.model import Model, fingerprint, load
from pads.publish.export_card import backbone_card, model_card
from pads.publish.formats import FORMATS, TOLERANCE, difference
from pads.runs import RunFolder
from pads.runs.backbone import is_backbone
from pads.runtime.files import (
    PARTIAL,
    make_folder,
    make_inner_folder,
    put_in_place,
    remove_empty_folder,
    remove_file,
    write_atomically,
)
from pads.runtime.reading import has_shape, read_json

EXPORT = "export.json"
EXPORTED = {"file": str, "bytes": int, "sha256": str, "difference": float}


def is_formats(value: Any) -> bool:
    """Tell whether these are exports in formats that there are."""
    return has_shape(value, {str: EXPORTED}) and value.keys() <= FORMATS.keys()


def export_run(
    run: RunFolder | Path | str,
    formats: Sequence[str],
    out: Path | str | None = None,
    *,
    checkpoint: str = "selected",
    note: Callable[[str], None] | None = None,
) -> Path:
    """Writes the network of a run in these formats into a folder, `RUN/export` unless told otherwise; or `backbone:NAME`.

    Each is run in a fresh process and compared with the original; one that differs is not kept.
    """
    say = note or (lambda sentence: None)
    for name in formats:
        lookup(FORMATS, name, "format")
    if is_backbone(run) and out is None:
        raise UserError(f"{run} has no folder of its own: say where to write it with --out DIR.")
    folder = None if is_backbone(run) else run if isinstance(run, RunFolder) else RunFolder.open(run)
    model = load(folder or run, checkpoint=checkpoint, device="cpu")
    model.network.in_bfloat16 = False  # what is exported computes in float32 throughout, and says so
    model.config = replace(model.config, precision="float32")
    path = folder.path / "export" if folder is not None and out is None else Path(out or "").expanduser()
    exported = open_folder(path, fingerprint(model), checkpoint, is_inner=out is None)
    labels = None
    if folder is not None:
        labels = labels_of(model.config, read_manifest(folder.manifest_path), say)
    about = {"preprocessing": json.dumps(preprocessing_of(model)), "labels": json.dumps(labels)}
    for name in formats:
        try:
            exported["formats"][name] = write_format(model, name, path, about)
        except UserError:
            if not exported["formats"]:
                remove_file(path / EXPORT)
            remove_empty_folder(path)
            raise
        say(f"{path / FORMATS[name].file}: differs from the original by {exported['formats'][name]['difference']:.1e}.")
    write_atomically(path / "preprocessing.json", json.dumps(preprocessing_of(model), indent=2) + "\n")
    write_atomically(path / "preprocess.py", preprocess_for(model))
    write_atomically(path / "labels.json", json.dumps(labels, indent=2) + "\n")
    write_atomically(path / EXPORT, json.dumps(exported, indent=2) + "\n")
    card = backbone_card(str(run), model, exported) if folder is None else model_card(folder, model, exported, labels)
    write_atomically(path / "README.md", card)
    return path


def open_folder(path: Path, made_by: str, checkpoint: str, *, is_inner: bool) -> dict[str, Any]:
    """Make the folder, or open that of an earlier export; return what it holds of this very network."""
    if (path / EXPORT).is_file():
        shape = {"model": str, "checkpoint": str, "formats": is_formats}
        exported = read_json(path / EXPORT, shape, f"delete {path}, or give another folder with --out.")
        if exported["model"] == made_by:
            return exported
        raise UserError(f"{path} holds another network: delete it, or give another folder with --out.")
    killed_early = {EXPORT + PARTIAL}
    if path.exists() and (not path.is_dir() or {each.name for each in path.iterdir()} - killed_early):
        raise UserError(f"{path} exists and is not an export of pads: give a new folder with --out.")
    make_inner_folder(path) if is_inner else make_folder(path)
    empty: dict[str, Any] = {"model": made_by, "checkpoint": checkpoint, "formats": {}}
    write_atomically(path / EXPORT, json.dumps(empty, indent=2) + "\n")  # so that the same command can go on
    return empty


def write_format(model: Model, name: str, path: Path, about: dict[str, str]) -> dict[str, Any]:
    """Write one format beside its place, and put it there when it has been checked."""
    format = FORMATS[name]
    partial = path / f"partial-{format.file}"
    try:
        format.write(model, partial, about)
        largest = difference(model, format, partial)
        if not largest <= TOLERANCE:
            raise UserError(f"{format.file} differs from the original by {largest:.1e}, so it was not kept.")
        content = partial.read_bytes()
        put_in_place(partial, path / format.file)
    finally:
        remove_file(partial)
    sha256 = hashlib.sha256(content).hexdigest()
    return {"file": format.file, "bytes": len(content), "sha256": sha256, "difference": largest}


def preprocess_for(model: Model) -> str:
    """Return preprocess.py with the numbers of this network."""
    _, shorter, longer = compute_stored_shape(model.preprocessing.store_size, model.preprocessing.store_ratio)
    text = resources.files("pads.publish").joinpath("preprocess.py").read_text(encoding="utf-8")
    return text.replace("SHORTER, LONGER = 320, 427", f"SHORTER, LONGER = {shorter}, {longer}")


def preprocessing_of(model: Model) -> dict[str, Any]:
    """What has to be done to a picture, in order, and which of it the graphs of ONNX and torch.export do."""
    preprocessing, dim = model.preprocessing, model.config.network.embedding_dim
    _, shorter, longer = compute_stored_shape(preprocessing.store_size, preprocessing.store_ratio)
    length = "unit length" if model.network.normalise else "any length"
    laid = (
        "" if longer == shorter else "; one that is taller than wide is transposed first, so that it lies on its side"
    )
    return {
        "before_the_graph": [
            "turn upright by the EXIF orientation; note width and height",
            "lay transparency on white; convert to RGB with 8 bits",
            f"squeeze with Lanczos what is wider than {longer} or higher than {shorter}, each by itself{laid}",
            f"put it into the upper left corner of {longer} x {shorter} black pixels",
        ],
        "in_the_graph": [
            f"the centre {preprocessing.image_size} x {preprocessing.image_size} of the picture whose shorter side is "
            f"{preprocessing.resize}, cut out with bilinear resampling that smooths what it shrinks, first "
            "across and then down, each rounded to whole grey levels as Pillow does",
            "divide by 255, subtract mean, divide by std",
        ],
        "inputs": {
            "pixels": f"uint8 (batch, {shorter}, {longer}, 3), RGB",
            "sizes": "int64 (batch, 2), width and height of the upright original",
        },
        "outputs": {"vectors": f"float32 (batch, {dim}), {length}; small Euclidean distances mean similar"},
        "shorter": shorter,
        "longer": longer,
        "resize": preprocessing.resize,
        "crop": preprocessing.image_size,
        "mean": list(preprocessing.mean),
        "std": list(preprocessing.std),
    }


def labels_of(config: Config, known: Manifest | None, say: Callable[[str], None]) -> list[str] | None:
    try:
        return find_training_classes(config, known)
    except UserError as error:
        say(f"The names of the training classes are not known, since the run's images could not be read: {error}")
        return None
