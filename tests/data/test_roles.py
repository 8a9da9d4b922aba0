"""The evaluation batches of a role: cut out once, kept where there is room, the same at every pass and for every caller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from pads.config import Data, Network
from pads.data import roles
from pads.data.benchmark import ImageList
from pads.data.preprocessing import Preprocessing
from pads.data.roles import View
from pads.data.store import load_store, read_stored
from pads.runtime.team import Team

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
    return View(store, np.arange(6), Preprocessing.of(data, Network()), batch_size=4)


def images_of(view: View) -> Tensor:
    return torch.cat([images_BCHW for images_BCHW, _ in view])


def test_a_second_pass_gives_the_same_without_looking_at_the_store(view: View) -> None:
    first = images_of(view)
    view.store.pixels.zero_()
    assert torch.equal(images_of(view), first)
    assert [crops.dtype for crops in view.kept_crops[0, 2]] == [torch.uint8, torch.uint8]


def test_a_batch_is_what_each_picture_gives_by_itself(view: View, paths: tuple[Path, ...]) -> None:
    seen = view.preprocessing
    for path, image in zip(paths, images_of(view), strict=True):
        pixels, size = read_stored(path, seen.store_size, seen.store_ratio)
        alone = seen.for_evaluation(torch.from_numpy(pixels)[None], torch.tensor([size]))[0]
        assert torch.equal(image, alone)


def test_nothing_is_kept_of_more_than_there_is_room_for(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "KEPT_CROPS", 6 * 3 * 16 * 16 - 1)
    first = images_of(view)
    assert not view.kept_crops
    assert torch.equal(images_of(view), first)


def test_who_stops_early_leaves_the_next_pass_whole(view: View) -> None:
    next(iter(view))
    assert not view.kept_crops
    assert len(images_of(view)) == 6


@pytest.mark.parametrize("size", [2, 3])
def test_the_parts_of_several_processes_are_the_batches_of_one_and_are_kept_apart(view: View, size: int) -> None:
    alone = list(view)
    for _ in range(2):  # the second pass is from what was kept
        parts = [batch for rank in range(size) for batch in view.batches(Team(rank, size)) if len(batch[1])]
        assert len(parts) == len(alone) == 2
        for (images, labels), (expected, expected_labels) in zip(parts, alone, strict=True):
            assert torch.equal(images, expected) and torch.equal(labels, expected_labels)
