from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pads.data.benchmark import QueryGallery
from pads.data.inshop import PUBLISHED, inshop, read
from pads.errors import UserError

Save = Callable[..., Path]
HEADER = "8\nimage_name item_id evaluation_status\n"
ROWS = """img/WOMEN/Dresses/id_00000002/02_1_front.jpg   id_00000002 train
img/WOMEN/Dresses/id_00000002/02_2_side.jpg    id_00000002 train
img/MEN/Denim/id_00000005/01_1_front.jpg       id_00000005 train
img/WOMEN/Tees/id_00000003/02_1_front.jpg      id_00000003 query
img/WOMEN/Tees/id_00000003/02_2_side.jpg       id_00000003 gallery
img/WOMEN/Tees/id_00000003/02_7_additional.jpg id_00000003 gallery
img/MEN/Denim/id_00000001/01_1_front.jpg       id_00000001 query
img/MEN/Denim/id_00000001/01_3_back.jpg        id_00000001 gallery
"""
SMALL = replace(PUBLISHED, splits={"train": (3, 2), "query": (2, 2), "gallery": (3, 2)})


@pytest.fixture
def copy(save_image: Save, tmp_path: Path) -> Path:
    """Four items in the official layout."""
    for line in ROWS.splitlines():
        save_image(f"In-shop/Img/{line.split()[0]}")
    (tmp_path / "In-shop/Eval").mkdir()
    (tmp_path / "In-shop/Eval/list_eval_partition.txt").write_text(HEADER + ROWS)
    return tmp_path / "In-shop"


def test_the_published_counts_are_those_of_the_literature() -> None:
    assert PUBLISHED.splits == {"train": (25882, 3997), "query": (14218, 3985), "gallery": (12612, 3985)}


def test_the_list_gives_training_images_queries_and_gallery(copy: Path) -> None:
    benchmark = read(copy, SMALL)
    assert benchmark.name == "inshop"
    assert benchmark.train.class_names == ("id_00000002", "id_00000005")
    assert benchmark.train.labels.tolist() == [0, 0, 1]
    test = benchmark.test
    assert isinstance(test, QueryGallery)
    assert test.images.class_names == ("id_00000001", "id_00000003")
    assert test.images.labels.tolist() == [1, 1, 1, 0, 0]
    assert test.is_query.tolist() == [True, False, False, True, False]
    assert (test.is_gallery == ~test.is_query).all()
    assert test.images.paths[0] == copy / "Img/img/WOMEN/Tees/id_00000003/02_1_front.jpg"
    assert benchmark.notes == ()


def test_images_may_lie_in_img_and_the_list_beside_it(copy: Path) -> None:
    (copy / "Img/img").rename(copy / "img")
    (copy / "Eval/list_eval_partition.txt").rename(copy / "list_eval_partition.txt")
    assert len(read(copy, SMALL).train) == 3
    (copy / "Img").rmdir()
    (copy / "img").rename(copy / "Img")
    assert len(read(copy, SMALL).test) == 5


def test_missing_files_are_noted_split_by_split(copy: Path) -> None:
    (copy / "Img/img/MEN/Denim/id_00000001/01_1_front.jpg").write_bytes(b"")
    (copy / "Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg").unlink()
    benchmark = read(copy, SMALL)
    assert len(benchmark.train) == 2
    assert isinstance(benchmark.test, QueryGallery)
    assert benchmark.test.is_query.tolist() == [True, False, False, False]
    assert benchmark.notes == (
        "2 images are missing in this copy of In-Shop, which has 8 (train 2 of 3, query 1 of 2, gallery 3 of 3).",
    )


def test_a_copy_without_images_is_refused(copy: Path) -> None:
    (copy / "Img").rename(copy / "elsewhere")
    with pytest.raises(UserError, match=r"train 0 images of 2 classes, query 0 .*images below Img/ or img/"):
        read(copy, SMALL)


def test_other_classes_are_refused(copy: Path) -> None:
    with pytest.raises(UserError, match=r"there should be train 25,882 images of 3,997 classes"):
        inshop(copy)


@pytest.mark.parametrize(
    "text", ["", HEADER + "img/a.jpg id_1 test\n", "1\nname item\n", HEADER + "img/a b id_1 train"]
)
def test_a_list_of_another_form_is_refused(copy: Path, text: str) -> None:
    (copy / "Eval/list_eval_partition.txt").write_text(text)
    with pytest.raises(UserError, match="is not as published: its lines should be image_name item_id"):
        read(copy, SMALL)


def test_a_folder_without_the_list_is_answered(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no list_eval_partition.txt in .*; --data takes a folder with Eval/"):
        inshop(tmp_path)
