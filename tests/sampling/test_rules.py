"""Rules against naive loops over the batch."""

import math

import numpy as np
import pytest
import torch

from pads.errors import UserError
from pads.sampling.bins import bin_distribution
from pads.sampling.distances import distances_to, pairwise_distances
from pads.sampling.rules import BinRule, DistanceWeighted, Hard, Semihard, Softhard


@pytest.fixture
def pairs(batch, generator):
    """Distances, candidates of other classes, and a random positive for each anchor."""
    embeddings, labels = batch
    distances = pairwise_distances(embeddings)
    same = labels[:, None] == labels[None, :]
    positives = torch.tensor(
        [next(j for j in torch.randperm(32, generator=generator).tolist() if j != i and same[i, j]) for i in range(32)]
    )
    return distances, ~same, positives


def test_distances_are_euclidean_whatever_the_length(batch):
    embeddings, _ = batch
    expected = torch.cdist(embeddings.double(), embeddings.double())
    assert torch.allclose(pairwise_distances(embeddings * 3).double(), expected, atol=1e-5)
    assert (pairwise_distances(embeddings).diagonal() == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_distances_stay_float32_under_autocast(batch, dtype):
    """Against numpy in float64. A bin of the paper is 0.04 wide, and a product of bfloat16 is off by more than 0.001."""
    embeddings = batch[0].to(dtype)
    rows = embeddings.double().numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    expected = np.linalg.norm(rows[:, None] - rows[None, :], axis=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        to_each_other = pairwise_distances(embeddings)
        to_others = distances_to(embeddings, embeddings[:5])
    assert to_each_other.dtype == to_others.dtype == torch.float32
    np.testing.assert_allclose(to_each_other.numpy(), expected, atol=1e-5)
    error = np.abs(to_others.numpy() - expected[:, :5])
    assert (error <= np.where(expected[:, :5] > 0, 1e-5, 1e-3)).all()  # a row to itself is 0 up to rounding


def test_hard_takes_the_nearest_candidate(pairs):
    distances, candidates, positives = pairs
    weights = Hard()(distances, candidates, positives)
    for i in range(32):
        nearest = min((j for j in range(32) if candidates[i, j]), key=lambda j: distances[i, j].item())
        assert weights[i].nonzero().flatten().tolist() == [nearest]


def test_semihard_nearest_is_the_argmin_beyond_the_positive(pairs):
    distances, candidates, positives = pairs
    weights = Semihard("nearest")(distances, candidates, positives)
    for i in range(32):
        beyond = [j for j in range(32) if candidates[i, j] and distances[i, j] > distances[i, positives[i]]]
        expected = [min(beyond, key=lambda j: distances[i, j].item())] if beyond else []
        assert weights[i].nonzero().flatten().tolist() == expected


def test_semihard_in_band_is_uniform_within_the_margin(pairs):
    distances, candidates, positives = pairs
    weights = Semihard("in band", margin=0.2)(distances, candidates, positives)
    for i in range(32):
        d_ap = distances[i, positives[i]]
        band = [j for j in range(32) if candidates[i, j] and d_ap < distances[i, j] < d_ap + 0.2]
        assert weights[i].nonzero().flatten().tolist() == band
        assert len(weights[i][weights[i] > 0].unique()) <= 1


def test_softhard_takes_whoever_is_nearer_than_the_farthest_positive(pairs, batch):
    distances, candidates, positives = pairs
    labels = batch[1]
    weights = Softhard()(distances, candidates, positives)
    for i in range(32):
        farthest = max(distances[i, j].item() for j in range(32) if labels[j] == labels[i])
        expected = [j for j in range(32) if candidates[i, j] and distances[i, j].item() < farthest]
        assert weights[i].nonzero().flatten().tolist() == expected


def test_distance_weighted_is_the_clipped_inverse_of_the_density_on_the_sphere(pairs):
    distances, candidates, positives = pairs
    weights = DistanceWeighted(dim=128, cutoff=0.5)(distances, candidates, positives).double()

    def log_inverse(d):
        return -(126 * math.log(d) + 62.5 * math.log(1 - d * d / 4))

    for i in range(32):
        expected = torch.tensor(
            [
                min(log_inverse(0.5), log_inverse(max(distances[i, j].item(), 0.5))) if candidates[i, j] else -math.inf
                for j in range(32)
            ],
            dtype=torch.float64,
        ).softmax(0)
        assert torch.allclose(weights[i] / weights[i].sum(), expected, atol=1e-3)


def test_distance_weighted_can_ignore_what_is_far(pairs):
    distances, candidates, positives = pairs
    weights = DistanceWeighted(dim=16, ignore_above=1.2)(distances, candidates, positives)
    assert (weights[distances > 1.2] == 0).all()


def naive_bin_weights(distances, candidates, bins, drawing, i):
    weights = torch.zeros(32, dtype=torch.float64)
    low, high = bins.interval
    index = {}
    for j in range(32):
        d = distances[i, j].item()
        if candidates[i, j] and low <= d <= high:
            index[j] = min(int((d - low) / (high - low) * bins.num_bins), bins.num_bins - 1)
    for j, k in index.items():
        crowd = sum(1 for other in index.values() if other == k)
        weights[j] = bins.probabilities_K[k] / (crowd if drawing == "bin then image" else 1)
    return weights / weights.sum() if index else weights


@pytest.mark.parametrize("drawing", ["bin then image", "weight per image"])
def test_bins_agree_with_a_loop_over_pairs(pairs, drawing):
    distances, candidates, positives = pairs
    bins = bin_distribution(drawing=drawing)
    weights = BinRule(bins)(distances, candidates, positives).double()
    for i in range(32):
        expected = naive_bin_weights(distances, candidates, bins, drawing, i)
        total = weights[i].sum()
        assert torch.allclose(weights[i] / (total if total else 1), expected, atol=1e-5)


def test_weights_that_span_fifty_orders_of_magnitude_still_order_the_rare_bins():
    bins = bin_distribution(
        2, interval=(0, 1), initial=[1e25, 1e-25], clip=(1e-25, 1e25), tails="merge", drawing="weight per image"
    )
    distances = torch.tensor([[0.0, 0.75, 0.75], [0.75, 0.0, 0.25], [0.75, 0.25, 0.0]])
    candidates = torch.tensor([[False, True, True], [True, False, True], [True, True, False]])
    weights = BinRule(bins)(distances, candidates, torch.zeros(3, dtype=torch.long))
    assert weights.isfinite().all()
    assert weights[0].tolist() == [0, 1, 1]  # only rare candidates: they share the draw
    assert weights[1].argmax() == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Semihard("closest"),
        lambda: DistanceWeighted(dim=2),
        lambda: DistanceWeighted(cutoff=0),
    ],
)
def test_bad_options_are_refused(make):
    with pytest.raises(UserError):
        make()
