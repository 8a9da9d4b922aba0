"""Controls: the learned curriculum with exactly one thing taken away, and what repeats another run."""

import itertools
import json
import math
import shutil
import signal
from dataclasses import replace

import pytest
import torch

import pads
from pads.autoconfig import resolve_auto
from pads.config import Part, with_settings
from pads.curricula import FixedCurriculum, LearnedCurriculum, build_curriculum
from pads.errors import UserError
from pads.recipes import CODE_BINS, RECIPES
from pads.runs.watch import nobody
from pads.sampling import bin_distribution

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "intra", "inter", "nmi")
TAKEN_AWAY = ("random actions", "random reward", "frozen policy")


def make(name, seed=0, **options):
    return build_curriculum(Part(name, options), dim=16, recall_at=(1, 2, 4, 8), seed=seed)


def improving(num):
    """Validations each of which is better than the one before."""
    return [dict.fromkeys(METRICS, index / num) for index in range(num)]


def made_up(num, seed=0):
    values = torch.rand(num, len(METRICS), generator=torch.Generator().manual_seed(seed)).tolist()
    return [dict(zip(METRICS, row, strict=True)) for row in values]


def advance(curriculum, validations):
    return [curriculum.advance(metrics, index / len(validations)) for index, metrics in enumerate(validations)]


def distributions(run):
    events = map(json.loads, (run.path / "events.jsonl").read_text().splitlines())
    return {event["step"]: event["distribution"] for event in events if event["event"] == "adaptation"}


# -- the learned curriculum with one thing taken away ------------------------------------------------------------------


@pytest.mark.parametrize("name", TAKEN_AWAY)
def test_a_control_takes_the_options_of_the_learned_curriculum_and_asks_for_the_same_metrics(name):
    options = {"bins": {**CODE_BINS, "num_bins": 7}, "reward": "nmi", "multipliers": [0.5, 2.0], "agent": "reinforce"}
    curriculum, learned = make(name, **options), LearnedCurriculum(**options)
    assert curriculum.metrics == learned.metrics
    assert torch.equal(curriculum.distribution.weights_K, learned.distribution.weights_K)
    for log, reference in zip(advance(curriculum, made_up(4)), advance(learned, made_up(4)), strict=True):
        assert len(log["actions"]) == 7
        assert set(log["actions"]) <= {0, 1}
        assert {"reward", "actions", "policy_entropies", "distribution", "perplexity", "clipped_share"} <= log.keys()
        assert log["reward"] is None or reference["reward"] is not None


def test_random_actions_are_uniform_whatever_the_metrics_and_nothing_learns_from_them():
    curriculum = make("random actions", multipliers=[0.8, 1.0, 1.25])
    logs = advance(curriculum, improving(1000))
    counts = torch.bincount(torch.tensor([log["actions"] for log in logs]).flatten(), minlength=3).double()
    expected = counts.sum() / 3
    assert ((counts - expected) ** 2 / expected).sum() < 13.8  # chi-square, 2 degrees of freedom, p = 0.001
    assert logs[0]["policy_entropies"] == pytest.approx([math.log(3)] * 30)
    assert {log["reward"] for log in logs[1:]} == {1.0}  # what the metrics say is still logged
    assert advance(make("random actions"), made_up(5))[-1]["actions"] == logs[4]["actions"]
    assert advance(make("random actions", seed=1), improving(5))[-1]["actions"] != logs[4]["actions"]


def test_a_random_reward_is_a_fair_coin_whatever_the_metrics():
    logs = advance(make("random reward", bins={"num_bins": 3}), improving(1000))[1:]
    coins = [log["reward"] for log in logs]
    assert set(coins) == {-1.0, 1.0}
    assert abs(sum(coins)) < 3.3 * math.sqrt(len(coins))  # p = 0.001
    pairs = [first * second for first, second in itertools.pairwise(coins)]
    assert abs(sum(pairs)) < 3.3 * math.sqrt(len(pairs))  # one throw says nothing of the next
    assert {log["earned"] for log in logs} == {1.0}
    assert [log["reward"] for log in advance(make("random reward"), made_up(20))[1:]] == coins[:19]
    assert [log["reward"] for log in advance(make("random reward", seed=1), made_up(20))[1:]] != coins[:19]


