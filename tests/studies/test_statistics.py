"""Student's t, intervals and paired differences, against scipy and against numbers worked out by hand."""

import math
import random

import pytest
from scipy import special, stats

from pads.metrics.student import incomplete_beta, t_quantile
from pads.studies.statistics import (
    difference,
    estimate,
    interval,
    mean_and_sd,
    paired_difference,
)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 7, 9, 14, 29, 99, 999, 0.5, 2.5])
@pytest.mark.parametrize("probability", [0.5, 0.6, 0.75, 0.9, 0.975, 0.995, 0.9999, 0.025, 0.001])
def test_quantiles_of_t_are_those_of_scipy(degrees, probability):
    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-9, abs=1e-9)


def test_the_incomplete_beta_function_is_that_of_scipy():
    draw = random.Random(0)
    for _ in range(200):
        a, b, x = draw.uniform(0.1, 60), draw.uniform(0.1, 60), draw.random()
        assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-14)
    assert (incomplete_beta(2, 3, 0.0), incomplete_beta(2, 3, 1.0)) == (0.0, 1.0)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 11, 30])
def test_an_estimate_is_that_of_scipy_for_any_number_of_seeds(n):
    draw = random.Random(n)
    values = [draw.gauss(60, 2) for _ in range(n)]
    found = estimate(values)
    low, high = stats.t.interval(0.95, n - 1, loc=sum(values) / n, scale=stats.sem(values))
    assert found.n == n
    assert found.mean == pytest.approx(sum(values) / n)
    assert found.sd == pytest.approx(stats.tstd(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_one_value_has_a_mean_and_no_spread_and_none_has_nothing():
    found = estimate([3.0])
    assert (found.n, found.mean) == (1, 3.0)
    assert math.isnan(found.sd)
    assert math.isnan(found.low)
    assert estimate([]).n == 0


def test_values_that_are_all_the_same_have_an_interval_of_no_width():
    assert estimate([2.0, 2.0, 2.0]) == (3, 2.0, 0.0, 2.0, 2.0)


def test_a_difference_is_taken_between_runs_of_the_same_seed():
    ours, theirs = {0: 5.0, 1: 7.0, 2: 9.0, 8: 100.0}, {2: 6.0, 0: 4.0, 1: 5.0, 9: -100.0}
    found = paired_difference(ours, theirs)
    assert (found.n, found.mean, found.sd) == (3, 2.0, 1.0)
    assert found[3:] == pytest.approx(
        stats.ttest_rel([5.0, 7.0, 9.0], [4.0, 5.0, 6.0]).confidence_interval(0.95), rel=1e-9
    )
    assert paired_difference(ours, {}).n == 0


def test_as_text():
    values = [60.0, 61.0, 62.0]
    assert mean_and_sd(values) == "61.0 ± 1.0"
    assert mean_and_sd([61.04]) == "61.0"
    assert mean_and_sd([]) == ""
    assert interval(estimate(values)) == "[58.52, 63.48]"
    assert interval(estimate([61.0])) == ""
    assert difference(estimate([1.0, 2.0, 3.0])) == "+2.00 [-0.48, +4.48]"
    assert difference(estimate([-1.0])) == "-1.00"
    assert difference(estimate([])) == ""
