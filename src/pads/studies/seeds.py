"""seeds.csv: one row per finished run, the evidence of a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pads.config import Config
from pads.reports.series import read_lines
from pads.runs import RunFolder
from pads.runs.checkpoint import write_atomically


def row_of(config: Config, folder: RunFolder, seconds: float | None, commit: str) -> dict[str, Any]:
    """Last, selected and best test epoch of every metric, as fractions; and what the selection split had at its best."""
    figures = folder.metrics
    assert figures is not None
    best = max(read_lines(folder.path / "test_curve.jsonl"), key=lambda point: point["recall@1"], default=None)
    row: dict[str, Any] = {"recipe": config.recipe, "seed": config.seed, "epochs": config.num_epochs}
    row["selected_epoch"] = (figures["selection"] or {}).get("epoch", config.num_epochs)
    row["selected_on"] = "test" if config.data.paper_protocol else "selection" if figures["selection"] else ""
    for metric in ("recall@1", "map@r"):
        row[f"selection_{metric}"] = (figures["selection"] or {}).get(metric, "")
    row["best_test_epoch"] = best["epoch"] if best else ""
    for metric in (*(f"recall@{k}" for k in config.recall_at), "map@r", "r-precision", "nmi"):
        row[f"untrained_{metric}"] = figures["test"]["untrained"][metric]
        row[f"last_{metric}"] = figures["test"]["last"][metric]
        row[f"selected_{metric}"] = figures["test"]["trained"][metric]
        row[f"best_test_{metric}"] = best[metric] if best else ""
    weights = figures.get("weights") or {}
    timed = "" if seconds is None else f"{seconds:.1f}"
    return {**row, "seconds": timed, "weights_sha256": weights.get("sha256", ""), "commit": commit}


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """The file with one row more, whole at every moment."""
    rows = [*read_rows(path), row]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for each in rows for name in each)))
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_finished(path: Path) -> set[tuple[str, int]]:
    """Read which runs, by arm and seed, have a row."""
    return {(row["recipe"], int(row["seed"])) for row in read_rows(path)}


def selects_on_test(folder: Path, arm: str) -> bool:
    """Return whether the runs of an arm picked their epoch on the test split, as its config in the folder says."""
    path = folder / f"{arm}.json"
    return path.is_file() and bool(json.loads(path.read_text())["data"].get("paper_protocol"))
