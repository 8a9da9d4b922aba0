"""The first thing a reader sees must be true: figures, protocol, and the paper's number beside them."""

import json
from dataclasses import replace
from statistics import mean, stdev

import pytest

from pads.config import Part
from pads.recipes import RECIPES
from pads.reports.groups import Group, group_runs
from pads.reports.headline import PAPER, changes_of, headline_of
from pads.runs import RunFolder


def figures_of(run):
    return json.loads((run.path / "metrics.json").read_text())["test"]


def test_one_run_shows_its_own_figures(runs):
    made = headline_of(group_runs([runs["pads"]])[0])
    test = figures_of(runs["pads"])
    assert list(made["rows"]) == ["raw pixels", "untrained", "last", "trained"]
    assert made["rows"]["trained"]["recall@1"] == (test["trained"]["recall@1"], None)
    assert made["protocol"] == "selected"
    about = dict(made["about"])
    assert about["images"].startswith("folder (images of classes: train ")
    assert about["images"].endswith("test 30 of 5)")
    assert about["negatives"].startswith("learned (agent ppo")


def test_several_runs_show_mean_and_standard_deviation(runs):
    made = headline_of(group_runs([runs["pads"], runs["pads-1"]])[0])
    values = [figures_of(runs[name])["trained"]["nmi"] for name in ("pads", "pads-1")]
    assert made["rows"]["trained"]["nmi"] == pytest.approx((mean(values), stdev(values)))
    assert made["rows"]["raw pixels"]["nmi"][1] is None  # the same for every seed
    assert "Mean ± standard deviation of 2 runs." in made["notes"]


def test_a_run_that_is_not_finished_says_so_and_has_no_final_figures(stopped):
    made = headline_of(group_runs([stopped])[0], {"recall@1": 0.5})
    assert made["protocol"] == "unfinished"
    assert made["rows"] == {"so far": {"recall@1": (0.5, None)}}


def test_unfinished_runs_are_not_averaged_into_the_finished(runs, stopped):
    made = headline_of(group_runs([runs["pads"], stopped])[0])
    assert made["rows"]["trained"]["nmi"] == (figures_of(runs["pads"])["trained"]["nmi"], None)
    assert "1 of 2 runs are not finished and not counted here." in made["notes"]


def test_figures_picked_on_the_test_split_are_marked(run):
    metrics = json.loads((run.path / "metrics.json").read_text())
    (run.path / "metrics.json").write_text(json.dumps({**metrics, "protocol": "test-selected"}))
    made = headline_of(group_runs([run])[0])
    assert made["protocol"] == "test-selected"
    assert "test split itself" in made["protocol_note"]


def test_the_papers_numbers_are_of_recipes_that_exist_and_are_fractions():
    assert PAPER.keys() <= RECIPES.keys()
    for where, figures in PAPER.values():
        assert where.startswith("Tab. ")
        assert all(0.5 < value < 1 for value in figures.values())
    assert PAPER["cub200-margin-pads"][1]["recall@1"] == 0.673
    assert PAPER["cub200-margin-udist"][1]["recall@1"] == 0.635


@pytest.mark.parametrize(("weights", "is_comparable"), [(None, False), ("imagenet", True)])
def test_the_paper_stands_beside_its_recipe_with_what_must_be_known(tmp_path, weights, is_comparable):
    config = replace(RECIPES["cub200-margin-pads"](), recipe="cub200-margin-pads", seed=3, device="cpu")
    config = replace(config, network=replace(config.network, weights=weights), data=replace(config.data, root="birds"))
    made = headline_of(Group("cub200-margin-pads", (RunFolder.create(tmp_path / "run", config),), ()))
    assert made["rows"]["paper"]["recall@1"] == (0.673, None)
    assert any("not comparable" in note for note in made["notes"]) != is_comparable
    assert not any("Changed" in note for note in made["notes"])


def test_what_a_run_changed_of_its_recipe_is_said(tmp_path):
    recipe = replace(RECIPES["cub200-margin-pads"](), recipe="cub200-margin-pads")
    config = replace(recipe, num_epochs=7, loss=Part("margin", {"beta": 0.9}))
    notes = headline_of(Group("changed", (RunFolder.create(tmp_path / "run", config),), ()))["notes"]
    assert "Changed from the recipe: loss.options.beta=0.9, num_epochs=7." in notes
    assert "The paper's number is of the recipe as it stands, and this run changed it." in notes


def test_what_the_recipe_left_to_the_run_was_not_changed(config):
    assert config.optimiser.learning_rate == 1e-3
    changes = changes_of(config)
    assert not any(change.startswith("optimiser.learning_rate") for change in changes)
    assert "adapt_every=2" in changes
