"""What a person sees of a run: a live display in a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pads.curricula import make_curriculum
from pads.errors import UserError, missing_extra
from pads.runs import RunFolder
from pads.runs.events import read_records
from pads.runs.watch import Watch
from pads.sampling import BinDistribution, bin_distribution
from pads.verdict import judge, name_backbone

if TYPE_CHECKING:
    from pads.model import Evaluation

LEVELS = " ▁▂▃▄▅▆▇█"
CHART_ROWS = 5
WIDEST_CHART = 60
COLUMNS = {"map@r": "MAP@R", "nmi": "NMI"}
PICKED_ON = {
    "selected": "the network of epoch {epoch}, picked on the selection split (protocol: selected)",
    "test-selected": "the network of epoch {epoch}, picked on the test split itself (protocol: test-selected)",
    "last": "the network of the last epoch (protocol: last)",
}
BEFORE_TRAINING = "the network before training, which no epoch surpassed on the selection split (protocol: selected)"


@contextmanager
def watching(*, plain: bool = False, tensorboard: bool = False, console: Console | None = None) -> Iterator[Watch]:
    """The watch of a command: the display, and TensorBoard if asked for. An interrupt leaves it saying how to go on."""
    console = console or make_console()
    seen = Seen()
    with ExitStack() as stack:
        watches: list[Watch] = [stack.enter_context(tensorboard_watch(seen))] if tensorboard else []
        display = PlainLines(console, seen) if plain or not is_live(console) else LiveDisplay(console, seen)
        stack.callback(display.close)

        def watch(kind: str, step: int, values: Mapping[str, Any]) -> None:
            if kind == "note":
                print_notes(values["notes"], console)
            elif kind == "chosen":
                print_choices(values["choices"], console)
            else:
                for each in (seen.take, display, *watches):
                    each(kind, step, values)

        try:
            yield watch
        except KeyboardInterrupt as interrupt:
            if not seen.run:
                raise
            what = str(interrupt) or "nothing was saved since the last checkpoint"
            raise KeyboardInterrupt(f"{what}, go on with: pads train --resume {shlex.quote(seen.run)}") from interrupt


def make_console() -> Console:
    # rich takes FORCE_COLOR for a terminal; a live display would fill a log with its every move
    return Console(highlight=False, force_terminal=None if sys.stdout.isatty() else False)


def is_live(console: Console) -> bool:
    return console.is_interactive and console.encoding.startswith("utf")


class Seen:
    """What the events told so far."""

    def __init__(self) -> None:
        self.run = ""
        self.step = self.first_step = self.num_steps = 0
        self.losses: list[float] = []
        self.rewards: list[float] = []
        self.recalls: list[float] = []
        self.distribution: Sequence[float] = ()
        self.actions: Sequence[int] = ()
        self.drawn: Sequence[float] = ()
        self.drawn_outside = 0.0
        self.is_ended = False

    def take(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "decoding":
            return
        self.step = step
        if kind == "start":
            self.start(step, values)
        elif kind == "stage":
            self.config, self.stage = values["config"], values["stage"]
        elif kind == "training":
            self.losses.append(values["loss"])
            self.drawn, self.drawn_outside = values["drawn"], values["below_share"] + values["above_share"]
        elif kind == "adaptation":
            self.distribution, self.actions = values.get("distribution", ()), values.get("actions", ())
            if values.get("reward") is not None:
                self.rewards.append(values["reward"])
        elif kind == "selection":
            self.recalls.append(values["recall@1"])
        elif kind == "end":
            self.is_ended = True

    def start(self, step: int, values: Mapping[str, Any]) -> None:
        self.config, self.splits, self.stage = values["config"], values["splits"], values.get("stage")
        curriculum = make_curriculum(self.config)
        bins = getattr(curriculum.rule, "distribution", None)
        self.bins: BinDistribution = bins or bin_distribution()
        self.distribution = bins.probabilities_K.tolist() if bins else ()
        self.multipliers = getattr(curriculum, "multipliers", ())
        self.is_learned = bool(curriculum.metrics and self.config.adapt_every)
        self.is_selected = bool(self.splits["selection"]["images"]) or self.config.data.paper_protocol
        if step:
            self.catch_up(Path(values["run"], "events.jsonl"))
        self.step = self.first_step = step
        self.num_steps, self.started = values["num_steps"], time.monotonic()
        self.run = values["run"]  # last: by this the thread of the live display knows that the rest is there

    def catch_up(self, events: Path) -> None:
        """What was before a resume."""
        for event in read_records(events):
            self.take(event["event"], event["step"], event)

    @property
    def epoch(self) -> int:
        """The epoch that is under way, from 1."""
        if self.stage is not None:
            return min(self.stage.locate(self.step)[0] + 1, self.config.num_epochs)
        return min(self.step * self.config.num_epochs // self.num_steps + 1, self.config.num_epochs)

    def headline(self) -> str:
        at = f" from step {self.step:,}" if self.step else ""
        name = self.config.recipe or "a config of its own"
        return f"{'resuming' if self.step else 'training'} {name}, seed {self.config.seed}{at}, into {self.run}"

    def sizes(self) -> str:
        used = {role: size for role, size in self.splits.items() if size["images"]}
        return "images/classes: " + ", ".join(f"{k} {v['images']:,}/{v['classes']:,}" for k, v in used.items())

    def figures(self, width: int) -> dict[str, tuple[str, Text]]:
        """What there is to follow: the newest value of each figure, with a picture of as many as fit the width."""
        losses, rewards, recalls = self.losses[-width:], self.rewards[-width:], self.recalls[-width:]
        figures = {"loss": (f"{losses[-1]:.4f}" if losses else "-", sparkline(losses, "yellow"))}
        if self.is_learned:
            reward = "-" if not rewards else f"{rewards[-1]:+.2g}" if rewards[-1] else "0"
            figures["reward"] = (reward, Text.assemble(*map(reward_mark, rewards)))
        if self.is_selected:
            name = "test R@1" if self.config.data.paper_protocol else "validation R@1"
            figures[name] = (f"{100 * recalls[-1]:.1f} %" if recalls else "-", sparkline(recalls, "green"))
        return figures

    def time_left(self) -> str:
        done = self.step - self.first_step
        return clock((time.monotonic() - self.started) / done * (self.num_steps - self.step)) if done else "-:--"


class PlainLines:
    """One line for each thing worth a line."""

    def __init__(self, console: Console, seen: Seen) -> None:
        self.console, self.seen = console, seen

    def __call__(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        seen = self.seen
        if kind == "decoding" and step == 1:
            say(f"reading {values['total']:,} {values['what']}", self.console)
        elif kind == "start":
            say(f"{seen.headline()}\n{seen.sizes()}", self.console)
        elif kind == ("selection" if seen.run and seen.is_selected else "training"):
            words = "  ".join(f"{name} {value}" for name, (value, _) in seen.figures(1).items() if value != "-")
            # an epoch is measured when it is over, by when the next is under way
            epoch = f"epoch {values['epoch']}/{seen.config.num_epochs}  " if "epoch" in values else ""
            say(f"step {step:,}/{seen.num_steps:,}  {epoch}{words}  {seen.time_left()} left", self.console)
        elif kind == "end":
            print_figures(values, seen.run, self.console)

    def close(self) -> None:
        pass


class LiveDisplay:
    """A progress bar, the figures with their past, and the sampling distribution beside what was drawn."""

    def __init__(self, console: Console, seen: Seen) -> None:
        self.console, self.seen = console, seen
        self.live: Live | None = None
        self.width = console.width
        self.reading = (0, 1, "")

    def __call__(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "decoding":
            self.reading = (step, values["total"], values["what"])
        elif kind == "start":
            say(self.seen.headline(), self.console, "bold", whole=True)
            say(self.seen.sizes(), self.console, "dim")
        elif kind == "end":
            self.close()
            print_figures(values, self.seen.run, self.console)
            return
        if self.live is None:
            self.live = Live(console=self.console, refresh_per_second=4, get_renderable=self.render)
            self.live.start()

    def render(self) -> RenderableType:
        if self.console.width < self.width:  # lines that were longer have been wrapped by the terminal
            self.console.clear()
        self.width = self.console.width
        if not self.seen.run:
            done, total, what = self.reading
            return bar(done, total, f"reading {what}: {done:,} of {total:,}", self.width - 1)
        return Group(Text(), self.progress(), Text(), self.figures(), Text(), self.charts())

    def progress(self) -> RenderableType:
        seen = self.seen
        left = f"{seen.time_left()} left"
        if seen.step == seen.num_steps:
            left = f"{clock(time.monotonic() - seen.started)} in all" if seen.is_ended else "measuring ..."
        steps, epochs = f"step {seen.step:,}/{seen.num_steps:,}", f"epoch {seen.epoch}/{seen.config.num_epochs}"
        if seen.stage is not None and seen.stage.num_stages > 1:
            epochs = f"stage {seen.stage.number + 1}/{seen.stage.num_stages}  {epochs}"
        words = f"{seen.step / max(1, seen.num_steps):4.0%}  {steps}  {epochs}  {left}"
        return bar(seen.step, max(1, seen.num_steps), words, self.width - 1)

    def figures(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim")
        grid.add_column(style="bold", justify="right", min_width=7)
        for name, (value, picture) in self.seen.figures(max(1, self.width - 30)).items():
            grid.add_row(name, value, picture)
        return grid

    def charts(self) -> RenderableType:
        """Side by side where there is room, else one above the other, else the first alone."""
        seen, gap = self.seen, 4
        is_wide = self.width > 2 * min(seen.bins.num_bins, 30) + gap
        width = (self.width - 1 - gap) // 2 if is_wide else self.width - 1
        outside = f", {seen.drawn_outside:.0%} outside" if seen.drawn_outside >= 0.005 else ""
        drawn = seen.drawn or [0.0] * seen.bins.num_bins
        charts = [chart("negatives drawn" + outside, drawn, seen.bins.interval, width, "cyan")]
        if seen.distribution:
            charts.insert(0, chart("sampling distribution", seen.distribution, seen.bins.interval, width, "magenta"))
        changes = [self.changes(width)] if seen.is_learned else []
        if not is_wide:
            is_tall = self.console.height > 2 * CHART_ROWS + 13
            return Group(charts[0], *changes, *(charts[1:] if is_tall else []))
        grid = Table.grid(padding=(0, gap, 0, 0))
        grid.add_row(*charts)
        return Group(grid, *changes)

    def changes(self, width: int) -> Text:
        """What the policy did to each bin, below its bar."""
        factors = [float(self.seen.multipliers[action]) for action in self.seen.actions]
        if not factors:
            return Text()
        marks = [change_mark(factor) for factor in to_width(factors, width)]
        legend = "    the policy's last change"
        return Text.assemble(*marks, (legend if len(marks) + len(legend) < self.width else "", "dim"))

    def close(self) -> None:
        if self.live is not None:
            self.live.transient = not self.seen.run  # a bar over the reading of images is no news
            self.live.stop()
            self.live = None


def bar(done: int, total: int, words: str, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total, done, width=max(10, min(width, 120) - len(words) - 1)), Text(words, no_wrap=True))
    return grid


def chart(
    title: str, values: Sequence[float], interval: tuple[float, float], width: int, colour: str
) -> RenderableType:
    """Bars of K values over the distances they stand for."""
    columns = to_width(values, width)
    top = max(columns) or 1.0
    eighths = [round(value / top * CHART_ROWS * 8) or int(value > 1e-4) for value in columns]
    lines = [Text(title, style="dim", no_wrap=True)]
    for row in reversed(range(CHART_ROWS)):
        lines.append(Text("".join(LEVELS[min(8, max(0, height - 8 * row))] for height in eighths), style=colour))
    low, high = (f"{limit:.3g}" for limit in interval)
    lines.append(Text(low + "distance".center(len(columns) - len(low) - len(high)) + high, style="dim", no_wrap=True))
    return Group(*lines)


def to_width(values: Sequence[float], width: int) -> list[float]:
    """Each value as wide as there is room for, or the means of neighbours where there are too many."""
    if len(values) <= width:
        return [value for value in values for _ in range(min(width, WIDEST_CHART) // len(values) or 1)]
    limits = [len(values) * column // width for column in range(width + 1)]
    return [sum(values[low:high]) / (high - low) for low, high in pairwise(limits)]


def sparkline(values: Sequence[float], colour: str) -> Text:
    low, high = min(values, default=0.0), max(values, default=0.0)
    return Text("".join(LEVELS[1 + round((value - low) / (high - low or 1) * 7)] for value in values), style=colour)


def reward_mark(reward: float) -> tuple[str, str]:
    return ("▲", "green") if reward > 0 else ("▼", "red") if reward < 0 else ("·", "dim")


def change_mark(factor: float) -> tuple[str, str]:
    return ("+", "green") if factor > 1 else ("-", "red") if factor < 1 else (" ", "")


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


# -- what is printed once ----------------------------------------------------------------------------------------------


def print_notes(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        say(f"note: {note}", console, "yellow")


def print_choices(choices: Sequence[tuple[str, str, str]], console: Console) -> None:
    """What was chosen for a run, and why; in a terminal the reasons are wrapped in their column."""
    say("chosen for this run; --set KEY=VALUE changes any of it", console, "bold")
    if not console.is_terminal:
        key_width, value_width = (max(len(choice[column]) for choice in choices) for column in (0, 1))
        for key, value, reason in choices:
            say(f"  {key:{key_width}}  {value:{value_width}}  {reason}", console)
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for style in ("", "cyan", "bold", "dim"):
        table.add_column(style=style, no_wrap=style in ("cyan", "bold"))
    for choice in choices:
        table.add_row("", *choice)
    console.print(table)


def print_figures(figures: Mapping[str, Any], run: Path | str, console: Console | None = None) -> None:
    """The end of a run: how good it became, what that is worth, what picked the epoch, and where it is."""
    console = console or make_console()
    test, size, protocol = figures["test"], figures["splits"]["test"], figures["protocol"]
    title = f"\n{describe_split('test', size['images'], size['classes'])}"
    mark = ", test-selected" if protocol == "test-selected" else ""
    rows = ("raw pixels", "pretrained features", "untrained", "trained")
    print_table({row: test[row] for row in rows if row in test}, title + mark, console)
    say("", console)
    backbone = "NAME"
    with suppress(UserError, OSError):  # a run that is gone has no network to name
        backbone = name_backbone(RunFolder(run).config.network)
    print_judgement(judge(figures.get("compared", {}), backbone=backbone), console)
    selection = figures["selection"] or {}
    picked = BEFORE_TRAINING if selection.get("epoch") == 0 else PICKED_ON[protocol]
    say("trained: " + picked.format(**selection), console)
    if "data_changed" in figures:
        say(f"data changed: {figures['data_changed']}", console, "yellow")
    say(f"The run is in {run}", console, whole=True)


def print_evaluation(evaluation: Evaluation, split: str, mark: str, backbone: str) -> None:
    """What `pads evaluate` found."""
    console = make_console()
    title = describe_split(split, evaluation.num_images, evaluation.num_classes)
    print_table(evaluation.rows, f"{title} ({mark})", console, bold=evaluation.own)
    say("", console)
    print_judgement(judge(evaluation.compared, evaluation.own, backbone), console)


def describe_split(split: str, num_images: int, num_classes: int) -> str:
    return f"{split} split, {num_images:,} images of {num_classes:,} classes, in percent"


def print_judgement(sentences: Sequence[str], console: Console) -> None:
    """What the figures are worth; what is not better is in a colour."""
    for sentence in sentences:
        say(sentence, console, "yellow" if sentence.startswith(("No better", "Worse")) else "")


def print_table(
    rows: Mapping[str, Mapping[str, float]], title: str, console: Console | None = None, *, bold: str = "trained"
) -> None:
    console = console or make_console()
    names = [name for name in next(iter(rows.values())) if name.startswith("recall@") or name in COLUMNS]
    heads = [COLUMNS.get(name, "R@" + name.partition("@")[2]) for name in names]
    width = max(map(len, rows))
    say(title, console, "dim")
    say(" " * width + "".join(f"{head:>7}" for head in heads), console)
    for row, figures in rows.items():
        numbers = "".join(f"{100 * figures[name]:7.1f}" for name in names)
        say(f"{row:{width}}{numbers}", console, "bold" if row == bold else "")


def say(text: str, console: Console, style: str = "", whole: bool = False) -> None:
    """In a terminal, long lines are broken between words, but for what is there to be copied; a log keeps all whole."""
    console.print(text, style=style, soft_wrap=whole or not console.is_terminal, markup=False)


# -- TensorBoard -------------------------------------------------------------------------------------------------------


@contextmanager
def tensorboard_watch(seen: Seen) -> Iterator[Watch]:
    """Numbers of every event as scalars, distributions as histograms over the distance (extra `track`)."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing_extra("tensorboard", "track") from error
    writers: list[SummaryWriter] = []

    def watch(kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "start":
            writers.append(SummaryWriter(str(Path(values["run"], "tensorboard")), purge_step=step))
        elif kind in ("training", "adaptation", "selection"):
            for name, value in values.items():
                if isinstance(value, int | float):
                    writers[0].add_scalar(f"{kind}/{name}", value, step)
                elif name in ("distribution", "drawn"):
                    add_histogram(writers[0], f"{kind}/{name}", value, seen.bins, step)

    try:
        yield watch
    finally:
        for writer in writers:
            writer.close()


def add_histogram(writer: Any, name: str, values: Sequence[float], bins: BinDistribution, step: int) -> None:
    """A histogram of which the bins are given."""
    centres = bins.centres.tolist()
    moments = [sum(value * centre**power for value, centre in zip(values, centres, strict=True)) for power in (0, 1, 2)]
    limits = bins.edges[1:].tolist()
    writer.add_histogram_raw(name, *bins.interval, *moments, limits, list(values), global_step=step)


def print_rows(rows: Sequence[tuple[str, str]], title: str, console: Console | None = None) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, title=title, title_style="dim", title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    (console or make_console()).print(table)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each thing that is counted: `show(what, done, total)`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=make_console()) as bars:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield show
