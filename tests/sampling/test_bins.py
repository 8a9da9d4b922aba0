import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from pads.errors import UserError
from pads.sampling.bins import bin_distribution, scaled_into, scaled_odds


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
    scaled = bins.scaled(torch.tensor([0.8, 1.0, 1.25]))
    total = 0.2 * 0.8 + 0.3 + 0.5 * 1.25
    assert scaled.probabilities_K.tolist() == pytest.approx([0.16 / total, 0.3 / total, 0.625 / total])
    assert bins.probabilities_K.tolist() == pytest.approx([0.2, 0.3, 0.5])  # the old one stays as it was


def test_a_floor_holds_and_the_rest_keeps_its_proportions():
    bins = bin_distribution(4, initial=[1, 1, 4, 4], floor=0.05)
    for _ in range(50):
        bins = bins.scaled(torch.tensor([0.8, 1.0, 1.25, 1.0]))
    p = bins.probabilities_K
    assert p.sum() == pytest.approx(1)
    assert p.min() >= 0.05 - 1e-12
    assert p[[0, 1, 3]].tolist() == pytest.approx([0.05] * 3)
    assert bins.clipped_share == 0.75


def test_the_clip_bounds_the_unnormalised_weights():
    bins = bin_distribution(2, initial=[1, 1], clip=(1e-25, 1e25))
    for _ in range(400):
        bins = bins.scaled(torch.tensor([0.8, 1.25]))
    assert bins.weights_K.tolist() == [1e-25, 1e25]
    assert bins.clipped_share == 1


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
        ({"floor": 0.1}, "1 / num_bins"),
        ({"outside": 0}, "small positive"),
        ({"clip": [1, 1]}, "growing positive"),
        ({"bound": 0}, "from 0.001 to 50, such as 1"),
        ({"bound": -1.0}, "from 0.001 to 50, such as 1"),
        ({"bound": 1000.0}, "from 0.001 to 50, such as 1"),
        ({"bound": math.nan}, "from 0.001 to 50, such as 1"),
        ({"bound": 1.0, "clip": [1e-25, 1e25]}, "give one of them"),
    ],
)
def test_bad_options_are_refused_with_what_to_do(options, words):
    with pytest.raises(UserError, match=words):
        bin_distribution(**options)


# -- the bound ---------------------------------------------------------------------------------------------------------

SHAPES = ["uniform", "U[0.3, 0.7]", "N(0.5, 0.05)"]


def random_factors(num_bins, generator):
    return torch.tensor([0.8, 1.0, 1.25], dtype=torch.float64)[torch.randint(3, (num_bins,), generator=generator)]


@pytest.mark.parametrize("initial", SHAPES)
@pytest.mark.parametrize("bound", [0.001, 0.05, 1.0, 4.0, 50])
@pytest.mark.parametrize("floor", [0.0, 1e-3])
def test_no_bin_leaves_the_bound_around_its_initial_share(initial, bound, floor, generator):
    bins = bin_distribution(initial=initial, bound=bound, floor=floor)
    start_K = bins.probabilities_K
    reached = 0.0
    for _ in range(300):
        bins = bins.scaled(random_factors(30, generator))
        log_ratio_K = (bins.probabilities_K / start_K).log()
        assert log_ratio_K.abs().max() <= bound + 1e-9
        assert bins.probabilities_K.min() >= floor * (1 - 1e-9)
        assert bins.weights_K.sum() == pytest.approx(1, abs=1e-12)
        reached = max(reached, log_ratio_K.abs().max().item())
    assert reached == pytest.approx(bound) or bound > 1
    assert bins.clipped_share > 0 or bound > 1


@pytest.mark.parametrize("initial", SHAPES)
def test_the_bound_leaves_the_initial_distribution_and_all_within_it_alone(initial, generator):
    free, bounded = bin_distribution(initial=initial), bin_distribution(initial=initial, bound=5.0)
    assert torch.equal(free.weights_K, bounded.weights_K)
    assert torch.equal(bounded.scaled(torch.ones(30)).weights_K, free.scaled(torch.ones(30)).weights_K)
    for _ in range(8):  # a bin can move by log 1.25 and a little for the common factor: at most 3.6 in all
        factors_K = random_factors(30, generator)
        free, bounded = free.scaled(factors_K), bounded.scaled(factors_K)
        assert torch.equal(free.weights_K, bounded.weights_K)
    assert bounded.clipped_share == 0


def test_bins_that_meet_no_limit_keep_their_proportions():
    # the first may be 0.25 e^0.5 at most; what it loses goes to the others, which stay as 6 : 7 : 7
    p_K = bin_distribution(4, initial="uniform", bound=0.5).scaled(torch.tensor([4.0, 0.9, 1.05, 1.05])).probabilities_K
    top = 0.25 * math.exp(0.5)
    assert p_K.tolist() == pytest.approx([top, *((1 - top) * share for share in (0.3, 0.35, 0.35))])


def test_the_bounded_distribution_is_the_nearest_that_obeys_by_a_numerical_search(generator):
    for _ in range(5):
        p_K = torch.rand(5, generator=generator, dtype=torch.float64).exp() ** 3
        p_K, start_K = p_K / p_K.sum(), torch.full((5,), 0.2, dtype=torch.float64)
        low_K, high_K = start_K * math.exp(-0.4), start_K * math.exp(0.4)
        found = minimize(
            lambda q, p: float((q * np.log(q / p)).sum()),
            start_K.numpy(),
            args=(p_K.numpy(),),
            bounds=list(zip(low_K.tolist(), high_K.tolist(), strict=True)),
            constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        assert scaled_into(p_K, low_K, high_K).tolist() == pytest.approx(found.x.tolist(), abs=1e-4)


def test_a_bin_without_weight_stays_without_under_a_bound():
    bins = bin_distribution(3, initial=[0, 1, 1], bound=0.1)
    for _ in range(20):
        bins = bins.scaled(torch.tensor([1.25, 1.25, 0.8]))
    assert bins.probabilities_K.tolist() == pytest.approx([0, 1 - 0.5 * math.exp(-0.1), 0.5 * math.exp(-0.1)])


def test_the_odds_of_a_share_are_multiplied_and_stay_within_limits():
    assert scaled_odds(0.2, 2.0, (0.01, 0.6)) == pytest.approx(1 / 3)  # 1 : 4 becomes 2 : 4
    assert scaled_odds(scaled_odds(0.3, 1.25, (0, 1)), 0.8, (0, 1)) == pytest.approx(0.3)
    assert scaled_odds(0.55, 1.25, (0.01, 0.6)) == 0.6
    assert scaled_odds(0.011, 0.8, (0.01, 0.6)) == 0.01
