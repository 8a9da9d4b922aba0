"""However large the images and however many the threads, decoding keeps to its budget."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pads.data import budget, store
from pads.data.budget import Budget, bytes_to_decode
from pads.data.formats import HAS_AVIF
from pads.data.store import decode, open_picture, read_stored, upright_draft, upright_rgb

MEASURE = """
import resource, sys, warnings
from concurrent.futures import ThreadPoolExecutor
warnings.simplefilter("ignore")
from pads.data.store import read_stored
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda path: read_stored(path, 64), sys.argv[1:]))
now = int(open("/proc/self/statm").read().split()[1]) * 4
print(before // 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, now // 1024)
"""


def white_png(side: int, colour: int = 2) -> bytes:
    """A square picture of few bytes and many pixels: RGB (2) or RGBA (6)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer, row = zlib.compressobj(1), b"\0" + b"\xff" * (side * (3 if colour == 2 else 4))
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


# -- the budget --------------------------------------------------------------------------------------------------------


def test_threads_never_take_more_than_there_is_and_what_is_larger_goes_alone() -> None:
    budget, most, alone = Budget(100), [], []

    def work(num_bytes: int) -> None:
        with budget.take(num_bytes):
            most.append(budget.used)
            time.sleep(0.002)
            if num_bytes > 100:
                alone.append(budget.used)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [30, 40, 50, 500, 60, 10, 90, 20, 300, 30] * 5))
    assert budget.used == 0
    assert set(alone) == {500, 300}
    assert max(used for used in most if used not in (500, 300)) <= 100
    assert len(set(most)) > 4  # several at a time


def test_a_large_one_is_not_passed_by_for_ever() -> None:
    budget, done, stop = Budget(100), threading.Event(), threading.Event()

    def small() -> None:
        while not stop.is_set():
            with budget.take(40):
                time.sleep(0.001)

    threads = [threading.Thread(target=small) for _ in range(4)]
    for thread in threads:
        thread.start()
    with budget.take(1000):
        done.set()
    stop.set()
    for thread in threads:
        thread.join()
    assert done.is_set()


def test_what_fails_gives_back_what_it_took(tmp_path: Path) -> None:
    (tmp_path / "half.png").write_bytes(white_png(500)[:200])
    for _ in range(3):
        with pytest.raises(store.BadImage):
            decode(tmp_path / "half.png")
    assert store.DECODING.used == 0


HEAVY = {
    "webp": {},
    "avif": {},
    "jpg": {"progressive": True, "mode": "CMYK"},
    "tif": {"compression": "tiff_adobe_deflate", "tiffinfo": {278: 500}, "mode": "RGBA"},
}
"""What libraries keep several times over, or unpack all at once."""


@pytest.mark.parametrize("suffix", HEAVY)
def test_a_picture_that_takes_more_than_one_may_is_refused_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    if suffix == "avif" and not HAS_AVIF:
        pytest.skip("this Pillow has no such format")
    options = dict(HEAVY[suffix])
    heavy, light = tmp_path / f"heavy.{suffix}", tmp_path / "light.png"
    Image.new(options.pop("mode", "RGB"), (400, 500)).save(heavy, **options)
    Image.new("RGB", (400, 500)).save(light)
    monkeypatch.setattr(budget, "LARGE", 1000)  # as if they were huge
    monkeypatch.setattr(store, "LARGE", 1000)
    read_stored(heavy, 16)
    monkeypatch.setattr(budget, "MOST_ALONE", 1_400_000)
    read_stored(light, 16)
    with pytest.raises(store.BadImage, match="to decode it takes"):
        read_stored(heavy, 16)


# -- the same pictures -------------------------------------------------------------------------------------------------


def picture(mode: str) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 4), dtype=np.uint8)
    pixels = np.kron(pixels, np.ones((10, 10, 1), np.uint8))
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    return Image.fromarray(pixels, "RGBA").convert(mode)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "I;16"])
def test_a_huge_picture_is_the_shrunk_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture(mode).save(tmp_path / "a.png", exif=exif)
    whole, original = open_picture(tmp_path / "a.png", None, min_side=20)
    monkeypatch.setattr(store, "LARGE", 1000)
    monkeypatch.setattr(store, "STRIP", 1000)
    small, same = open_picture(tmp_path / "a.png", None, min_side=20)
    assert same == original
    assert small.size == tuple(-(-side // 4) for side in whole.size)
    np.testing.assert_allclose(
        np.asarray(small, float), np.asarray(whole.reduce(4), float), atol=16 if mode == "RGBA" else 1
    )
    assert store.DECODING.used == 0


def test_a_given_picture_is_not_changed() -> None:
    given = picture("RGB")
    assert decode(given) is not given
    assert upright_rgb(given) is given
    assert upright_draft(given, 20, given.size)[0].size == given.size


def test_a_draft_of_a_jpeg_costs_little_unless_it_is_progressive() -> None:
    costs = []
    for progressive in (False, True):
        out = io.BytesIO()
        Image.new("RGB", (4000, 3000)).save(out, "JPEG", progressive=progressive)
        with Image.open(out) as image:
            image.draft(None, (128, 128))
            costs.append(bytes_to_decode(image, 4000 * 3000))
    assert costs[0] < 5_000_000 < 70_000_000 < costs[1]


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("colour", [2, 6])
def test_hostile_pictures_keep_to_the_budget_and_give_the_memory_back(tmp_path: Path, colour: int) -> None:
    """Four of 100 megapixels and 0.3 MB each, by eight threads."""
    content = white_png(10_000, colour)
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for path in paths:
        path.write_bytes(content)
    said = subprocess.run([sys.executable, "-c", MEASURE, *map(str, paths)], capture_output=True, text=True, check=True)
    before, most, now = map(int, said.stdout.split())
    assert most - before < 900, said.stdout
    assert now - before < 200, said.stdout


def test_a_stored_picture_counts_until_it_is_squeezed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture("RGB").save(tmp_path / "a.png")
    squeeze, used = store.squeeze, []
    monkeypatch.setattr(store, "squeeze", lambda *given: used.append(store.DECODING.used) or squeeze(*given))
    read_stored(tmp_path / "a.png", 16)
    assert used == [12 * 120 * 80]
