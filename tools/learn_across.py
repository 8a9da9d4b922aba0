"""Trains one sampling policy over a chain of short runs, and compares what it learnt with a policy that begins anew.

    python tools/learn_across.py --base emoji --runs 10 --compare 5 --out runs/across \
        --set curriculum.options.bins.bound=1.0 --set curriculum.options.reward_form=difference

Each run of the chain starts from the policy of the run before, with a network, a distribution and a seed of its own. Then
every seed of the comparison, which the chain has not seen, is trained twice: with the carried policy, which goes on
learning, and with a fresh one. The levels are those of the reward and of the selection split; the test classes stay closed.

Of a run its config, events and figures are kept, and of the chain's runs the policy: name one as curriculum.options.policy.
The same command again goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pads.agents.rewards import reward_level
from pads.check import check
from pads.config import Config, with_settings
from pads.errors import UserError
from pads.runs import RunFolder
from pads.runs.checkpoint import save_state
from pads.studies.arms import base_config, pads
from pads.studies.engines import Job, execute
from pads.studies.seeds import append_row
from pads.studies.statistics import Estimate, difference, paired_difference
from pads.train import nobody


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    try:
        run(make_config(options), options)
    except UserError as error:
        raise SystemExit(str(error)) from error


def run(config: Config, options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "levels.csv").unlink(missing_ok=True)
    policy, first_unseen = None, options.seed + options.runs
    for seed in range(options.seed, first_unseen):
        policy = learn(config, seed, policy, options.out)
    assert policy is not None
    if options.compare:
        found = compare(config, policy, range(first_unseen, first_unseen + options.compare), options.out)
        print(f"best R@1 of the selection split, carried less fresh: {difference(found)} points, seeds: {found.n}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--base", default="emoji", help="a base of `pads study` or a recipe, which gets the learned curriculum"
    )
    parser.add_argument("--data", help="where its images are")
    parser.add_argument("--runs", type=int, required=True, help="of the chain")
    parser.add_argument("--compare", type=int, default=0, help="seeds with the carried and with a fresh policy")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the others count on")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs and of levels.csv")
    return parser.parse_args(arguments)


def make_config(options: argparse.Namespace) -> Config:
    config = pads(base_config(options.base, scheduled=False))
    config = replace(config, recipe=f"{options.base}-across", data=replace(config.data, root=options.data))
    config = with_settings(config, options.settings)
    check(config)
    if options.runs < 1:
        raise UserError("a chain has at least one run: give --runs 1 or more.")
    if config.curriculum.name != "learned":
        raise UserError("a policy is carried by the curriculum 'learned' alone: leave curriculum.name as it is.")
    if not config.adapt_every or not config.data.selection_share:
        raise UserError("the levels need adaptations and a selection split: set adapt_every and data.selection_share.")
    return config


def learn(config: Config, seed: int, policy: Path | None, out: Path) -> Path:
    """One run of the chain; returns where its policy is."""
    run = trained(config, f"chain-{seed}", seed, policy, out)
    checkpoint = run.load_checkpoint()
    assert checkpoint is not None
    *older, newest = run.checkpoints()
    save_state(newest, {"curriculum": {"agent": checkpoint["curriculum"]["agent"]}})
    for path in older:
        path.unlink()
    return run.path


def compare(config: Config, policy: Path, seeds: range, out: Path) -> Estimate:
    """Carried less fresh, in points of the selection split's Recall@1, paired by seed."""
    best: dict[str, dict[int, float]] = {"carried": {}, "fresh": {}}
    for seed in seeds:
        for name in best:
            run = trained(config, f"{name}-{seed}", seed, policy if name == "carried" else None, out)
            best[name][seed] = 100 * levels(run)["best_selection_recall@1"]
            shutil.rmtree(run.checkpoints_path, ignore_errors=True)
    return paired_difference(best["carried"], best["fresh"])


def trained(config: Config, name: str, seed: int, policy: Path | None, out: Path) -> RunFolder:
    """A finished run, of which one line is printed and written down."""
    settings = [] if policy is None else [f"curriculum.options.policy={json.dumps(str(policy))}"]
    config = with_settings(replace(config, seed=seed), settings)
    seconds = execute(Job(name, seed, config, out / name), nobody)
    run = RunFolder.open(out / name)
    run.selected_path.unlink(missing_ok=True)
    row = {"run": name, "policy": policy.name if policy else "fresh", **levels(run)}
    append_row(out / "levels.csv", row)
    words = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()]
    print(", ".join(words) + ("" if seconds is None else f", {seconds:.0f} s"), flush=True)
    return run


def levels(run: RunFolder) -> dict[str, Any]:
    """How it went on the reward and the selection split."""
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    adaptations = [event for event in events if event["event"] == "adaptation"]
    selections = [event for event in events if event["event"] == "selection"]
    if len(adaptations) < 2:
        raise UserError(f"{run.path} adapted less than twice: lower adapt_every, or train for longer.")
    best = max(selections, key=lambda event: event["recall@1"])
    level = [reward_level(event, run.config.curriculum.options["reward"]) for event in adaptations]
    return {
        "mean_reward": statistics.fmean(event["reward"] for event in adaptations if event["reward"] is not None),
        "mean_reward_level": statistics.fmean(level),
        "last_reward_level": level[-1],
        "best_selection_recall@1": best["recall@1"],
        "its_map@r": best["map@r"],
        "its_epoch": best["epoch"],
        "last_perplexity": adaptations[-1]["perplexity"],
    }


if __name__ == "__main__":
    main()
