"""What a person sees of a study while it runs: one display for all its runs, or plain lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from pads.data.benchmark import count
from pads.display import clock, is_live, make_console, print_notes, say
from pads.studies.engines import Job


class Display:
    """Counts the runs and says how each ended; what `pads.studies.engines.Tell` is called with."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.notes: set[str] = set()
        self.begin("", 0, 0)

    def begin(self, name: str, total: int, done_before: int) -> None:
        """As many runs are to come."""
        self.name, self.total, self.ended, self.started = name, total, 0, time.monotonic()
        self.shares: dict[tuple[str, int], float] = {}
        """How much is done of the runs that are under way."""
        if done_before:
            say(f"{count(done_before, 'run', 'runs')} done before, {total} to go", self.console)

    def __call__(self, job: Job, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "note":
            new = [note for note in values["notes"] if note not in self.notes]
            self.notes.update(new)
            print_notes(new, self.console)
        elif kind in ("done", "failed"):
            self.ended += 1
            self.shares.pop((job.arm, job.seed), None)
            words = values["error"] if kind == "failed" else figures(values)
            at = f"[{self.ended}/{self.total}] {job.arm}, seed {job.seed}"
            left = f", {self.time_left()} left" if self.ended < self.total else ""
            say(f"{at}: {'FAILED, ' if kind == 'failed' else ''}{words}{left}", self.console)

    def time_left(self) -> str:
        """By the runs that have ended and the shares of those under way."""
        done = self.ended + sum(self.shares.values())
        return clock((time.monotonic() - self.started) / done * (self.total - done)) if done else "-:--"


class LiveDisplay(Display):
    """A bar for the study, and one for each run that is under way."""

    def __init__(self, console: Console, bars: Progress) -> None:
        self.bars = bars
        self.whole: TaskID | None = None
        self.tasks: dict[tuple[str, int], TaskID] = {}
        self.num_steps: dict[tuple[str, int], int] = {}
        super().__init__(console)

    def begin(self, name: str, total: int, done_before: int) -> None:
        super().begin(name, total, done_before)
        if self.whole is not None:
            self.bars.remove_task(self.whole)
            self.whole = None
        if total:
            self.whole = self.bars.add_task(name, total=total, words=f"0/{total} runs")

    def __call__(self, job: Job, kind: str, step: int, values: Mapping[str, Any]) -> None:
        super().__call__(job, kind, step, values)
        key = (job.arm, job.seed)
        if kind in ("done", "failed"):
            if key in self.tasks:
                self.bars.remove_task(self.tasks.pop(key))
        elif kind != "note":
            self.show_run(key, kind, step, values)
        if self.whole is not None:
            words = f"{self.ended}/{self.total} runs, {self.time_left()} left"
            self.bars.update(self.whole, completed=self.ended + sum(self.shares.values()), words=words)

    def show_run(self, key: tuple[str, int], kind: str, step: int, values: Mapping[str, Any]) -> None:
        if key not in self.tasks:
            self.tasks[key] = self.bars.add_task(f"  {key[0]}, seed {key[1]}", total=None, words="starting")
        task = self.tasks[key]
        if kind == "decoding":
            self.bars.update(task, words=f"reading {values['what']}: {step:,} of {values['total']:,}")
        elif kind == "start":
            self.num_steps[key] = values["num_steps"]
            self.bars.update(task, total=values["num_steps"], completed=step, words="")
        elif kind == "step":
            self.bars.update(task, completed=step)
            self.shares[key] = step / self.num_steps[key]
        elif kind == "selection":
            words = f"epoch {values['epoch']}, validation R@1 {100 * values['recall@1']:.1f} %"
            self.bars.update(task, completed=step, words=words)


class Share(ProgressColumn):
    """How much of a run is done; nothing while it starts."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.percentage:3.0f} %" if task.total else "", style="dim")


@contextmanager
def show_progress(*, plain: bool = False, console: Console | None = None) -> Iterator[Display]:
    console = console or make_console()
    if plain or not is_live(console):
        yield Display(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(24),
        Share(),
        TextColumn("{task.fields[words]}", style="dim"),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bars:
        yield LiveDisplay(console, bars)


def figures(row: Mapping[str, Any]) -> str:
    """What a finished run came to."""
    seconds = f", {clock(float(row['seconds']))}" if row["seconds"] else ""
    mark = ", test-selected" if row.get("selected_on") == "test" else ""
    return (
        f"R@1 {100 * row['selected_recall@1']:.1f} (epoch {row['selected_epoch']}{mark}), "
        f"{100 * row['last_recall@1']:.1f} at the end{seconds}"
    )
