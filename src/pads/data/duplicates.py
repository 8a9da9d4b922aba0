"""Copies among images: files with the same bytes, and pictures that look the same.

A picture is known by a signature of what a store keeps of it: 64 signs of the low frequencies of its grey levels (a DCT, as in
pHash) and its colours on a grid of 4 x 4. Two pictures are near copies if few signs differ and no colour does by much: re-saved,
resized, made a little lighter; not cropped, mirrored, or the same thing in another colour.

Nothing here compares all pairs. The signs are sorted in several orders, and each is compared with those that follow it while
they begin alike, so that the time grows with N log N.

Dimensions: N images, P pairs, S and L pixels of the sides, F frequencies, G numbers of the grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

SIDE, LOW, GRID = 32, 10, 4
"""Pixels on a side of what the DCT sees; frequencies in each direction; fields of the grid on a side."""
ENOUGH = 64
"""Pixels on the shorter side that are looked at."""
MOST_SIGNS = 6
"""Signs of 64 that may differ between near copies."""
MOST_COLOUR = 14
"""Grey levels that a colour of the grid may differ by."""
FLAT = 3.0
"""The standard deviation of the grey levels of a picture that shows nothing: all such look alike."""
BAND = 16
"""Signs by which a sorted order begins: near copies with less than 64 / BAND differences agree in one of the bands."""
MOST_NEIGHBOURS = 32
"""How many of those that begin alike one is compared with, however many there are."""

_positions = (2 * np.arange(SIDE) + 1) * np.pi / (2 * SIDE)
DCT_FS = np.cos(np.arange(LOW)[:, None] * _positions).astype(np.float32)
"""The lowest frequencies of the discrete cosine transform, the constant first."""
LOWEST_64 = np.argsort(np.add.outer(np.arange(LOW), np.arange(LOW)).ravel(), kind="stable")[1:65]
"""Where the lowest of all are, without the mean grey level."""


@dataclass(frozen=True, eq=False)
class Signatures:
    """The signatures of N images."""

    signs_N: np.ndarray
    """uint64; 0 for a picture that shows nothing."""
    colours_NG: np.ndarray
    """(N, 48) uint8."""

    @classmethod
    def empty(cls, num_images: int) -> Signatures:
        """Return room for so many, to be filled in."""
        return cls(np.zeros(num_images, np.uint64), np.zeros((num_images, 3 * GRID * GRID), np.uint8))

    def subset(self, rows: np.ndarray) -> Signatures:
        """Return those at these rows."""
        return Signatures(self.signs_N[rows], self.colours_NG[rows])

    def fill_in(self, row: int, pixels_3SL: np.ndarray) -> None:
        """Compute one from the pixels of a picture."""
        self.signs_N[row], self.colours_NG[row] = compute_signature(pixels_3SL)


def compute_signature(pixels_3SL: np.ndarray) -> tuple[np.uint64, np.ndarray]:
    """Return the signs of the low frequencies, and the colours on a coarse grid."""
    step = max(1, min(pixels_3SL.shape[1:]) // ENOUGH)  # every step-th pixel is enough, and much quicker
    sparse_SL3 = np.ascontiguousarray(pixels_3SL[:, ::step, ::step].transpose(1, 2, 0))
    small = Image.fromarray(sparse_SL3).resize((SIDE, SIDE), Image.Resampling.BOX)
    colours_G = np.asarray(small.resize((GRID, GRID), Image.Resampling.BOX)).ravel()
    grey_SS = np.asarray(small.convert("L"), dtype=np.float32)
    if grey_SS.std() < FLAT:
        return np.uint64(0), colours_G
    frequencies = (DCT_FS @ grey_SS @ DCT_FS.T).ravel()[LOWEST_64]
    bits = np.packbits(frequencies >= np.partition(frequencies, 32)[32])  # half of them are set
    return bits.view(np.uint64)[0], colours_G


def find_near_pairs(signatures: Signatures) -> np.ndarray:
    """Return (P, 2) rows of pictures that look the same, each pair once with the lower row first, in order."""
    rows_N = np.flatnonzero(signatures.signs_N)
    found = [np.empty((0, 2), np.int64)]
    for start in range(0, 64, BAND):
        rotated_N = rotate_left(signatures.signs_N[rows_N], start)
        order_N = np.argsort(rotated_N, kind="stable")
        sorted_N, band_N = rows_N[order_N], (rotated_N >> np.uint64(64 - BAND))[order_N]
        at = np.arange(len(sorted_N))
        for ahead in range(1, MOST_NEIGHBOURS + 1):
            at = at[at + ahead < len(sorted_N)]
            at = at[
                band_N[at] == band_N[at + ahead]
            ]  # in sorted order, whoever has no such neighbour has none further on
            if not len(at):
                break
            pairs_P2 = np.stack([sorted_N[at], sorted_N[at + ahead]], axis=1)
            found.append(pairs_P2[look_alike(signatures, pairs_P2)])
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)


def look_alike(signatures: Signatures, pairs_P2: np.ndarray) -> np.ndarray:
    """Tell of each pair whether few signs differ and no colour does by much."""
    first_P, second_P = pairs_P2.T
    is_alike_P = count_ones(signatures.signs_N[first_P] ^ signatures.signs_N[second_P]) <= MOST_SIGNS
    few = np.flatnonzero(is_alike_P)
    colours = [signatures.colours_NG[rows[few]].astype(np.int16) for rows in (first_P, second_P)]
    is_alike_P[few] = np.abs(colours[0] - colours[1]).max(axis=1, initial=0) <= MOST_COLOUR
    return is_alike_P


def rotate_left(words_N: np.ndarray, bits: int) -> np.ndarray:
    if bits == 0:
        return words_N
    return (words_N << np.uint64(bits)) | (words_N >> np.uint64(64 - bits))


def count_ones(words_N: np.ndarray) -> np.ndarray:
    """Count the bits that are set; numpy does it itself from version 2 on."""
    ones = words_N - ((words_N >> np.uint64(1)) & np.uint64(0x5555555555555555))
    ones = (ones & np.uint64(0x3333333333333333)) + ((ones >> np.uint64(2)) & np.uint64(0x3333333333333333))
    ones = (ones + (ones >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (ones * np.uint64(0x0101010101010101)) >> np.uint64(56)
