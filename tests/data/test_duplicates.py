"""Copies are found without comparing all pairs, and what differs is no copy."""

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from pads.data import duplicates
from pads.data.duplicates import Signatures, compute_signature, count_ones, find_near_pairs, look_alike
from pads.data.store import cut_kept, read_stored


def draw(seed: int) -> Image.Image:
    """A picture with shapes of several sizes, which no other seed has."""
    noise = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((160, 120), Image.Resampling.BICUBIC)


def sign(image: Image.Image, size: int = 64):
    pixels, original = read_stored(image, size, 4 / 3)
    return compute_signature(cut_kept(pixels, original))


def save(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def collect(signed) -> Signatures:
    signs, colours = zip(*signed, strict=True)
    return Signatures(np.array(signs, dtype=np.uint64), np.array(colours))


SAME = {
    "saved again": lambda image: save(image, 40),
    "half the size": lambda image: image.resize((80, 60)),
    "a little lighter": lambda image: ImageEnhance.Brightness(image).enhance(1.04),
}
OTHER = {
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "another colour": lambda image: Image.merge("RGB", image.split()[::-1]),
    "a part of it": lambda image: image.crop((60, 40, 160, 120)),
}


@pytest.mark.parametrize("change", [*SAME, *OTHER])
def test_what_is_saved_again_is_found_and_what_is_another_picture_is_not(change):
    images = [draw(seed) for seed in range(30)]
    changed = [{**SAME, **OTHER}[change](image) for image in images]
    pairs = find_near_pairs(collect(map(sign, [*images, *changed])))
    expected = [[row, row + 30] for row in range(30)] if change in SAME else []
    assert pairs.tolist() == expected


def test_a_picture_that_shows_nothing_is_no_copy_of_another():
    blank = Image.new("RGB", (80, 60), (200, 200, 200))
    assert find_near_pairs(collect([sign(blank)] * 3)).tolist() == []


def random_signatures(rng: np.random.Generator, num_groups: int, num_flips: int) -> Signatures:
    """Groups of three that differ in a few signs, with the same colours all over."""
    first = rng.integers(1, 2**63, num_groups, dtype=np.uint64)
    signs = [first]
    for _ in range(2):
        flips = [sum(1 << int(bit) for bit in rng.choice(64, num_flips, replace=False)) for _ in range(num_groups)]
        signs.append(first ^ np.array(flips, dtype=np.uint64))
    signs_N = np.concatenate(signs)
    return Signatures(signs_N[rng.permutation(len(signs_N))], np.zeros((len(signs_N), 48), np.uint8))


@pytest.mark.parametrize("num_flips", [0, 1, 3])
def test_pairs_with_few_differences_are_those_of_a_loop_over_all_pairs(num_flips):
    """Up to three differences leave one of four bands alone; the pairs within a group differ in up to twice as many."""
    signatures = random_signatures(np.random.default_rng(num_flips), 100, num_flips)
    rows = range(len(signatures.signs_N))
    distances = {
        (a, b): int(signatures.signs_N[a] ^ signatures.signs_N[b]).bit_count() for a in rows for b in rows if a < b
    }
    found = {tuple(pair) for pair in find_near_pairs(signatures).tolist()}
    assert {pair for pair, distance in distances.items() if distance <= 3} <= found
    assert found <= {pair for pair, distance in distances.items() if distance <= duplicates.MOST_SIGNS}


def test_a_million_of_the_same_would_not_be_compared_with_each_other(monkeypatch):
    compared = []

    def count_pairs(signatures, pairs_P2):
        compared.append(len(pairs_P2))
        return look_alike(signatures, pairs_P2)

    monkeypatch.setattr(duplicates, "look_alike", count_pairs)
    same = Signatures(np.full(5000, 7, np.uint64), np.zeros((5000, 48), np.uint8))
    pairs = find_near_pairs(same)
    assert sum(compared) <= 4 * 5000 * duplicates.MOST_NEIGHBOURS
    assert set(pairs.ravel().tolist()) == set(range(5000))  # each is known to have a copy


def test_bits_are_counted_as_python_counts_them():
    words = np.random.default_rng(0).integers(0, 2**63, 1000, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    assert count_ones(words).tolist() == [int(word).bit_count() for word in words]
