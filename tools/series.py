"""Runs recipes x seeds in one process and writes one row per finished run into seeds.csv: the evidence of results/.

    python tools/series.py --data STORE --recipes cub200-margin-udist cub200-margin-pads --seeds 0 1 2 3 4 \
        --set num_epochs=120 --set optimiser.milestones=[] --set test_curve_every=20 --out results/cub200-series-a

`pads study` does the same for the arms of a study, and more; this is for recipes as they are. The images are loaded once
for all runs that share them. A run that is in the file already is not run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pads.config import Config, to_json, with_settings
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.studies.arms import fix_settings
from pads.studies.engines import Job, execute
from pads.studies.runner import source_commit
from pads.studies.seeds import append_row, read_finished, row_of
from pads.train import nobody


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for recipe in options.recipes:
            config = make_config(recipe, seed, options)
            if (config.recipe, seed) not in read_finished(options.out / "seeds.csv"):
                run(config, options)


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
    own = {"recipe": recipe + options.name, "seed": seed, "data.root": options.data}
    settings = [f"{key}={json.dumps(value)}" for key, value in own.items()]
    return fix_settings(with_settings(RECIPES[recipe](), [*settings, *options.settings]))


def run(config: Config, options: argparse.Namespace) -> None:
    job = Job(config.recipe, config.seed, config, options.runs / f"{config.recipe}-{config.seed}")
    seconds = execute(job, nobody)
    row = row_of(config, RunFolder.open(job.path), seconds, options.commit or source_commit())
    append_row(options.out / "seeds.csv", row)
    (options.out / f"{config.recipe}.json").write_text(to_json(config))
    for name in ("events.jsonl", "test_curve.jsonl"):
        source = job.path / name
        if source.exists():
            (options.out / f"{config.recipe}-{config.seed}-{name}").write_bytes(source.read_bytes())
    print({key: row[key] for key in ("recipe", "seed", "last_recall@1", "selected_recall@1", "seconds")}, flush=True)


if __name__ == "__main__":
    main()
