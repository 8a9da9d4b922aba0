"""Charts, bands over seeds, progressions and their means: against naive loops."""

import random
from dataclasses import replace
from statistics import mean, stdev

import numpy as np
import pytest

from pads.config import Config, Data, Optimiser, Part
from pads.reports.curves import band, charts_of, running_mean
from pads.reports.groups import Group, alike, curve_names, group_runs, labels_of
from pads.reports.heatmap import Progression, mean_progression


def curve_of(steps, values):
    return {"steps": list(steps), "values": list(values)}


def test_a_band_is_mean_and_standard_deviation_over_the_runs():
    numbers = random.Random(0)
    runs = [curve_of(range(5), [numbers.random() for _ in range(5)]) for _ in range(3)]
    made = band(runs)
    for at in range(5):
        values = [run["values"][at] for run in runs]
        assert made.mean[at] == pytest.approx(mean(values))
        assert made.sd[at] == pytest.approx(stdev(values))


def test_a_single_run_has_no_band():
    made = band([curve_of([1, 2], [3.0, 4.0])])
    assert (made.steps, made.mean, made.sd) == ([1, 2], [3.0, 4.0], None)


def test_a_band_ends_where_the_first_run_ends():
    made = band([curve_of([10, 20, 30], [1.0, 2.0, 3.0]), curve_of([10, 20], [3.0, 4.0])])
    assert (made.steps, made.mean) == ([10, 20], [2.0, 3.0])


@pytest.mark.parametrize("window", [1, 3, 20])
def test_the_running_mean_is_that_of_the_last_values(window):
    values = [float(random.Random(at).choice((-1, 0, 1))) for at in range(12)]
    made = running_mean(curve_of(range(12), values), window)["values"]
    assert made == pytest.approx([mean(values[max(0, at - window + 1) : at + 1]) for at in range(12)])


def test_charts_hold_the_curves_that_are_there_and_no_others():
    charts = charts_of(["loss", "reward/recall@10", "reward/recall@2", "selection/recall@2", "test/inter"])
    assert [chart.title for chart in charts] == ["Loss", "Recall@2", "Recall@10", "Distances on the test split"]
    assert [(line.name, line.style) for line in charts[1].lines] == [("selection/recall@2", 0), ("reward/recall@2", 1)]
    assert charts_of([]) == []


def test_every_curve_of_a_run_but_shares_without_a_chart_is_drawn(runs):
    names = {name for group in group_runs(runs.values()) for series in group.series for name in series["curves"]}
    charts = charts_of(names)
    drawn = {line.name for chart in charts for line in chart.lines}
    assert all(chart.title and chart.unit for chart in charts)
    assert names - drawn == {"positive_is_anchor_share", "clipped_share"}


# -- progressions ------------------------------------------------------------------------------------------------------


def progression(steps, until=100, seed=0, is_drawn=False):
    shares = np.random.default_rng(seed).dirichlet(np.ones(4), len(steps))
    return Progression(np.linspace(0.1, 1.4, 5), np.array(steps), shares, until, is_drawn)


def test_the_mean_progression_is_that_of_the_steps_that_all_reached():
    first, second = progression([0, 30, 60, 90], 100), progression([0, 30, 60], 75, seed=1)
    made = mean_progression([first, second])
    assert made.steps_T.tolist() == [0, 30, 60]
    for row in range(3):
        for k in range(4):
            assert made.shares_TK[row, k] == pytest.approx((first.shares_TK[row, k] + second.shares_TK[row, k]) / 2)
    assert made.until == 75


def test_p_holds_from_its_step_on_and_what_was_drawn_was_drawn_up_to_its_step():
    assert progression([0, 30, 60], 75).limits.tolist() == [0, 30, 60, 75]
    assert progression([30, 60], 60, is_drawn=True).limits.tolist() == [0, 30, 60]


def test_a_thinned_progression_keeps_its_ends():
    made = progression(range(0, 1000, 10), 1000).thin(7)
    assert len(made.steps_T) == 7
    assert (made.steps_T[0], made.steps_T[-1], made.limits[-1]) == (0, 990, 1000)
    short = progression([0, 10])
    assert short.thin(7) is short


# -- groups ------------------------------------------------------------------------------------------------------------


def test_seeds_are_one_group_and_other_settings_another(runs):
    groups = group_runs([runs["pads"], runs["static"], runs["pads-1"], runs["pads"]])
    assert [group.label for group in groups] == ["folder", "static"]
    assert [[series["seed"] for series in group.series] for group in groups] == [[0, 1], [0]]


def test_the_band_of_a_group_is_over_its_runs(runs):
    (group,) = group_runs([runs["pads"], runs["pads-1"]])
    values = [series["curves"]["loss"]["values"] for series in group.series]
    assert group.band("loss").mean == pytest.approx(np.mean(values, axis=0).tolist())
    assert group.band("test/nmi") is None


def test_a_share_of_what_no_run_ever_does_has_no_chart():
    def group(**curves):
        series = {"curves": {name: curve_of([1, 2], values) for name, values in curves.items()}}
        return Group("made up", (), (series,))

    never = group(negative_of_class_share=[0.0, 0.0], violation_share=[0.0, 0.0])
    late = group(negative_of_class_share=[0.0, 0.1])
    assert curve_names([never]) == {"violation_share"}  # that nothing costs anything is worth a chart
    assert curve_names([never, late]) == {"violation_share", "negative_of_class_share"}


def test_groups_of_one_recipe_are_told_apart_by_what_was_set():
    config = Config(recipe="emoji-pads")
    never, slow = replace(config, adapt_every=None), replace(config, optimiser=Optimiser(1e-6))
    rates = ["optimiser.learning_rate=1e-05", "optimiser.learning_rate=1e-06"]
    assert labels_of([config, never]) == ["emoji-pads (adapt_every=30)", "emoji-pads (adapt_every=None)"]
    assert labels_of([config, slow]) == [f"emoji-pads ({rate})" for rate in rates]
    assert labels_of([config, replace(config, recipe="other")]) == ["emoji-pads", "other"]
    assert labels_of([Config(curriculum=Part("random"))]) == ["random"]


def test_where_the_images_are_matters_for_own_images_alone():
    def at(name, root):
        return Config(data=Data(name=name, root=root))

    assert alike(at("cub200", "here")) == alike(at("cub200", "there"))
    for name in ("folder", "csv", "hf"):
        assert alike(at(name, "here")) != alike(at(name, "there"))
