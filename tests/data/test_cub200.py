from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pads.data.benchmark import Benchmark, ImageList
from pads.data.cub200 import PUBLISHED, cub200, read
from pads.errors import UserError

Save = Callable[..., Path]
CLASSES = ("001.Albatross", "002.Ani", "003.Auklet", "010.Wren")
SMALL = replace(PUBLISHED, splits={"train": (6, 2), "test": (6, 2)})


@pytest.fixture
def copy(save_image: Save, tmp_path: Path) -> Path:
    """Four classes of three images in the official layout."""
    for name in CLASSES:
        for number in (2, 1, 3):
            save_image(f"birds/CUB_200_2011/images/{name}/{name[4:]}_{number:04}_{9 - number}.jpg")
    (tmp_path / "birds/CUB_200_2011/attributes").mkdir()
    return tmp_path / "birds"


def names(benchmark: Benchmark) -> list[list[str]]:
    assert isinstance(benchmark.test, ImageList)
    return [[path.name for path in images.paths] for images in (benchmark.train, benchmark.test)]


def deal(copy: Path) -> Path:
    """The same images with every second one below train/ and the others below test/."""
    for index, path in enumerate(sorted((copy / "CUB_200_2011/images").glob("*/*"))):
        part = copy.parent / "dealt" / ("train" if index % 2 else "test") / path.parent.name
        part.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, part)
    return copy.parent / "dealt"


def test_the_published_counts_are_those_of_the_literature() -> None:
    assert PUBLISHED.splits == {"train": (5864, 100), "test": (5924, 100)}


def test_the_first_half_of_the_classes_trains_and_the_other_half_tests(copy: Path) -> None:
    benchmark = read(copy, SMALL)
    assert benchmark.name == "cub200"
    assert benchmark.train.class_names == CLASSES[:2]
    assert isinstance(benchmark.test, ImageList)
    assert benchmark.test.class_names == CLASSES[2:]
    assert benchmark.train.labels.tolist() == benchmark.test.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert names(benchmark)[0][:3] == ["Albatross_0001_8.jpg", "Albatross_0002_7.jpg", "Albatross_0003_6.jpg"]
    assert benchmark.notes == ()


def test_every_layout_gives_the_same_images_in_the_same_order(copy: Path) -> None:
    official = names(read(copy, SMALL))
    for root in (copy / "CUB_200_2011", copy / "CUB_200_2011/images", deal(copy), str(copy)):
        assert names(read(root, SMALL)) == official


def test_missing_and_empty_files_are_noted_and_left_out(copy: Path) -> None:
    albatross, *_, wren = sorted(copy.glob("CUB_200_2011/images/*/*"))
    albatross.unlink()
    wren.write_bytes(b"")
    benchmark = read(copy, SMALL)
    assert (len(benchmark.train), len(benchmark.test)) == (5, 5)
    assert benchmark.notes == (
        "2 images are missing in this copy of CUB200-2011, which has 12 (train 5 of 6, test 5 of 6).",
    )


def test_images_too_many_are_noted(copy: Path, save_image: Save) -> None:
    save_image(f"birds/CUB_200_2011/images/{CLASSES[0]}/more.jpg")
    assert "1 image is too many in this copy" in read(copy, SMALL).notes[0]


def test_a_wrong_number_of_classes_is_refused_with_what_was_found_and_what_is_expected(copy: Path) -> None:
    shutil.rmtree(copy / "CUB_200_2011/images" / CLASSES[3])
    with pytest.raises(
        UserError, match=r"it holds train 3 images of 1 class, test 6 images of 2 classes, .*Albatross/"
    ):
        read(copy, SMALL)
    with pytest.raises(UserError, match=r"there should be train 5,864 images of 100 classes"):
        cub200(copy)


def test_a_copy_with_less_than_half_of_the_images_is_refused(copy: Path) -> None:
    for path in sorted(copy.glob("CUB_200_2011/images/*/*_0001_*")):
        path.unlink()
    assert len(read(copy, SMALL).train) == 4
    for path in sorted(copy.glob("CUB_200_2011/images/*/*_0002_*")):
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"does not look like CUB200-2011: it holds train 2 images of 2 classes"):
        read(copy, SMALL)


def test_no_folder_and_an_empty_one_are_answered(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="say where CUB200-2011 is: --data takes the folder"):
        cub200()
    with pytest.raises(UserError, match="there is no folder"):
        cub200(tmp_path / "nothing")
    with pytest.raises(UserError, match="train 0 images of 0 classes"):
        cub200(tmp_path)
