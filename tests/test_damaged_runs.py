"""A run folder that was killed early, damaged, moved, or made by a stranger."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pads.config import with_settings
from pads.errors import UserError
from pads.model import evaluate_run
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.runtime import files
from pads.train import resume, train

torch.set_num_threads(1)

TINY = (
    "data.image_size=16",
    "data.resize=16",
    "data.store_size=16",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.selection_share=0.2",
    "data.reward_share=0.15",
    "num_epochs=3",
    "adapt_every=1",
    "log_every=1",
    "threads=1",
)


@pytest.fixture(scope="module")
def photos(noisy_photos) -> Path:
    return noisy_photos(10)


@pytest.fixture(scope="module")
def config(photos):
    config = RECIPES["folder-pads"]()
    return with_settings(replace(config, data=replace(config.data, root=str(photos))), TINY)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory) -> Path:
    """A finished run."""
    return train(config, tmp_path_factory.mktemp("runs") / "whole").path


@pytest.fixture
def run(whole, tmp_path) -> Path:
    """A run that was killed after its last checkpoint, to be spoilt."""
    path = Path(shutil.copytree(whole, tmp_path / "run"))
    (path / "metrics.json").unlink()
    return path


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "precious.txt"
    path.write_text("precious")
    yield path
    assert path.read_text() == "precious"


# -- killed before it had a config -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), [("open", 1), ("open", 3), ("fsync", 4), ("replace", 1), ("replace", 2)])
def test_a_run_killed_before_its_config_can_be_started_again_under_its_name(config, tmp_path, name, number):
    path = tmp_path / "run"
    child = os.fork()
    if child == 0:
        real, calls = getattr(os, name), [0]

        def deadly(*arguments, **options):
            calls[0] += 1
            if calls[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        setattr(files.os, name, deadly)
        RunFolder.create(path, config)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert path.is_dir() and not (path / "config.json").exists()
    with pytest.raises(UserError, match="pads train RECIPE --run"):
        RunFolder.open(path)
    assert RunFolder.create(path, config).config == config


@pytest.mark.parametrize("name", ["thesis.tex", "checkpoints/step-00000001.safetensors", "events.jsonl"])
def test_a_folder_with_anything_else_is_still_refused(config, tmp_path, name):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / name).write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        RunFolder.create(tmp_path / "run", config)
    assert (tmp_path / "run" / name).read_text() == "mine"


def test_two_processes_that_start_the_same_run_do_not_spoil_it(config, tmp_path):
    first = RunFolder.create(tmp_path / "run", config)
    (first.path / "config.json").rename(tmp_path / "config.json")  # not there yet
    with first, pytest.raises(UserError, match="another process"):
        RunFolder.create(tmp_path / "run", config)
    assert (first.path / "environment.json").exists()


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lock", "events.jsonl", "timing.jsonl"])
def test_a_run_does_not_write_through_a_link(run, outside, name):
    RunFolder(run).checkpoints()[-1].unlink()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(UserError, match=f"{name} could not be written: it is a link"):
        resume(run)
    assert not (run / "metrics.json").exists()


def test_checkpoints_are_not_written_through_a_link(run, whole, outside):
    newest = RunFolder(run).checkpoints()[-1]
    newest.unlink()
    newest.with_name(newest.name + ".partial").symlink_to(outside)
    resume(run)
    assert (run / "metrics.json").read_bytes() == (whole / "metrics.json").read_bytes()


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_a_run_without_the_network_of_its_selected_epoch_is_refused(run, whole):
    (run / "selected.safetensors").unlink()
    with pytest.raises(UserError, match="selected.safetensors is missing"):
        resume(run)
    with pytest.raises(UserError, match="selected.safetensors is missing"):
        evaluate_run(run)
    assert evaluate_run(run, checkpoint="last")["recall@1"] >= 0
    shutil.copy(whole / "selected.safetensors", run)
    resume(run)
    assert (run / "metrics.json").read_bytes() == (whole / "metrics.json").read_bytes()


# -- moved -------------------------------------------------------------------------------------------------------------


def test_a_run_of_a_relative_folder_is_resumed_from_anywhere(config, photos, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    run = train(replace(config, data=replace(config.data, root=photos.name)), tmp_path / "run")
    assert run.config.data.root == str(photos)
    (run.path / "metrics.json").unlink()
    monkeypatch.chdir(tmp_path)
    resume(run)
    assert json.loads((run.path / "metrics.json").read_text()) == json.loads((whole / "metrics.json").read_text())
