"""Thumbnails are what the network sees, and stand in the sheets where the page looks for them."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from pads.data.loading import load_test_view, load_views
from pads.reports.thumbnails import COLUMNS, PER_SHEET, sheets, thumbnails
from pads.train import nobody


def decoded(url):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")).astype(int)


@pytest.fixture(scope="module")
def view(config):
    return load_test_view(config, torch.device("cpu"), nobody)


def test_the_test_split_alone_is_that_of_all_views(config, view):
    whole = load_views(config, torch.device("cpu"), nobody).test
    assert view.store.images.paths == whole.store.images.paths
    assert torch.equal(view.labels_N, whole.labels_N)
    assert all(torch.equal(mine[0], other[0]) for mine, other in zip(view, whole, strict=True))


def test_a_thumbnail_is_the_evaluation_crop(view):
    made = thumbnails(view, [7, 3], 64)
    assert made.shape == (2, 16, 16, 3)  # the network sees 16 pixels, and there is nothing to be gained from more
    for pixels, position in zip(made, (7, 3), strict=True):
        assert np.array_equal(pixels, np.asarray(Image.open(view.store.images.paths[position]).convert("RGB")))


def test_a_smaller_thumbnail_is_a_mean_and_not_a_choice_of_pixels(view):
    whole, small = thumbnails(view, [0], 16)[0].astype(float), thumbnails(view, [0], 4)[0]
    assert small.shape == (4, 4, 3)
    assert small.mean() == pytest.approx(whole.mean(), abs=4)


def test_pictures_stand_in_their_sheets_row_by_row():
    colours = np.random.default_rng(0).integers(0, 256, (PER_SHEET + 40, 1, 1, 3), dtype=np.uint8)
    urls, size = sheets(np.broadcast_to(colours, (len(colours), 16, 16, 3)).copy())
    assert (len(urls), size) == (2, 16)
    for image in (0, 1, COLUMNS, PER_SHEET - 1, PER_SHEET, PER_SHEET + 39):
        place = image % PER_SHEET
        top, left = size * (place // COLUMNS), size * (place % COLUMNS)
        middle = decoded(urls[image // PER_SHEET])[top + 4 : top + 12, left + 4 : left + 12].mean((0, 1))
        assert middle == pytest.approx(colours[image, 0, 0], abs=40)  # colours are stored at half the resolution


def test_sheets_are_made_smaller_until_they_fit():
    noise = np.random.default_rng(0).integers(0, 256, (96, 64, 64, 3), dtype=np.uint8)
    sizes = []
    for most_bytes in (1_000_000, 100_000, 10_000):
        urls, size = sheets(noise, most_bytes)
        sizes.append(size)
        assert sum(map(len, urls)) <= 1.1 * most_bytes or size == 16
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 64 > sizes[-1]


def test_no_pictures_are_no_sheets():
    assert sheets(np.zeros((0, 16, 16, 3), np.uint8)) == ([], 16)
