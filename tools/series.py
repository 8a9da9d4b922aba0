"""Runs recipes x seeds in one process and writes one row per finished run into seeds.csv: the evidence of results/.

    python tools/series.py --data STORE --recipes cub200-margin-udist cub200-margin-pads --seeds 0 1 2 3 4 \
        --set num_epochs=120 --set optimiser.milestones=[] --set test_curve_every=20 --out results/cub200-series-a

The images are loaded once for all runs that share them. A run that is in the file already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pads.config import Config, to_dict, to_json, with_settings
from pads.data.views import Views, load_views
from pads.parts import check, pick_device
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.train import fit, nobody

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "r-precision", "nmi")


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    loaded: dict[str, Views] = {}
    for seed in options.seeds:
        for recipe in options.recipes:
            config = make_config(recipe, seed, options)
            if (config.recipe, str(seed)) in finished(options.out / "seeds.csv"):
                continue
            check(config)
            key = json.dumps(to_dict(config.data))
            if key not in loaded:
                loaded[key] = load_views(config, pick_device(config.device), nobody)
            run(config, loaded[key], options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data")
    parser.add_argument("--recipes", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument(
        "--name", default="", help="what the settings are called, added to the recipe's name in seeds.csv"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the run folders go")
    parser.add_argument("--out", type=Path, required=True, help="the folder of seeds.csv")
    parser.add_argument("--commit", help="the commit that is run, where git is not there to ask")
    return parser.parse_args()


def make_config(recipe: str, seed: int, options: argparse.Namespace) -> Config:
    config = RECIPES[recipe]()
    config = replace(config, recipe=recipe + options.name, seed=seed, data=replace(config.data, root=options.data))
    return with_settings(config, options.settings)


def run(config: Config, views: Views, options: argparse.Namespace) -> None:
    path = options.runs / f"{config.recipe}-{config.seed}"
    resumed, started = (path / "config.json").exists(), time.perf_counter()
    with RunFolder.open(path) if resumed else RunFolder.create(path, config) as folder:
        fit(config, folder, views, nobody)
    seconds = "" if resumed else f"{time.perf_counter() - started:.1f}"  # of a whole run, or not at all
    row = row_of(config, folder, seconds, options.commit or commit())
    append(options.out / "seeds.csv", row)
    (options.out / f"{config.recipe}.json").write_text(to_json(config))
    for name in ("events.jsonl", "test_curve.jsonl"):
        source = folder.path / name
        if source.exists():
            (options.out / f"{config.recipe}-{config.seed}-{name}").write_bytes(source.read_bytes())
    print({key: row[key] for key in ("recipe", "seed", "last_recall@1", "selected_recall@1", "seconds")}, flush=True)


def row_of(config: Config, folder: RunFolder, seconds: str, commit: str) -> dict[str, Any]:
    """Last, selected and best test epoch of every metric."""
    figures = folder.metrics
    assert figures is not None
    curve_path = folder.path / "test_curve.jsonl"
    curve = [json.loads(line) for line in curve_path.read_text().splitlines()] if curve_path.exists() else []
    best = max(curve, key=lambda point: point["recall@1"]) if curve else None
    row: dict[str, Any] = {"recipe": config.recipe, "seed": config.seed, "epochs": config.num_epochs}
    row["selected_epoch"] = (figures["selection"] or {}).get("epoch", config.num_epochs)
    row["best_test_epoch"] = best["epoch"] if best else ""
    for metric in METRICS:
        row[f"untrained_{metric}"] = figures["test"]["untrained"][metric]
        row[f"last_{metric}"] = figures["test"]["last"][metric]
        row[f"selected_{metric}"] = figures["test"]["trained"][metric]
        row[f"best_test_{metric}"] = best[metric] if best else ""
    weights = figures.get("weights") or {}
    return {**row, "seconds": seconds, "weights_sha256": weights.get("sha256", ""), "commit": commit}


def append(path: Path, row: dict[str, Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)


def finished(path: Path) -> set[tuple[str, str]]:
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {(row["recipe"], row["seed"]) for row in csv.DictReader(file)}


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
