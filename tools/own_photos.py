"""Measures what `pads train folder` is worth by default: several splits by class of each folder of photos.

    python tools/own_photos.py photos/groceries photos/birds --out own-photos --splits 5 [--arm scratch -- --weights none]

Each run holds out another fifth of the classes. rows.csv has one row for each row of a run's closing table; a run that is
there already is not made again. What follows `--` goes to `pads train`. At the end the table is printed: every row less the
pretrained features, paired by split, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pads.studies.statistics import difference, paired_difference

FIELDS = ("arm", "data", "split", "row", "recall@1", "map@r", "seconds", "test_images", "test_classes", "commit")
BASELINE = "pretrained features"


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    own, more = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="of photos, a folder per class in each")
    parser.add_argument("--out", type=Path, required=True, help="write rows.csv and the runs here")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--arm", default="default", help="what the rows are called")
    parser.add_argument("--commit", default="", help="written into every row")
    options = parser.parse_args(own)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = options.out / "rows.csv"
    for split in range(options.splits):
        for folder in options.folders:
            if (options.arm, folder.name, str(split)) not in {key_of(row) for row in read_rows(rows)}:
                add_rows(rows, measure(folder, split, options.out, options.arm, options.commit, more))
    print("\n".join(make_table(read_rows(rows))))


def measure(folder: Path, split: int, out: Path, arm: str, commit: str, more: Sequence[str]) -> list[dict[str, Any]]:
    """Train on a split of the folder and return the rows of its closing table, in percent."""
    place = out / arm / f"{folder.name}-{split}"
    shutil.rmtree(place, ignore_errors=True)
    link_split(folder, split, place / "photos")
    command = ["-m", "pads", "train", "folder", "--data", str(place / "photos"), "--run", str(place / "run"), "--plain"]
    started = time.perf_counter()
    subprocess.run([sys.executable, *command, *more], check=True)
    seconds = round(time.perf_counter() - started, 1)
    figures = json.loads((place / "run" / "metrics.json").read_text())
    shutil.rmtree(place / "photos")
    test = figures["splits"]["test"]
    same = {"arm": arm, "data": folder.name, "split": split, "seconds": seconds, "commit": commit}
    same |= {"test_images": test["images"], "test_classes": test["classes"]}
    return [
        {**same, "row": name, **{metric: round(100 * values[metric], 3) for metric in ("recall@1", "map@r")}}
        for name, values in figures["test"].items()
    ]


def link_split(folder: Path, split: int, target: Path) -> None:
    """Put a fifth of the classes below test/ and the others below train/, as links; the same ones on every machine."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    random.Random(f"own photos {folder.name} {split}").shuffle(classes)
    num_test = max(2, round(0.2 * len(classes)))
    for number, name in enumerate(classes):
        place = target / ("test" if number < num_test else "train") / name
        place.mkdir(parents=True)
        for path in sorted((folder / name).iterdir()):
            os.link(path, place / path.name)


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


def key_of(row: Mapping[str, str]) -> tuple[str, str, str]:
    return row["arm"], row["data"], row["split"]


def make_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Make a line for each row of the closing tables: its means, and the differences to the pretrained features."""
    lines = ["| photos | arm | row | n | R@1 | less pretrained features | MAP@R | less pretrained features |"]
    lines.append("|---|---|---|--:|--:|--:|--:|--:|")
    for data, arm, name in dict.fromkeys((row["data"], row["arm"], row["row"]) for row in rows):
        cells = []
        for metric in ("recall@1", "map@r"):
            ours = figures_of(rows, data, arm, name, metric)
            # a network from scratch has no pretrained features: it is held against those of the same split
            theirs = figures_of(rows, data, arm, BASELINE, metric) or figures_of(
                rows, data, "default", BASELINE, metric
            )
            less = difference(paired_difference(ours, theirs)) if name != BASELINE else ""
            cells += [f"{fmean(ours.values()):.1f}", less]
        lines.append(f"| {data} | {arm} | {name} | {len(ours)} | {' | '.join(cells)} |")
    return lines


def figures_of(rows: Sequence[Mapping[str, str]], data: str, arm: str, name: str, metric: str) -> dict[int, float]:
    """Return the percentages of a row by split."""
    return {
        int(row["split"]): float(row[metric])
        for row in rows
        if (row["data"], row["arm"], row["row"]) == (data, arm, name)
    }


if __name__ == "__main__":
    main()
