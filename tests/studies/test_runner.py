"""Running a study: what is done is skipped, what was cut goes on, what fails does not lose the rest."""

import json
import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest
import torch

from pads.config import Config, Part, from_json, with_settings
from pads.errors import UserError
from pads.losses import LOSSES, MarginLoss
from pads.networks import BACKBONES
from pads.runs import RunFolder
from pads.studies import Arm, Needs, Study, engines, pads, run_study, udist
from pads.studies.arms import freeze_policy, same_positives, static
from pads.studies.plan import Plan
from pads.studies.runner import TUNING_SEED, source_commit
from pads.studies.seeds import read_rows
from pads.studies.tables import AGENTS, CONTROLS, FREQUENCY, TRANSFER, VALIDATION
from pads.studies.tables import CURRICULA as SCHEDULES

TWO = Study("two", "U-dist and PADS", (Arm("udist", udist), Arm("pads", pads)), reference="udist")


def runs_of(result):
    return [(row["recipe"], int(row["seed"])) for row in result.rows]


@pytest.mark.parametrize("study", [AGENTS, CONTROLS, SCHEDULES, TRANSFER, VALIDATION], ids=lambda study: study.name)
def test_every_arm_of_a_study_runs_and_leaves_a_row(study, quick):
    result = run_study(study, **{**quick, "seeds": (0,), "epochs": 1})
    assert not result.failures
    assert {row["recipe"] for row in result.rows} == {arm.name for arm in study.arms}


def test_every_frequency_runs_but_those_that_settings_would_make_the_same(quick):
    assert not run_study(FREQUENCY, **{**quick, "seeds": (0,), "epochs": 1, "settings": without_m(quick)}).failures
    with pytest.raises(UserError, match="M-10 and M-30 the same"):
        run_study(FREQUENCY, **{**quick, "out": quick["out"] / "other"})
    assert not (quick["out"] / "other").exists()


def test_the_row_of_a_run_holds_what_the_run_measured(quick):
    result = run_study(TWO, **quick)
    assert runs_of(result) == [("udist", 0), ("pads", 0), ("udist", 1), ("pads", 1)]
    row = result.rows[1]
    run = RunFolder.open(quick["out"] / "runs" / "pads-0")
    figures = run.metrics
    curve = [json.loads(line) for line in (run.path / "test_curve.jsonl").read_text().splitlines()]
    best = max(curve, key=lambda point: point["recall@1"])
    for metric in ("recall@1", "recall@2", "map@r", "r-precision", "nmi"):
        assert float(row[f"last_{metric}"]) == figures["test"]["last"][metric]
        assert float(row[f"selected_{metric}"]) == figures["test"]["trained"][metric]
        assert float(row[f"untrained_{metric}"]) == figures["test"]["untrained"][metric]
        assert float(row[f"best_test_{metric}"]) == best[metric]
    assert (row["epochs"], row["selected_epoch"]) == ("2", str(figures["selection"]["epoch"]))
    assert row["selected_on"] == "selection"
    assert row["best_test_epoch"] == str(best["epoch"])
    assert float(row["seconds"]) > 0
    assert row["commit"] == "abc1234"


def test_what_is_done_is_not_run_again_and_new_seeds_are_added(quick, monkeypatch):
    run_study(TWO, **{**quick, "seeds": (0,)})
    before = (quick["out"] / "seeds.csv").read_bytes()
    started = []
    execute = engines.execute
    monkeypatch.setattr(engines, "execute", lambda job, watch: started.append(job.path.name) or execute(job, watch))
    run_study(TWO, **{**quick, "seeds": (0,)})
    assert started == []
    assert (quick["out"] / "seeds.csv").read_bytes() == before
    result = run_study(TWO, **{**quick, "seeds": (0, 1), "arms": ["pads"]})
    assert started == ["pads-1"]
    assert runs_of(result) == [("pads", 0), ("pads", 1)]


def test_the_tables_of_a_finished_study_need_no_images(quick):
    options = {**quick, "seeds": (0,), "epochs": 1, "arms": ["udist"]}
    run_study(TWO, **options)
    (quick["out"] / "table.md").unlink()
    assert len(run_study(TWO, **{**options, "data": "/nowhere"}).rows) == 1
    assert (quick["out"] / "table.md").exists()


