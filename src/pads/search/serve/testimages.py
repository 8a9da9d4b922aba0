"""The test images of a run as a folder per class, which is what an index is made of: links, so that nothing is copied."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from pads.data.benchmark import ImageList, QueryGallery
from pads.data.manifest import read_manifest
from pads.data.prepare import read_data
from pads.data.store import decode
from pads.errors import UserError
from pads.runs import RunFolder
from pads.runtime.files import make_folder, make_link, remove_folder, writing

FOLDER = "test-images"
LONGEST_NAME = 200
"""Of a class, in bytes: file systems have room for 255."""


def link_test_images(run: RunFolder, data: str | None = None) -> Path:
    """RUN/test-images/CLASS/0001-name.jpg, each a link to the image; where the run uses a part of it, that part as PNG."""
    images, folder = images_of(run, data), run.path / FOLDER
    missing = sum(not path.is_file() for path in images.paths)
    if missing:
        raise UserError(
            f"{missing:,} of the {len(images):,} test images are not where the run found them (such as {images.paths[0]}): "
            "put them back, or say where the data set is now with --images."
        )
    names = file_names(images.class_names)
    remove_folder(folder)  # what a stopped attempt left
    for name in names:
        make_folder(folder / name)
    for row, (path, label) in enumerate(zip(images.paths, images.labels, strict=True)):
        link = folder / names[label] / f"{row:06d}-{path.name}"
        box = None if images.boxes is None or np.isnan(images.boxes[row]).any() else images.boxes[row]
        if box is None:
            make_link(link, path.absolute())
        else:
            with writing(link.with_suffix(".png"), sync=False) as file:
                decode(path, box).save(file, "PNG")
    return folder


def images_of(run: RunFolder, data: str | None = None) -> ImageList:
    """The test images of a run; `data` says where its data set is now, if it has moved."""
    config = run.config.data
    known = read_manifest(run.manifest_path)
    test = read_data(config if data is None else replace(config, root=data), known)[0].test
    return test.images if isinstance(test, QueryGallery) else test


def files_of(run: RunFolder, data: str | None = None) -> frozenset[Path]:
    """Where the links may lead: to the test images of the run, and nowhere else; to none if the data set is gone."""
    try:
        return frozenset(path.resolve() for path in images_of(run, data).paths)
    except UserError:
        return frozenset()


def file_names(class_names: tuple[str, ...]) -> list[str]:
    """A name for the folder of each class: as it is, where that can be the name of a visible folder, and no two alike."""
    names: dict[str, None] = {}
    for class_name in class_names:
        plain = class_name.replace("/", "∕").replace("\0", " ")
        plain = f"_{plain}" if plain.startswith(".") or not plain else plain
        plain = os.fsdecode(os.fsencode(plain)[:LONGEST_NAME])
        name, number = plain, 1
        while name in names:
            number += 1
            name = f"{plain} ({number})"
        names[name] = None
    return list(names)
