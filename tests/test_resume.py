"""A run that is killed, however often and wherever, ends as one that was never stopped: to the bit."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from killing import run_until_killed

from pads.autoconfig import resolve_auto
from pads.build import match_layouts
from pads.config import Config, with_settings
from pads.errors import UserError
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.runs.checkpoint import load_state
from pads.runs.watch import nobody
from pads.train import resume, train

SETTINGS = [
    "network.weights=none",
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=18",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.reward_share=0.2",
    "data.selection_share=0.2",
    "num_epochs=6",
    "adapt_every=3",
    "log_every=2",
    "threads=1",
    "test_curve_every=2",
]


@pytest.fixture(scope="module")
def photos(noisy_photos) -> Path:
    """Enough for four roles."""
    return noisy_photos(14, sizes=[(20, 24)])


@pytest.fixture(scope="module")
def config(photos) -> Config:
    config = with_settings(RECIPES["folder-pads"](), ["recipe=folder-pads", f"data.root={photos}", *SETTINGS])
    return resolve_auto(config, torch.device("cpu"), nobody)


@pytest.fixture(scope="module")
def never_stopped(config, tmp_path_factory) -> RunFolder:
    return train(config, tmp_path_factory.mktemp("runs") / "never-stopped")


def differences(a, b, where="") -> list[str]:
    """The places where two nested states differ by a single bit."""
    if isinstance(a, torch.Tensor):
        return [] if torch.equal(a, b) else [where]
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        return [place for key in a for place in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, list):
        assert len(a) == len(b), where
        return [place for i in range(len(a)) for place in differences(a[i], b[i], f"{where}.{i}")]
    return [] if a == b else [where]


def assert_same(run: RunFolder, reference: RunFolder) -> None:
    for name in ("events.jsonl", "metrics.json", "test_curve.jsonl", "config.json"):
        assert (run.path / name).read_bytes() == (reference.path / name).read_bytes(), name
    assert [p.name for p in run.checkpoints()] == [p.name for p in reference.checkpoints()]
    for ours, theirs in zip(run.checkpoints(), reference.checkpoints(), strict=True):
        assert differences(load_state(ours), load_state(theirs)) == []
    assert differences(load_state(run.selected_path), load_state(reference.selected_path)) == []


@pytest.mark.parametrize(
    ("owner", "name", "first", "second"),
    [
        (torch.optim.Adam, "step", 3, 4),  # before the first checkpoint, and again soon after
        (torch.optim.Adam, "step", 13, 9),  # inside an epoch
        (RunFolder, "append", 11, 9),  # events written that no checkpoint knows of
        (os, "replace", 5, 3),  # a checkpoint is written but not yet renamed
        (os, "fsync", 8, 4),  # a checkpoint is half way to the disk
    ],
)
def test_a_run_killed_twice_and_resumed_is_the_same_to_the_bit(
    config, never_stopped, tmp_path, owner, name, first, second
):
    run = tmp_path / "run"
    run_until_killed(lambda: train(config, run), owner, name, first)
    run_until_killed(lambda: resume(run), owner, name, second)
    assert_same(resume(run), never_stopped)


def test_a_run_with_a_rising_boundary_is_the_same_to_the_bit_after_a_kill(config, never_stopped, tmp_path):
    rising = {**config.loss.options, "rise": 0.6, "pace": 0.5}
    config = replace(config, loss=replace(config.loss, options=rising))
    whole, run = train(config, tmp_path / "whole"), tmp_path / "run"
    run_until_killed(lambda: train(config, run), torch.optim.Adam, "step", 13)  # inside an epoch
    assert_same(resume(run), whole)
    assert (run / "events.jsonl").read_bytes() != (never_stopped.path / "events.jsonl").read_bytes()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    boundaries = [event["boundary"] for event in events if event["event"] == "training"]
    assert boundaries[-1] > boundaries[0]


def test_the_same_config_and_seed_give_the_same_bits_and_another_seed_does_not(config, never_stopped, tmp_path):
    assert_same(train(config, tmp_path / "again"), never_stopped)
    other = train(replace(config, seed=1), tmp_path / "other")
    assert (other.path / "events.jsonl").read_bytes() != (never_stopped.path / "events.jsonl").read_bytes()


def test_training_leaves_the_callers_random_state_and_threads_alone(config, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(replace(config, num_epochs=1), tmp_path / "run")
    assert torch.equal(torch.rand(3), expected)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pads", *arguments]


def test_the_command_survives_sigkill_and_sigint(photos, config, never_stopped, tmp_path):
    """The real thing: a process, killed at some moment, resumed, interrupted by Ctrl-C, resumed."""
    run, settings = tmp_path / "run", [word for setting in SETTINGS for word in ("--set", setting)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command(
            "train", "folder-pads", "--data", str(photos), "--run", str(run), "--no-report", "--no-index", *settings
        ),
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    wait_for_events(run, 6, process)
    process.kill()
    process.wait()
    before = len((run / "events.jsonl").read_bytes().splitlines())

    process = subprocess.Popen(
        command("train", "--resume", str(run), "--no-report", "--no-index"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_events(run, before + 2, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    if process.returncode != 0:  # on a very quick machine the run may just have ended
        assert process.returncode == 130, errors
        assert f"pads train --resume {run}" in output + errors
        assert "Traceback" not in errors

    assert_same(resume(run), never_stopped)


def wait_for_events(run: Path, number: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    events = run / "events.jsonl"
    while time.monotonic() < deadline and process.poll() is None:
        if events.exists() and len(events.read_bytes().splitlines()) >= number:
            return
        time.sleep(0.01)
    assert process.poll() is not None, "the run wrote too few events in a minute"


def test_a_finished_run_is_left_as_it_is(never_stopped):
    before = {path: path.stat().st_mtime_ns for path in never_stopped.path.rglob("*") if path.is_file()}
    resume(never_stopped.path)
    assert before == {path: path.stat().st_mtime_ns for path in never_stopped.path.rglob("*") if path.is_file()}


def test_a_loss_that_is_no_number_stops_the_run_and_spares_the_checkpoints(config, tmp_path, monkeypatch):
    from pads.losses.margin import MarginLoss

    value_and_share, calls = MarginLoss.value_and_share, [0]

    def broken(self, *arguments):
        calls[0] += 1
        value, share = value_and_share(self, *arguments)
        return value * (float("nan") if calls[0] > 12 else 1.0), share

    monkeypatch.setattr(MarginLoss, "value_and_share", broken)
    with pytest.raises(UserError, match="no longer a finite number"):
        train(config, tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    state = run.load_checkpoint()
    assert state is not None
    assert all(tensor.isfinite().all() for tensor in state["network"].values())


def test_events_say_what_protocol_7_asks_for(never_stopped):
    events = [json.loads(line) for line in (never_stopped.path / "events.jsonl").read_text().splitlines()]
    kinds = {event["event"] for event in events}
    assert kinds == {"training", "adaptation", "selection"}
    adaptation = [event for event in events if event["event"] == "adaptation"][-1]
    assert len(adaptation["distribution"]) == len(adaptation["actions"]) == len(adaptation["policy_entropies"]) == 30
    assert sum(adaptation["distribution"]) == pytest.approx(1)
    assert adaptation["reward"] in (-1, 0, 1)
    assert {"perplexity", "clipped_share", "policy_entropy", "recall@1", "nmi", "intra", "inter"} <= adaptation.keys()
    training = [event for event in events if event["event"] == "training"][-1]
    assert sum(training["drawn"]) + training["below_share"] + training["above_share"] == pytest.approx(1)
    assert {"loss", "violation_share", "positive_is_anchor_share", "negative_of_class_share"} <= training.keys()
    assert "seconds" not in (never_stopped.path / "events.jsonl").read_text()


def test_a_resumed_optimiser_has_its_moments_in_the_order_of_the_weights(round_trip):
    """The fused Adam of a GPU refuses moments in another memory layout than the weights', which files forget."""
    generator = torch.Generator().manual_seed(0)

    def made():
        layer = torch.nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last)
        return layer, torch.optim.Adam(layer.parameters())

    layer, optimiser = made()
    layer(torch.randn(2, 8, 5, 5, generator=generator)).sum().backward()
    optimiser.step()
    other, resumed = made()
    resumed.load_state_dict(round_trip(optimiser.state_dict()))
    match_layouts(resumed)
    moments = resumed.state[other.weight]["exp_avg"]
    assert moments.stride() == other.weight.stride()
    assert not moments.is_contiguous()
    assert torch.equal(moments, optimiser.state[layer.weight]["exp_avg"])
