from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pads.data.batches import class_batches, rank_share
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
