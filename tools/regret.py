"""What the bandit finds where its arms really differ: its regret as a share of that of arms at random (docs/curricula.md).

    python tools/regret.py

No network is trained. In each of 20 made-up worlds every arm of the default grid has a gain, with a standard deviation of 1
over the arms, which an adjustment adds to the level, with normal noise. Regret is the gain of the best arm less that of the
arm that is drawn by, over the adjustments 101 to 150.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev

import torch

from pads.curricula.bandit import Arm, BanditCurriculum

NUM, FIRST, SEEDS, NOISES = 150, 100, range(20), (1.0, 3.0, 10.0)
UNIT = 0.001
"""Of a level that goes to 1; to the bandit only the ratios of changes matter."""

World = Callable[[Sequence[Arm], random.Random], list[float]]


def related(arms: Sequence[Arm], chance: random.Random) -> list[float]:
    """One location is the best, others are the worse the further off; each width and each rho adds the same everywhere."""
    best = chance.uniform(0.3, 1.1)
    of_width = {width: chance.gauss(0, 0.3) for width in sorted({arm.width for arm in arms})}
    of_rho = {rho: chance.gauss(0, 0.3) for rho in sorted({arm.rho for arm in arms})}
    return [of_width[arm.width] + of_rho[arm.rho] - abs(arm.location - best) for arm in arms]


def unrelated(arms: Sequence[Arm], chance: random.Random) -> list[float]:
    """No arm says anything of another."""
    return [chance.gauss(0, 1) for _ in arms]


WORLDS: dict[str, World] = {"arms that are like their neighbours": related, "arms without relation": unrelated}


def main() -> None:
    torch.set_num_threads(1)
    for name, world in WORLDS.items():
        for noise in NOISES:
            found, at_random = (
                fmean(regret(world, noise, choice, seed) for seed in SEEDS) for choice in ("thompson", "uniform")
            )
            print(f"| {name} | {noise:g} | {at_random:.2f} | {found:.2f} | {found / at_random:.2f} |", flush=True)


def regret(world: World, noise: float, choice: str, seed: int) -> float:
    """Mean over the counted adjustments, in standard deviations of the gains."""
    bandit = BanditCurriculum(choice=choice, seed=seed)
    chance = random.Random(seed)
    gains = standardised(world(bandit.arms, chance))
    level, lost = 0.3, []
    for index in range(NUM):
        lost.append(max(gains) - gains[bandit.arm])
        level += UNIT * (gains[bandit.arm] + noise * chance.gauss(0, 1))
        bandit.advance({"soft-recall": level}, index / NUM)
    return fmean(lost[FIRST:])


def standardised(gains: Sequence[float]) -> list[float]:
    mean, spread = fmean(gains), pstdev(gains)
    return [(gain - mean) / spread for gain in gains]


if __name__ == "__main__":
    main()
