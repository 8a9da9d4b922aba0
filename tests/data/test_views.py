"""Evaluation batches: cut out once, kept where there is room, the same at every pass and for every caller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from pads.config import Data, Network
from pads.data import ImageList, load_store, read_stored, views
from pads.data.views import Preprocessing, View

SIZES = [(30, 20), (20, 30), (25, 25), (60, 40), (40, 61), (9, 31)]


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, ...]:
    rng = np.random.default_rng(0)
    found = tuple(tmp_path / f"{number}.png" for number in range(len(SIZES)))
    for path, (width, height) in zip(found, SIZES, strict=True):
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
    return found


@pytest.fixture
def view(paths: tuple[Path, ...]) -> View:
    data = Data(image_size=16, resize=18, store_size=24, store_ratio=4 / 3)
    store = load_store(ImageList(paths, np.arange(6) // 2, ("a", "b", "c")), data.store_size, data.store_ratio)
    return View.of(store, np.arange(6), Preprocessing.of(data, Network()), batch_size=4)


def images_of(view: View) -> Tensor:
    return torch.cat([images_BCHW for images_BCHW, _ in view])


def test_a_second_pass_gives_the_same_without_looking_at_the_store(view: View) -> None:
    first = images_of(view)
    view.store.pixels.zero_()
    assert torch.equal(images_of(view), first)
    assert [crops.dtype for crops in view.centres] == [torch.uint8, torch.uint8]


def test_a_batch_is_what_each_picture_gives_by_itself(view: View, paths: tuple[Path, ...]) -> None:
    seen = view.preprocessing
    for path, image in zip(paths, images_of(view), strict=True):
        pixels, size = read_stored(path, seen.store_size, seen.store_ratio)
        alone = seen.for_evaluation(torch.from_numpy(pixels)[None], torch.tensor([size]))[0]
        assert torch.equal(image, alone)


def test_nothing_is_kept_of_more_than_there_is_room_for(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "KEPT_CENTRES", 6 * 3 * 16 * 16 - 1)
    first = images_of(view)
    assert view.centres == []
    assert torch.equal(images_of(view), first)


def test_who_stops_early_leaves_the_next_pass_whole(view: View) -> None:
    next(iter(view))
    assert view.centres == []
    assert len(images_of(view)) == 6
