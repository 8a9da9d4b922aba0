from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pads.data.benchmark import ImageList
from pads.data.roles import even_batches
from pads.data.store import ImageStore, free_memory, one_ahead, place_store
from pads.errors import UserError

NUM = 10
MUCH, LITTLE = 10**9, 1


@pytest.fixture
def store() -> ImageStore:
    labels_N = np.arange(NUM, dtype=np.int64) // 2
    images = ImageList(tuple(Path(f"{n}.png") for n in range(NUM)), labels_N, tuple("abcde"))
    pixels = torch.arange(NUM * 3 * 4 * 4).remainder(251).to(torch.uint8).view(NUM, 3, 4, 4)
    sizes_N2 = torch.arange(2 * NUM).view(NUM, 2)
    return ImageStore(pixels, sizes_N2, torch.from_numpy(labels_N), images, np.arange(NUM))


def chosen(store: ImageStore, device: str, gpu: int, memory: int, where: str = "auto") -> str:
    """The place: the device `meta` stands for a GPU, whose values cannot be looked at."""
    placed, sentence = place_store(store, device, where, free_bytes={"gpu": gpu, "memory": memory})
    assert placed.device.type == device
    assert placed.sizes_N2.device.type == device
    assert sentence.startswith("10 images (0.0 GB) are kept ")
    place = "gpu" if placed.pixels.device.type == "meta" else "disk" if placed.is_on_disk else "memory"
    assert {"gpu": "on the GPU", "memory": "in memory", "disk": "on disk"}[place] in sentence
    assert ("sent to the GPU batch by batch" in sentence) == (placed.pixels.device.type != device)
    return place


def test_the_gpu_comes_first_then_memory_then_the_disk(store: ImageStore) -> None:
    on_disk = replace(store, is_on_disk=True)
    assert chosen(on_disk, "meta", gpu=MUCH, memory=MUCH) == "gpu"
    assert chosen(on_disk, "meta", gpu=LITTLE, memory=MUCH) == "memory"
    assert chosen(on_disk, "meta", gpu=LITTLE, memory=LITTLE) == "disk"


def test_half_of_what_is_free_is_left_free(store: ImageStore) -> None:
    num_bytes = store.pixels.nbytes
    assert chosen(store, "meta", gpu=2 * num_bytes, memory=MUCH) == "gpu"
    assert chosen(store, "meta", gpu=2 * num_bytes - 1, memory=MUCH) == "memory"


def test_what_was_decoded_is_in_memory_already(store: ImageStore) -> None:
    assert chosen(store, "meta", gpu=LITTLE, memory=LITTLE) == "memory"
    assert chosen(store, "cpu", gpu=LITTLE, memory=LITTLE) == "memory"


def test_a_cpu_reads_a_prepared_store_from_its_file(store: ImageStore) -> None:
    on_disk = replace(store, is_on_disk=True)
    assert chosen(on_disk, "cpu", gpu=MUCH, memory=MUCH) == "disk"
    assert place_store(on_disk, "cpu")[0].pixels is store.pixels


@pytest.mark.parametrize("where", ["gpu", "memory", "disk"])
def test_the_place_can_be_forced(store: ImageStore, where: str) -> None:
    assert chosen(replace(store, is_on_disk=True), "meta", MUCH, MUCH, where) == where


@pytest.mark.parametrize(
    ("device", "where", "is_on_disk", "message"),
    [
        ("meta", "ram", True, "data.store_on must be auto, gpu, memory or disk, not 'ram'"),
        ("cpu", "gpu", True, "needs a GPU"),
        ("meta", "disk", False, "`pads prepare`"),
        ("meta", "gpu", True, r"data.store_on=gpu needs 0.0 GB, and 0.0 GB are free; leave it at auto"),
        ("meta", "memory", True, r"data.store_on=memory needs"),
    ],
)
def test_a_forced_place_that_cannot_be_is_refused(
    store: ImageStore, device: str, where: str, is_on_disk: bool, message: str
) -> None:
    free = {"gpu": LITTLE, "memory": LITTLE}
    with pytest.raises(UserError, match=message):
        place_store(replace(store, is_on_disk=is_on_disk), device, where, free_bytes=free)


