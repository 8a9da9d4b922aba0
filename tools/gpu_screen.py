"""Trains a list of arms on the training half of a data set and measures the selection split alone; no test image is used.

    python tools/gpu_screen.py ARMS.json --data DIR --weights FILE --out screen.jsonl

ARMS.json is a list of {"name": ..., "settings": ["loss.name=...", ...]}. One JSON line for each arm is written as soon as
it ends; an arm that fails has its traceback there, and the next one starts. An arm that has a good line is not run again.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pads.build import pick_device
from pads.check import check
from pads.config import Config, with_settings
from pads.data.roles import deal_roles
from pads.networks import backbone_of
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.studies.engines import images_of
from pads.train import fit

FIXED = ["seed=0", "select_every=5", "checkpoint_every=1000000", "test_curve_every=null"]


class Enough(Exception):
    """The last selection measurement is there: the figures of the test split are not wanted."""


class MeasuredFolder(RunFolder):
    """A run folder that keeps no weights."""

    def save_selected(self, network: Mapping[str, Any], **about: Any) -> None:
        pass


def run_arm(name: str, config: Config) -> dict[str, Any]:
    """Train one arm to its last epoch and return what was measured on the selection split."""
    check(config)
    measured: list[dict[str, Any]] = []
    losses: list[float] = []

    def watch(kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind == "training":
            losses.append(values["loss"])
        if kind == "selection":
            measured.append({"step": step, **values})
            print(
                f"{name}: epoch {values['epoch']} R@1 {values['recall@1']:.4f} MAP@R {values['map@r']:.4f}", flush=True
            )
            if values["epoch"] == config.num_epochs:
                raise Enough

    views = deal_roles(config, images_of(config.data, pick_device(config.device), watch), watch)
    path = Path(tempfile.mkdtemp(prefix="screen-"))
    started = time.perf_counter()
    try:
        with MeasuredFolder.create(path / "run", config) as folder:
            fit(config, folder, views, watch)
    except Enough:
        pass
    else:
        raise RuntimeError("the run ended without a measurement of its last epoch")
    finally:
        rates = read_rates(path / "run" / "timing.jsonl")
        shutil.rmtree(path, ignore_errors=True)
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "images_per_second": statistics.median(rates) if rates else None,
        "gigabytes": round(torch.cuda.max_memory_allocated() / 1e9, 1) if torch.cuda.is_available() else None,
        "splits": views.sizes(),
        "losses": [round(loss, 4) for loss in losses[:: max(1, len(losses) // 20)]],
        "selection": measured,
        "best by map@r": max(measured, key=lambda values: values["map@r"]),
        "best by recall@1": max(measured, key=lambda values: values["recall@1"]),
    }


def read_rates(path: Path) -> list[float]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["images_per_second"] for line in lines]


def finished(path: Path) -> set[str]:
    """Return the names of the arms that have a line without an error."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {arm["name"] for arm in map(json.loads, lines) if "error" not in arm}


def run_arms(arms: Sequence[Mapping[str, Any]], base: Config, common: Sequence[str], out: Path) -> int:
    """Run each arm and write its line; return how many failed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    skipped, num_failed = finished(out), 0
    for arm in arms:
        if arm["name"] in skipped:
            continue
        line: dict[str, Any] = {"name": arm["name"], "settings": [*common, *arm["settings"]]}
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        try:
            line |= run_arm(arm["name"], with_settings(base, line["settings"]))
        except Exception as error:
            line |= {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
            num_failed += 1
        with open(out, "a") as file:
            file.write(json.dumps(line) + "\n")
        if "error" in line:
            print(f"{arm['name']}: FAILED\n{line['traceback']}", flush=True)
        else:
            best = line["best by map@r"]
            print(
                f"{arm['name']}: OK {line['seconds']} s, {line['images_per_second']} images/s, {line['gigabytes']} GB, "
                f"best epoch {best['epoch']}: R@1 {best['recall@1']:.4f} MAP@R {best['map@r']:.4f}",
                flush=True,
            )
        gc.collect()  # a captured graph keeps its memory until nothing refers to it
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return num_failed


def allow_recompiling() -> None:
    """Let every arm of this process have a compiled network: past a limit of 8, torch goes on without compiling."""
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 512)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arms", type=Path, help="JSON list of arms")
    parser.add_argument("--data", required=True, help="root of the data set")
    parser.add_argument("--weights", help="file that the backbone starts from; the backbone follows from it")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--recipe", default="cub200-margin-udist")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--part", default="0/1", help="i/n: every n-th arm from the i-th on, for n processes at once")
    parser.add_argument("--only", nargs="*", help="names of arms")
    parser.add_argument(
        "--set", action="append", default=[], help="a setting for all arms; those of an arm go before it"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    first, every = map(int, options.part.split("/"))
    arms = json.loads(options.arms.read_text())[first::every]
    if options.only:
        arms = [arm for arm in arms if arm["name"] in options.only]
    recipe = RECIPES[options.recipe]()
    base = replace(recipe, recipe=options.recipe, data=replace(recipe.data, root=options.data))
    common = [*FIXED, f"num_epochs={options.epochs}"]
    if options.weights:
        backbone = backbone_of(Path(options.weights))
        common += [f"network.backbone={backbone}", f"network.weights={options.weights}"]
    allow_recompiling()
    return run_arms(arms, base, [*common, *options.set], options.out)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
