"""Batches of P classes x S samples, as a function of seed and epoch alone: a resumed run goes on with the same ones.

Dimensions: N images, C classes, L slots (a class in a batch), M batches, P slots of a batch, S samples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pads.errors import UserError

STREAM = 3
"""Keeps these random numbers apart from those of the splits at the same seed."""


def class_batches(
    labels_N: np.ndarray,
    classes_per_batch: int,
    samples_per_class: int,
    *,
    seed: int,
    epoch: int,
    num_batches: int | None = None,
) -> np.ndarray:
    """Indices into labels_N, (num_batches, P * S), with the samples of a class side by side.

    Classes are drawn uniformly and distinct in a batch. The images of a class are distinct too if it has S of them; of
    fewer, each comes as often as the others, give or take one. By default, as many batches as the images would fill.
    """
    assert classes_per_batch >= 1
    assert samples_per_class >= 1
    labels_N = np.asarray(labels_N)
    sizes_C = np.unique(labels_N, return_counts=True)[1]
    if len(sizes_C) < classes_per_batch:
        raise UserError(
            f"a batch needs {classes_per_batch} classes, but there are only {len(sizes_C)} to train on; "
            f"set data.classes_per_batch to {len(sizes_C)} or less."
        )
    if num_batches is None:
        num_batches = max(1, len(labels_N) // (classes_per_batch * samples_per_class))
    rng = np.random.default_rng([STREAM, seed, epoch])
    classes_L = np.concatenate([rng.choice(len(sizes_C), classes_per_batch, replace=False) for _ in range(num_batches)])
    positions_LS = draw_distinct(sizes_C[classes_L], samples_per_class, rng)
    return find_images(labels_N, classes_L, positions_LS).reshape(num_batches, classes_per_batch * samples_per_class)


def replacement_batches(
    labels_N: np.ndarray,
    classes_per_batch: int,
    samples_per_class: int,
    *,
    seed: int,
    epoch: int,
    num_batches: int | None = None,
) -> np.ndarray:
    """Draw indices as the authors' code does: a class may come again in a batch, and so may an image in a class.

    A class differs from the two before it, so that one of C classes is drawn from the C - 2 others; its images are drawn
    with replacement. With 100 classes and 56 x 2 images there are 2.0 other images of an anchor's class, instead of 1.
    """
    labels_N = np.asarray(labels_N)
    sizes_C = np.unique(labels_N, return_counts=True)[1]
    if num_batches is None:
        num_batches = max(1, len(labels_N) // (classes_per_batch * samples_per_class))
    rng = np.random.default_rng([STREAM, seed, epoch])
    classes_MP = np.empty((num_batches, classes_per_batch), dtype=np.int64)
    for slot in range(classes_per_batch):
        num_left_out = min(slot, 2, len(sizes_C) - 1)  # of two classes, each differs from the one before it
        before = np.sort(classes_MP[:, slot - num_left_out : slot], axis=1)
        class_M = rng.integers(0, len(sizes_C) - num_left_out, num_batches)
        for column in range(num_left_out):
            class_M += class_M >= before[:, column]
        classes_MP[:, slot] = class_M
    classes_L = classes_MP.reshape(-1)
    positions_LS = rng.integers(0, sizes_C[classes_L][:, None], (len(classes_L), samples_per_class))
    return find_images(labels_N, classes_L, positions_LS).reshape(num_batches, classes_per_batch * samples_per_class)


def find_images(labels_N: np.ndarray, classes_L: np.ndarray, positions_LS: np.ndarray) -> np.ndarray:
    """Return the indices (L, S) of images that are given by their class and their place in it."""
    by_class_N = np.argsort(labels_N, kind="stable")
    sizes_C = np.unique(labels_N, return_counts=True)[1]
    starts_C = np.cumsum(sizes_C) - sizes_C
    return by_class_N[starts_C[classes_L][:, None] + positions_LS]


BATCHES: dict[str, Callable[..., np.ndarray]] = {
    "distinct classes": class_batches,
    "with replacement": replacement_batches,
}
"""Look up how batches are drawn: `--set data.batches="with replacement"`."""


def rank_share(batch_indices: np.ndarray, rank: int, world_size: int, samples_per_class: int) -> np.ndarray:
    """The rank's part of batches (..., P * S): whole classes, side by side, so that no slot of a class is on two ranks.

    Classes that cannot be shared out evenly are refused: ranks with batches of different sizes would weigh them unevenly.
    """
    assert 0 <= rank < world_size
    num_classes = batch_indices.shape[-1] // samples_per_class
    if num_classes % world_size:
        near = max(1, round(num_classes / world_size)) * world_size
        raise UserError(
            f"{num_classes} classes per batch cannot be shared out evenly to {world_size} processes: take {near} classes."
        )
    share = num_classes // world_size * samples_per_class
    return batch_indices[..., rank * share : (rank + 1) * share]


def draw_distinct(sizes_L: np.ndarray, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """(L, num_draws) numbers below each size, without repetition until all have come, then again."""
    nothing = np.iinfo(np.int64).max
    drawn = np.empty((len(sizes_L), num_draws), dtype=np.int64)
    taken = np.full((len(sizes_L), num_draws), nothing)  # the numbers of the current round, ascending
    for draw in range(num_draws):
        num_taken_L = draw % sizes_L
        taken[num_taken_L == 0] = nothing
        number_L = rng.integers(0, sizes_L - num_taken_L)  # the how-manieth of those that are left ...
        for column in range(draw):
            number_L += number_L >= taken[:, column]  # ... and which one that is
        drawn[:, draw] = taken[:, draw] = number_L
        taken.sort(axis=1)
    return drawn
