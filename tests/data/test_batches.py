from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pads.data.batches import BATCHES, class_batches, rank_share, replacement_batches
from pads.errors import UserError

UNEVEN = np.random.default_rng(0).permutation(np.repeat([5, 9, 2, 40, 7], [1, 2, 3, 10, 30]))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    samples_per_class=st.integers(1, 12),
    epoch=st.integers(0, 1000),
    data=st.data(),
)
def test_batches_have_distinct_classes_and_balanced_images(
    sizes: list[int], samples_per_class: int, epoch: int, data: st.DataObject
) -> None:
    labels_N = np.random.default_rng(epoch).permutation(np.repeat(np.arange(len(sizes)) * 3, sizes))
    classes_per_batch = data.draw(st.integers(1, len(sizes)))
    batches = class_batches(labels_N, classes_per_batch, samples_per_class, seed=1, epoch=epoch, num_batches=4)
    assert batches.shape == (4, classes_per_batch * samples_per_class)
    assert batches.dtype == np.int64
    for batch in batches.reshape(4, classes_per_batch, samples_per_class):
        assert (labels_N[batch] == labels_N[batch][:, :1]).all()  # the samples of a class are adjacent
        assert len(np.unique(labels_N[batch][:, 0])) == classes_per_batch
        for indices in batch:
            members = np.flatnonzero(labels_N == labels_N[indices[0]])
            times = [(indices == member).sum() for member in members]
            assert max(times) - min(times) <= 1  # so distinct where there are enough, and each at least once where not


def test_batches_are_a_function_of_seed_and_epoch() -> None:
    def batches(seed: int, epoch: int) -> np.ndarray:
        return class_batches(UNEVEN, 3, 2, seed=seed, epoch=epoch)

    assert np.array_equal(batches(1, 2), batches(1, 2))
    different = [batches(1, 2), batches(2, 1), batches(1, 3), batches(0, 2)]
    assert len({batch.tobytes() for batch in different}) == 4


def test_an_epoch_has_as_many_batches_as_the_images_fill_and_at_least_one() -> None:
    assert len(class_batches(UNEVEN, 3, 2, seed=0, epoch=0)) == 46 // 6
    assert len(class_batches(UNEVEN, 5, 20, seed=0, epoch=0)) == 1
    assert len(class_batches(UNEVEN, 3, 2, seed=0, epoch=0, num_batches=11)) == 11


def test_classes_and_pairs_of_images_are_drawn_uniformly() -> None:
    """Counts over 6,000 batches stay within five standard deviations of their expectation."""
    labels_N = np.repeat(np.arange(5), [2, 3, 4, 5, 6])
    num_batches = 6000
    batches = class_batches(labels_N, 2, 2, seed=0, epoch=0, num_batches=num_batches).reshape(-1, 2)
    drawn_C = np.bincount(labels_N[batches[:, 0]], minlength=5)
    assert np.abs(drawn_C - num_batches * 2 / 5).max() < 5 * np.sqrt(num_batches * 0.4 * 0.6)
    for label in range(5):
        members = np.flatnonzero(labels_N == label)
        pairs = batches[labels_N[batches[:, 0]] == label]
        share = 1 / (len(members) * (len(members) - 1))  # of each ordered pair
        counts = np.array([((pairs == [a, b]).all(1)).sum() for a in members for b in members if a != b])
        assert np.abs(counts - len(pairs) * share).max() < 5 * np.sqrt(len(pairs) * share * (1 - share))


def test_more_classes_than_there_are_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(UserError, match=r"needs 6 classes, but there are only 5 .* set data.classes_per_batch to 5"):
        class_batches(UNEVEN, 6, 2, seed=0, epoch=0)


def test_an_epoch_of_sop_takes_a_fraction_of_a_second() -> None:
    labels_N = np.sort(np.random.default_rng(0).integers(0, 11_318, 60_000))
    start = time.perf_counter()
    class_batches(labels_N, 56, 2, seed=0, epoch=0)
    assert time.perf_counter() - start < 0.2


def test_the_shares_of_the_ranks_are_the_batch_and_no_class_is_on_two_of_them():
    labels = np.repeat(np.arange(12), 5)
    batches = class_batches(labels, 6, 3, seed=0, epoch=0)
    for world_size in (1, 2, 3, 6):
        shares = [rank_share(batches, rank, world_size, 3) for rank in range(world_size)]
        assert np.array_equal(np.concatenate(shares, axis=1), batches)
        for number in range(len(batches)):
            classes = [set(labels[share[number]]) for share in shares]
            assert sum(map(len, classes)) == len(set.union(*classes)) == 6
    assert np.array_equal(rank_share(batches[0], 1, 2, 3), rank_share(batches, 1, 2, 3)[0])


