"""seeds.csv: one row per finished run, the evidence of a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pads.config import Config
from pads.runs import RunFolder
from pads.runs.events import read_records
from pads.runtime.files import write_atomically
from pads.runtime.reading import describe_damage, read_json


def row_of(config: Config, folder: RunFolder, seconds: float | None, commit: str) -> dict[str, Any]:
    """Last, selected and best test epoch of every metric, as fractions; and what the selection split had at its best."""
    figures = folder.metrics
    assert figures is not None
    best = max(read_records(folder.path / "test_curve.jsonl"), key=lambda point: point["recall@1"], default=None)
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
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            if not row["recipe"] or int(row["seed"]) < 0 or None in row or None in row.values():
                raise ValueError("a row without its recipe, seed or figures")
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise describe_damage(
            path, error, "put back what the study wrote, or delete it and run the study again."
        ) from error
    return rows


def read_finished(path: Path) -> set[tuple[str, int]]:
    """Read which runs, by arm and seed, have a row."""
    return {(row["recipe"], int(row["seed"])) for row in read_rows(path)}


def selects_on_test(folder: Path, arm: str) -> bool:
    """Return whether the runs of an arm picked their epoch on the test split, as its config in the folder says."""
    path = folder / f"{arm}.json"
    return path.is_file() and bool(
        read_json(path, {"data": dict}, "put back the config of the arm.")["data"].get("paper_protocol")
    )
