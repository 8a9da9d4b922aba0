"""What every metric must do: full marks for a perfect embedding, the rate of chance for labels that mean nothing."""

import pytest
import torch

from pads.metrics import METRICS, compute_metrics

NUM_IMAGES, NUM_CLASSES = 2000, 20
CHANCE = (NUM_IMAGES / NUM_CLASSES - 1) / (NUM_IMAGES - 1)
"""The probability that any other image is of the query's class."""


def map_at_r_by_chance(p=CHANCE, relevant=NUM_IMAGES // NUM_CLASSES - 1):
    """1/R sum_i p E[precision at i | a match at i], where the i - 1 before it match with probability p."""
    return sum(p * (1 + (i - 1) * p) / i for i in range(1, relevant + 1)) / relevant


PERFECT = {"intra": 0.0}
"""Where full marks are not 1. (inter: the classes lie at right angles, a cosine distance of 1.)"""
BY_CHANCE = {"map@r": map_at_r_by_chance(), "nmi": 0.0, "intra": 1.0, "inter": 1.0}
"""Where chance is not the share of the class among the others."""


def asked(family):
    """The name by which a user asks for a metric: those that count neighbours are asked for the first."""
    return f"{family}@1" if family == "recall" else family


every_metric = pytest.mark.parametrize("family", METRICS)


@every_metric
def test_every_metric_is_right_on_a_perfect_embedding(family):
    labels_N = torch.arange(60) % 6
    value = compute_metrics(torch.eye(6)[labels_N], labels_N, [asked(family)])[asked(family)]
    assert value == pytest.approx(PERFECT.get(family, 1.0), abs=1e-6)


@every_metric
def test_every_metric_is_at_chance_on_a_random_embedding(family, generator):
    embeddings_ND = torch.randn(NUM_IMAGES, 16, generator=generator)
    labels_N = torch.arange(NUM_IMAGES) % NUM_CLASSES
    value = compute_metrics(embeddings_ND, labels_N, [asked(family)])[asked(family)]
    # inter has only 190 pairs of classes, whose cosines have a standard deviation of 1/4
    assert value == pytest.approx(BY_CHANCE.get(family, CHANCE), abs=0.06 if family in ("nmi", "inter") else 0.02)


@every_metric
def test_every_metric_gets_better_with_the_embedding(family, generator):
    """From no noise to much: each value is farther from perfection than the one before it."""
    labels_N = torch.arange(400) % 20
    noise_ND = torch.randn(400, 20, generator=generator)
    names = [asked(family)]
    found = [compute_metrics(torch.eye(20)[labels_N] + level * noise_ND, labels_N, names) for level in (0, 0.3, 0.6)]
    distances = [abs(values[names[0]] - PERFECT.get(family, 1.0)) for values in found]
    assert distances == sorted(distances)
    assert distances[-1] > distances[0] + (0 if family == "inter" else 0.1)
    assert all(type(value) is float for values in found for value in values.values())


@every_metric
def test_no_metric_changes_what_it_measures_or_the_callers_random_state(family, batch):
    embeddings_ND, labels_N = batch
    copies, before = (embeddings_ND.clone(), labels_N.clone()), torch.get_rng_state()
    compute_metrics(embeddings_ND, labels_N, [asked(family)])
    assert torch.equal(embeddings_ND, copies[0])
    assert torch.equal(labels_N, copies[1])
    assert torch.equal(torch.get_rng_state(), before)


@every_metric
def test_every_metric_ignores_the_length_of_the_embeddings_only_if_all_have_the_same(family, batch):
    """Everything scaled alike is the same picture."""
    embeddings_ND, labels_N = batch
    names = [asked(family)]
    assert compute_metrics(4 * embeddings_ND, labels_N, names) == pytest.approx(
        compute_metrics(embeddings_ND, labels_N, names), abs=1e-6
    )
