"""A run as its page shows it: the curves as they grow."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pads.reports.series import series_of
from pads.runs import RunFolder

FILES = ("events.jsonl", "timing.jsonl", "test_curve.jsonl", "metrics.json", "report.html")


class LiveRun:
    """Everything there is to draw, read anew when the run has written something."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.config = run, run.config
        self._lock = threading.Lock()
        self._answer: dict[str, Any] = {}

    def answer(self) -> dict[str, Any]:
        with self._lock:
            version = "-".join(f"{size:x}.{changed:x}" for size, changed in map(written, self.files()))
            if self._answer.get("version") != version:
                self._answer = {"version": version, **self._read()}
            return {**self._answer, "seconds_since_news": self._seconds_since_news()}

    def files(self) -> list[Path]:
        return [self.run.path / name for name in FILES]

    @property
    def report(self) -> Path:
        return self.run.path / "report.html"

    def _read(self) -> dict[str, Any]:
        metrics = self.run.metrics or {}
        return {
            **series_of(self.run),
            "path": str(self.run.path),
            "report": self.report.is_file(),
            "figures": metrics.get("test"),
            "protocol": metrics.get("protocol"),
            **progress_of(self.run.path, self.config.num_epochs),
        }

    def _seconds_since_news(self) -> float | None:
        """None before the first event."""
        changed = written(self.run.path / "events.jsonl")[1]
        return max(0.0, time.time() - changed / 1e9) if changed else None


def progress_of(run: Path, num_epochs: int) -> dict[str, Any]:
    """How far a run is; of how many steps it will have, only the end of an epoch tells."""
    step, num_steps = 0, None
    for event in whole_lines(run / "events.jsonl"):
        step = max(step, event["step"])
        if event["event"] == "selection" and num_steps is None:
            num_steps = event["step"] // event["epoch"] * num_epochs
    speed = None
    for timing in whole_lines(run / "timing.jsonl"):
        speed = timing["images_per_second"]
    return {"step": step, "num_steps": num_steps, "images_per_second": speed}


def whole_lines(file: Path) -> Iterator[dict[str, Any]]:
    """The JSON of each line; a line that is being written is left for the next time."""
    if file.exists():
        with open(file) as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield json.loads(line)


def written(file: Path) -> tuple[int, int]:
    """Size and time of the last change, in nanoseconds; zeros while there is no file."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
