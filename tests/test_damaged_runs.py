"""A run folder that was killed early, damaged, moved, or made by a stranger."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import safetensors.torch
import torch

from pads.autoconfig import resolve_auto
from pads.cli import main
from pads.config import with_settings
from pads.data.manifest import read_manifest
from pads.errors import UserError
from pads.model import evaluate_run
from pads.recipes import RECIPES
from pads.reports.series import series_of
from pads.runs import RunFolder
from pads.runs.checkpoint import load_state, save_state
from pads.runs.watch import nobody
from pads.runtime import files
from pads.search.serve.live import LiveRun
from pads.train import resume, train

torch.set_num_threads(1)

TINY = (
    "network.weights=none",
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
    return with_settings(RECIPES["folder-pads"](), [f"data.root={photos}", *TINY])


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
def test_a_run_killed_before_its_config_can_be_started_again_under_its_name(whole, tmp_path, name, number):
    path, config = tmp_path / "run", RunFolder(whole).config
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
    config = resolve_auto(config, torch.device("cpu"), nobody)
    first = RunFolder.create(tmp_path / "run", config)
    (first.path / "config.json").rename(tmp_path / "config.json")  # not there yet
    with first, pytest.raises(UserError, match="another process"):
        RunFolder.create(tmp_path / "run", config)
    assert (first.path / "environment.json").exists()


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lock", "events.jsonl", "timing.jsonl"])
def test_a_run_does_not_write_through_a_link(run, tmp_path, name):
    RunFolder(run).checkpoints()[-1].unlink()
    (run / name).rename(tmp_path / "precious")
    (run / name).symlink_to(tmp_path / "precious")
    before = (tmp_path / "precious").read_bytes()
    with pytest.raises(UserError, match=f"{name} could not be written: it is a link"):
        resume(run)
    assert (tmp_path / "precious").read_bytes() == before
    assert not (run / "metrics.json").exists()


def test_checkpoints_are_not_written_through_a_link(run, whole, outside):
    newest = RunFolder(run).checkpoints()[-1]
    newest.unlink()
    newest.with_name(newest.name + ".partial").symlink_to(outside)
    resume(run)
    assert (run / "metrics.json").read_bytes() == (whole / "metrics.json").read_bytes()


def test_a_folder_of_checkpoints_that_is_a_link_is_not_written_to(run, tmp_path):
    RunFolder(run).checkpoints()[-1].unlink()
    elsewhere = (run / "checkpoints").rename(tmp_path / "elsewhere")
    (run / "checkpoints").symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir())
    with pytest.raises(UserError, match="checkpoints could not be written: it is a link"):
        resume(run)
    assert sorted(elsewhere.iterdir()) == before


@pytest.mark.parametrize("command", [("report",), ("export", "--to", "safetensors")])
def test_no_folder_in_a_run_is_followed_out_of_it(whole, tmp_path, command):
    run, elsewhere = shutil.copytree(whole, tmp_path / "copy"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run / {"report": "report", "export": "export"}[command[0]]).symlink_to(elsewhere)
    with pytest.raises(SystemExit, match="it is a link"):
        main([command[0], str(run), *command[1:]])
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("what", ["fifo", "zero"])
@pytest.mark.parametrize("name", ["events.jsonl", "timing.jsonl", "metrics.json", "data.jsonl", "selected.safetensors"])
def test_what_is_no_file_is_not_read(whole, tmp_path, name, what):
    run = shutil.copytree(whole, tmp_path / "copy")
    (run / name).unlink()
    os.mkfifo(run / name) if what == "fifo" else (run / name).symlink_to("/dev/zero")
    folder = RunFolder.open(run)
    LiveRun(folder).answer()  # shows what there is
    read = {
        "metrics.json": lambda: folder.metrics,
        "data.jsonl": lambda: read_manifest(folder.manifest_path),
        "selected.safetensors": lambda: folder.load_network("selected"),
    }
    with pytest.raises(UserError, match=f"{name}.*not a regular file"):
        read.get(name, lambda: series_of(folder))()


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_a_run_without_the_network_of_its_selected_epoch_is_refused(run, whole):
    (run / "selected.safetensors").unlink()
    with pytest.raises(UserError, match=r"selected\.safetensors is missing"):
        resume(run)
    with pytest.raises(UserError, match=r"selected\.safetensors is missing"):
        evaluate_run(run)
    assert evaluate_run(run, checkpoint="last")["recall@1"] >= 0
    shutil.copy(whole / "selected.safetensors", run)
    resume(run)
    assert (run / "metrics.json").read_bytes() == (whole / "metrics.json").read_bytes()


# -- moved -------------------------------------------------------------------------------------------------------------


def test_a_run_of_a_relative_folder_is_resumed_from_anywhere(config, photos, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(photos.parent)
    run = train(with_settings(config, [f"data.root={photos.name}"]), tmp_path / "run")
    assert run.config.data.root == str(photos)
    (run.path / "metrics.json").unlink()
    monkeypatch.chdir(tmp_path)
    resume(run)
    assert json.loads((run.path / "metrics.json").read_text()) == json.loads((whole / "metrics.json").read_text())


# -- damaged -----------------------------------------------------------------------------------------------------------

DEEP = "[" * 100_000
ANYTHING = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"[1, 2]",
    b"3",
    b"\xff\xfe\x00",
    DEEP.encode(),
    b'{"steps": "x"}',
    b'{"steps": 3, "test": 1}',
)


@pytest.mark.parametrize("content", ANYTHING)
@pytest.mark.parametrize("name", ["config.json", "metrics.json"])
def test_any_bytes_in_a_file_of_settings_or_figures_are_refused_in_a_sentence(run, name, content):
    (run / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name} (is damaged|does not fit)") as refusal:
        getattr(RunFolder(run), name.removesuffix(".json"))
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 1000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.classes_per_batch", 0),
        ("data.classes_per_batch", "auto"),
        ("num_epochs", "auto"),
        ("data.samples_per_class", -1),
        ("optimiser.learning_rate", -1),
        ("log_every", 0),
        ("threads", 10**9),
    ],
)
def test_a_config_edited_by_hand_is_refused_in_a_sentence(run, key, value):
    config = json.loads((run / "config.json").read_text())
    *parents, last = key.split(".")
    group = config
    for parent in parents:
        group = group[parent]
    group[last] = value
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=last):
        resume(run)


GARBAGE = (
    b"garbage",
    b"{}",
    b"3",
    b"null",
    b'{"event": "training"}',
    b'{"event": 1, "step": 2}',
    b"\xff\xfe",
    DEEP.encode(),
    b'{"event": "adaptation", "step": 3, "distribution": "x"}',
    b'{"event": "selection", "step": 3, "epoch": -1}',
)


@pytest.mark.parametrize("line", GARBAGE)
@pytest.mark.parametrize("name", ["events.jsonl", "timing.jsonl"])
def test_a_garbage_line_is_refused_by_a_report_and_passed_over_by_the_live_page(whole, tmp_path, name, line):
    run = RunFolder(shutil.copytree(whole, tmp_path / "run"))
    before = series_of(run)
    lines = (run.path / name).read_bytes().splitlines(keepends=True)
    (run.path / name).write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    with pytest.raises(UserError, match=f"{name} is damaged .line 3"):
        series_of(run)
    assert series_of(run, strict=False) == before
    answer = LiveRun(run).answer()
    assert answer["curves"].keys() == before["curves"].keys()
    json.dumps(answer, allow_nan=False)


def test_the_live_page_survives_damaged_figures(whole, tmp_path):
    run = RunFolder(shutil.copytree(whole, tmp_path / "run"))
    (run.path / "metrics.json").write_text("{")
    assert LiveRun(run).answer()["figures"] is None


STATES = (
    {},
    {"network": 3},
    {"network": {}, "lengths": {"events.jsonl": -1}},
    {"step": "x"},
)


@pytest.mark.parametrize("state", STATES)
def test_a_checkpoint_with_another_header_is_refused_in_a_sentence(run, state):
    newest = RunFolder(run).checkpoints()[-1]
    good = load_state(newest)
    save_state(newest, {**good, **state} if state else {})
    with pytest.raises(UserError, match=r"not a whole checkpoint|does not fit"):
        resume(run)


@pytest.mark.parametrize("header", ["", "3", "null", "[]", '{"tensor": "x"}', '{"items": 3}', '{"items": [[1]]}', DEEP])
def test_a_checkpoint_with_a_damaged_header_is_refused_in_a_sentence(run, header):
    newest = RunFolder(run).checkpoints()[-1]
    newest.write_bytes(safetensors.torch.save({"a": torch.zeros(2)}, metadata={"state": header}))
    with pytest.raises(UserError, match="not a whole checkpoint"):
        resume(run)
    for content in (b"", b"x" * 9, newest.read_bytes()[:-3]):
        newest.write_bytes(content)
        with pytest.raises(UserError, match="not a whole checkpoint"):
            RunFolder(run).load_checkpoint()


def test_a_setting_nested_too_deeply_is_refused_in_a_sentence(config):
    for depth in (70, 1000, 100_000):
        with pytest.raises(UserError, match="nested too deeply"):
            with_settings(config, [f"loss.options.x={'[' * depth}{']' * depth}"])


# -- bits --------------------------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.999])
def test_a_flipped_bit_in_a_checkpoint_is_noticed(run, whole, share):
    newest = RunFolder(run).checkpoints()[-1]
    flip(newest, int(share * newest.stat().st_size))
    with pytest.raises(UserError, match="not a whole checkpoint"):
        resume(run)
    newest.unlink()  # as the message says
    resume(run)
    for name in ("events.jsonl", "metrics.json", "selected.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


def test_a_flipped_bit_in_the_selected_network_is_noticed(run):
    flip(run / "selected.safetensors", -5)
    with pytest.raises(UserError, match="checksum"):
        evaluate_run(run)


def test_a_checkpoint_of_an_older_version_without_a_checksum_is_read(tmp_path):
    content = safetensors.torch.save({"a": torch.ones(2)}, {"state": '{"items": [["a", {"tensor": "a"}]]}'})
    (tmp_path / "old.safetensors").write_bytes(content)
    assert load_state(tmp_path / "old.safetensors")["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "state", [torch.tensor(3), torch.zeros(0, 4), torch.ones(3, dtype=torch.bfloat16), torch.tensor([True])]
)
def test_tensors_of_every_kind_have_a_checksum(tmp_path, state):
    save_state(tmp_path / "s.safetensors", {"a": state, "b": 1})
    assert torch.equal(load_state(tmp_path / "s.safetensors")["a"], state)


@pytest.mark.parametrize("num_kept", [None, 0, 10, -1])
def test_events_that_were_shortened_or_deleted_are_noticed(run, whole, num_kept):
    content = (run / "events.jsonl").read_bytes()
    (run / "events.jsonl").unlink()
    if num_kept is not None:
        (run / "events.jsonl").write_bytes(content[:num_kept])
    before = num_kept is not None and (run / "events.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"events\.jsonl has .* bytes, and had"):
        resume(run)
    assert before is False or (run / "events.jsonl").read_bytes() == before
    (run / "events.jsonl").write_bytes(content)
    resume(run)
    assert (run / "metrics.json").read_bytes() == (whole / "metrics.json").read_bytes()
