from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from pads.data.benchmark import ImageList
from pads.data.cars196 import PUBLISHED, cars196, read
from pads.errors import UserError

Save = Callable[..., Path]
OFFICIAL = ("AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Acura Integra Type R 2001", "smart fortwo 2012")
SMALL = replace(PUBLISHED, splits={"train": (4, 2), "test": (4, 2)})


@pytest.fixture
def annotated(save_image: Save, tmp_path: Path) -> Path:
    """Four classes of two images with the official annotations, in which images come in any order."""
    rows = [(f"car_ims/{number:06}.jpg", number % 4 + 1) for number in range(1, 9)]
    for path, _ in rows:
        save_image(f"cars/{path}")
    annotations = np.array(rows, dtype=[("relative_im_path", "O"), ("class", "O")])
    names = np.array(OFFICIAL, dtype=object)
    savemat(tmp_path / "cars/cars_annos.mat", {"annotations": annotations[None], "class_names": names[None]})
    return tmp_path / "cars"


def test_the_published_counts_are_those_of_the_literature() -> None:
    assert PUBLISHED.splits == {"train": (8054, 98), "test": (8131, 98)}


def test_the_official_annotations_give_classes_in_the_official_order(annotated: Path) -> None:
    benchmark = read(annotated, SMALL)
    assert benchmark.name == "cars196"
    assert benchmark.train.class_names == OFFICIAL[:2]
    assert isinstance(benchmark.test, ImageList)
    assert benchmark.test.class_names == OFFICIAL[2:]
    assert [path.name for path in benchmark.train.paths] == ["000004.jpg", "000008.jpg", "000001.jpg", "000005.jpg"]
    assert benchmark.train.labels.tolist() == [0, 0, 1, 1]
    assert benchmark.notes == ()


def test_annotated_files_that_are_missing_are_noted(annotated: Path) -> None:
    (annotated / "car_ims/000005.jpg").unlink()
    benchmark = read(annotated, SMALL)
    assert len(benchmark.train) == 3
    assert benchmark.notes[0].startswith("1 image is missing in this copy of CARS196")


def test_spoilt_annotations_are_refused_in_a_sentence(annotated: Path) -> None:
    file = annotated / "cars_annos.mat"
    whole = file.read_bytes()
    for content in (b"", whole[:300], whole.replace(b"car_ims/000004", b"car_ims\0000004"), whole[:128] + b"\xff" * 99):
        file.write_bytes(content)
        with pytest.raises(UserError, match=r"is not as published|is missing|cars_annos"):
            read(annotated, PUBLISHED)
    savemat(file, {"annotations": np.zeros(3), "class_names": np.array([*OFFICIAL, "none"], dtype=object)[None]})
    with pytest.raises(UserError, match="is not as published: download it again"):
        read(annotated, SMALL)


def test_class_folders_are_merged_and_taken_by_name(save_image: Save, tmp_path: Path) -> None:
    for number, name in enumerate(OFFICIAL):
        save_image(f"cars/test/{name}/{number:06}.jpg")
        save_image(f"cars/train/{name}/{100 + number:06}.jpg")
    benchmark = read(tmp_path / "cars", SMALL)
    assert benchmark.train.class_names == (OFFICIAL[0], OFFICIAL[2])  # capitals first, as on the authors' disk
    assert isinstance(benchmark.test, ImageList)
    assert benchmark.test.class_names == (OFFICIAL[1], OFFICIAL[3])
    assert [path.name for path in benchmark.test.paths] == ["000001.jpg", "000101.jpg", "000003.jpg", "000103.jpg"]


def test_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not look like CARS196: .* 8,054 images of 98 classes.*cars_annos.mat"):
        cars196(tmp_path)
