"""The command line as a person meets it, from the help to the figures of a run."""

from __future__ import annotations

import importlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pads
from pads.cli import SPLITS, main, make_parser
from pads.config import drop_auto, from_json, from_values, with_settings
from pads.recipes import RECIPES

torch.set_num_threads(1)

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SETTINGS = [
    *(
        "--set",
        "network.weights=none",
        "--set",
        "data.image_size=16",
        "--set",
        "data.resize=16",
        "--set",
        "data.store_size=16",
    ),
    *("--set", "data.classes_per_batch=4", "--set", "data.samples_per_class=2", "--set", "threads=1"),
    *("--set", "adapt_every=1", "--set", "log_every=1", "--set", "data.reward_share=0.15"),
    "--no-report",
    "--no-index",  # which has tests of its own
]
COMMANDS = next(action.choices for action in make_parser()._actions if isinstance(action.choices, dict))


def answer(capsys, *arguments: object) -> str:
    """What a command that goes well prints."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert left.value.code == 0, left.value.code
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def photos(noisy_photos) -> Path:
    return noisy_photos(10)


@pytest.fixture(scope="module")
def finished(photos, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "finished run"
    arguments = ["train", "folder-pads", "--data", str(photos), "--run", str(run), "--seed", "3", "--tensorboard"]
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--set", "num_epochs=2", *SETTINGS])
    assert left.value.code == 0
    return run


# -- help and recipes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["recipes"], ["train", "--help"], ["train", "nothing"]])
def test_what_needs_no_torch_does_not_wait_for_it(arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-X", "importtime", "-m", "pads", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    imported = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines() if "|" in line}
    assert "pads.cli" in imported
    assert not imported & {"torch", "numpy", "rich", "PIL"}
    # of the processor, since others may be at work on the machine
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


def test_the_help_names_every_command(capsys):
    out = answer(capsys, "--help")
    assert all(re.search(rf"^ +{name} +\w", out, re.MULTILINE) for name in COMMANDS)
    assert answer(capsys) == out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_that_explains_each_option(capsys, command):
    out = answer(capsys, command, "--help")
    assert out.startswith(f"usage: pads {command}")
    for action in COMMANDS[command]._actions:
        assert action.help, action
        assert (action.option_strings or [action.metavar])[-1] in out


def test_the_version_is_the_package_version(capsys):
    assert answer(capsys, "--version") == f"pads {pads.__version__}\n"


def test_recipes_are_listed_with_a_line_each(capsys):
    lines = answer(capsys, "recipes").splitlines()
    listed = [line.split() for line in lines if line.startswith("  ")]
    assert sorted(words[0] for words in listed) == sorted(RECIPES)
    assert all(len(words) > 3 for words in listed)


def test_recipes_for_ones_own_images_are_listed_first_and_the_others_by_their_images(capsys):
    lines = answer(capsys, "recipes").splitlines()
    assert lines[0] == "Your own images"
    assert lines[1].split()[0] == "folder"
    groups = answer(capsys, "recipes").split("\n\n")
    datasets = [{drop_auto(RECIPES[line.split()[0]]()).data.name for line in g.splitlines()[1:]} for g in groups[:-1]]
    assert datasets[0] == {"folder", "csv", "hf"}
    assert all(len(each) == 1 for each in datasets[1:])


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_shown_as_the_json_of_its_config(capsys, name):
    shown = from_values(json.loads(answer(capsys, "recipes", name)))
    assert shown == with_settings(RECIPES[name](), [f"recipe={name}"])


def test_a_reader_that_leaves_early_is_no_error():
    process = subprocess.run(
        ["bash", "-c", '"$0" -m pads recipes | true', sys.executable], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert process.stderr == ""


# -- training ----------------------------------------------------------------------------------------------------------


def test_training_ends_with_the_table_the_protocol_and_the_place(capsys, photos, tmp_path):
    run = tmp_path / "run"
    out = answer(capsys, "train", "folder", "--data", photos, "--run", run, "--set", "num_epochs=2", *SETTINGS)
    lines = out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:1] == ["R@1"])
    assert lines[head].split() == ["R@1", "R@2", "R@4", "R@8", "MAP@R", "NMI"]
    figures = json.loads((run / "metrics.json").read_text())
    for line, row in zip(lines[head + 1 :], ("raw pixels", "untrained", "trained"), strict=False):
        name, *numbers = re.split(r"\s{2,}", line)
        assert name == row
        keys = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "nmi")
        assert numbers == [f"{100 * figures['test'][row][key]:.1f}" for key in keys]
    epoch = figures["selection"]["epoch"]
    assert f"trained: the network of epoch {epoch}, picked on the selection split (protocol: selected)" in out
    assert f"The run is in {run}" in out
    assert "\x1b" not in out  # no terminal, no colours


def test_options_reach_the_config_of_the_run(finished, photos):
    config = from_json((finished / "config.json").read_text())
    assert (config.recipe, config.seed, config.num_epochs) == ("folder-pads", 3, 2)
    assert config.data.root == str(photos)
    assert json.loads((finished / "environment.json").read_text())["command"]


def test_a_run_without_a_name_gets_the_next_free_one(capsys, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        answer(capsys, "train", "folder", "--data", photos, "--seed", 1, "--set", "num_epochs=1", *SETTINGS)
    assert sorted(path.name for path in Path("runs").iterdir()) == ["folder-1", "folder-1-2"]


def test_figures_picked_on_the_test_split_are_marked_everywhere(capsys, photos, tmp_path):
    run = tmp_path / "run"
    options = ["--paper-protocol", "--set", "num_epochs=1", *SETTINGS]
    out = answer(capsys, "train", "folder", "--data", photos, "--run", run, *options)
    assert "in percent, test-selected" in out
    assert "(protocol: test-selected)" in out
    assert "test R@1" in out
    assert "validation" not in out
    assert "test-selected" in answer(capsys, "evaluate", run)
    assert json.loads(answer(capsys, "evaluate", run, "--json"))["protocol"] == "test-selected"


def test_without_a_selection_split_the_last_epoch_counts(capsys, photos, tmp_path):
    options = ["--set", "data.selection_share=0", "--set", "num_epochs=1", *SETTINGS]
    out = answer(capsys, "train", "folder", "--data", photos, "--run", tmp_path / "run", *options)
    assert "the last epoch (protocol: last)" in out
    assert "loss" in out  # there is still a line to follow
    assert json.loads(answer(capsys, "evaluate", tmp_path / "run", "--json"))["protocol"] == "last"


def test_resuming_a_finished_run_shows_its_figures_and_changes_nothing(capsys, finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    out = answer(capsys, "train", "--resume", finished)
    assert "is finished already" in out
    assert re.search(r"^trained( +\d+\.\d){6}$", out, re.MULTILINE)
    assert f"The run is in {finished}" in out
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_resuming_with_another_number_of_threads_is_said(capsys, photos, tmp_path):
    run = tmp_path / "run"
    auto = ["--set", "num_epochs=1", "--set", "threads=null"]
    answer(capsys, "train", "folder", "--data", photos, "--run", run, *SETTINGS, *auto)
    (run / "metrics.json").unlink()
    assert "threads" not in answer(capsys, "train", "--resume", run, "--no-report", "--no-index")
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "threads": 7}))
    (run / "metrics.json").unlink()
    out = answer(capsys, "train", "--resume", run, "--no-report", "--no-index")
    assert f"The run began with 7 threads and goes on with {torch.get_num_threads()}" in out
    assert "OMP_NUM_THREADS=7" in out
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "threads": 1}))
    (run / "metrics.json").unlink()
    assert "The run began" not in answer(capsys, "train", "--resume", run, "--no-report", "--no-index")


def stop_here(*_, **__):
    raise SystemExit(9)  # as if killed: nothing after it runs


@pytest.mark.parametrize("stopped_at", ["report", "index"])
def test_a_run_that_was_killed_while_its_report_was_drawn_gets_it_with_resume(
    capsys, photos, tmp_path, monkeypatch, stopped_at
):
    run = tmp_path / "run"
    target = {"report": "pads.reports.report.write_report", "index": "pads.search.build_index"}[stopped_at]
    with monkeypatch.context() as killed:
        killed.setattr(target, stop_here)
        with pytest.raises(SystemExit):
            main(["train", "folder", "--data", str(photos), "--run", str(run), "--set", "num_epochs=1", *SETTINGS[:-2]])
    assert (run / "metrics.json").exists() and not (run / "report.html").exists()
    out = answer(capsys, "train", "--resume", run)
    assert "is finished already" in out
    assert out.splitlines()[-1] == f"Next: open {run / 'report.html'}"
    assert (run / "report.html").exists() and (run / "images-index" / "index.json").exists()
    again = answer(capsys, "train", "--resume", run)
    assert "Drawing" not in again


def test_evaluate_finds_the_figures_of_the_run_again(capsys, finished):
    test = json.loads((finished / "metrics.json").read_text())["test"]
    figures = json.loads(answer(capsys, "evaluate", finished, "--json"))
    assert (figures.pop("split"), figures.pop("protocol")) == ("test", "selected")
    assert (figures.pop("images"), figures.pop("classes")) == (12, 2)
    assert figures.pop("baselines") == {"raw pixels": pytest.approx(test["raw pixels"])}
    compared = json.loads((finished / "metrics.json").read_text())["compared"]
    assert compared["gain_over"].pop("untrained")
    assert figures.pop("compared") == compared
    assert figures == pytest.approx(test["trained"])
    last = json.loads(answer(capsys, "evaluate", finished, "--checkpoint", "last", "--json"))
    assert last.pop("protocol") == "last"
    assert last["recall@1"] == pytest.approx(test["last"]["recall@1"])
    lines = answer(capsys, "evaluate", finished).splitlines()
    assert lines[1].split()[0] == "R@1"
    assert lines[0] == "test split, 12 images of 2 classes, in percent (protocol: selected)"
    assert lines[2].startswith("raw pixels")
    assert lines[3].split()[:2] == ["trained", f"{100 * test['trained']['recall@1']:.1f}"]


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_can_be_evaluated(capsys, finished, split):
    assert f"{split} split" in answer(capsys, "evaluate", finished, "--split", split)


def test_names_that_are_no_text_can_be_said(capsys, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    os.rename(
        tmp_path / "photos" / "class-01" / "0.png", os.fsencode(tmp_path / "photos" / "class-01") + b"/caf\xe9.png"
    )
    (tmp_path / "photos" / "class-01").joinpath(os.fsdecode(b"caf\xe9.png")).write_bytes(b"bad")
    options = ["--skip-bad-images", "--set", "num_epochs=1", *SETTINGS]
    out = answer(capsys, "train", "folder", "--data", tmp_path / "photos", "--run", tmp_path / "run", *options)
    assert "caf\\udce9.png" in out


# -- TensorBoard -------------------------------------------------------------------------------------------------------


def test_tensorboard_gets_the_numbers_and_the_distributions(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(finished / "tensorboard")).Reload()
    events = [json.loads(line) for line in (finished / "events.jsonl").read_text().splitlines()]
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "training"}
    assert {each.step: each.value for each in board.Scalars("training/loss")} == pytest.approx(losses)
    assert "selection/recall@1" in board.Tags()["scalars"]
    assert "adaptation/reward" in board.Tags()["scalars"]
    counts = board.Histograms("adaptation/distribution")[-1].histogram_value.bucket
    last = [event["distribution"] for event in events if event["event"] == "adaptation"][-1]
    assert list(counts) == pytest.approx(last)


def test_a_missing_tensorboard_is_answered_with_how_to_install_it(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SystemExit) as left:
        main(["train", "folder", "--data", str(photos), "--run", str(tmp_path / "run"), "--tensorboard", *SETTINGS])
    assert 'pip install "pads-dml[track]"' in str(left.value.code)
    assert not (tmp_path / "run").exists()


# -- stopping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_once_how_to_go_on_and_can(capsys, photos, tmp_path, stop):
    run = tmp_path / "my run"
    command = [sys.executable, "-m", "pads", "train", "folder", "--data", photos, "--run", run]
    process = subprocess.Popen(
        [*command, "--set", "num_epochs=100000", *SETTINGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 2/" in line:
            process.send_signal(stop)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(rf"Stopped: saved at step \d+ of \d+, go on with: pads train --resume '{run}'\n", err)
    assert "Stopped" not in out
    step = int(re.findall(r"step (\d+)", err)[0])
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "num_epochs": step // 3 + 2}))
    assert f"resuming folder, seed 0 from step {step}," in answer(
        capsys, "train", "--resume", run, "--no-report", "--no-index"
    )


def test_an_interrupt_before_there_is_a_run_says_no_more_than_that(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    module = importlib.import_module("pads.train")  # its name in the package is the function's
    monkeypatch.setattr(module, "load_images", interrupted)
    with pytest.raises(SystemExit) as left:
        main(["train", "emoji-pads"])
    assert left.value.code == 130
    assert capsys.readouterr().err == "Stopped.\n"
