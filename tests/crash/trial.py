"""One trial: a command in a forked child, harm at one change, the same command once more, and the bytes compared.

torch and pads are imported once, before the fork, so that a trial costs what the command itself does. A child ends by
`os._exit`, at which Python flushes nothing and runs nothing: to the files it is what SIGKILL is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from crash.disk import CUTS, KILLED, TAKES_ROOM, Disk

SECONDS = 120
"""After which a command counts as hanging."""
NOT_COMPARED = re.compile(r"(.*/)?(lock|timing\.jsonl|environment\.json)")
"""A lock is empty or not there, and how long something took is never the same twice."""


class Ended(NamedTuple):
    """How a command ended, and what it changed."""

    code: int
    out: str
    err: str
    log: list[tuple[str, str]]
    around: list[str]


@dataclass(frozen=True)
class Command:
    """Something that the command line does to the folder `work`."""

    name: str
    arguments: Sequence[str]
    start: Path | None = None
    """What `work` holds before it."""
    then: Callable[[Path], Sequence[str]] | None = None
    """How to go on, where that is not the same command."""
    normalise: Callable[[str, bytes], tuple[str, bytes]] = lambda name, content: (name, content)
    probe: Sequence[str] = ()
    """A reader that has to find something whole at any moment."""


@dataclass
class Found:
    """What went wrong in a trial."""

    command: str
    fault: str
    at: list[int]
    seed: int
    what: str


def run(arguments: Sequence[str], work: Path, fault: str = "", at: int = -1, *, seed: int = 0) -> Ended:
    """Runs the command line in a child, with its changes counted."""
    said = Path(tempfile.mkdtemp(prefix="said", dir=work.parent))
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python 3.12: the parent has no thread that a child would miss
        child = os.fork()
    if child == 0:
        live(arguments, work, fault, at, seed, said)
    _, status = os.waitpid(child, 0)
    log, around = json.loads((said / "log").read_text()) if (said / "log").exists() else ([], [])
    ended = Ended(
        os.waitstatus_to_exitcode(status),
        (said / "out").read_text(errors="replace"),
        (said / "err").read_text(errors="replace"),
        [tuple(each) for each in log],
        around,
    )
    shutil.rmtree(said)
    return ended


def live(arguments: Sequence[str], work: Path, fault: str, at: int, seed: int, said: Path) -> None:
    """The life of a child."""
    code = 70
    try:
        signal.alarm(SECONDS)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(said / name, os.O_WRONLY | os.O_CREAT), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.argv = ["pads", *arguments]
        os.chdir(work.parent)
        warnings.simplefilter("ignore")  # those of pytest are errors
        subprocess.run = run_here  # type: ignore[assignment]
        save_blank_figures()
        from pads.cli import main

        disk = Disk(work, fault, at, seed=seed)
        disk.install()
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        (said / "log").write_text(json.dumps([disk.log, disk.around]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


real_run = subprocess.run


def run_here(command: Sequence[str], *arguments: Any, **options: Any) -> Any:
    """Runs `python -c CODE ...` in this process: `pads export` reads its file back in a fresh one, which takes seconds."""
    if list(command[:2]) != [sys.executable, "-c"]:
        return real_run(command, *arguments, **options)
    before, sys.argv = sys.argv, ["-c", *command[3:]]
    try:
        exec(command[2], {})
    finally:
        sys.argv = before
    return subprocess.CompletedProcess(command, 0, "", "")


def save_blank_figures() -> None:
    """Has figures written without being drawn: to draw them takes longer than all else that a tiny study does."""
    from matplotlib.figure import Figure

    Figure.savefig = lambda self, file, **options: file.write(b"a figure\n" * 1000)  # type: ignore[assignment]


def snapshot(command: Command, work: Path) -> dict[str, bytes]:
    """Everything that a command leaves, as far as it must be the same each time."""
    found = {}
    for path in sorted(work.rglob("*")):
        name = path.relative_to(work).as_posix()
        if not path.is_dir() and not NOT_COMPARED.fullmatch(name):
            name, content = command.normalise(name, path.read_bytes())
            found[name] = content
    return found


def begin(command: Command, work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(f"{work}.cut", ignore_errors=True)
    if command.start is None:
        work.mkdir()
    else:
        shutil.copytree(command.start, work, symlinks=True)


def undisturbed(command: Command, work: Path) -> tuple[Ended, dict[str, bytes]]:
    """What the command does and leaves if nothing goes wrong."""
    begin(command, work)
    ended = run(command.arguments, work)
    assert ended.code == 0 and not ended.around, ended
    return ended, snapshot(command, work)


def points(log: Sequence[tuple[str, str]], fault: str) -> list[int]:
    """The changes at which a fault means something; the last is after all of them."""
    if fault == "full":
        return [number for number, (what, _) in enumerate(log) if what in TAKES_ROOM]
    if fault == "short":
        return [number for number, (what, _) in enumerate(log) if what == "write"]
    return list(range(len(log)))


def attempt(
    command: Command, work: Path, whole: dict[str, bytes], fault: str, at: Sequence[int], seed: int
) -> tuple[list[Found], int]:
    """Does harm at each of these changes, one process after the other, then lets the command finish.

    Returns what went wrong, and how often harm was done: a process that goes on may end before it comes to its change.
    """
    problems: list[Found] = []
    num_done = 0

    def complain(what: str) -> None:
        problems.append(Found(command.name, fault, list(at), seed, what))

    begin(command, work)
    for number, point in enumerate(at):
        ended = run(next_arguments(command, work), work, fault, point, seed=seed + number)
        if fault in CUTS and ended.code == KILLED:
            shutil.rmtree(work)
            os.rename(f"{work}.cut", work)
        num_done += ended.code == KILLED or (fault not in ("kill", *CUTS) and len(ended.log) > point)
        complain_of(ended, fault, complain)
        if command.probe:
            looked = run(command.probe, work)
            if looked.code != 0:
                complain(f"a reader found it spoilt: {looked.err.strip()[-600:]}")
        if ended.code == 0:
            break
    if ended.code != 0 or fault == "error":  # what could not be deleted is garbage until the next time
        ended = run(next_arguments(command, work), work)
        if ended.code != 0:
            complain(f"the same command did not go on, code {ended.code}: {ended.err.strip()[-1200:]}")
            return problems, num_done
    for name in differences(whole, snapshot(command, work)):
        # the model of a power cut may keep both names of a file that was renamed, which no file system does
        if fault not in CUTS or ".partial (nothing" not in name:
            complain(f"other bytes: {name}")
    return problems, num_done


def next_arguments(command: Command, work: Path) -> Sequence[str]:
    return command.then(work) if command.then is not None else command.arguments


def complain_of(ended: Ended, fault: str, complain: Callable[[str], None]) -> None:
    """A process that was not killed has done its work, or says in one sentence why not."""
    lines = ended.err.strip().splitlines()
    is_sentence = len(lines) == 1 and lines[0].startswith("pads: ") and "Mend that" not in lines[0]
    # a study tells of a run that failed in its table, and goes on to the next
    is_told = not lines and ended.code == 1 and " failed: " in ended.out and "Traceback" not in ended.out
    if ended.code < 0:
        complain(f"ended by signal {-ended.code}")
    elif ended.code not in (0, KILLED) and not (is_sentence or is_told):
        complain(f"no sentence, code {ended.code}: {ended.err.strip()[-1500:] or ended.out.strip()[-1500:]}")
    elif ended.code == KILLED and fault not in ("kill", *CUTS):
        complain("ended without a reason")


def differences(whole: dict[str, bytes], found: dict[str, bytes]) -> Iterator[str]:
    for name in sorted({**whole, **found}):
        if whole.get(name) != found.get(name):
            yield f"{name} ({describe(whole.get(name))} became {describe(found.get(name))})"


def describe(content: bytes | None) -> str:
    return "nothing" if content is None else f"{len(content)} bytes"


def as_record(found: Found) -> dict[str, Any]:
    return {"command": found.command, "fault": found.fault, "at": found.at, "seed": found.seed, "what": found.what}