@pytest.mark.parametrize("agent", ["ppo", "reinforce"])
def test_with_a_random_reward_the_policy_learns_from_the_coin_and_from_nothing_else(agent):
    """The learned curriculum, told of metrics that rise and fall with the coin, does the same."""
    curriculum = make("random reward", agent=agent, state=["distances"])
    logs = advance(curriculum, improving(12))
    level, told = 0.5, []
    for index, log in enumerate(logs):
        level += 0.01 * (log["reward"] or 0)
        told.append({**improving(12)[index], "recall@1": level, "nmi": level})
    expected = advance(make("learned", agent=agent, state=["distances"]), told)
    for log, other in zip(logs, expected, strict=True):
        log.pop("earned", None)
        assert log == other


def test_a_frozen_policy_acts_by_its_first_weights_for_ever():
    curriculum, learned = make("frozen policy"), make("learned")
    before = {name: weight.clone() for name, weight in curriculum.agent.network.state_dict().items()}
    logs, reference = advance(curriculum, made_up(20)), advance(learned, made_up(20))
    assert all(torch.equal(weight, before[name]) for name, weight in curriculum.agent.network.state_dict().items())
    assert any(not torch.equal(weight, before[name]) for name, weight in learned.agent.network.state_dict().items())
    assert all("policy_loss" not in log for log in logs)
    assert logs[0] == reference[0]  # before the first reward there is no difference
    assert logs[-1]["actions"] != logs[-2]["actions"]
    assert [log["reward"] for log in logs] == [log["reward"] for log in reference]


# -- what another run did ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [{}, {"bins": CODE_BINS}], ids=["paper", "code"])
def test_a_replay_draws_by_the_distributions_of_the_other_run_at_the_same_progress(finished_run, bins):
    run = finished_run("source", steps=range(30, 300, 30), num_steps=300, **bins)
    curriculum = make("replayed", run=str(run.path))
    source = LearnedCurriculum(**bins).distribution
    assert curriculum.metrics == ()
    assert torch.equal(curriculum.distribution.weights_K, source.weights_K)
    assert (curriculum.distribution.tails, curriculum.distribution.drawing) == (source.tails, source.drawing)
    for step, p in distributions(run).items():
        log = curriculum.advance({}, step / 300)
        assert log["distribution"] == pytest.approx(p, rel=1e-12)
        assert torch.equal(curriculum.distribution.weights_K, torch.tensor(p, dtype=torch.float64))


@pytest.mark.parametrize(("num_steps", "every"), [(100, 10), (100, 3), (700, 1), (50, 20)])
def test_a_replay_with_other_numbers_of_steps_and_adaptations_keeps_to_the_progress(finished_run, num_steps, every):
    run = finished_run("source", steps=range(30, 301, 30), num_steps=300)
    curriculum, source = make("replayed", run=str(run.path)), distributions(run)
    for step in range(every, num_steps + 1, every):
        curriculum.advance({}, step / num_steps)
        begun = [at for at in source if at * num_steps <= step * 300]  # whole numbers: nothing is rounded
        expected = source[begun[-1]] if begun else bin_distribution().weights_K.tolist()
        assert curriculum.distribution.weights_K.tolist() == expected


def test_the_last_distribution_of_a_run_is_drawn_by_from_the_start_and_stays(finished_run):
    run = finished_run("source", steps=range(30, 300, 30), num_steps=300, bins={"num_bins": 12, "tails": "merge"})
    curriculum = make("last distribution", run=str(run.path))
    assert isinstance(curriculum, FixedCurriculum)
    assert curriculum.rule.distribution.weights_K.tolist() == distributions(run)[270]
    assert curriculum.rule.distribution.tails == "merge"
    assert curriculum.advance({}, 0.5) == {}
    assert curriculum.rule.distribution.weights_K.tolist() == distributions(run)[270]


