"""All trials of the crash machine: every fault at every change of every command, then several kills in one command."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crash.commands import make_commands
from crash.disk import CUTS, FAULTS
from crash.trial import Command, Found, attempt, points, undisturbed

ENDS = ("kill", *CUTS)
"""The faults that end the process."""


@dataclass(frozen=True)
class Trial:
    command: str
    fault: str
    at: tuple[int, ...]
    seed: int


@dataclass
class Tally:
    """What was tried and what was found."""

    trials: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """More than the trials where one trial has several."""
    points: dict[str, int] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    seconds: float = 0.0


class Machine:
    """The commands with what they leave undisturbed."""

    def __init__(self, place: Path) -> None:
        self.work = place / "work"
        self.commands = make_commands(place)
        self.whole: dict[str, dict[str, bytes]] = {}
        self.logs: dict[str, list[tuple[str, str]]] = {}

    def know(self, name: str) -> Command:
        command = self.commands[name]
        if name not in self.logs:
            ended, self.whole[name] = undisturbed(command, self.work)
            self.logs[name] = ended.log
        return command

    def all_trials(self, name: str, faults: tuple[str, ...] = FAULTS) -> Iterator[Trial]:
        self.know(name)
        for fault in faults:
            for at in points(self.logs[name], fault):
                yield Trial(name, fault, (at,), seed=at)

    def chains(self, name: str, seed: int, faults: tuple[str, ...] = ENDS) -> Iterator[Trial]:
        """Without end: a command that is killed a few times in a row, each time further on or not."""
        self.know(name)
        chance = random.Random(f"{seed} {name}")
        while True:
            fault = chance.choice(faults)
            at = tuple(chance.randrange(len(self.logs[name])) for _ in range(chance.randint(2, 5)))
            yield Trial(name, fault, at, chance.randrange(2**31))

    def do(self, trial: Trial) -> tuple[list[Found], int]:
        command = self.know(trial.command)
        return attempt(command, self.work, self.whole[trial.command], trial.fault, trial.at, trial.seed)


def torture(machine: Machine, trials: Iterator[Trial], tally: Tally, until: float, tell: Callable[[str], None]) -> None:
    """Does these trials until the time is over."""
    for trial in trials:
        if time.monotonic() > until:
            return
        start = time.monotonic()
        found, num_faults = machine.do(trial)
        tally.seconds += time.monotonic() - start
        tally.trials[trial.command, trial.fault] += 1
        tally.faults[trial.command, trial.fault] += num_faults
        tally.points[trial.command] = len(machine.logs[trial.command])
        tally.found += found
        for each in found:
            place = machine.logs[trial.command][min(trial.at[0], len(machine.logs[trial.command]) - 1)]
            tell(f"FOUND {each.command} {each.fault} at {each.at} {place} seed {each.seed}: {each.what}")
