"""tools/regret.py: what the bandit loses in made-up worlds."""

import random
from statistics import fmean, pstdev

import pytest

from pads.curricula import BanditCurriculum

ARMS = BanditCurriculum().arms


@pytest.fixture(scope="module")
def tool(load_tool):
    return load_tool("regret")


def test_gains_are_in_standard_deviations_and_each_seed_is_another_world(tool):
    for world in tool.WORLDS.values():
        gains = [tool.standardised(world(ARMS, random.Random(seed))) for seed in (0, 0, 1)]
        assert gains[0] == gains[1] != gains[2]
        assert (fmean(gains[0]), pstdev(gains[0])) == (pytest.approx(0), pytest.approx(1))


def test_related_arms_are_the_worse_the_further_they_lie_from_the_best_location(tool):
    gains = dict(zip(ARMS, tool.related(ARMS, random.Random(3)), strict=True))
    best = random.Random(3).uniform(0.3, 1.1)
    same = [arm for arm in ARMS if (arm.width, arm.rho) == (0.05, 0.0)]
    assert sorted(same, key=gains.get, reverse=True) == sorted(same, key=lambda arm: abs(arm.location - best))


def test_arms_at_random_lose_what_the_mean_arm_lacks_and_the_bandit_less(tool):
    for world in tool.WORLDS.values():
        best = fmean(max(tool.standardised(world(ARMS, random.Random(seed)))) for seed in range(6))
        at_random, found = (fmean(tool.regret(world, 1.0, c, s) for s in range(6)) for c in ("uniform", "thompson"))
        assert at_random == pytest.approx(best, abs=0.2)  # the mean gain is 0; 300 draws
        assert found < 0.8 * at_random