def test_classes_that_cannot_be_shared_out_evenly_are_refused_with_a_number_that_can():
    batches = class_batches(np.repeat(np.arange(12), 5), 5, 2, seed=0, epoch=0)
    with pytest.raises(
        UserError, match="5 classes per batch cannot be shared out evenly to 2 processes: take 4 classes"
    ):
        rank_share(batches, 0, 2, 2)


# -- with replacement, as the authors draw -----------------------------------------------------------------------------

CUB = np.repeat(np.arange(100), np.random.default_rng(0).integers(41, 61, 100) * 85 // 100)
"""The classes of CUB200-2011 that train, each with 85 % of its 41 to 60 images."""


def simulate_authors(labels_N, classes_per_batch, samples_per_class, num_batches, seed):
    """Draw batches item by item, as their data set does: random indices, whose remainders pick class and image.

    It remembers the last two classes, and takes the next one from the others.
    """
    rng = np.random.default_rng(seed)
    images = {int(label): np.flatnonzero(labels_N == label) for label in np.unique(labels_N)}
    batches = []
    for _ in range(num_batches):
        batch, visited, current, num_drawn = [], [], int(rng.integers(10**9)) % len(images), 0
        for _ in range(classes_per_batch * samples_per_class):
            index = int(rng.integers(10**9))
            if num_drawn == samples_per_class:
                visited = [*visited, current][-2:]
                others = [label for label in images if label not in visited]
                current, num_drawn = others[index % len(others)], 0
            batch.append(images[current][int(rng.integers(10**9)) % len(images[current])])
            num_drawn += 1
        batches.append(batch)
    return np.array(batches)


def describe(batches, labels_N):
    """Of each batch: other images of the anchor's class, the anchor as its own positive, classes, repeated files."""
    figures = []
    for batch in batches:
        labels = labels_N[batch]
        same = (labels[:, None] == labels).sum(1)
        repeated = len(batch) - len(np.unique(batch))
        figures.append([(same - 1).mean(), (1 / same).mean(), len(np.unique(labels)), repeated])
    return np.array(figures)


def test_with_replacement_is_what_the_authors_sampler_draws() -> None:
    """On CUB: 2.0 other images of the anchor's class, which is its own positive in 39 %; distinct classes give 1 and 50 %."""
    ours = describe(BATCHES["with replacement"](CUB, 56, 2, seed=0, epoch=0, num_batches=400), CUB)
    theirs = describe(simulate_authors(CUB, 56, 2, 400, seed=1), CUB)
    assert ours.mean(0)[0] == pytest.approx(2.0, abs=0.05) and ours.mean(0)[1] == pytest.approx(0.39, abs=0.01)
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 4 * error).all()
    distinct = describe(BATCHES["distinct classes"](CUB, 56, 2, seed=0, epoch=0, num_batches=20), CUB)
    assert distinct.mean(0).tolist() == [1, 0.5, 56, 0]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=8),
    classes_per_batch=st.integers(1, 12),
    samples_per_class=st.integers(1, 5),
    epoch=st.integers(0, 1000),
)
def test_with_replacement_a_class_differs_from_the_two_before_it_where_there_are_three(
    sizes: list[int], classes_per_batch: int, samples_per_class: int, epoch: int
) -> None:
    labels_N = np.random.default_rng(epoch).permutation(np.repeat(np.arange(len(sizes)) * 3, sizes))
    draw = lambda seed: replacement_batches(
        labels_N, classes_per_batch, samples_per_class, seed=seed, epoch=epoch, num_batches=3
    )
    batches = draw(1)
    assert batches.shape == (3, classes_per_batch * samples_per_class)
    assert np.array_equal(batches, draw(1))
    apart = min(2, len(sizes) - 1)
    for batch in batches.reshape(3, classes_per_batch, samples_per_class):
        labels = labels_N[batch]
        assert (labels == labels[:, :1]).all()  # the samples of a slot are adjacent
        for slot in range(classes_per_batch):
            assert labels[slot, 0] not in labels[max(0, slot - apart) : slot, 0]


def test_with_replacement_every_class_and_every_image_of_it_is_as_likely() -> None:
    labels_N = np.repeat(np.arange(5), [2, 3, 4, 5, 6])
    slots = replacement_batches(labels_N, 4, 2, seed=0, epoch=0, num_batches=3000).reshape(-1, 2)
    drawn_C = np.bincount(labels_N[slots[:, 0]], minlength=5)
    assert np.abs(drawn_C - len(slots) / 5).max() < 5 * np.sqrt(len(slots) * 0.2 * 0.8)
    for label in range(5):
        members, pairs = np.flatnonzero(labels_N == label), slots[labels_N[slots[:, 0]] == label]
        share = 1 / len(members) ** 2  # of each ordered pair, an image with itself too
        counts = np.array([((pairs == [a, b]).all(1)).sum() for a in members for b in members])
        assert np.abs(counts - len(pairs) * share).max() < 5 * np.sqrt(len(pairs) * share * (1 - share))
