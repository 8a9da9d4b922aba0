"""Some of what `make torture` does with all: a fault at a change, the same command again, the same bytes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from crash.disk import CUTS, FAULTS, KILLED, Disk
from crash.harm import Machine, Trial
from crash.trial import run

SEED = 20
"""Picks the points. Another seed would pick others: all of them hold, as `make torture` shows."""
COMMANDS = ("train", "resume", "prepare", "prepare again", "index", "index again", "study", "export")


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Machine:
    return Machine(tmp_path_factory.mktemp("crash"))


def expect_same(machine: Machine, trial: Trial) -> None:
    found, num_faults = machine.do(trial)
    assert [each.what for each in found] == []
    assert num_faults == len(trial.at)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_goes_on_to_the_same_bytes_after(machine, command, fault):
    trials = list(machine.all_trials(command, (fault,)))
    assert trials
    trial = random.Random(f"{SEED} {command} {fault}").choice(trials)
    expect_same(machine, trial)


def test_a_command_that_is_killed_three_times_goes_on_to_the_same_bytes(machine):
    last = len(list(machine.all_trials("prepare", ("kill",)))) - 1
    expect_same(machine, Trial("prepare", "kill", (last // 3, 2, 4), SEED))


# -- what the machine found --------------------------------------------------------------------------------------------


def test_an_export_killed_after_its_first_file_goes_on(machine):
    """It was refused as a folder that is no export."""
    machine.know("export")
    at = 1 + next(
        number
        for number, (what, path) in enumerate(machine.logs["export"])
        if what == "replace" and path.endswith("model.safetensors") and "partial" not in path
    )
    expect_same(machine, Trial("export", "kill", (at,), 0))


def test_a_disk_that_is_full_while_a_line_is_added_is_one_sentence(machine):
    """The line was tried once more at the end, where nobody caught it."""
    machine.know("prepare")
    at = [
        n for n, (what, path) in enumerate(machine.logs["prepare"]) if (what, path) == ("write", "store/chunks.jsonl")
    ]
    assert at
    expect_same(machine, Trial("prepare", "full", (at[-1],), 0))


def test_a_disk_that_is_full_while_events_are_synced_is_one_sentence(machine):
    """It was done outside of the one module, without its sentence."""
    machine.know("train")
    at = [n for n, (what, path) in enumerate(machine.logs["train"]) if (what, path) == ("fsync", "run/events.jsonl")]
    assert at
    expect_same(machine, Trial("train", "full", (at[0],), 0))


@pytest.mark.parametrize("command", ["train", "study"])
def test_half_a_line_of_the_time_is_not_in_the_way_of_the_next(machine, command):
    """The line that was written next was added to it, and no report of the run could be drawn."""
    machine.know(command)
    log = machine.logs[command]
    at = [n for n, (what, path) in enumerate(log) if what == "write" and path.endswith("timing.jsonl")]
    expect_same(machine, Trial(command, "kill", (at[-1],), 0))
    for path in machine.work.rglob("timing.jsonl"):
        assert all(json.loads(line)["step"] for line in path.read_text().splitlines())


def test_two_indexes_of_the_same_images_have_the_same_bytes(machine):
    """The library of safetensors writes what a file says about itself in any order."""
    machine.know("index")
    whole = machine.whole["index"]
    for _ in range(3):
        machine.logs.pop("index")
        machine.know("index")
        assert machine.whole["index"] == whole


# -- the machine itself ------------------------------------------------------------------------------------------------


def test_every_change_is_seen(machine):
    """A machine that misses some would find nothing there."""
    for command in COMMANDS:
        machine.know(command)
        made = {path.removesuffix(".partial") for what, path in machine.logs[command] if what in ("create", "replace")}
        before = machine.commands[command].start
        known = set() if before is None else {path.relative_to(before).as_posix() for path in before.rglob("*")}
        index_files = {name.replace("-G", "-1") for name in machine.whole[command]}
        missed = index_files - made - known - {name.replace("-1.", "-2.") for name in index_files}
        assert not {name for name in missed if name.replace("-1.", "-2.") not in made}


def write_without_sync(work: Path) -> None:
    handle = os.open(work / "a", os.O_WRONLY | os.O_CREAT)
    with os.fdopen(handle, "wb") as file:
        file.write(b"content")
    os.replace(work / "a", work / "b")
    os.unlink(work / "old")


@pytest.mark.parametrize(
    ("how", "left"), [("dropped", {"old": b"old"}), ("names", {"b": b""}), ("kill", {"b": b"content", "old": b"old"})]
)
def test_what_was_not_brought_to_the_disk_is_gone_after_a_power_cut(tmp_path, how, left):
    work = tmp_path / "work"
    work.mkdir()
    (work / "old").write_bytes(b"old")
    child = os.fork()
    if child == 0:
        disk = Disk(work, how, at=4 if how in CUTS else 3)
        disk.install()
        write_without_sync(work)
        os.mkdir(work / "after")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
    after = tmp_path / ("work.cut" if how in CUTS else "work")
    assert {path.name: path.read_bytes() for path in after.iterdir()} == left


def test_a_command_that_dies_is_noticed(machine):
    assert run(("evaluate", "nowhere"), machine.work).code == 1
    assert "Traceback" not in run(("evaluate", "nowhere"), machine.work).err
