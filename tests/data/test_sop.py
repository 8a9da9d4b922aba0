from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pads.data.benchmark import ImageList
from pads.data.sop import PUBLISHED, read, sop
from pads.errors import UserError

Save = Callable[..., Path]
HEADER = "image_id class_id super_class_id path\n"
TRAIN = """1 1 1 bicycle_final/111_0.JPG
2 1 1 bicycle_final/111_1.JPG
3 2 1 bicycle_final/222_0.JPG
4 2 1 bicycle_final/222_1.JPG
5 10 2 chair_final/333_0.JPG
6 10 2 chair_final/333_1.JPG
"""
TEST = """7 11 1 bicycle_final/444_0.JPG
8 11 1 bicycle_final/444_1.JPG
9 12 2 chair_final/555_0.JPG
10 12 2 chair_final/555_1.JPG
"""
SMALL = replace(PUBLISHED, splits={"train": (6, 3), "test": (4, 2)})


@pytest.fixture
def copy(save_image: Save, tmp_path: Path) -> Path:
    """Five products in the official layout."""
    root = tmp_path / "Stanford_Online_Products"
    for line in (TRAIN + TEST).splitlines():
        save_image(f"{root.name}/{line.split()[3]}")
    (root / "Ebay_train.txt").write_text(HEADER + TRAIN)
    (root / "Ebay_test.txt").write_text(HEADER + TEST)
    return root


def test_the_published_counts_are_those_of_the_literature() -> None:
    assert PUBLISHED.splits == {"train": (59551, 11318), "test": (60502, 11316)}


def test_the_lists_give_the_splits_with_classes_by_number(copy: Path) -> None:
    for root in (copy, copy.parent):
        benchmark = read(root, SMALL)
        assert benchmark.name == "sop"
        assert benchmark.train.class_names == ("bicycle 1", "bicycle 2", "chair 10")
        assert benchmark.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert benchmark.train.paths[4] == copy / "chair_final/333_0.JPG"
        assert isinstance(benchmark.test, ImageList)
        assert benchmark.test.class_names == ("bicycle 11", "chair 12")
        assert benchmark.notes == ()


def test_listed_files_that_are_missing_or_empty_are_noted_and_left_out(copy: Path) -> None:
    (copy / "chair_final/333_0.JPG").unlink()
    (copy / "chair_final/333_1.JPG").write_bytes(b"")
    benchmark = read(copy, SMALL)
    assert benchmark.train.class_names == ("bicycle 1", "bicycle 2")
    assert benchmark.notes == (
        "2 images are missing in this copy of Stanford Online Products, which has 10 (train 4 of 6, test 4 of 4).",
    )


def test_lists_without_images_and_lists_cut_short_are_refused(copy: Path) -> None:
    (copy / "Ebay_train.txt").write_text(HEADER + TRAIN.partition("5 10")[0])
    with pytest.raises(
        UserError, match=r"it holds train 4 images of 2 classes, .* should be train 6 images of 3 classes"
    ):
        read(copy, SMALL)
    (copy / "Ebay_train.txt").write_text(HEADER + TRAIN)
    for path in copy.glob("bicycle_final/*"):
        path.unlink()
    with pytest.raises(UserError, match="it holds train 2 images of 3 classes"):
        read(copy, SMALL)


@pytest.mark.parametrize("text", ["", "image_id path\n", HEADER + "1 2 3\n", HEADER + "1 x 1 a.JPG\n"])
def test_a_list_of_another_form_is_refused(copy: Path, text: str) -> None:
    (copy / "Ebay_test.txt").write_text(text)
    with pytest.raises(UserError, match=r"Ebay_test.txt is not as published: its lines should be image_id class_id"):
        read(copy, SMALL)


def test_a_folder_without_lists_is_answered(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no .*Ebay_train.txt; --data takes the folder Stanford_Online"):
        sop(tmp_path)
    with pytest.raises(UserError, match="say where Stanford Online Products is"):
        sop()