def test_images_are_decoded_once_for_all_runs_that_share_them(quick, monkeypatch):
    decoded, load = [], engines.load_images
    monkeypatch.setattr(engines, "load_images", lambda *options: decoded.append(1) or load(*options))
    monkeypatch.setattr(engines, "_loaded", {})
    run_study(VALIDATION, **{**quick, "seeds": (0,), "epochs": 1})
    assert decoded == [1]


def test_configs_are_kept_without_the_paths_of_the_machine(quick, photos):
    run_study(CONTROLS, **{**quick, "seeds": (0,), "epochs": 1, "arms": ["pads", "replayed"]})
    for arm in ("pads", "replayed"):
        text = (quick["out"] / f"{arm}.json").read_text()
        assert str(photos) not in text
        assert str(quick["out"]) not in text
        assert from_json(text).recipe == arm
    about = {"study": "controls", "base": "folder", "data": "folder"}
    assert json.loads((quick["out"] / "study.json").read_text()) == about


def test_other_settings_are_refused_before_they_mix_with_what_is_there(quick):
    run_study(TWO, **{**quick, "seeds": (0,)})
    rows = (quick["out"] / "seeds.csv").read_bytes()
    with pytest.raises(UserError, match=r"udist with other settings \(num_epochs was 2, now 3\).*another --out"):
        run_study(TWO, **{**quick, "epochs": 3})
    with pytest.raises(UserError, match=r"network\.embedding_dim was 8, now 9"):
        run_study(TWO, **{**quick, "settings": [*quick["settings"], "network.embedding_dim=9"]})
    assert (quick["out"] / "seeds.csv").read_bytes() == rows


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arms": ["pad"]}, "there is no arm in the study two, 'pad'; did you mean pads"),
        ({"base": "cub"}, "there is no base 'cub'; did you mean cub200"),
        ({"seeds": ()}, "needs seeds"),
        ({"seeds": (-1,)}, "needs seeds of 0 or more"),
        ({"epochs": 0}, "epochs is 0"),
        ({"jobs": 0}, "jobs is 0"),
        ({"data": None}, "--data"),
        ({"data": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"weights": "nowhere.pth"}, "there is no file nowhere.pth"),
        ({"engine": "slurm"}, "there is no engine 'slurm'"),
        ({"engine": "ray", "jobs": 2}, "--jobs is for --engine local"),
        ({"gpus_per_run": 0.5}, "--engine ray"),
        ({"settings": ["num_epoch=3"]}, "num_epochs"),
        ({"settings": ["data.selection_share=0", "data.reward_share=0.2"], "tune": True}, "selection split, .* empty"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing_behind(quick, wrong, message):
    with pytest.raises(UserError, match=message):
        run_study(TWO, **{**quick, **wrong})
    assert not quick["out"].exists()


def test_own_images_start_from_weights_in_settings_that_suit_these(quick, tmp_path):
    """Their backbone and small steps for every arm; what is set stays set, and a benchmark's base expects weights anyway."""

    def list_choices(config):
        return config.network.backbone, config.network.frozen_batch_norm, config.optimiser.learning_rate

    weights = tmp_path / "weights.pth"
    torch.save(BACKBONES["resnet18"]().state_dict(), weights)
    plan = Plan(TWO, tmp_path / "plan", "folder", weights=str(weights))
    assert {list_choices(plan.config(arm, 0)) for arm in TWO.arms} == {("resnet18", True, 3e-5)}
    assert list_choices(replace(plan, weights=None).example) == ("small", False, 1e-3)
    given = replace(plan, settings=("network.backbone=resnet34", "optimiser.learning_rate=1e-4"))
    assert list_choices(given.example) == ("resnet34", True, 1e-4)
    assert replace(plan, base="cub200").example.network == replace(
        replace(plan, base="cub200", weights=None).example.network, weights=str(weights)
    )
    assert replace(plan, weights="imagenet").example.network.backbone == "resnet50"

    settings = [setting for setting in quick["settings"] if setting != "network.weights=none"]
    started = {"weights": str(weights), "settings": settings, "arms": ("udist",), "seeds": (0,), "epochs": 1}
    assert not run_study(TWO, **{**quick, **started}).failures
    assert RunFolder.open(quick["out"] / "runs" / "udist-0").metrics["weights"]["sha256"]


def test_a_study_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="there is no study 'control'; did you mean controls"):
        run_study("control")


def test_two_processes_cannot_run_the_same_study(quick):
    from pads.studies.runner import lock

    with lock(quick["out"]), pytest.raises(UserError, match="another process runs a study"):
        run_study(TWO, **quick)


