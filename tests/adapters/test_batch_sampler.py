"""Class-balanced batches for anyone's DataLoader: ours, resumable, and without a class on two processes."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from pads.adapters import ClassBalancedBatchSampler
from pads.data.batches import class_batches
from pads.errors import UserError

LABELS = np.random.default_rng(0).permutation(np.repeat([3, 8, 11, 20, 21, 40, 41], [9, 4, 6, 5, 12, 1, 7]))


def make(**options):
    return ClassBalancedBatchSampler(LABELS, 4, 2, seed=6, **options)


def test_the_batches_are_those_of_our_own_loop_epoch_after_epoch():
    sampler = make()
    for epoch in range(3):
        assert list(sampler) == class_batches(LABELS, 4, 2, seed=6, epoch=epoch).tolist()
    assert len(sampler) == len(LABELS) // 8


def test_a_loader_gives_whole_classes_whatever_the_number_of_workers():
    data = TensorDataset(torch.arange(len(LABELS)), torch.tensor(LABELS))
    for workers in (0, 2):
        loader = DataLoader(data, batch_sampler=make(batches_per_epoch=5), num_workers=workers)
        batches = [indices.tolist() for indices, _ in loader]
        assert batches == list(make(batches_per_epoch=5))
        assert len(loader) == 5
        for batch in batches:
            assert np.unique(LABELS[batch], return_counts=True)[1].tolist() == [2, 2, 2, 2]


def test_set_epoch_goes_to_any_epoch_and_the_same_one_is_the_same():
    sampler = make()
    first, second = list(sampler), list(sampler)
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_a_loaded_state_goes_on_in_the_middle_of_an_epoch():
    whole = make()
    expected = [batch for _ in range(3) for batch in whole]
    for stop in (0, 1, 3, len(whole), len(whole) + 2):
        sampler, seen = make(), []
        while len(seen) < stop:
            for batch in sampler:
                seen.append(batch)
                if len(seen) == stop:
                    break
        resumed = make()
        resumed.load_state_dict(sampler.state_dict())
        rest = [batch for _ in range(4) for batch in resumed][: len(expected) - stop]
        assert seen + rest == expected


def test_an_epoch_that_is_broken_off_is_over_and_one_that_is_not_asked_for_its_end_too():
    sampler, whole = make(), make()
    epochs = [list(whole) for _ in range(4)]
    assert next(iter(sampler)) == epochs[0][0]
    iterator = iter(sampler)
    assert [next(iterator) for _ in range(len(sampler))] == epochs[1]  # as Lightning does: it never sees StopIteration
    assert list(sampler) == epochs[2]
    assert sampler.state_dict() == {"epoch": 3, "num_given": 0}


def test_with_workers_the_number_of_batches_seen_is_told():
    sampler = make()
    iterator = iter(sampler)
    batches = [next(iterator) for _ in range(4)]  # three of them wait in the queue of a worker
    resumed = make()
    resumed.load_state_dict(sampler.state_dict(num_seen=1))
    assert next(iter(resumed)) == batches[1]
    rest = [*batches, *iterator]  # all are given, and the sampler is in the next epoch already
    for seen in range(1, len(rest) + 1):
        resumed.load_state_dict(sampler.state_dict(num_seen=seen))
        assert [batch for _ in range(2) for batch in resumed][: len(rest) - seen] == rest[seen:]
    assert sampler.state_dict(num_seen=len(sampler)) == sampler.state_dict() == {"epoch": 1, "num_given": 0}


def test_ranks_share_a_batch_by_whole_classes():
    whole = list(make())
    for world_size in (2, 4):
        parts = [list(make(rank=rank, world_size=world_size)) for rank in range(world_size)]
        for number, batch in enumerate(whole):
            assert [index for part in parts for index in part[number]] == batch
            classes = [set(LABELS[part[number]].tolist()) for part in parts]
            assert sum(map(len, classes)) == len(set.union(*classes))


@pytest.mark.parametrize("labels", [LABELS.tolist(), torch.tensor(LABELS), [f"class {label}" for label in LABELS]])
def test_labels_may_be_a_list_a_tensor_or_names(labels):
    batches = list(ClassBalancedBatchSampler(labels, 3, 2))
    assert all(len({str(labels[index]) for index in batch}) == 3 for batch in batches)


@pytest.mark.parametrize(
    ("arguments", "options", "answer"),
    [
        ((LABELS, 8, 2), {}, "classes_per_batch is 8, but there are 7 classes"),
        ((LABELS, 0, 2), {}, "must be at least 1"),
        ((LABELS, 2, 2), {"batches_per_epoch": 0}, "must be at least 1"),
        (([], 2, 2), {}, "labels must be a list with the class of each image, and not empty"),
        (
            (LABELS, 3, 2),
            {"rank": 0, "world_size": 2},
            "3 classes per batch cannot be shared out evenly to 2 processes",
        ),
        ((LABELS, 4, 2), {"rank": 2, "world_size": 2}, "rank is 2: it must be at least 0 and below world_size, 2"),
    ],
)
def test_mistakes_get_one_sentence(arguments, options, answer):
    with pytest.raises(UserError, match=answer):
        ClassBalancedBatchSampler(*arguments, **options)
