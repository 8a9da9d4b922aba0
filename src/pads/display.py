"""What a person sees while a run trains: a live display in a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pads.errors import missing_extra
from pads.train import Watch

LEVELS = " ▁▂▃▄▅▆▇█"
CHART_ROWS = 5
COLUMNS = {"map@r": "MAP@R", "r-precision": "R-prec", "nmi": "NMI", "intra": "intra", "inter": "inter"}
TABLE_METRICS = ("recall", "map@r", "nmi")


@contextmanager
def watching(*, plain: bool = False, tensorboard: bool = False, console: Console | None = None) -> Iterator[Watch]:
    """The watch of a command: the display, and TensorBoard if asked for."""
    console = console or Console(highlight=False)
    display: LiveDisplay | PlainLines = PlainLines(console) if plain or not console.is_terminal else LiveDisplay(console)
    watches: list[Watch] = [display]
    if tensorboard:
        watches.append(tensorboard_watch())

    def watch(kind: str, step: int, values: Mapping[str, Any]) -> None:
        for each in watches:
            each(kind, step, values)

    try:
        yield watch
    except KeyboardInterrupt as interrupt:
        display.close()
        if str(interrupt) and display.run:
            console.print(f"\nStopped: {interrupt}. Go on with:\n\n    pads train --resume {display.run}\n", soft_wrap=True)
        raise
    finally:
        display.close()


class PlainLines:
    """One line for each thing worth a line."""

    def __init__(self, console: Console) -> None:
        self.console, self.run, self.num_steps = console, "", 0
        self.said: dict[str, str] = {}
        self.started = time.monotonic()

    def __call__(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "note":
            print_notes(self.console, values["notes"])
        elif kind == "start":
            self.run, self.num_steps = values["run"], values["num_steps"]
            self.started, self.first = time.monotonic(), step
            self.console.print(headline(values, step), soft_wrap=True)
        elif kind in ("training", "adaptation", "selection"):
            self.said.update(summary(kind, values))
            if kind == "selection":
                words = "  ".join(f"{name} {value}" for name, value in self.said.items())
                self.console.print(f"step {step}/{self.num_steps}  {words}  {self.time_left(step)} left", soft_wrap=True)
        elif kind == "end":
            print_figures(values, self.run, self.console)

    def time_left(self, step: int) -> str:
        return time_left(self.started, step - self.first, self.num_steps - step)

    def close(self) -> None:
        pass


class LiveDisplay:
    """A progress bar, the figures of the moment, and the sampling distribution as a small picture."""

    def __init__(self, console: Console) -> None:
        self.console, self.run = console, ""
        self.live: Live | None = None
        self.step = self.first = self.num_steps = 0
        self.started = time.monotonic()
        self.figures: dict[str, str] = {}
        self.rewards: list[float] = []
        self.recalls: list[float] = []
        self.distribution: Sequence[float] = ()
        self.drawn: Sequence[float] = ()
        self.interval = (0.1, 1.4)
        self.title: Text | str = ""
        self.decoding = ""

    def __call__(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "note":
            print_notes(self.console, values["notes"])
            return
        if kind == "end":
            self.close()
            print_figures(values, self.run, self.console)
            return
        if kind == "decoding":
            self.decoding = f"reading {values['what']}: {step:,} of {values['total']:,}"
        elif kind == "start":
            self.start(step, values)
        elif kind != "step":
            self.figures.update(summary(kind, values))
            self.keep(kind, values)
        self.step = step if kind != "decoding" else 0
        self.show()

    def start(self, step: int, values: Mapping[str, Any]) -> None:
        self.decoding = ""
        self.run, self.num_steps, self.first = values["run"], values["num_steps"], step
        self.started = time.monotonic()
        self.title = headline(values, step)
        bins = values["config"].curriculum.options.get("bins", values["config"].curriculum.options)
        self.interval = tuple(bins.get("interval", self.interval)) if isinstance(bins, Mapping) else self.interval

    def keep(self, kind: str, values: Mapping[str, Any]) -> None:
        if kind == "training":
            self.drawn = values["drawn"]
        if kind == "adaptation":
            self.distribution = values.get("distribution", ())
            if values.get("reward") is not None:
                self.rewards.append(values["reward"])
        if kind == "selection":
            self.recalls.append(values["recall@1"])

    def show(self) -> None:
        if self.live is None:
            self.live = Live(console=self.console, refresh_per_second=8, transient=False, get_renderable=self.render)
            self.live.start()

    def render(self) -> RenderableType:
        if self.decoding:
            return Text(self.decoding, style="dim")
        if not self.num_steps:
            return Text("")
        width = min(self.console.width, 100)
        progress = Table.grid(padding=(0, 1))
        share = self.step / self.num_steps
        left = time_left(self.started, self.step - self.first, self.num_steps - self.step)
        progress.add_row(
            ProgressBar(self.num_steps, self.step, width=max(20, width - 44)),
            Text(f"{share:4.0%}  step {self.step:,}/{self.num_steps:,}  {left} left"),
        )
        figures = Text("   ").join(Text.assemble((name + " ", "dim"), (value, "bold")) for name, value in self.figures.items())
        rows: list[RenderableType] = [Text(str(self.title), style="bold"), progress, figures]
        if self.rewards:
            rows.append(Text.assemble(("rewards ", "dim"), *map(reward_mark, self.rewards[-(width - 10) :])))
        if len(self.recalls) > 1:
            rows.append(Text.assemble(("validation R@1 ", "dim"), (sparkline(self.recalls[-(width - 40) :]), "cyan")))
        charts = [("p(I_n|I_a), the sampling distribution", self.distribution, "magenta"), ("negatives drawn", self.drawn, "cyan")]
        grid = Table.grid(padding=(0, 4))
        grid.add_row(*(chart(title, values, self.interval, colour) for title, values, colour in charts if len(values)))
        return Padding(Group(*rows, Text(""), grid), (0, 0, 1, 0))

    def close(self) -> None:
        if self.live is not None:
            self.live.update(self.render())
            self.live.stop()
            self.live = None


def chart(title: str, values: Sequence[float], interval: Sequence[float], colour: str) -> RenderableType:
    """Bars of K values over the distances they stand for."""
    top = max(values) or 1.0
    eighths = [round(value / top * CHART_ROWS * 8) or (1 if value > 1e-4 else 0) for value in values]
    lines = [Text(title, style="dim")]
    for row in reversed(range(CHART_ROWS)):
        lines.append(Text("".join(LEVELS[min(8, max(0, height - 8 * row))] for height in eighths), style=colour))
    low, high = (f"{limit:.3g}" for limit in interval)
    axis = low + "distance".center(max(0, len(values) - len(low) - len(high))) + high
    return Group(*lines, Text(axis, style="dim"))


def sparkline(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return "".join(LEVELS[1 + round((value - low) / (high - low or 1) * 7)] for value in values)


def reward_mark(reward: float) -> tuple[str, str]:
    return ("▲", "green") if reward > 0 else ("▼", "red") if reward < 0 else ("·", "dim")


def summary(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """The figures of an event that stand in the display."""
    if kind == "training":
        return {"loss": f"{values['loss']:.4f}"}
    if kind == "adaptation":
        reward = values.get("reward")
        words = {} if reward is None else {"reward": f"{reward:+.0f}"}
        return {**words, **({"perplexity": f"{values['perplexity']:.1f}"} if "perplexity" in values else {})}
    if kind == "selection":
        return {"epoch": str(values["epoch"]), "validation R@1": f"{values['recall@1']:.1%}".replace("%", " %")}
    return {}


def headline(values: Mapping[str, Any], step: int) -> str:
    config, splits = values["config"], values["splits"]
    sizes = "  ".join(f"{role} {size['images']:,}/{size['classes']:,}" for role, size in splits.items() if size["images"])
    verb = "resuming" if step else "training"
    at = f" from step {step:,}" if step else ""
    return f"{verb} {config.recipe or 'a config'}, seed {config.seed}{at}, into {values['run']}\nimages/classes: {sizes}"


def time_left(started: float, done: int, to_do: int) -> str:
    if done <= 0:
        return "-:--"
    seconds = int((time.monotonic() - started) / done * to_do)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def print_notes(console: Console, notes: Sequence[str]) -> None:
    for note in notes:
        console.print(f"note: {note}", style="yellow", soft_wrap=True, markup=False)


def print_figures(figures: Mapping[str, Any], run: Path | str, console: Console | None = None) -> None:
    """The table at the end of a run."""
    console = console or Console(highlight=False)
    test, selection = figures["test"], figures["selection"]
    classes = figures["splits"]["test"]["classes"]
    print_table({row: test[row] for row in ("raw pixels", "untrained", "trained")}, console, f"{classes:,} unseen classes, in percent")
    if figures["protocol"] == "selected":
        console.print(f"trained: the network of epoch {selection['epoch']}, picked on the selection split (protocol: selected)")
    else:
        console.print(f"protocol: {figures['protocol']}")
    console.print(f"\nThe run is in {run}. Measure it again: pads evaluate {run}", soft_wrap=True)


def print_table(rows: Mapping[str, Mapping[str, float]], console: Console | None = None, title: str = "in percent") -> None:
    console = console or Console(highlight=False)
    names = [name for name in next(iter(rows.values())) if name.split("@")[0] == "recall" or name in TABLE_METRICS]
    table = Table(box=None, pad_edge=False, title=title, title_style="dim", title_justify="left")
    table.add_column("")
    for name in names:
        table.add_column(COLUMNS.get(name, "R@" + name.partition("@")[2]), justify="right")
    for row, figures in rows.items():
        style = "bold" if row == "trained" else ""
        table.add_row(row, *(f"{100 * figures[name]:.1f}" for name in names), style=style)
    console.print(table)


def tensorboard_watch() -> Watch:
    """Numbers of every event as TensorBoard scalars, the distribution as a histogram (extra `track`)."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing_extra("tensorboard", "track") from error
    writers: list[Any] = []

    def watch(kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "start":
            writers.append(SummaryWriter(str(Path(values["run"]) / "tensorboard"), purge_step=step))
        elif kind in ("training", "adaptation", "selection") and writers:
            for name, value in values.items():
                if isinstance(value, int | float):
                    writers[0].add_scalar(f"{kind}/{name}", value, step)
        elif kind == "end" and writers:
            writers[0].close()

    return watch
