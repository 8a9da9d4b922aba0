"""A file of a run appears under its name only when it is whole: whoever looks sees the old file or the new one."""

import contextlib
import errno
import sys

import pytest
import torch

from pads.config import Config
from pads.errors import UserError
from pads.runs import RunFolder
from pads.runs.checkpoint import load_state, save_state
from pads.runtime import files
from pads.runtime.files import write_atomically

STEP = "checkpoints/step-00000007.safetensors"


@contextlib.contextmanager
def watched(path):
    """Looks at the file whenever any function begins or ends, of Python or of C, and gives what was seen in that order."""
    seen = []

    def look(*_):
        content = path.read_bytes() if path.exists() else None
        if not seen or content != seen[-1]:
            seen.append(content)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def state_of(value):
    return {"network": {"weight": torch.full((300, 100), float(value))}, "step": value}


def save(path, value):
    save_state(path, state_of(value))


def write_text(path, value):
    write_atomically(path, f"{value}\n" * 10_000)


def write_bytes(path, value):
    write_atomically(path, bytes([value]) * 100_000)


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run", Config())


WRITERS = {
    "metrics.json": lambda run, value: run.write_json("metrics.json", {"recall@1": str(value) * 100_000}),
    "selected.safetensors": lambda run, value: run.save_selected(state_of(value)["network"], step=value),
    STEP: lambda run, value: run.save_checkpoint(7, state_of(value)),
}


def check_replaced_at_once(path, write):
    """At every moment of two writes the file is not there, the first or the second; who has opened the first keeps it."""
    with watched(path) as seen:
        write(1)
    first = path.read_bytes()
    assert seen == [None, first]
    with open(path, "rb") as reader, watched(path) as seen:
        beginning = reader.read(10)
        write(2)
        assert beginning + reader.read() == first
    assert seen == [first, path.read_bytes()]
    assert seen[0] != seen[1]


@pytest.mark.parametrize("write", [save, write_text, write_bytes])
def test_a_file_is_replaced_at_once(tmp_path, write):
    check_replaced_at_once(tmp_path / "file", lambda value: write(tmp_path / "file", value))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_run_writes_again_is_replaced_at_once(run, name):
    check_replaced_at_once(run.path / name, lambda value: WRITERS[name](run, value))
    assert not list(run.path.rglob("*.partial"))


@pytest.mark.parametrize("name", ["config.json", "environment.json"])
def test_what_a_run_begins_with_appears_whole(tmp_path, name):
    with watched(tmp_path / "run" / name) as seen:
        RunFolder.create(tmp_path / "run", Config())
    assert seen == [None, (tmp_path / "run" / name).read_bytes()]


def test_the_newest_checkpoint_can_be_loaded_at_every_moment(run):
    """While the next is written and the oldest goes, as a resumed run finds it that was killed then."""
    steps = set()

    def look(*_):
        checkpoints = run.checkpoints()
        if checkpoints:
            steps.add((len(checkpoints), load_state(checkpoints[-1])["step"]))

    for step in range(1, 5):
        sys.setprofile(look)
        try:
            run.save_checkpoint(step, {"step": step})
        finally:
            sys.setprofile(None)
    assert steps == {(1, 1), (2, 2), (3, 3), (2, 3), (3, 4), (2, 4)}


def refuse(*_):
    raise OSError(errno.EIO, "the disk is broken")


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, at):
    path = tmp_path / "file"
    write_text(path, 1)
    before = path.read_bytes()
    monkeypatch.setattr(files.os, at, refuse)
    with pytest.raises(UserError, match="the disk is broken"):
        write_text(path, 2)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
