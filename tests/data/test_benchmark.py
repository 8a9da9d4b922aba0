from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pads.data.benchmark import ImageList, QueryGallery, classes_with_two, count, image_list, list_few
from pads.errors import UserError


def five_images() -> ImageList:
    return ImageList(
        paths=tuple(Path(name) for name in "abcde"),
        labels=np.array([2, 0, 1, 2, 0]),
        class_names=("ant", "bee", "cat"),
        boxes=np.arange(20.0).reshape(5, 4),
    )


def test_a_list_knows_its_length_and_classes() -> None:
    images = five_images()
    assert len(images) == 5
    assert images.num_classes == 3


def test_a_subset_drops_empty_classes_and_keeps_order_files_and_boxes_together() -> None:
    subset = five_images().subset([4, 0, 3])
    assert subset.paths == (Path("e"), Path("a"), Path("d"))
    assert subset.class_names == ("ant", "cat")
    assert subset.labels.tolist() == [0, 1, 1]
    assert subset.labels.dtype == np.int64
    assert subset.boxes is not None
    assert subset.boxes[:, 0].tolist() == [16, 0, 12]


def test_a_subset_by_mask_is_the_subset_by_indices() -> None:
    mask = np.array([False, True, False, False, True])
    assert five_images().subset(mask).paths == five_images().subset([1, 4]).paths


def test_an_empty_subset_is_an_empty_list() -> None:
    empty = five_images().subset([])
    assert len(empty) == 0
    assert empty.num_classes == 0


@pytest.mark.parametrize("labels", [[0, 1, 3, 0, 1], [1, 2, 3, 1, 2]])
def test_labels_with_gaps_are_our_mistake(labels: list[int]) -> None:
    with pytest.raises(AssertionError):
        ImageList(five_images().paths, np.array(labels), ("ant", "bee", "cat"))


def test_a_subset_of_queries_and_gallery_keeps_their_parts() -> None:
    split = QueryGallery(five_images(), np.array([1, 1, 0, 0, 0], bool), np.array([0, 0, 1, 1, 1], bool)).subset([3, 1])
    assert split.images.paths == (Path("d"), Path("b"))
    assert split.is_query.tolist() == [False, True]
    assert split.is_gallery.tolist() == [True, False]


def test_an_image_list_is_built_class_by_class() -> None:
    images = image_list([("ant", [Path("a"), Path("b")]), ("bee", [Path("c")])])
    assert images.labels.tolist() == [0, 0, 1]
    assert images.class_names == ("ant", "bee")


def test_classes_with_one_image_are_refused_by_name_or_left_out_with_a_note() -> None:
    with pytest.raises(UserError, match=r"is 1 class with a single image in HERE: bee; .*skip_small_classes=true"):
        classes_with_two(five_images(), False, "HERE")
    images, notes = classes_with_two(five_images(), True, "HERE")
    assert images.class_names == ("ant", "cat")
    assert len(images) == 4
    assert notes == ("Left out 1 class with a single image in HERE: bee.",)


def test_long_lists_name_five_and_count_the_rest() -> None:
    assert list_few("abcde") == "a, b, c, d, e"
    assert list_few(range(1007)) == "0, 1, 2, 3, 4 and 1,002 more"
    assert count(1, "row", "rows") == "1 row"
    assert count(2000, "row", "rows") == "2,000 rows"
