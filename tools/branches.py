"""How much a reward can know: M steps under two distributions from the same weights, and what the draw alone makes of it.

    python tools/branches.py --base emoji --a "U[0.3, 0.7]" --b "N(0.9, 0.15)" --every 10 30 100 --rounds 10 --seeds 0 1

In each round five branches leave the same weights, moments of the optimiser and parameters of the loss: A twice and B twice,
on the same batches and crops, with other random numbers for the triplets; and A on other batches and crops. Their levels on
the reward split say how much the distribution changes and how much chance does. One branch is kept, and training goes on.

`--b adjusted` is A after one random adjustment of PADS, another in each round: what a single reward has to judge.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from pads.autoconfig import settled
from pads.build import build_optimiser, build_parts, pick_device, set_learning_rates
from pads.check import check
from pads.config import Config, with_settings
from pads.data.views import Views, load_views
from pads.errors import UserError
from pads.evaluate import evaluate
from pads.runtime.precision import float32_rounding
from pads.sampling import BinDistribution, bin_distribution, draw_tuples
from pads.sampling.rules import BinRule
from pads.studies.arms import base_config, pads
from pads.train import batch_size, epoch_batches, fixed_threads, nobody

LEVELS = ("soft-recall", "recall@1")
BRANCHES = ("A", "A again", "B", "B again", "A elsewhere")
KEEPS = ("better", "a", "b", "coin")
MULTIPLIERS = torch.tensor([0.8, 1.0, 1.25], dtype=torch.float64)

Round = dict[str, dict[str, float]]
"""The levels of each branch, by its name."""


def main() -> None:
    options = parse()
    try:
        config = make_config(options)
        results = [every_round(config, every, options) for every in options.every]
    except UserError as error:
        raise SystemExit(f"branches: {error}") from error
    print(table(options, results))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--base", default="emoji", help="a base or recipe of `pads study`; PADS's loss and sampling are set"
    )
    parser.add_argument("--data", help="where its images are")
    parser.add_argument(
        "--a", default="U[0.3, 0.7]", help="the initial distribution of A, as in `pads.bin_distribution`"
    )
    parser.add_argument("--b", default="N(0.9, 0.15)", help="that of B, or `adjusted`: A after one random adjustment")
    parser.add_argument("--every", nargs="+", type=int, default=[10, 30, 100], help="M, the steps of a branch")
    parser.add_argument("--rounds", type=int, default=10, help="the most of a run, evenly over the training")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--keep", choices=KEEPS, default="better", help="the branch that training goes on with")
    parser.add_argument("--level", choices=LEVELS, default=LEVELS[0], help="what `better` is judged by")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--out", type=Path, help="every level of every branch, as JSON")
    return parser.parse_args(arguments)


def make_config(options: argparse.Namespace) -> Config:
    config = pads(base_config(options.base, scheduled=False, epochs=options.epochs))
    if options.data:
        config = replace(config, data=replace(config.data, root=options.data))
    config = with_settings(config, options.settings)
    if min(options.every) < 1 or options.rounds < 1:
        raise UserError("--every and --rounds are numbers of steps and of rounds: each must be at least 1.")
    for initial in {options.a, options.b} - {"adjusted"}:
        bin_distribution(initial=initial)
    check(config)
    return config


# -- training in branches ----------------------------------------------------------------------------------------------


class Trainee:
    """A network with all that training changes, which can be put back to where it was."""

    def __init__(self, config: Config, views: Views) -> None:
        self.config, self.views = config, views
        self.network, self.loss_fn, _ = build_parts(config, views)
        self.optimiser = build_optimiser(config.optimiser, self.network, self.loss_fn)
        self.steps_per_epoch = max(1, len(views.train) // batch_size(config))
        self.num_steps = config.num_epochs * self.steps_per_epoch
        self.network.train()

    @property
    def parts(self) -> dict[str, Any]:
        return {"network": self.network, "loss": self.loss_fn, "optimiser": self.optimiser}

    def state(self) -> dict[str, Any]:
        return copy.deepcopy({name: part.state_dict() for name, part in self.parts.items()})

    def go_back(self, state: Mapping[str, Any]) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(copy.deepcopy(state[name]))  # an optimiser would go on in the very tensors it is given

    def batches(self, steps: range, elsewhere: bool) -> Tensor:
        """The images of these steps; elsewhere, those that another seed would have there."""
        config = replace(self.config, seed=stream(self.config.seed, "elsewhere") % 2**31) if elsewhere else self.config
        per_epoch = self.steps_per_epoch
        first, last = steps.start // per_epoch, (steps.stop - 1) // per_epoch
        epochs = [epoch_batches(config, self.views, epoch, per_epoch) for epoch in range(first, last + 1)]
        return torch.cat(epochs)[steps.start - first * per_epoch :][: len(steps)]

    def train(self, steps: range, distribution: BinDistribution, draws: str, elsewhere: bool = False) -> None:
        """These steps of the training; `draws` names the random numbers of the triplets, those of the crops are fixed."""
        if not steps:
            return
        rule, seed, batches = BinRule(distribution), self.config.seed, self.batches(steps, elsewhere)
        for step, stored in zip(steps, self.views.train.stored_batches(batches), strict=True):
            set_learning_rates(self.optimiser, self.config.optimiser, step // self.steps_per_epoch)
            crops = self.generator(stream(seed, f"crops {step} {elsewhere}"))
            pixels_BCHW, sizes_B2, labels_B = stored
            images_BCHW = self.views.train.preprocessing.for_training(pixels_BCHW, sizes_B2, crops)
            embeddings_BD = self.network(images_BCHW)
            drawing = self.generator(stream(seed, f"draws {step} {draws}"))
            sampling = asdict(self.config.sampling)
            triplets = draw_tuples(embeddings_BD, labels_B, rule, **sampling, generator=drawing)
            self.optimiser.zero_grad(set_to_none=True)
            self.loss_fn(embeddings_BD, labels_B, triplets).backward()
            self.optimiser.step()

    def generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.views.device).manual_seed(seed)

    def levels(self) -> dict[str, float]:
        return evaluate(self.network, self.views.reward, LEVELS)


def stream(seed: int, name: str) -> int:
    return random.Random(f"{name} {seed}").getrandbits(62)


def adjusted(distribution: BinDistribution, seed: int, number: int) -> BinDistribution:
    """One action of {0.8, 1, 1.25} for each bin, as an untrained policy would take."""
    generator = torch.Generator().manual_seed(stream(seed, f"adjustment {number}"))
    actions_K = torch.randint(len(MULTIPLIERS), (distribution.num_bins,), generator=generator)
    return distribution.scaled(MULTIPLIERS[actions_K])


def run_round(
    trainee: Trainee, steps: range, a: BinDistribution, b: BinDistribution, keep: str, level: str
) -> tuple[Round, str]:
    """The five branches of these steps; the trainee goes on as the one that is named second."""
    before, levels, after = trainee.state(), {}, {}
    plans = {"A": (a, "1"), "A again": (a, "2"), "B": (b, "1"), "B again": (b, "2"), "A elsewhere": (a, "3")}
    for name, (distribution, draws) in plans.items():
        trainee.go_back(before)
        trainee.train(steps, distribution, draws, elsewhere=name == "A elsewhere")
        levels[name] = trainee.levels()
        if name in ("A", "B"):
            after[name] = trainee.state()
    better = "B" if levels["B"][level] > levels["A"][level] else "A"
    coin = random.Random(stream(trainee.config.seed, f"coin {steps}")).choice("AB")
    kept = {"better": better, "a": "A", "b": "B", "coin": coin}[keep]
    trainee.go_back(after[kept])
    return levels, kept


def run_seed(
    config: Config, views: Views, every: int, options: argparse.Namespace
) -> tuple[list[Round], dict[str, float]]:
    """The rounds of one training, evenly over it, and what the selection split says at its end."""
    trainee = Trainee(config, views)
    a = bin_distribution(initial=options.a)
    num_rounds = min(options.rounds, trainee.num_steps // every)
    if num_rounds == 0:
        raise UserError(
            f"the training has {trainee.num_steps} steps, less than a branch of {every}: ask for more --epochs."
        )
    starts = [trainee.num_steps * number // num_rounds for number in range(num_rounds + 1)]
    rounds, step, now = [], 0, a
    for number, start in enumerate(starts[:-1]):
        trainee.train(range(step, start), now, "between")
        b = adjusted(a, config.seed, number) if options.b == "adjusted" else bin_distribution(initial=options.b)
        step = start + every
        levels, kept = run_round(trainee, range(start, step), a, b, options.keep, options.level)
        rounds.append(levels)
        now = a if kept == "A" else b
    trainee.train(range(step, trainee.num_steps), now, "between")
    return rounds, evaluate(trainee.network, views.selection, ("recall@1", "map@r")) if len(views.selection) else {}


def every_round(config: Config, every: int, options: argparse.Namespace) -> dict[str, Any]:
    """All seeds with branches of so many steps."""
    rounds: list[Round] = []
    selection = []
    device = pick_device(config.device)
    for seed in options.seeds:
        own = settled(replace(config, seed=seed), device, nobody)
        views = load_views(own, device, nobody)
        with fixed_threads(own.threads), float32_rounding(own.precision):
            made, figures = run_seed(own, views, every, options)
        rounds += made
        selection.append({"seed": seed, **figures})
    return {"every": every, "rounds": rounds, "summary": {name: summary(rounds, name) for name in LEVELS}} | {
        "selection": selection
    }


# -- what the rounds say -----------------------------------------------------------------------------------------------


def summary(rounds: Sequence[Round], level: str) -> dict[str, float]:
    """Signal and noise of a comparison of two branches, both as a root mean square over the rounds.

    With a variance v of the draw, the mean of (B + B again - A - A again)² / 4 is signal² + v, and v is the mean of half the
    squared differences between equal branches. Two single branches differ by chance with variance 2 v.
    """
    rows = [{name: branches[name][level] for name in BRANCHES} for branches in rounds]
    variance = fmean(((r["A"] - r["A again"]) ** 2 + (r["B"] - r["B again"]) ** 2) / 4 for r in rows)
    effects = [(r["B"] + r["B again"] - r["A"] - r["A again"]) / 2 for r in rows]
    signal = math.sqrt(max(0.0, fmean(effect**2 for effect in effects) - variance))
    noise = math.sqrt(2 * variance)
    elsewhere = math.sqrt(fmean((r["A elsewhere"] - r["A"]) ** 2 for r in rows))
    mean = fmean(effects)
    spread = sum((effect - mean) ** 2 for effect in effects) / max(1, len(rows) - 1)
    return {
        "rounds": len(rows),
        "mean": mean,
        "standard_error": math.sqrt(spread / len(rows)),
        "signal": signal,
        "noise": noise,
        "noise_elsewhere": elsewhere,
        "ratio": signal / noise if noise else math.inf if signal else 0.0,
        "ratio_elsewhere": signal / elsewhere if elsewhere else math.inf if signal else 0.0,
        "b_better": fmean(won(r["B"], r["A"]) for r in rows),
        "agreement": fmean(won((r["B"] - r["A"]) * (r["B again"] - r["A again"]), 0.0) for r in rows),
    }


def won(value: float, other: float) -> float:
    """1 for more, 0 for less, one half for the same."""
    return 0.5 + 0.5 * ((value > other) - (value < other))


def table(options: argparse.Namespace, results: Sequence[Mapping[str, Any]]) -> str:
    """Markdown; levels in points, of which a whole is 100."""
    lines = [
        f"A: {options.a}, B: {options.b}, kept: {options.keep}",
        "",
        "| M | level | rounds | B - A | B better | same verdict twice | signal | noise of the draw | ratio "
        "| noise, other batches | ratio |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        for name, s in result["summary"].items():
            lines.append(
                f"| {result['every']} | {name} | {s['rounds']} | {100 * s['mean']:+.2f} ± {100 * s['standard_error']:.2f} "
                f"| {100 * s['b_better']:.0f} % | {100 * s['agreement']:.0f} % | {100 * s['signal']:.2f} "
                f"| {100 * s['noise']:.2f} | {s['ratio']:.2f} "
                f"| {100 * s['noise_elsewhere']:.2f} | {s['ratio_elsewhere']:.2f} |"
            )
    for result in results:
        for figures in result["selection"]:
            shown = ", ".join(f"{name} {100 * value:.1f}" for name, value in figures.items() if name != "seed")
            lines.append(
                f"\nM = {result['every']}, seed {figures['seed']}: selection split at the end: {shown or 'none'}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
