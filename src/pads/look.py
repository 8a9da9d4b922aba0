"""`pads check`: a look at a user's own images before anything is trained, and what it found, on one screen."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pads.config import Config, Data, drop_auto, with_settings
from pads.data.benchmark import Benchmark, count, split_lists
from pads.data.loading import look_at_data
from pads.data.manifest import LeftOutEntry, Manifest, write_manifest
from pads.data.prepare import open_prepared
from pads.display import make_console, progress_bars, say
from pads.errors import UserError, one_line
from pads.runtime.files import AGAIN

MOST_NAMED = 20
"""Files of each kind that the screen names; the list has all."""
FEW = 3


def check_images(
    place: str, kind: str | None = None, settings: Sequence[str] = (), out: str | None = None, strict: bool = False
) -> Manifest:
    """Look at the images in a place, print what was found, and write the list of it where that is asked for."""
    name = kind or guess_kind(place)
    config = drop_auto(with_settings(Config(data=Data(name=name, root=place, strict=strict)), list(settings)))
    with progress_bars() as show:
        benchmark, manifest = look_at_data(config.data, lambda done, total: show("looking at images", done, total))
    print_look(benchmark, manifest, place)
    if out is not None:
        write_manifest(Path(out).expanduser(), manifest, again=AGAIN)
        print(f"written to {out}")
    return manifest


def guess_kind(place: str) -> str:
    """Guess what kind of data set lies in a place, by its files."""
    path = Path(place).expanduser()
    if path.is_file():
        return "csv"
    if not path.is_dir():
        raise UserError(f"there is no {place}; for a data set on the Hub, add --as hf.")
    if (path / "store.json").is_file():
        return str(open_prepared(path).contents["dataset"])
    names = os.listdir(path)
    is_saved = {"dataset_dict.json", "state.json"} & set(names) or any(name.endswith(".parquet") for name in names)
    if is_saved or any((path / name).is_dir() and any((path / name).glob("*.parquet")) for name in names):
        return "hf"
    return "folder"


# -- the screen --------------------------------------------------------------------------------------------------------


def print_look(benchmark: Benchmark, manifest: Manifest, place: str, console: Console | None = None) -> None:
    """Print what a look found: the splits, what was left out, the copies, and what there is to say about it."""
    console = console or make_console()
    num_used, bad = sum(len(images) for images in split_lists(benchmark).values()), manifest.bad
    say(f"{place}: {count(num_used, 'image', 'images')} to use, {len(manifest.left_out):,} left out", console, "bold")
    print_columns(list_splits(benchmark), console, "lrrr", head=True)
    others = [entry for entry in manifest.left_out if not entry.is_bad]
    if bad:
        say(f"\n{count(len(bad), 'image', 'images')} that cannot be read", console, "bold red")
        print_columns([(each.path, each.reason) for each in bad], console)
    if others:
        say(f"\n{count(len(others), 'other file', 'other files')} left out", console, "bold yellow")
        print_columns(list_reasons(others), console, "rll")
    print_copies(manifest, console)
    say("", console)
    for note in benchmark.notes:
        say(f"note: {one_line(note)}", console, "yellow")
    say(say_what_follows(manifest), console, "" if bad or manifest.alike else "green")


def print_copies(manifest: Manifest, console: Console) -> None:
    if not manifest.num_copies and not manifest.num_near:
        return
    copies = count(manifest.num_copies, "file is a copy of another", "files are copies of others")
    near = count(manifest.num_near, "image looks", "images look")
    say(f"\n{copies}, {near} the same as another", console, "bold yellow")
    if not manifest.alike:
        say("  each in the class and the split of the other, where it counts twice", console)
        return
    print_columns(
        [(first, second, f"{kind}, other {differ}") for first, second, kind, differ in manifest.alike], console
    )


def list_splits(benchmark: Benchmark) -> list[tuple[str, ...]]:
    """List each split with its images and classes, below the heads of the columns."""
    rows: list[tuple[str, ...]] = [("split", "images", "classes", "images of a class")]
    for split, images in split_lists(benchmark).items():
        sizes = Counter(images.labels.tolist()).values()
        few, many = min(sizes), max(sizes)
        each = f"{few:,}" if few == many else f"{few:,} to {many:,}"
        rows.append((split, f"{len(images):,}", f"{images.num_classes:,}", each))
    return rows


def list_reasons(left_out: Sequence[LeftOutEntry]) -> list[tuple[str, ...]]:
    """List each reason once, with how many files it has and which: a few by name, many by their kinds."""
    rows: list[tuple[str, ...]] = []
    for reason, number in Counter(entry.reason for entry in left_out).most_common():
        names = [entry.path for entry in left_out if entry.reason == reason]
        kinds = Counter(Path(name).suffix.lower() or Path(name).name for name in names)
        which = names if len(names) <= FEW else [f"{kind} ({times:,})" for kind, times in kinds.most_common(FEW)]
        rows.append((f"{number:,}", reason, ", ".join(which)))
    return rows


def print_columns(rows: Sequence[tuple[str, ...]], console: Console, aligned: str = "", *, head: bool = False) -> None:
    """Print rows below their heading, the first of them by name; a terminal wraps them in their columns, a log keeps lines."""
    shown = [[one_line(text) for text in row] for row in rows[:MOST_NAMED]]
    aligned = aligned or "l" * len(rows[0])
    if console.is_terminal:
        table = Table.grid(padding=(0, 2, 0, 0))
        for side in aligned:
            table.add_column(justify="right" if side == "r" else "left", overflow="fold")
        for number, row in enumerate(shown):
            table.add_row(*map(Text, row), style="dim" if head and not number else "")
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
    else:
        widths = [max(len(row[column]) for row in shown) for column in range(len(aligned))]
        for row in shown:
            cells = zip(row, aligned, widths, strict=True)
            say(
                "  " + "  ".join(f"{text:{'>' if side == 'r' else '<'}{width}}" for text, side, width in cells), console
            )
    if len(rows) > MOST_NAMED:
        say(f"  and {len(rows) - MOST_NAMED:,} more: --out FILE writes the whole list", console, "dim")


def say_what_follows(manifest: Manifest) -> str:
    """Say in one sentence what training will do with what was found."""
    if manifest.bad:
        number = count(len(manifest.bad), "image that cannot be read", "images that cannot be read")
        return f"Training goes on without the {number}; --strict refuses them."
    if manifest.alike:
        return "All images can be read; copies in different classes or splits are for you to mend."
    return "All images can be read, and no copies are in different classes or splits."
