"""The display is fed with events; what it shows is read as text."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import pads.display
from pads.config import Config, with_settings
from pads.display import (
    CHART_ROWS,
    LiveDisplay,
    PlainLines,
    Seen,
    chart,
    clock,
    make_console,
    print_figures,
    sparkline,
    to_width,
    watching,
)
from pads.recipes import RECIPES

torch.set_num_threads(1)

SPLITS = {
    "train": {"images": 3481, "classes": 505},
    "reward": {"images": 614, "classes": 90},
    "selection": {"images": 457, "classes": 67},
    "test": {"images": 4543, "classes": 662},
}
FIGURES = {
    "recall@1": 0.6,
    "recall@2": 0.7,
    "recall@4": 0.8,
    "recall@8": 0.9,
    "map@r": 0.31416,
    "nmi": 0.8,
    "intra": 0.2,
}
FINAL = {
    "test": {
        name: {**FIGURES, "recall@1": value}
        for name, value in zip(("raw pixels", "untrained", "trained"), (0.4, 0.2, 0.6543), strict=True)
    },
    "protocol": "selected",
    "selection": {"epoch": 19},
    "splits": SPLITS,
}
NUM_STEPS = 620


def recipe(name: str = "emoji-pads", *settings: str) -> Config:
    return with_settings(replace(RECIPES[name](), recipe=name, num_epochs=20), settings)


def console_of(width: int = 100, height: int = 40, **options: Any) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, highlight=False, record=True, **options
    )


def events(config: Config, num_records: int = 9, num_bins: int = 30) -> list[tuple[str, int, dict[str, Any]]]:
    """Every 31 steps: a record, an adaptation, an epoch."""
    drawn = [(k + 1) / num_bins for k in range(num_bins)]
    stream: list[tuple[str, int, dict[str, Any]]] = []
    for number in range(1, num_records + 1):
        step = 31 * number
        stream.append(("step", step, {}))
        stream.append(
            ("training", step, {"loss": 1 / number, "drawn": drawn, "below_share": 0.02, "above_share": 0.05})
        )
        if config.curriculum.name == "learned":
            reward = None if number == 1 else (-1.0, 0.0, 1.0)[number % 3]
            adjustment = {"distribution": drawn[::-1], "actions": [k % 3 for k in range(num_bins)], "perplexity": 20.0}
            stream.append(("adaptation", step, {"recall@1": 0.5, "reward": reward, **adjustment}))
        stream.append(("selection", step, {"epoch": number, "recall@1": number / 20, "map@r": 0.1}))
    return stream


def start(config: Config, run: Path | str = "runs/emoji-pads-0") -> dict[str, Any]:
    return {"run": str(run), "num_steps": NUM_STEPS, "config": config, "splits": SPLITS}


def shown(console: Console, config: Config, num_records: int = 9, num_bins: int = 30, step: int = 0) -> str:
    """One frame of the live display."""
    seen = Seen()
    display = LiveDisplay(console, seen)
    seen.take("start", step, start(config))
    for event in events(config, num_records, num_bins):
        seen.take(*event)
    console.print(display.render())
    return console.export_text()


# -- the live display --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 61, 66, 80, 110, 130, 200])
def test_everything_to_follow_is_shown_at_any_width_without_a_wrap(width):
    frame = shown(console_of(width), recipe())
    assert re.search(r"45%  step 279/620  epoch 10/20  \d+:\d\d left", frame)
    assert re.search(r"^loss +0\.1111  █▄▃▂▂▁▁▁▁", frame, re.MULTILINE)
    assert re.search(r"^reward +-1  ▲▼·▲▼·▲▼", frame, re.MULTILINE)
    assert re.search(r"^validation R@1 +45\.0 %  ▁▂▃▄▅▅▆▇█", frame, re.MULTILINE)
    assert "sampling distribution" in frame
    assert "negatives drawn, 7% outside" in frame
    assert ("the policy's last change" in frame) == (width != 61)  # where wide bars leave no room for it
    assert "…" not in frame
    lines = frame.splitlines()
    assert max(map(len, lines)) < width
    num_charts = 1 if width > 64 else 2  # side by side, or one above the other
    assert sum("distance " in line for line in lines) == num_charts


def test_rewards_are_marks_in_the_order_they_came():
    frame = shown(console_of(), recipe(), num_records=5)
    assert re.search(r"^reward +\+1  ▲▼·▲ *$", frame, re.MULTILINE)  # of records 2, 3, 4, 5


@pytest.mark.parametrize("height", [12, 20, 23, 24, 40])
def test_a_frame_of_the_narrowest_terminal_fits_into_an_ordinary_height(height):
    lines = shown(console_of(60, height), recipe()).splitlines()
    assert len(lines) <= max(height, 16)


@pytest.mark.parametrize("num_bins", [1, 2, 29, 30, 100, 500])
@pytest.mark.parametrize("width", [60, 110])
def test_any_number_of_bins_fits(width, num_bins):
    bins = [f"curriculum.options.bins.num_bins={num_bins}", "curriculum.options.bins.initial=uniform"]
    frame = shown(console_of(width), recipe("emoji-pads", *bins), num_bins=num_bins)
    assert max(map(len, frame.splitlines())) < width
    assert "█" in frame.partition("sampling distribution")[2]


def test_a_fixed_sampler_has_neither_reward_nor_distribution():
    frame = shown(console_of(), recipe("emoji-udist"))
    assert "reward" not in frame
    assert "sampling distribution" not in frame
    assert "policy" not in frame
    assert "negatives drawn" in frame


def test_the_first_frame_shows_the_initial_distribution_and_keeps_the_places():
    first = shown(console_of(), recipe(), num_records=0)
    later = shown(console_of(), recipe())
    assert len(first.splitlines()) == len(later.splitlines())
    assert "-:-- left" in first
    bars = first.partition("sampling distribution")[2].splitlines()[1]
    assert bars[:30] == " " * 5 + "█" * 9 + " " * 16  # U[0.3, 0.7] over [0.1, 1.4]


def test_a_test_selected_run_does_not_speak_of_validation():
    frame = shown(console_of(), replace(recipe(), data=replace(recipe().data, paper_protocol=True)))
    assert re.search(r"^test R@1", frame, re.MULTILINE)
    assert "validation" not in frame


def test_a_history_longer_than_the_line_shows_its_end():
    frame = shown(console_of(60), recipe(), num_records=19)
    frame_of_many = shown(console_of(60), recipe(), num_records=500)
    assert max(map(len, frame.splitlines())) < 60
    assert max(map(len, frame_of_many.splitlines())) < 60


def test_images_are_read_before_a_bar():
    console, seen = console_of(), Seen()
    display = LiveDisplay(console, seen)
    display("decoding", 1200, {"total": 4552, "what": "training images"})
    console.print(display.render())
    display.close()
    assert "reading training images: 1,200 of 4,552" in console.export_text()


def test_the_thread_of_the_display_may_look_while_a_run_starts(monkeypatch):
    console, seen = console_of(), Seen()
    display = LiveDisplay(console, seen)
    make_curriculum = pads.display.make_curriculum

    def looked_at(config):
        console.print(display.render())
        return make_curriculum(config)

    monkeypatch.setattr(pads.display, "make_curriculum", looked_at)
    seen.take("start", 0, start(recipe()))
    console.print(display.render())
    assert "step 0/620" in console.export_text()


def test_a_terminal_that_became_narrower_is_cleared_once():
    console, seen = console_of(110), Seen()
    display = LiveDisplay(console, seen)
    seen.take("start", 0, start(recipe()))
    assert isinstance(console.file, io.StringIO)
    for width, num_cleared in ((110, 0), (80, 1), (80, 1), (130, 1), (70, 2)):
        console.width = width
        console.print(display.render())
        assert console.file.getvalue().count("\x1b[2J") == num_cleared


def test_a_step_costs_next_to_nothing():
    with watching(console=console_of()) as watch:
        watch("start", 0, start(recipe()))
        started = time.process_time()
        for step in range(10_000):
            watch("step", step, {})
        seconds = time.process_time() - started
    assert seconds / 10_000 < 50e-6


def test_no_color_is_respected(monkeypatch):
    def colours(**options: Any) -> set[str]:
        console = console_of(color_system="standard", **options)
        shown(console, recipe())
        assert isinstance(console.file, io.StringIO)
        return set(re.findall(r"\x1b\[[\d;]*m", console.file.getvalue()))

    assert any("35" in code for code in colours())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any(re.search(r"[39]\d", code) for code in colours())


# -- resuming ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["live", "plain"])
def test_after_a_resume_the_display_starts_where_the_run_was(tmp_path, kind):
    config = recipe()
    with (tmp_path / "events.jsonl").open("w") as file:
        for event, step, values in events(config):
            if event != "step":
                file.write(json.dumps({"event": event, "step": step, **values}) + "\n")
    console = console_of()
    with watching(console=console, plain=kind == "plain") as watch:
        watch("start", 279, start(config, tmp_path))
        time.sleep(0.01)
        watch("step", 280, {})
        if kind == "plain":
            watch("selection", 310, {"epoch": 10, "recall@1": 0.5, "map@r": 0.1})
    text = console.export_text()
    assert "resuming emoji-pads, seed 0 from step 279" in text
    assert "0.1111" in text
    if kind == "live":
        assert "step 280/620  epoch 10/20" in text
        assert "▁▂▃▄▅▅▆▇█" in text
        minutes, seconds = re.search(r" (\d+):(\d\d) left", text).groups()
        assert int(minutes) * 60 + int(seconds) >= 3  # 340 steps by the speed of the one, not of all 280


# -- plain lines -------------------------------------------------------------------------------------------------------


def plain_text(config: Config, splits: Any = SPLITS) -> list[str]:
    file = io.StringIO()
    with watching(console=Console(file=file, highlight=False, width=80)) as watch:
        watch("note", 0, {"notes": ("A [bracketed] word, and a note that is far longer than the eighty columns " * 2,)})
        for done in range(1, 4):
            watch("decoding", done, {"total": 3, "what": "training images"})
        watch("start", 0, {**start(config), "splits": splits})
        for event in events(config):
            watch(*event)
        watch("end", NUM_STEPS, FINAL)
    return file.getvalue().splitlines()


def test_without_a_terminal_there_is_a_line_for_each_epoch_and_nothing_else():
    lines = plain_text(recipe())
    assert not any("\x1b" in line for line in lines)
    assert lines[0].startswith("note: A [bracketed] word")
    assert lines[0].count("far longer") == 2  # not broken
    assert lines[1] == "reading 3 training images"
    assert lines[2] == "training emoji-pads, seed 0, into runs/emoji-pads-0"
    assert lines[3] == "images/classes: train 3,481/505, reward 614/90, selection 457/67, test 4,543/662"
    epochs = [line for line in lines if line.startswith("step ")]
    assert len(epochs) == 9
    assert epochs[0].startswith("step 31/620  epoch 1/20  loss 1.0000  validation R@1 5.0 %  ")
    assert epochs[1].startswith("step 62/620  epoch 2/20  loss 0.5000  reward +1  validation R@1 10.0 %  ")
    assert all(re.search(r" \d+:\d\d left$", line) for line in epochs)


def test_without_a_selection_split_there_is_a_line_for_each_record():
    lines = plain_text(recipe(), {**SPLITS, "selection": {"images": 0, "classes": 0}})
    assert sum(line.startswith("step ") for line in lines) == 9
    assert "selection" not in lines[3]
    assert not any("validation" in line for line in lines)


def kind_of_display(console: Console, monkeypatch, plain: bool = False) -> set[str]:
    made = set()
    for kind in (LiveDisplay, PlainLines):
        make = lambda *arguments, kind=kind: made.add(kind.__name__) or kind(*arguments)
        monkeypatch.setattr(pads.display, kind.__name__, make)
    with watching(console=console, plain=plain):
        pass
    return made


@pytest.mark.parametrize(
    ("terminal", "letters", "plain", "kind"),
    [
        ("xterm-256color", "utf-8", False, "LiveDisplay"),
        ("xterm-256color", "utf-8", True, "PlainLines"),
        ("xterm-256color", "ascii", False, "PlainLines"),
        ("dumb", "utf-8", False, "PlainLines"),
        (None, "utf-8", False, "PlainLines"),
    ],
)
def test_the_live_display_is_for_terminals_that_can_show_it(terminal, letters, plain, kind, monkeypatch):
    file = io.TextIOWrapper(io.BytesIO(), encoding=letters)
    console = Console(file=file, force_terminal=terminal is not None, _environ={"TERM": terminal or "xterm"})
    assert kind_of_display(console, monkeypatch, plain) == {kind}


def test_forced_colours_do_not_make_a_log_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not make_console().is_terminal


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_table_has_its_rows_and_columns_in_percent(width):
    console = console_of(width)
    print_figures(FINAL, "runs/emoji-pads-0", console)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines[1:] == [
        "test split, 4,543 images of 662 classes, in percent",
        "              R@1    R@2    R@4    R@8  MAP@R    NMI",
        "raw pixels   40.0   70.0   80.0   90.0   31.4   80.0",
        "untrained    20.0   70.0   80.0   90.0   31.4   80.0",
        "trained      65.4   70.0   80.0   90.0   31.4   80.0",
        "",
        *(
            ["trained: the network of epoch 19, picked on the selection", "split (protocol: selected)"]
            if width == 60
            else ["trained: the network of epoch 19, picked on the selection split (protocol: selected)"]
            if width == 200
            else ["trained: the network of epoch 19, picked on the selection split (protocol:", "selected)"]
        ),
        "The run is in runs/emoji-pads-0",
    ]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_is_there_to_be_copied_is_never_broken(is_terminal):
    file, run = io.StringIO(), "runs/" + "long/" * 30
    console = Console(file=file, width=80, force_terminal=is_terminal, color_system=None)
    print_figures({**FINAL, "protocol": "last", "selection": None}, run, console)
    lines = file.getvalue().splitlines()
    assert "trained: the network of the last epoch (protocol: last)" in lines
    assert f"The run is in {run}" in lines


# -- stopping ----------------------------------------------------------------------------------------------------------


def interrupted(console: Console, interrupt: KeyboardInterrupt) -> None:
    with watching(console=console) as watch:
        watch("start", 0, start(recipe(), "my runs/one"))
        watch("step", 9, {})
        raise interrupt


def test_an_interrupt_closes_the_display_and_says_how_to_go_on():
    console, stdout = console_of(), sys.stdout
    with pytest.raises(KeyboardInterrupt) as interrupt:
        interrupted(console, KeyboardInterrupt("saved at step 9 of 620"))
    assert str(interrupt.value) == "saved at step 9 of 620, go on with: pads train --resume 'my runs/one'"
    assert isinstance(console.file, io.StringIO)
    assert re.findall(r"\x1b\[\?25[lh]", console.file.getvalue())[-1] == "\x1b[?25h"  # the cursor is back
    assert sys.stdout is stdout
    assert "step 9/620" in console.export_text()


def test_a_second_interrupt_says_that_nothing_was_saved_since():
    with pytest.raises(KeyboardInterrupt, match="nothing was saved since the last checkpoint, go on with"):
        interrupted(console_of(), KeyboardInterrupt())


def test_ctrl_c_in_a_terminal_restores_it_and_says_once_how_to_go_on(noisy_photos, tmp_path):
    settings = [*(f"data.{name}=16" for name in ("image_size", "resize", "store_size"))]
    settings += ["data.classes_per_batch=2", "num_epochs=100000", "network.weights=none"]
    command = [sys.executable, "-m", "pads", "train", "folder", "--data", str(noisy_photos(10, 4)), "--run", "run"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*command, *(word for setting in settings for word in ("--set", setting))],
        cwd=tmp_path,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "90", "LINES": "30"},
    )
    os.close(theirs)
    screen, is_asked = b"", False
    while True:
        try:
            screen += os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not is_asked and re.search(rb"step [2-9]", screen):
            is_asked = True
            process.send_signal(signal.SIGINT)
    os.close(ours)
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.decode())
    assert process.wait(60) == 130
    assert len(re.findall(r"Stopped: saved at step \d+ of \d+, go on with: pads train --resume run", text)) == 1
    assert "Traceback" not in text
    assert screen.rfind(b"\x1b[?25h") > screen.rfind(b"\x1b[?25l")  # the cursor is back


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_bars_are_as_high_as_their_values():
    console = console_of()
    console.print(chart("a title", [0.0, 0.25, 0.5, 1.0], (0.1, 1.4), 4, "cyan"))
    title, *rows, axis = (line.rstrip() for line in console.export_text().splitlines())
    assert title == "a title"
    assert axis.startswith("0.1")
    assert axis.endswith("1.4")
    eighths = [sum(" ▁▂▃▄▅▆▇█".index(row.ljust(4)[column]) for row in rows) for column in range(4)]
    assert eighths == [0, 2 * CHART_ROWS, 4 * CHART_ROWS, 8 * CHART_ROWS]


def test_a_value_that_is_almost_nothing_is_still_seen():
    console = console_of()
    console.print(chart("", [1.0, 0.001, 0.0], (0.0, 1.0), 3, "cyan"))
    assert console.export_text().splitlines()[CHART_ROWS] == "█▁ "


def test_values_are_doubled_or_averaged_to_the_width():
    assert to_width([1, 2], 5) == [1, 1, 2, 2]
    assert to_width([1, 2], 200) == [1] * 30 + [2] * 30
    assert to_width([1, 2, 3], 5) == [1, 2, 3]
    assert to_width([1, 3, 5, 7], 2) == [2, 6]
    assert sum(to_width([1.0] * 500, 60)) == 60


def test_a_sparkline_runs_from_its_lowest_to_its_highest():
    assert sparkline([3, 1, 2, 5], "red").plain == "▅▁▃█"
    assert sparkline([2, 2], "red").plain == "▁▁"
    assert sparkline([], "red").plain == ""


def test_a_clock_shows_hours_only_when_there_are_any():
    assert [clock(seconds) for seconds in (0, 59.4, 60, 3599, 3600, 90061)] == [
        "0:00",
        "0:59",
        "1:00",
        "59:59",
        "1:00:00",
        "25:01:01",
    ]
