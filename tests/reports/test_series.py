"""What is read from a run folder is what the run wrote, as far as it has got."""

import json
from dataclasses import replace

import pytest
import torch

from pads.build import set_learning_rates
from pads.config import Config, Optimiser, Part
from pads.reports.series import learning_rate, series_of
from pads.runs import RunFolder


def events_of(run, kind):
    lines = (run.path / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_curves_are_the_numbers_of_the_events(runs):
    curves = series_of(runs["pads"])["curves"]
    training, adaptation = events_of(runs["pads"], "training"), events_of(runs["pads"], "adaptation")
    selection = events_of(runs["pads"], "selection")
    assert curves["loss"] == {"steps": [e["step"] for e in training], "values": [e["loss"] for e in training]}
    assert curves["reward/nmi"]["values"] == [e["nmi"] for e in adaptation]
    assert curves["reward"]["steps"] == [e["step"] for e in adaptation[1:]]  # the first adjustment has no reward yet
    assert curves["selection/map@r"]["values"] == [e["map@r"] for e in selection]
    entropies = [sum(e["policy_entropies"]) / len(e["policy_entropies"]) for e in adaptation]
    assert curves["policy_entropy"]["values"] == pytest.approx(entropies)
    assert len(curves["images_per_second"]["steps"]) == len(training)


def test_the_test_curve_is_there_if_it_was_asked_for(runs):
    lines = [json.loads(line) for line in (runs["static"].path / "test_curve.jsonl").read_text().splitlines()]
    assert series_of(runs["static"])["curves"]["test/nmi"]["values"] == [line["nmi"] for line in lines]
    assert not any(name.startswith("test/") for name in series_of(runs["pads"])["curves"])


def test_the_series_is_json_and_says_what_it_is_of(runs):
    series = series_of(runs["pads-1"])
    assert json.loads(json.dumps(series, allow_nan=False)) == series
    assert set(series) == {"recipe", "seed", "finished", "curves", "distribution", "drawn"}
    assert (series["recipe"], series["seed"], series["finished"]) == ("folder", 1, True)


@pytest.mark.parametrize("options", [Optimiser(), Optimiser(1e-3, milestones=(2, 3, 7), factor=0.5)])
def test_learning_rates_are_those_that_training_sets(options):
    weights = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.Adam([{"params": [weights], "initial_lr": options.learning_rate}])
    for epoch in range(10):
        set_learning_rates(optimiser, options, epoch)
        assert learning_rate(options, epoch) == optimiser.param_groups[0]["lr"]


def test_the_learning_rate_falls_at_the_step_of_its_milestone(runs):
    curve = series_of(runs["pads"])["curves"]["learning_rate"]
    selection = events_of(runs["pads"], "selection")
    per_epoch, last = selection[0]["step"], selection[-1]["step"]
    assert curve["steps"] == [0, per_epoch, 2 * per_epoch, 3 * per_epoch, last]
    assert curve["values"] == pytest.approx([1e-3, 1e-3, 3e-4, 3e-4, 3e-4])


def test_the_distribution_starts_as_initial_and_follows_the_adjustments(runs):
    made, adaptation = series_of(runs["pads"])["distribution"], events_of(runs["pads"], "adaptation")
    assert made["steps"] == [0, *(event["step"] for event in adaptation)]
    assert made["p"][1:] == [event["distribution"] for event in adaptation]
    assert len(made["edges"]) == 31
    assert (made["edges"][0], made["edges"][-1]) == (0.1, 1.4)
    centres = [(low + high) / 2 for low, high in zip(made["edges"], made["edges"][1:], strict=False)]
    assert all((p > 0.01) == (0.3 <= centre <= 0.7) for p, centre in zip(made["p"][0], centres, strict=True))
    assert [sum(row) for row in made["p"]] == pytest.approx([1.0] * len(made["p"]))


def test_what_was_drawn_is_there_for_every_rule(runs):
    for name in ("pads", "static"):
        drawn, training = series_of(runs[name])["drawn"], events_of(runs[name], "training")
        assert drawn["share"] == [event["drawn"] for event in training]
        assert len(drawn["edges"]) == len(drawn["share"][0]) + 1
    assert series_of(runs["static"])["distribution"] is None


def test_a_line_that_is_still_being_written_is_passed_over(stopped):
    lines = (stopped.path / "events.jsonl").read_text().splitlines()
    series = series_of(stopped)
    assert not series["finished"]
    assert len(series["drawn"]["steps"]) == sum('"training"' in line for line in lines[:-1])


def test_a_run_that_has_just_begun_has_no_curves_yet(config, tmp_path):
    series = series_of(RunFolder.create(tmp_path / "run", config))
    assert series["curves"] == {}
    assert series["drawn"] is None
    assert series["distribution"]["steps"] == [0]


def test_steps_that_a_resumed_run_timed_again_count_once_with_their_newest_time(run):
    with (run.path / "timing.jsonl").open("a") as file:
        file.write('{"step": 2, "seconds": 1.0, "images_per_second": 123.0}\n')
    curve = series_of(run)["curves"]["images_per_second"]
    assert curve["steps"] == sorted(set(curve["steps"]))
    assert curve["values"][curve["steps"].index(2)] == 123.0


@pytest.mark.parametrize(
    ("part", "num_bins"),
    [
        (Part("learned", {"bins": {"num_bins": 7}, "policy": "gone"}), 7),
        (Part("random actions", {"bins": {"num_bins": 5}}), 5),
        (Part("bins", {"num_bins": 9}), 9),
        (Part("linear", {"num_bins": 11}), 11),
        (Part("replayed", {"run": "gone"}), None),
        (Part("semihard"), None),
    ],
)
def test_the_bins_are_those_of_the_curriculum(tmp_path, part, num_bins):
    series = series_of(RunFolder.create(tmp_path / "run", replace(Config(), curriculum=part)))
    assert (series["distribution"] and len(series["distribution"]["p"][0])) == num_bins
