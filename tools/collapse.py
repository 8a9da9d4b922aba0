"""How narrow the sampling distribution gets when there is nothing to learn: the table in docs/curricula.md.

    python tools/collapse.py

No network is trained. The metrics rise smoothly, with noise, and do not depend on the actions; the reward is a coin.
156 adjustments as in 120 epochs of CUB200-2011, mean of 5 seeds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import torch

from pads.config import Part
from pads.curricula import build_curriculum

NUM, SEEDS, SHOWN = 156, range(5), (0, 51, 103, 155)
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "as in the paper": ("random reward", {}),
    "random actions": ("random actions", {}),
    "learning_rate 0.001": ("random reward", {"agent_options": {"learning_rate": 0.001}}),
    "entropy_bonus 0.3": ("random reward", {"agent_options": {"entropy_bonus": 0.3}}),
    "entropy_bonus 1": ("random reward", {"agent_options": {"entropy_bonus": 1.0}}),
    "trust 10": ("random reward", {"agent_options": {"trust": 10.0}}),
    "bound 2": ("random reward", {"bins": {"bound": 2.0}}),
    "bound 1": ("random reward", {"bins": {"bound": 1.0}}),
    "bound 0.5": ("random reward", {"bins": {"bound": 0.5}}),
    "floor 0.005": ("random reward", {"bins": {"floor": 0.005}}),
}


def main() -> None:
    torch.set_num_threads(1)
    for label, (name, options) in ARMS.items():
        logs = [played(name, options, seed) for seed in SEEDS]
        perplexities = [fmean(log[index]["perplexity"] for log in logs) for index in SHOWN]
        entropy = fmean(fmean(log[-1]["policy_entropies"]) for log in logs)
        print(f"| {label} | {', '.join(f'{value:.1f}' for value in perplexities)} | {entropy:.2f} |", flush=True)


def played(name: str, options: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """What a curriculum logs at each adjustment."""
    curriculum = build_curriculum(Part(name, options), dim=128, recall_at=(1, 2, 4, 8), seed=seed)
    levels = enumerate(rising(seed))
    return [curriculum.advance({name: next(level) for name in curriculum.metrics}, i / NUM) for i, level in levels]


def rising(seed: int) -> Iterator[Iterator[float]]:
    """For each adjustment an endless stream of metrics: from 0.4 towards 0.6, with a standard deviation of 0.004."""
    chance = random.Random(seed)
    for index in range(NUM):
        level = 0.6 - 0.2 * math.exp(-4 * index / NUM)
        yield iter(lambda level=level: chance.gauss(level, 0.004), None)


if __name__ == "__main__":
    main()
