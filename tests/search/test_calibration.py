"""Precision is of the neighbours that are accepted, at the size of the index; where it cannot be had, nobody claims it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from pads.data.loading import load_selection, load_views
from pads.errors import UserError
from pads.search.calibration import Calibration, calibrate, calibrate_by_labels, curve
from pads.search.index import Marks
from pads.train import nobody


def blobs(num_classes=12, per_class=8, spread=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_classes, 1, 6, generator=generator)
    points = centres + spread * torch.randn(num_classes, per_class, 6, generator=generator)
    embeddings = torch.nn.functional.normalize(points.flatten(0, 1), dim=1)
    return embeddings, torch.arange(num_classes).repeat_interleave(per_class)


def counts_below(embeddings, labels, threshold):
    """Accepted neighbours of the same and of other classes, by a loop."""
    same = strangers = 0
    distances_NN, labels = torch.cdist(embeddings.double(), embeddings.double()).tolist(), labels.tolist()
    for i, row in enumerate(distances_NN):
        for j, distance in enumerate(row):
            if i != j and distance < threshold:
                same, strangers = same + (labels[i] == labels[j]), strangers + (labels[i] != labels[j])
    return same, strangers


def test_every_point_of_the_curve_is_what_a_loop_counts():
    embeddings, labels = blobs()
    calibration = calibrate(embeddings, labels)
    for at in range(0, len(calibration.distances_P), 25):
        expected = counts_below(embeddings, labels, calibration.distances_P[at])
        assert (calibration.same_P[at], calibration.strangers_P[at]) == expected


@pytest.mark.parametrize("precision", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("num_indexed", [10, 96, 300])
def test_the_threshold_has_the_precision_and_no_larger_one_does(precision, num_indexed):
    embeddings, labels = blobs()
    calibration = calibrate(embeddings, labels)
    point = calibration.point(precision, num_indexed)
    factor = max(1, num_indexed / 96)

    def precision_at(threshold):
        same, strangers = counts_below(embeddings, labels, threshold)
        return same / (same + factor * (strangers + 1))

    assert precision_at(calibration.distances_P[point]) >= precision
    for distance in calibration.distances_P[point + 1 :: 20]:
        assert precision_at(distance) < precision


def counts_beyond(embeddings, labels, threshold):
    """Of the ten nearest neighbours of each, those of other classes and of the same that are farther, by a loop."""
    same = strangers = 0
    distances_NN, labels = torch.cdist(embeddings.double(), embeddings.double()).tolist(), labels.tolist()
    for i, row in enumerate(distances_NN):
        nearest = sorted((distance, j) for j, distance in enumerate(row) if j != i)[:10]
        for distance, j in nearest:
            if distance > threshold:
                same, strangers = same + (labels[i] == labels[j]), strangers + (labels[i] != labels[j])
    return strangers, same


def test_every_point_of_the_curve_from_afar_is_what_a_loop_counts():
    embeddings, labels = blobs()
    calibration = calibrate(embeddings, labels)
    assert sorted(calibration.far_distances_P, reverse=True) == list(calibration.far_distances_P)
    for at in range(0, len(calibration.far_distances_P), 25):
        expected = counts_beyond(embeddings, labels, calibration.far_distances_P[at])
        assert (calibration.far_strangers_P[at], calibration.far_same_P[at]) == expected


@pytest.mark.parametrize("precision", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("num_indexed", [60, 96, 300])
def test_the_distance_for_others_has_the_precision_and_no_smaller_one_does(precision, num_indexed):
    embeddings, labels = blobs(spread=0.15)
    calibration = calibrate(embeddings, labels)
    point = calibration.far_point(precision, num_indexed)
    factor = min(1, num_indexed / 96)

    def precision_at(threshold):
        strangers, same = counts_beyond(embeddings, labels, threshold)
        return factor * strangers / (factor * strangers + same + 1)

    assert precision_at(calibration.far_distances_P[point]) >= precision
    for distance in calibration.far_distances_P[point + 1 :: 20]:
        assert precision_at(distance) < precision


def test_others_are_called_so_only_where_that_can_be_promised():
    tight = calibrate(*blobs(spread=0.02))
    assert tight.far_point(0.95, 96) is not None
    mixed = calibrate(*blobs(num_classes=2, per_class=8, spread=3.0))
    assert mixed.far_point(0.95, 16) is None
    assert Calibration(10, 2, (0.5,), (3,), (1,)).far_point(0.95, 10) is None  # of an index of an earlier version


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        (Marks(0.5, 0.9), ["same", "unsure", "unsure", "other"]),
        (Marks(0.5, None), ["same", "unsure", "unsure", "unsure"]),
        (Marks(None, 0.9), ["unsure", "unsure", "unsure", "other"]),
        (Marks(None, None), [None] * 4),
    ],
)
def test_a_neighbour_is_the_same_another_or_neither(marks, words):
    assert [marks.call(distance) for distance in (0.1, 0.5, 0.9, 1.2)] == words


def test_images_are_calibrated_by_their_labels_and_of_many_whole_classes_are_taken(monkeypatch):
    embeddings, labels = blobs()
    names = [f"class {label}" for label in labels.tolist()]
    found = calibrate_by_labels(embeddings.numpy(), names)
    assert replace(found, on="") == replace(calibrate(embeddings, labels), on="")
    loose = calibrate_by_labels(
        np.concatenate([embeddings.numpy(), embeddings.numpy()[:3]]), [*names, None, None, None]
    )
    assert loose == found  # without a label, an image is nobody's
    monkeypatch.setattr("pads.search.calibration.MOST_IMAGES", 30)
    some = calibrate_by_labels(embeddings.numpy(), names)
    assert (some.num_images, some.num_classes) == (24, 3)
    assert isinstance(calibrate_by_labels(embeddings.numpy(), [f"{n}" for n in range(96)]), str)


def test_a_larger_index_needs_a_smaller_distance():
    calibration = calibrate(*blobs())
    points = [calibration.point(0.9, num) for num in (96, 200, 500)]
    assert points == sorted(points, reverse=True) and points[0] > points[-1]


def test_neighbours_equally_far_are_accepted_together():
    distances, same, strangers = curve(np.array([0.1, 0.2, 0.2, 0.3]), np.array([True, True, False, True]))
    np.testing.assert_allclose(distances, [0.15, 0.3])
    assert (same, strangers) == ((1, 3), (0, 1))
    assert distances[-1] > 0.3


def test_many_strangers_are_thinned_and_few_are_not():
    rng = np.random.default_rng(0)
    distances, _, strangers = curve(rng.random(20_000), rng.random(20_000) < 0.3)
    assert strangers[:100] == tuple(range(100)) and len(strangers) < 500
    assert all(b / a < 1.03 for a, b in itertools.pairwise(strangers[100:]))
    assert sorted(distances) == list(distances)


def test_a_precision_out_of_reach_has_no_threshold():
    calibration = calibrate(*blobs(spread=5.0))
    assert calibration.point(0.99, 96) is None
    assert calibration.precisions(96).max() < 0.99


def test_a_handful_of_neighbours_proves_nothing():
    calibration = Calibration(10, 5, (0.1, 0.2), (5, 18), (0, 0))
    assert calibration.point(0.95, 10) is None and calibration.point(0.94, 10) == 1
    assert calibration.point(0.94, 100) is None


def test_the_size_of_the_index_is_most_of_what_there_is_to_know():
    """Twenty classes speak for 200 of the same kind: roughly, but not at all without the size."""
    embeddings, labels = blobs(num_classes=200, per_class=6, spread=0.2)

    def precision_in_all(calibration, num_indexed):
        threshold = calibration.distances_P[calibration.point(0.8, num_indexed)]
        same, strangers = counts_below(embeddings, labels, threshold)
        return same / (same + strangers)

    splits = [calibrate(embeddings[at : at + 120], labels[at : at + 120]) for at in (0, 240, 480)]
    assert min(precision_in_all(each, len(labels)) for each in splits) > 0.5
    assert max(precision_in_all(each, 120) for each in splits) < 0.4


@pytest.mark.parametrize("precision", [0, -1, 1.01, 95, float("nan")])
def test_a_precision_is_a_share(precision, index):
    with pytest.raises(UserError, match=r"--precision"):
        index.threshold(precision)


def test_the_selection_split_alone_is_that_of_the_run(run):
    alone = load_selection(run.config, torch.device("cpu"), nobody)
    of_all = load_views(run.config, torch.device("cpu"), nobody).selection
    assert len(alone) == len(of_all) > 0
    for (images, labels), (expected, expected_labels) in zip(alone, of_all, strict=True):
        assert torch.equal(images, expected) and torch.equal(labels, expected_labels)


def test_the_calibration_of_an_index_is_that_of_the_selection_split(index, run):
    assert index.calibration.num_images == run.metrics["splits"]["selection"]["images"]
    assert index.calibration.num_classes == run.metrics["splits"]["selection"]["classes"]
    assert index.threshold(0.3) > index.threshold(0.5)
