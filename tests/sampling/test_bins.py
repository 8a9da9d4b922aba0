import math

import pytest
import torch

from pads.errors import UserError
from pads.sampling.bins import bin_distribution


def test_thirty_bins_of_equal_width_cover_the_interval():
    bins = bin_distribution()
    assert bins.num_bins == 30
    assert bins.edges[0] == pytest.approx(0.1)
    assert bins.edges[-1] == pytest.approx(1.4)
    assert torch.allclose(bins.edges.diff(), torch.full((30,), 1.3 / 30, dtype=torch.float64))


def test_the_emphasis_lies_on_the_interval_that_was_named():
    bins = bin_distribution(initial="U[0.3, 0.7]", outside=0.01)
    emphasised = bins.probabilities_K > bins.probabilities_K.min() * 2
    assert bins.centres[emphasised].min() >= 0.3
    assert bins.centres[emphasised].max() <= 0.7
    assert bins.probabilities_K.sum() == pytest.approx(1)
    assert bins.probabilities_K.max() / bins.probabilities_K.min() == pytest.approx(100)


def test_the_authors_shifted_start_emphasises_nine_bins_from_0_234_to_0_638():
    bins = bin_distribution(29, initial="U[0.3, 0.7]", outside=1e-15, evaluated_at="shifted", clip=(1e-25, 1e25))
    emphasised = (bins.probabilities_K > 0.1).nonzero().flatten().tolist()
    assert emphasised == list(range(3, 12))
    assert bins.edges[3].item() == pytest.approx(0.234, abs=1e-3)
    assert bins.edges[12].item() == pytest.approx(0.638, abs=1e-3)
    assert bins.probabilities_K[3].item() == pytest.approx(1 / 9)


def test_uniform_is_uniform_and_normal_peaks_at_its_mean():
    assert torch.allclose(
        bin_distribution(initial="uniform").probabilities_K, torch.tensor(1 / 30, dtype=torch.float64)
    )
    normal = bin_distribution(initial="N(0.5, 0.05)", outside=1e-15)
    assert abs(normal.centres[normal.probabilities_K.argmax()].item() - 0.5) < 1.3 / 60 + 1e-9
    p = normal.probabilities_K
    a, b = normal.centres[9].item(), normal.centres[11].item()
    assert (p[9] / p[11]).item() == pytest.approx(
        math.exp(-0.5 * ((a - 0.5) / 0.05) ** 2 + 0.5 * ((b - 0.5) / 0.05) ** 2)
    )


def test_a_users_own_numbers_are_normalised():
    assert bin_distribution(4, initial=[1, 2, 3, 2]).probabilities_K.tolist() == [0.125, 0.25, 0.375, 0.25]


def test_scaling_multiplies_each_bin_and_renormalises():
    bins = bin_distribution(3, initial=[0.2, 0.3, 0.5])
    scaled = bins.scale(torch.tensor([0.8, 1.0, 1.25]))
    total = 0.2 * 0.8 + 0.3 + 0.5 * 1.25
    assert scaled.probabilities_K.tolist() == pytest.approx([0.16 / total, 0.3 / total, 0.625 / total])
    assert bins.probabilities_K.tolist() == pytest.approx([0.2, 0.3, 0.5])  # the old one stays as it was


def test_the_clip_bounds_the_unnormalised_weights():
    bins = bin_distribution(2, initial=[1, 1], clip=(1e-25, 1e25))
    for _ in range(400):
        bins = bins.scale(torch.tensor([0.8, 1.25]))
    assert bins.weights_K.tolist() == [1e-25, 1e25]
    assert bins.clipped_share == 1
    assert bin_distribution(2, initial=[0, 1]).clipped_share == 0


def test_tails_decide_who_has_a_bin():
    distances = torch.tensor([0.05, 0.1, 0.7, 1.4, 1.5])
    at = {
        tails: bin_distribution(13, initial="uniform", tails=tails).at(distances) > 0
        for tails in ("exclude", "clip low, drop high", "merge")
    }
    assert at["exclude"].tolist() == [False, True, True, True, False]
    assert at["clip low, drop high"].tolist() == [True, True, True, True, False]
    assert at["merge"].all()


def test_every_distance_falls_into_the_bin_whose_edges_enclose_it(generator):
    bins = bin_distribution()
    distances = 0.1 + 1.3 * torch.rand(1000, generator=generator, dtype=torch.float64)
    index = bins.bin_of(distances)
    assert (bins.edges[index] <= distances + 1e-12).all()
    assert (distances <= bins.edges[index + 1] + 1e-12).all()


def test_perplexity_counts_the_bins_in_use():
    assert bin_distribution(8, initial=[1, 1, 1, 1, 0, 0, 0, 0]).perplexity == pytest.approx(4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interval": [1.4, 0.1]}, "lambda_min < lambda_max"),
        ({"interval": [0.5, 0.5]}, "lambda_min < lambda_max"),
        ({"interval": [0.1, 2.5]}, r"\[0, 2\]"),
        ({"num_bins": 0}, "at least one bin"),
        ({"initial": "U[1.5, 1.6]"}, "no bin lies there"),
        ({"initial": "gaussian"}, "uniform"),
        ({"num_bins": 3, "initial": [1, 2]}, "one for each bin"),
        ({"num_bins": 2, "initial": [0, 0]}, "not all of them 0"),
        ({"num_bins": 2, "initial": [1, -1]}, "at least 0"),
        ({"tails": "drop"}, "choose one of"),
        ({"drawing": "twice"}, "choose one of"),
        ({"outside": 0}, "small positive"),
        ({"clip": [1, 1]}, "growing positive"),
    ],
)
def test_bad_options_are_refused_with_what_to_do(options, words):
    with pytest.raises(UserError, match=words):
        bin_distribution(**options)
