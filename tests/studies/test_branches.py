"""Branches from the same weights: equal where they should be, and counted right."""

import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pads.data.views import load_views
from pads.errors import UserError
from pads.sampling import bin_distribution
from pads.train import epoch_batches, nobody

TOOL = Path(__file__).parents[2] / "tools" / "branches.py"
SETTINGS = ["data.image_size=16", "data.resize=18", "data.store_size=20", "network.embedding_dim=8", "device=cpu"]
SETTINGS += ["data.classes_per_batch=3", "data.samples_per_class=2", "threads=1", "num_epochs=3"]
SETTINGS += ["data.reward_share=0.3", "data.selection_share=0.2"]
A, B = bin_distribution(initial="N(0.3, 0.1)"), bin_distribution(initial="N(1.1, 0.1)")


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("branches", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["branches"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def photos(noisy_photos):
    return noisy_photos(12)


@pytest.fixture(scope="module")
def options(tool, photos):
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return lambda *more: tool.parse(["--base", "folder", "--data", str(photos), *settings, *more])


@pytest.fixture(scope="module")
def trainee(tool, options):
    """Makes one anew; they all start alike."""
    config = tool.make_config(options())
    views = load_views(config, torch.device("cpu"), nobody)
    return lambda: tool.Trainee(config, views)


def same(ours, theirs):
    """Whether two nested states are equal to the bit."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        return all(map(same, ours, theirs))
    return torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs


# -- training in branches ----------------------------------------------------------------------------------------------


def test_going_back_forgets_everything_that_a_branch_did(trainee):
    made = trainee()
    made.train(range(2), A, "1")
    before = made.state()
    kept = made.state()
    made.train(range(2, 5), A, "1")
    there = made.state()
    assert same(before, kept)  # the branch did not train in the state that was put aside
    assert not same(there, before)
    made.go_back(before)
    assert same(made.state(), before)
    made.train(range(2, 5), A, "1")
    assert same(made.state(), there)
    assert same(before, kept)


def test_branches_with_the_same_distribution_and_draws_are_the_same_and_other_draws_are_not(tool, trainee):
    made = trainee()
    made.train(range(3), A, "before")  # from here on the optimiser has moments, which no branch may leave to the next
    levels, _ = tool.run_round(made, range(3, 7), A, A, "better", "soft-recall")
    assert set(levels) == set(tool.BRANCHES)
    assert levels["A"] == levels["B"]
    assert levels["A again"] == levels["B again"]
    assert levels["A"]["soft-recall"] != levels["A again"]["soft-recall"]
    assert levels["A elsewhere"]["soft-recall"] not in (levels["A"]["soft-recall"], levels["A again"]["soft-recall"])


@pytest.mark.parametrize(("keep", "distribution"), [("a", A), ("b", B)])
def test_training_goes_on_as_the_branch_that_was_kept(tool, trainee, keep, distribution):
    branched, straight = trainee(), trainee()
    _, kept = tool.run_round(branched, range(3), A, B, keep, "soft-recall")
    straight.train(range(3), distribution, "1")
    assert kept == keep.upper()
    assert same(branched.state(), straight.state())


@pytest.mark.parametrize("level", ["soft-recall", "recall@1"])
def test_the_better_of_two_branches_is_kept(tool, trainee, level):
    made = trainee()
    for start in (0, 3, 6):
        levels, kept = tool.run_round(made, range(start, start + 3), A, B, "better", level)
        assert levels[kept][level] == max(levels["A"][level], levels["B"][level])
        assert made.levels() == levels[kept]


def test_batches_are_those_of_the_training_and_elsewhere_others(trainee):
    made = trainee()
    per_epoch = made.steps_per_epoch
    whole = torch.cat([epoch_batches(made.config, made.views, epoch, per_epoch) for epoch in range(3)])
    for steps in (range(0, 1), range(per_epoch - 1, per_epoch + 1), range(2, 3 * per_epoch)):
        assert torch.equal(made.batches(steps, elsewhere=False), whole[steps.start : steps.stop])
        assert not torch.equal(made.batches(steps, elsewhere=True), whole[steps.start : steps.stop])


def test_an_adjustment_multiplies_each_bin_by_one_of_the_three_factors_and_differs_by_round(tool):
    first, second = tool.adjusted(A, 0, 0), tool.adjusted(A, 0, 1)
    ratios = first.weights_K / A.weights_K
    ratios = (ratios / ratios.min()).tolist()
    allowed = [x / y for x in (0.8, 1.0, 1.25) for y in (0.8, 1.0, 1.25)]
    assert all(min(abs(ratio - right) for right in allowed) < 1e-9 for ratio in ratios)
    assert not torch.equal(first.weights_K, second.weights_K)
    assert torch.equal(tool.adjusted(A, 0, 1).weights_K, second.weights_K)


# -- what the rounds say -----------------------------------------------------------------------------------------------


def made_up(tool, num, signal, noise, elsewhere, mean=0.0, seed=0):
    """Rounds whose truth is known: the effect of B is N(mean, signal²), each branch is off by N(0, noise²)."""
    random = np.random.default_rng(seed)
    rounds = []
    for _ in range(num):
        effect, off = random.normal(mean, signal), random.normal(0, noise, 5)
        truth = (0, 0, effect, effect, random.normal(0, elsewhere))
        levels = [float(0.5 + value + error) for value, error in zip(truth, off, strict=True)]
        rounds.append({name: {"soft-recall": value} for name, value in zip(tool.BRANCHES, levels, strict=True)})
    return rounds


@pytest.mark.parametrize(("signal", "noise"), [(0.02, 0.01), (0.01, 0.02), (0.0, 0.01)])
def test_signal_and_noise_are_told_apart(tool, signal, noise):
    found = tool.summary(made_up(tool, 20000, signal, noise, elsewhere=0.03), "soft-recall")
    assert found["signal"] == pytest.approx(signal, abs=0.0012)
    assert found["noise"] == pytest.approx(math.sqrt(2) * noise, rel=0.02)
    assert found["noise_elsewhere"] == pytest.approx(math.hypot(math.sqrt(2) * noise, 0.03), rel=0.02)
    # of two normal variables with correlation c, the signs agree with probability 1/2 + arcsin(c) / pi
    correlation = signal**2 / (signal**2 + 2 * noise**2)
    assert found["agreement"] == pytest.approx(0.5 + math.asin(correlation) / math.pi, abs=0.015)
    assert found["b_better"] == pytest.approx(0.5, abs=0.015)


def test_an_effect_that_is_always_the_same_is_the_mean_and_the_signal(tool):
    found = tool.summary(made_up(tool, 400, 0.0, 0.01, 0.0, mean=0.03), "soft-recall")
    assert found["mean"] == pytest.approx(0.03, abs=4 * found["standard_error"])
    assert found["standard_error"] == pytest.approx(0.01 / math.sqrt(400), rel=0.15)
    assert found["signal"] == pytest.approx(0.03, rel=0.05)
    assert found["b_better"] > 0.95


def test_without_any_noise_or_difference_nothing_is_divided_by_zero(tool):
    found = tool.summary(made_up(tool, 1, 0.0, 0.0, 0.0), "soft-recall")
    assert (found["signal"], found["noise"], found["ratio"], found["b_better"], found["agreement"]) == (
        0,
        0,
        0,
        0.5,
        0.5,
    )
    sure = tool.summary(made_up(tool, 3, 0.0, 0.0, 0.0, mean=0.1), "soft-recall")
    assert sure["ratio"] == math.inf
    assert sure["agreement"] == 1.0


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_every_level(tool, options, photos, tmp_path, monkeypatch, capsys):
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    more = ["--every", "1", "3", "--rounds", "2", "--seeds", "0", "1", "--b", "adjusted", "--out", str(tmp_path / "x")]
    monkeypatch.setattr(sys, "argv", ["branches", "--base", "folder", "--data", str(photos), *settings, *more])
    tool.main()
    printed = capsys.readouterr().out
    assert printed.count("| soft-recall | 4 |") == 2  # two seeds of two rounds, for each M
    assert "M = 3, seed 1: selection split at the end: recall@1" in printed
    results = json.loads((tmp_path / "x").read_text())
    assert [result["every"] for result in results] == [1, 3]
    assert all(set(branches) == set(tool.BRANCHES) for result in results for branches in result["rounds"])


def test_what_cannot_work_is_refused_with_words(tool, options):
    with pytest.raises(UserError, match="each must be at least 1"):
        tool.make_config(options("--every", "0"))
    with pytest.raises(UserError, match=r"write .uniform., .U\[0.3, 0.7\]."):
        tool.make_config(options("--b", "hard"))
    config = tool.make_config(options())
    with pytest.raises(UserError, match="less than a branch of 999: ask for more --epochs"):
        tool.every_round(config, 999, options())
