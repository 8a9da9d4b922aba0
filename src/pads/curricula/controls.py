"""Controls: what a learned curriculum must beat before anyone can say that its policy did something.

Three of them are the learned curriculum with one thing taken away, and take its options; two repeat what another run did.

Dimensions: K bins, S state.
"""

from __future__ import annotations

import inspect
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pads.agents import Agent, Transition
from pads.config import Config
from pads.curricula.fixed import FixedCurriculum
from pads.curricula.learned import LearnedCurriculum
from pads.curricula.scheduled import ScheduledCurriculum
from pads.errors import UserError
from pads.runs import RunFolder
from pads.runs.events import read_records
from pads.sampling.bins import BinDistribution
from pads.sampling.rules import BinRule

OF_ANOTHER_RUN = ("policy", "freeze")
"""Options of the learned curriculum with which it starts from a policy that is trained already."""

# -- the learned curriculum with one thing taken away ------------------------------------------------------------------


class UniformActions:
    """An agent that asks nobody: each action of each bin is as likely as the others."""

    def __init__(self, num_bins: int, num_actions: int, seed: int) -> None:
        self.num_bins, self.num_actions = num_bins, num_actions
        self.generator = torch.Generator().manual_seed(seed)

    def act(self, state_S: Tensor) -> Tensor:
        return torch.randint(self.num_actions, (self.num_bins,), generator=self.generator)

    def learn(self, transition: Transition) -> dict[str, float]:
        return {}

    def entropy(self, state_S: Tensor) -> Tensor:
        return torch.full((self.num_bins,), math.log(self.num_actions))

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generator.set_state(state["generator"])


class CoinReward:
    """An agent that learns from a fair coin in place of its reward."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self.agent = agent
        # by a name too, because the agent's weights and actions come from the same seed
        self.generator = torch.Generator().manual_seed(random.Random(f"coin {seed}").getrandbits(62))
        self.act, self.entropy = agent.act, agent.entropy

    def learn(self, transition: Transition) -> dict[str, float]:
        """What is logged as the reward is the coin; `earned` is what it stands in for."""
        coin = float(torch.randint(2, (), generator=self.generator)) * 2 - 1
        return {
            **self.agent.learn(transition._replace(reward_t=coin)),
            "reward": coin,
            "earned": transition.reward_t,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"agent": self.agent.state_dict(), "coin": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.agent.load_state_dict(state["agent"])
        self.generator.set_state(state["coin"])


def with_random_actions(curriculum: LearnedCurriculum, seed: int) -> None:
    """Take random actions instead of the policy's."""
    curriculum.agent = UniformActions(curriculum.distribution.num_bins, len(curriculum.multipliers), seed)


def with_random_reward(curriculum: LearnedCurriculum, seed: int) -> None:
    """Reward the policy by a fair coin."""
    curriculum.agent = CoinReward(curriculum.agent, seed)


def with_frozen_policy(curriculum: LearnedCurriculum, seed: int) -> None:
    """Let an untrained policy act, which never learns."""
    curriculum.freeze = True


def control(take_away: Callable[[LearnedCurriculum, int], None]) -> Callable[..., LearnedCurriculum]:
    """The learned curriculum, changed; its options but those of a policy from another run, which is no control."""

    def make(**options: Any) -> LearnedCurriculum:
        curriculum = LearnedCurriculum(**options)
        take_away(curriculum, options.get("seed", 0))
        return curriculum

    signature = inspect.signature(LearnedCurriculum, eval_str=True)
    kept = [option for name, option in signature.parameters.items() if name not in OF_ANOTHER_RUN]
    make.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # for the check of options
    make.__doc__ = take_away.__doc__
    return make


CONTROLS: dict[str, Callable[..., LearnedCurriculum]] = {
    "random actions": control(with_random_actions),
    "random reward": control(with_random_reward),
    "frozen policy": control(with_frozen_policy),
}


# -- what another run did ----------------------------------------------------------------------------------------------

Initial = Callable[[Config], BinDistribution | None]
"""Finds the distribution that a run of this config begins with, if it adapts one: `pads.curricula.find_initial`."""


def replay_run(run: str | None, find_initial: Initial) -> ScheduledCurriculum:
    """Repeat the distributions of another run, each from the progress at which that run had it."""
    starts, distributions = read_adjustments(run, "replayed", find_initial)
    # equal shares of two trainings are equal as floats too, so that an adjustment is never one validation late
    return ScheduledCurriculum(lambda progress: distributions[bisect_right(starts, progress) - 1])


def keep_last_distribution(run: str | None, find_initial: Initial) -> FixedCurriculum:
    """Draw by the last distribution of another run from the start, never adapted (paper, Tab. 3, "fix last p")."""
    _, distributions = read_adjustments(run, "last distribution", find_initial)
    return FixedCurriculum(BinRule(distributions[-1]))


def read_adjustments(
    run: str | None, wanted_by: str, find_initial: Initial
) -> tuple[list[float], list[BinDistribution]]:
    """Return the progress at which a run began to draw by each of its distributions, and these, the initial one first."""
    if run is None:
        raise UserError(f"the curriculum {wanted_by!r} repeats another run: name it with curriculum.options.run=RUN.")
    folder = RunFolder.open(Path(run))
    initial = find_initial(folder.config)
    if initial is None:
        name = folder.config.curriculum.name
        raise UserError(
            f"{run} was trained with the curriculum {name!r}: name a run of an adaptive curriculum with bins as run."
        )
    figures = folder.metrics
    if figures is None:
        raise UserError(f"{run} is not finished: go on with `pads train --resume {run}` first.")
    starts, distributions = [0.0], [initial]
    for event in read_records(folder.path / "events.jsonl"):  # a short run may have nothing to tell
        if event["event"] == "adaptation" and len(event.get("distribution", ())) == initial.num_bins:
            starts.append(event["step"] / figures["steps"])
            weights_K = torch.tensor(event["distribution"], dtype=torch.float64)
            distributions.append(replace(initial, weights_K=weights_K))
    if len(distributions) == 1:
        raise UserError(
            f"{run} never adjusted its distribution: name a run with adapt_every below its number of steps."
        )
    return starts, distributions