# -- runs that need others ----------------------------------------------------------------------------------------------


def test_a_run_that_needs_another_is_run_after_it_and_takes_what_it_says(quick):
    result = run_study(CONTROLS, **{**quick, "seeds": (3, 5), "arms": ["replayed", "udist-rho"]})
    assert not result.failures
    rows = [(row["recipe"], int(row["seed"])) for row in read_rows(quick["out"] / "seeds.csv")]
    assert rows.index(("pads", 5)) < rows.index(("replayed", 3))
    assert {arm for arm, _ in runs_of(result)} == {"replayed", "udist-rho"}  # only what was asked for
    configs = {name: RunFolder.open(quick["out"] / "runs" / name).config for name in ("replayed-3", "replayed-5")}
    assert configs["replayed-3"].curriculum.options["run"].endswith("/runs/pads-5")
    assert configs["replayed-5"].curriculum.options["run"].endswith("/runs/pads-3")


def test_rho_is_the_share_of_positives_that_pads_of_the_same_seed_drew(tmp_path):
    run = RunFolder.create(tmp_path / "run", Config())
    with run:
        for share in (0.1, 0.4):
            run.append("events.jsonl", {"event": "training", "step": 1, "negative_of_class_share": share})
        run.append("events.jsonl", {"event": "adaptation", "step": 1})
    assert same_positives(Config(), run.path).sampling.rho == 0.25


def test_one_seed_alone_takes_from_a_run_of_the_seed_after_it(quick):
    result = run_study(TRANSFER, **{**quick, "seeds": (7,), "epochs": 1, "arms": ["reference", "policy-other-init"]})
    assert {("reference", "8")} == {(row["recipe"], row["seed"]) for row in read_rows(quick["out"] / "seeds.csv")} - {
        (row["recipe"], row["seed"]) for row in result.rows
    }
    options = RunFolder.open(quick["out"] / "runs" / "policy-other-init-7").config.curriculum.options
    assert options["freeze"] is True
    assert options["policy"].endswith("/runs/reference-8")


# -- failures -----------------------------------------------------------------------------------------------------------


def failing(base):
    return replace(static("random", Part("failing"))(base), sampling=udist(base).sampling)


class FailingLoss(MarginLoss):
    mend = False

    def value_and_share(self, *arguments):
        if not FailingLoss.mend:
            raise RuntimeError("the loss broke")
        return super().value_and_share(*arguments)


def test_an_arm_that_fails_does_not_lose_the_others_and_is_tried_again(quick, monkeypatch):
    monkeypatch.setitem(LOSSES, "failing", FailingLoss)
    monkeypatch.setattr(FailingLoss, "mend", False)
    needs = Needs("failing", freeze_policy)
    study = replace(TWO, arms=(Arm("failing", failing), Arm("after", pads, needs=needs), *TWO.arms))
    result = run_study(study, **{**quick, "seeds": (0,)})
    assert runs_of(result) == [("udist", 0), ("pads", 0)]
    assert result.failures.keys() == {("failing", 0), ("after", 0)}
    assert "RuntimeError: the loss broke" in result.failures["failing", 0]
    assert "it needs failing-0, which failed" in result.failures["after", 0]
    assert "in value_and_share" in (quick["out"] / "errors" / "failing-0.txt").read_text()
    monkeypatch.setattr(FailingLoss, "mend", True)
    result = run_study(study, **{**quick, "seeds": (0,), "arms": ["failing", "udist", "pads"]})
    assert not result.failures
    assert len(result.rows) == 3
    assert not (quick["out"] / "errors" / "failing-0.txt").exists()


def test_after_a_start_that_failed_other_settings_may_be_tried(quick):
    wrong = {**quick, "seeds": (0,), "settings": [*quick["settings"], "data.classes_per_batch=50"]}
    result = run_study(TWO, **wrong)
    assert result.failures.keys() == {("udist", 0), ("pads", 0)}
    assert "set data.classes_per_batch to" in result.failures["udist", 0]
    assert not run_study(TWO, **{**quick, "seeds": (0,)}).failures


