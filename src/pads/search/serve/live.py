"""A run as its page shows it: the curves as they grow."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pads.errors import UserError
from pads.reports.series import series_of
from pads.runs import RunFolder
from pads.runs.events import read_records
from pads.runtime.reading import read_json

FILES = ("events.jsonl", "timing.jsonl", "test_curve.jsonl", "metrics.json", "report.html")


class LiveRun:
    """Everything there is to draw, read anew when the run has written something."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.config = run, run.config
        self._lock = threading.Lock()
        self._answer: dict[str, Any] = {}

    def answer(self) -> dict[str, Any]:
        with self._lock:
            version = "-".join(f"{size:x}.{changed:x}" for size, changed in map(read_change, self.files()))
            if self._answer.get("version") != version:
                self._answer = {"version": version, **self._read()}
            return self._answer

    def files(self) -> list[Path]:
        return [self.run.path / name for name in FILES]

    @property
    def report(self) -> Path:
        return self.run.path / "report.html"

    def _metrics(self) -> dict[str, Any]:
        """The final figures, none where they are damaged: the curves are still worth a look."""
        shape = {"test": {str: {str: float}}, "protocol?": str}
        try:
            return read_json(self.run.path / "metrics.json", shape, "delete it, and --resume writes it anew.")
        except (UserError, FileNotFoundError):
            return {}

    def _read(self) -> dict[str, Any]:
        metrics = self._metrics()
        return {
            **series_of(self.run, strict=False),
            "path": str(self.run.path),
            "report": self.report.is_file(),
            "figures": {row: finite(values) for row, values in metrics.get("test", {}).items()} or None,
            "protocol": metrics.get("protocol"),
            "news_at": read_change(self.run.path / "events.jsonl")[1] / 1e9 or None,
            **progress_of(self.run.path, self.config.num_epochs),
        }


def progress_of(run: Path, num_epochs: int) -> dict[str, Any]:
    """How far a run is; of how many steps it will have, only the end of an epoch tells."""
    step, num_steps = 0, None
    for event in read_records(run / "events.jsonl", strict=False):
        step = max(step, event["step"])
        if event["event"] == "selection" and num_steps is None and event.get("epoch") and "stage" not in event:
            num_steps = event["step"] // event["epoch"] * num_epochs
    speed = None
    for timing in read_records(run / "timing.jsonl", strict=False):
        speed = timing.get("images_per_second", speed)
    return {"step": step, "num_steps": num_steps, "images_per_second": speed}


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """JSON knows no nan."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def read_change(file: Path) -> tuple[int, int]:
    """Size and time of the last change, in nanoseconds; zeros while there is no file."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
