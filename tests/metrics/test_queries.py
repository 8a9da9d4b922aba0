"""Every query by itself, and the interval over classes: against plain loops, scipy and simulated splits."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from pads.evaluate import Figures, compare_rows
from pads.metrics import compute_metrics
from pads.metrics.queries import Queries, estimate_mean, measure_queries


@pytest.fixture
def split(generator):
    """60 images of 9 classes, one of which has a single image."""
    labels = torch.cat([torch.arange(8).repeat(8)[:59], torch.tensor([99])])
    centres = torch.randn(100, 6, generator=generator)
    return centres[labels] + 1.2 * torch.randn(60, 6, generator=generator), labels


@pytest.mark.parametrize("is_divided", [False, True])
def test_the_mean_over_queries_is_the_metric(split, generator, is_divided):
    embeddings, labels = split
    flags = {}
    if is_divided:
        is_query = torch.rand(60, generator=generator) < 0.5
        flags = {"is_query_N": is_query, "is_gallery_N": ~is_query}
    found = measure_queries(embeddings, labels, **flags)
    expected = compute_metrics(embeddings, labels, ["recall@1", "map@r"], **flags)
    assert found.recalls_Q.mean() == pytest.approx(expected["recall@1"])
    assert np.nanmean(found.precisions_Q) == pytest.approx(expected["map@r"])
    num_queries = int(is_query.sum()) if is_divided else 60
    assert len(found.classes_Q) == len(found.recalls_Q) == len(found.precisions_Q) == num_queries


def test_each_query_agrees_with_a_naive_loop(split):
    embeddings, labels = split
    found = measure_queries(embeddings, labels)
    for query in range(60):
        order = sorted(
            (i for i in range(60) if i != query), key=lambda i: (embeddings[i] - embeddings[query]).norm().item()
        )
        same = [labels[i] == labels[query] for i in order]
        relevant = sum(map(bool, same))
        assert found.recalls_Q[query] == same[0]
        if relevant == 0:
            assert math.isnan(found.precisions_Q[query])
        else:
            precisions = [sum(map(bool, same[: at + 1])) / (at + 1) for at in range(relevant) if same[at]]
            assert found.precisions_Q[query] == pytest.approx(sum(precisions) / relevant)


def test_the_interval_agrees_with_a_naive_loop():
    rng = np.random.default_rng(0)
    classes, values = rng.integers(0, 7, 80), rng.normal(0.1, 0.3, 80)
    values[[3, 9]] = math.nan
    pairs = [(c, v) for c, v in zip(classes.tolist(), values.tolist(), strict=True) if not math.isnan(v)]
    mean = sum(v for _, v in pairs) / len(pairs)
    squares = [sum(v - mean for c, v in pairs if c == own) ** 2 for own in {c for c, _ in pairs}]
    half = (
        stats.t.ppf(0.975, len(squares) - 1) * math.sqrt(len(squares) / (len(squares) - 1) * sum(squares)) / len(pairs)
    )
    assert estimate_mean(values, classes) == pytest.approx((mean, mean - half, mean + half))


def test_with_classes_of_one_size_it_is_the_t_interval_of_their_means():
    values = np.random.default_rng(1).normal(size=(6, 5))
    found = estimate_mean(values.ravel(), np.repeat(np.arange(6), 5))
    low, high = stats.t.interval(0.95, 5, values.mean(), stats.sem(values.mean(1)))
    assert found == pytest.approx((values.mean(), low, high))


@pytest.mark.parametrize("num_classes", [3, 10])
def test_it_covers_the_truth_as_often_as_it_says_also_with_few_classes(num_classes):
    rng, num_covered = np.random.default_rng(num_classes), 0
    for _ in range(400):
        classes = np.repeat(np.arange(num_classes), rng.integers(4, 16, num_classes))
        values = 0.05 + rng.normal(0, 0.1, num_classes)[classes] + rng.normal(0, 0.3, len(classes))
        found = estimate_mean(values, classes)
        num_covered += found.low <= 0.05 <= found.high
    assert 0.91 <= num_covered / 400 <= 0.98  # over queries alone, it would be about 0.8


def test_one_class_says_nothing():
    assert estimate_mean(np.ones(4), np.zeros(4, int)) is None
    assert estimate_mean(np.array([1.0, math.nan]), np.array([0, 1])) is None


def figures(recalls, precisions):
    made = Figures({"recall@1": float(np.mean(recalls)), "map@r": float(np.mean(precisions))})
    made.queries = Queries(np.repeat(np.arange(4), 3), np.array(recalls, float), np.array(precisions, float))
    return made


def test_a_gain_is_paired_query_by_query():
    rng = np.random.default_rng(0)
    base = rng.random(12)
    rows = {"raw pixels": figures(np.zeros(12), base), "trained": figures(np.ones(12), base + 0.25)}
    found = compare_rows(rows)
    assert (found["queries"], found["classes"]) == (12, 4)
    assert found["gain_over"]["raw pixels"]["map@r"] == pytest.approx([0.25, 0.25, 0.25])  # the same for every query
    mean, low, high = found["trained"]["map@r"]
    assert low < mean - 0.05 and high > mean + 0.05  # which alone is known much less well
    assert compare_rows({"raw pixels": rows["raw pixels"]}) == {}
    assert compare_rows({"trained": {"map@r": 0.5}}) == {}
