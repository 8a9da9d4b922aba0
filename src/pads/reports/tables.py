"""The numbers of a report as CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pads.reports.groups import Group
from pads.reports.look import Look
from pads.runtime.files import write_atomically

RUN = ("label", "run", "seed")


def write_tables(folder: Path, groups: Sequence[Group], look: Look | None) -> list[Path]:
    """One file for each kind of number there is; a table without rows is not written."""
    tables: dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = {
        "figures.csv": ((*RUN, "protocol", "network", "metric", "value"), figure_rows(groups)),
        "curves.csv": ((*RUN, "curve", "step", "value"), curve_rows(groups)),
        "distribution.csv": (
            (*RUN, "step", "distance_from", "distance_to", "p"),
            bin_rows(groups, "distribution", "p"),
        ),
        "drawn.csv": ((*RUN, "step", "distance_from", "distance_to", "share"), bin_rows(groups, "drawn", "share")),
    }
    if look is not None:
        tables["queries.csv"] = (
            ("file", "class", "num_relevant", "average_precision", "nearest_file", "nearest_class", "nearest_distance"),
            query_rows(look),
        )
        tables["confused.csv"] = (("class", "other_class", "share", "file", "found_file"), confusion_rows(look))
    if look is not None and look.xy_M2 is not None:
        tables["map.csv"] = (("file", "class", "x", "y"), map_rows(look))
    written = []
    for name, (columns, rows) in tables.items():
        listed = list(rows)
        if listed:
            write_csv(folder / name, columns, listed)
            written.append(folder / name)
    return written


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode("utf-8", errors="backslashreplace"))


def run_cells(groups: Sequence[Group]) -> Iterator[tuple[tuple[str, str, int], Any, dict[str, Any]]]:
    """Yield the cells that name a run, the run and its series."""
    for group in groups:
        for run, series in zip(group.runs, group.series, strict=True):
            yield (group.label, str(run.path), series["seed"]), run, series


def figure_rows(groups: Sequence[Group]) -> Iterator[Sequence[Any]]:
    for cells, run, _ in run_cells(groups):
        metrics = run.metrics or {}
        mark = ", data changed" if "data_changed" in metrics else ""
        for network, values in metrics.get("test", {}).items():
            for metric, value in values.items():
                yield (*cells, metrics["protocol"] + mark, network, metric, value)


def curve_rows(groups: Sequence[Group]) -> Iterator[Sequence[Any]]:
    for cells, _, series in run_cells(groups):
        for name, curve in series["curves"].items():
            for step, value in zip(curve["steps"], curve["values"], strict=True):
                yield (*cells, name, step, value)


def bin_rows(groups: Sequence[Group], kind: str, key: str) -> Iterator[Sequence[Any]]:
    for cells, _, series in run_cells(groups):
        values = series[kind]
        for step, shares in zip(values["steps"], values[key], strict=True) if values else ():
            for low, high, share in zip(values["edges"], values["edges"][1:], shares, strict=False):
                yield (*cells, step, low, high, share)


def query_rows(look: Look) -> Iterator[Sequence[Any]]:
    found = look.found
    for row, query in enumerate(found.queries_Q):
        nearest = int(found.neighbours_QK[row, 0])
        yield (
            *look.cells(int(query)),
            int(found.num_relevant_Q[row]),
            round(float(found.precisions_Q[row]), 6),
            *look.cells(nearest),
            round(float(found.distances_QK[row, 0]), 6),
        )


def confusion_rows(look: Look) -> Iterator[Sequence[Any]]:
    for pair in look.confused:
        names = look.class_names[pair.first], look.class_names[pair.second]
        yield (*names, round(pair.share, 6), str(look.paths[pair.query]), str(look.paths[pair.found]))


def map_rows(look: Look) -> Iterator[Sequence[Any]]:
    assert look.xy_M2 is not None
    for position, (x, y) in zip(look.shown_M, look.xy_M2.tolist(), strict=True):
        yield (*look.cells(int(position)), round(x, 5), round(y, 5))
