"""Many trials of one kind in a forked process: whatever becomes of it, its number is known."""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzz.targets import Kind, read_spoilt, silence, trial

MOST_MEMORY = 4 * 2**30
"""Bytes that a process may ask for: whoever believes a header that promises more is found."""
KEPT = 20
"""Problems of a kind that are written down in full."""


def fuzz(kind: Kind, seconds: float, first: int, record: Path) -> dict[str, Any]:
    """Trials from the number `first` on until the time is over; a process that dies is followed by the next."""
    end = time.monotonic() + seconds
    tally: dict[str, Any] = {"trials": 0, "seconds": 0.0, "problems": [], "num_problems": 0}
    number = first
    while time.monotonic() < end:
        record.write_text(json.dumps({"number": number, "trials": 0, "problems": [], "num_problems": 0}))
        start = time.monotonic()
        status = in_child(kind, number, end, record, number == first)
        found = json.loads(record.read_text())
        tally["seconds"] += time.monotonic() - start
        if status != 0:
            found["problems"].append({"number": found["number"], "what": f"the process died with status {status}"})
            found["num_problems"] += 1
        tally["trials"] += found["trials"]
        tally["num_problems"] += found["num_problems"]
        tally["problems"] = (tally["problems"] + found["problems"])[:KEPT]
        number = found["number"] + 1
    tally["next"] = number
    return tally


def in_child(kind: Kind, number: int, end: float, record: Path, is_first: bool) -> int:
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        try_many(kind, number, end, record, is_first)
        code = 0
    finally:
        os._exit(code)


def try_many(kind: Kind, number: int, end: float, record: Path, is_first: bool) -> None:
    """The life of a child: trials, and after each what came of it."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    found: dict[str, Any] = {"number": number, "trials": 0, "problems": [], "num_problems": 0}
    handle = os.open(record, os.O_WRONLY)
    with silence():
        for name, content in kind.examples if is_first else ():
            note(found, read_spoilt(kind, name, content))
        while time.monotonic() < end:
            save(handle, found)
            note(found, trial(kind, random.Random(f"{kind.name}-{found['number']}")))
            found["number"] += 1
        save(handle, found)


def note(found: dict[str, Any], problem: str | None) -> None:
    found["trials"] += 1
    if problem:
        found["num_problems"] += 1
        if len(found["problems"]) < KEPT and all(
            last_words(problem) != last_words(p["what"]) for p in found["problems"]
        ):
            found["problems"].append({"number": found["number"], "what": problem})


def last_words(problem: str) -> str:
    """The last place and the kind of an exception, to tell two problems from one."""
    lines = problem.strip().splitlines()
    places = [line.strip() for line in lines if line.strip().startswith("File ")]
    return f"{places[-1] if places else ''} {lines[-1].partition(':')[0]}"


def save(handle: int, found: Mapping[str, Any]) -> None:
    text = json.dumps(found).encode()
    os.pwrite(handle, text + b" " * 64, 0)