# -- killed and resumed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_study_killed_in_the_middle_of_a_run_goes_on_and_ends_with_the_same_bits(
    quick, study_command, tmp_path, jobs
):
    quick = {**quick, "seeds": (0,), "epochs": 4}
    started = subprocess.Popen(study_command("--jobs", jobs, "--epochs", 4), stdout=subprocess.DEVNULL)
    checkpoints = quick["out"] / "runs"
    deadline = time.monotonic() + 120
    while not list(checkpoints.glob("*/checkpoints/step-*[1-9]*.safetensors")):
        assert started.poll() is None, "the study ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    started.send_signal(signal.SIGKILL)
    started.wait()
    cut = [run for run in checkpoints.iterdir() if not (run / "metrics.json").exists()]
    assert cut, "no run was cut: the test came too late"
    quick["arms"] = ["udist", "pads"]
    assert not run_study(CONTROLS, **quick, jobs=int(jobs)).failures

    whole = run_study(CONTROLS, **{**quick, "out": tmp_path / "whole"})
    for arm, seed in runs_of(whole):
        ours, theirs = (folder / "runs" / f"{arm}-{seed}" for folder in (quick["out"], tmp_path / "whole"))
        for name in ("events.jsonl", "metrics.json", "test_curve.jsonl"):
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), (arm, seed, name)

    def read_figures(folder):
        rows = [{**row, "seconds": ""} for row in read_rows(folder / "seeds.csv")]
        return sorted(rows, key=lambda row: (row["seed"], row["recipe"]))

    assert read_figures(quick["out"]) == read_figures(tmp_path / "whole")
    resumed = {run.name for run in cut}
    for row in read_rows(quick["out"] / "seeds.csv"):
        assert bool(row["seconds"]) == (f"{row['recipe']}-{row['seed']}" not in resumed)


def test_a_run_that_was_killed_before_it_had_a_config_is_started_anew(quick):
    (quick["out"] / "runs" / "udist-0" / "checkpoints").mkdir(parents=True)
    assert not run_study(TWO, **{**quick, "seeds": (0,), "arms": ["udist"]}).failures


# -- --tune -------------------------------------------------------------------------------------------------------------


def test_tuning_picks_what_the_selection_split_likes_best_and_never_looks_at_test(quick):
    quick = {**quick, "seeds": (0,), "epochs": 1, "settings": without_m(quick)}
    result = run_study(CONTROLS, **quick, arms=["udist", "udist-rho"], tune=True)
    assert not result.failures
    tuned = json.loads((quick["out"] / "tuned.json").read_text())
    assert tuned.keys() == {"udist", "pads"}
    for arm in ("udist", "pads"):
        scores = tuned[arm]["selection"]
        assert len(scores) == 4
        for number, (settings, score) in enumerate(scores.items()):
            run = RunFolder.open(quick["out"] / "tuning" / "runs" / f"{arm}@{number}-{TUNING_SEED}")
            assert run.metrics["selection"]["map@r"] == score
            assert with_settings(run.config, settings.split()) == run.config
        assert scores[" ".join(tuned[arm]["settings"])] == max(scores.values())
    rho = RunFolder.open(quick["out"] / "runs" / "udist-rho-0").config
    assert with_settings(rho, tuned["pads"]["settings"]) == rho  # it takes from pads, and shares its settings
    run = RunFolder.open(quick["out"] / "runs" / "udist-0")
    assert with_settings(run.config, tuned["udist"]["settings"]) == run.config
    # what was picked stays, with and without --tune
    assert runs_of(run_study(CONTROLS, **quick, arms=["udist"])) == [("udist", 0)]


def test_runs_that_were_not_tuned_are_not_mixed_with_those_that_are(quick):
    run_study(TWO, **{**quick, "seeds": (0,), "arms": ["udist"]})
    with pytest.raises(UserError, match="holds runs of udist that were not tuned: give another --out"):
        run_study(TWO, **{**quick, "seeds": (0,), "arms": ["udist"]}, tune=True)
    assert not (quick["out"] / "tuning").exists()


def without_m(quick):
    return [setting for setting in quick["settings"] if "adapt_every" not in setting]


def test_checkpoints_that_nobody_needs_are_dropped_when_asked(quick):
    run_study(CONTROLS, **{**quick, "seeds": (0,), "epochs": 1, "arms": ["udist", "pads"]}, drop_checkpoints=True)
    runs = quick["out"] / "runs"
    assert not (runs / "udist-0" / "checkpoints").exists()
    assert (runs / "udist-0" / "selected.safetensors").exists()
    assert list((runs / "pads-0" / "checkpoints").iterdir())  # replayed and others may still want it


def test_the_commit_is_that_of_the_sources():
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=os.path.dirname(__file__), capture_output=True)
    assert source_commit() in (said.stdout.decode().strip(), "")