def test_taking_gives_the_pixels_and_sizes_of_the_indices(store: ImageStore) -> None:
    indices_B = torch.tensor([7, 0, 7])
    pixels, sizes_B2 = store.take(indices_B)
    assert torch.equal(pixels, store.pixels[indices_B])
    assert torch.equal(sizes_B2, store.sizes_N2[indices_B])
    assert torch.equal(store.gather(indices_B), pixels)


def test_batches_are_what_taking_one_by_one_gives(store: ImageStore) -> None:
    picked_MB = torch.tensor([[1, 2], [9, 9], [0, 3]])
    for (pixels, sizes_B2), indices_B in zip(store.batches(picked_MB), picked_MB, strict=True):
        assert torch.equal(pixels, store.pixels[indices_B])
        assert torch.equal(sizes_B2, store.sizes_N2[indices_B])


def test_pixels_kept_elsewhere_are_gathered_and_sent_to_the_device(store: ImageStore) -> None:
    """With labels and sizes on `meta`, what is gathered on the host can be seen on its way."""
    gathered: list[Tensor] = []

    class Watched(ImageStore):
        def gather(self, rows_B: Tensor) -> Tensor:
            gathered.append(super().gather(rows_B))
            return gathered[-1]

    placed = place_store(store, "meta", "memory", free_bytes={"gpu": LITTLE, "memory": MUCH})[0]
    watched = Watched(placed.pixels, placed.sizes_N2, placed.labels_N, placed.images, placed.kept)
    indices = [torch.tensor([3, 1]), torch.tensor([0])]
    batches = [*watched.batches(indices), watched.take(indices[0])]
    assert [pixels.device.type for pixels, _ in batches] == ["meta"] * 3
    assert [tuple(pixels.shape) for pixels, _ in batches] == [(2, 3, 4, 4), (1, 3, 4, 4), (2, 3, 4, 4)]
    for pixels, indices_B in zip(gathered, [*indices, indices[0]], strict=True):
        assert torch.equal(pixels, store.pixels[indices_B])


# -- one ahead ---------------------------------------------------------------------------------------------------------


def test_one_ahead_keeps_the_order_and_loads_one_more_than_is_used() -> None:
    started: list[int] = []

    def load(item: int) -> int:
        started.append(item)
        time.sleep(0.001)
        return item * item

    loaded = one_ahead(load, range(5))
    for item in range(5):
        assert next(loaded) == item * item
        assert len(started) <= item + 2  # this one and the next
    assert list(loaded) == []
    assert list(one_ahead(load, [])) == []


def test_the_next_is_loaded_while_this_one_is_used() -> None:
    begun = [threading.Event() for _ in range(3)]

    def load(item: int) -> int:
        begun[item].set()
        return item

    loaded = one_ahead(load, range(3))
    next(loaded)
    assert begun[1].wait(timeout=5)  # without another next()
    assert not begun[2].is_set()


def test_an_error_in_the_thread_reaches_whoever_asks() -> None:
    def load(item: int) -> float:
        return 1 / item

    loaded = one_ahead(load, [1, 0, 2])
    assert next(loaded) == 1
    with pytest.raises(ZeroDivisionError):
        next(loaded)


def test_stopping_early_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    loaded = one_ahead(lambda item: item, range(100))
    next(loaded)
    loaded.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_this_machine_has_free_memory() -> None:
    assert free_memory() > 10**7


@pytest.mark.parametrize(
    ("num", "size"), [(798, 400), (838, 432), (448, 448), (449, 240), (1, 16), (0, 448), (5924, 432)]
)
def test_batches_of_evaluation_are_few_and_even(num, size):
    assert even_batches(num) == size
    assert size % 16 == 0
    assert size <= 448