@pytest.mark.parametrize("source", ["learned", *TAKEN_AWAY])
def test_a_run_of_a_control_can_be_repeated_too(finished_run, source):
    run = finished_run("source", steps=[5], num_steps=10, curriculum=source)
    weights_K = torch.tensor(distributions(run)[5], dtype=torch.float64)
    curriculum = make("replayed", run=str(run.path))
    assert torch.equal(curriculum.distribution.weights_K, make(source).distribution.weights_K)
    curriculum.advance({}, 0.5)
    assert torch.equal(curriculum.distribution.weights_K, weights_K)
    assert torch.equal(make("last distribution", run=str(run.path)).rule.distribution.weights_K, weights_K)
    assert not torch.equal(weights_K, make(source).distribution.weights_K)


def test_a_trained_run_is_replayed_by_another_that_is_stopped_and_resumed_on_its_way(noisy_photos, tmp_path):
    sizes = [
        "network.weights=none",
        "data.image_size=16",
        "data.resize=18",
        "data.store_size=20",
        "network.embedding_dim=8",
        "device=cpu",
    ]
    batches = ["data.classes_per_batch=2", "data.samples_per_class=2", "adapt_every=1", "data.selection_share=0"]
    batches.append("data.reward_share=0.15")
    settings = [f"data.root={noisy_photos(6, 5)}", "num_epochs=4", *sizes, *batches]
    config = resolve_auto(with_settings(RECIPES["folder-pads"](), settings), torch.device("cpu"), nobody)
    source = pads.train(config, tmp_path / "source")

    def stop(kind, step, values):
        if kind == "step" and step == 4:
            signal.raise_signal(signal.SIGINT)

    replay = replace(config, curriculum=Part("replayed", {"run": str(source.path)}), seed=1)
    with pytest.raises(KeyboardInterrupt):
        pads.train(replay, tmp_path / "replay", watch=stop)
    run = pads.resume(tmp_path / "replay")
    assert len(distributions(source)) == source.metrics["steps"] > 6
    assert distributions(run).keys() == distributions(source).keys()
    for step, p in distributions(source).items():
        assert distributions(run)[step] == pytest.approx(p, rel=1e-12)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TAKEN_AWAY)
@pytest.mark.parametrize("option", ["policy", "freeze"])
def test_a_policy_from_another_run_is_no_control(name, option):
    with pytest.raises(UserError, match=rf"there is no option 'curriculum\.options\.{option}'"):
        make(name, **{option: "runs/x"})


@pytest.mark.parametrize("name", TAKEN_AWAY)
def test_the_options_of_a_control_are_checked_as_those_of_the_learned_curriculum(name):
    for options, words in (
        ({"multipliers": [1.0]}, "give at least two positive factors"),
        ({"agent_options": {"clp": 0.1}}, "did you mean curriculum.options.agent_options.clip"),
        ({"bins": 30}, "curriculum.options.bins must be a group of options or null, not 30"),
    ):
        with pytest.raises(UserError) as refused:
            make(name, **options)
        assert words in str(refused.value)


@pytest.mark.parametrize("name", ["replayed", "last distribution"])
def test_a_run_that_cannot_be_repeated_is_refused_with_words(name, finished_run, tmp_path):
    def refused(run):
        with pytest.raises(UserError) as error:
            make(name, **({} if run is None else {"run": str(run)}))
        return str(error.value)

    assert "name it with curriculum.options.run=RUN" in refused(None)
    assert "does not exist" in refused(tmp_path / "nowhere")
    assert "is not a run folder" in refused(tmp_path)
    scheduled = finished_run("scheduled", steps=[5], num_steps=10, curriculum="linear")
    assert "was trained with the curriculum 'linear': name a run of an adaptive curriculum" in refused(scheduled.path)
    repeated = finished_run("source", steps=[5], num_steps=10).path
    again = finished_run("again", steps=[5], num_steps=10, curriculum="replayed", run=str(repeated)).path
    assert "was trained with the curriculum 'replayed'" in refused(again)
    never = finished_run("never", steps=[], num_steps=10)
    assert "never adjusted its distribution" in refused(never.path)
    (never.path / "events.jsonl").unlink()
    assert "never adjusted its distribution" in refused(never.path)
    cut = shutil.copytree(repeated, tmp_path / "cut")
    (cut / "metrics.json").unlink()
    assert "is not finished: go on with `pads train --resume" in refused(cut)
