"""What every agent offers, what it learns from, and what its options may be.

Dimensions: K bins, A actions, S state; T transitions. Time: `_tm1` is when the actions were taken, `_t` one policy
iteration later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import inf, nan
from operator import add
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from pads.errors import UserError


class Transition(NamedTuple):
    """One policy iteration: a state, the actions taken in it, and what came of them."""

    state_tm1: Tensor
    actions_tm1: Tensor
    reward_t: float
    state_t: Tensor
    metric_t: float = nan
    """The level e_t whose change is rewarded; only critic_target="metric" looks at it."""


class Agent(Protocol):
    """Proposes one action per bin and learns from the reward that follows."""

    def act(self, state_S: Tensor) -> Tensor:
        """Return actions_K, int64 in 0..A-1, each bin drawn from its own categorical distribution."""
        ...

    def learn(self, transition: Transition) -> dict[str, float]:
        """Learn from one policy iteration and return what to log: nothing within an episode, at whose end it learns."""
        ...

    def entropy(self, state_S: Tensor) -> Tensor:
        """Return entropy_K, the entropy of the policy in each bin, in nats."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to continue bit for bit, as nested dicts of tensors and plain numbers."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        ...


def follows(transition: Transition, transitions: Sequence[Transition]) -> bool:
    """Say whether it begins where they end; the first one of a run with another run's policy does not."""
    return not transitions or torch.equal(transitions[-1].state_t, transition.state_tm1)


def pack_transitions(transitions: Sequence[Transition], state_size: int, num_bins: int) -> dict[str, Tensor]:
    """Return the transitions as tensors, for a state_dict; there may be none."""
    return {
        "state_tm1": torch.cat([torch.empty(0, state_size), *(t.state_tm1[None] for t in transitions)]),
        "actions_tm1": torch.cat([torch.empty(0, num_bins).long(), *(t.actions_tm1[None] for t in transitions)]),
        "reward_t": torch.tensor([t.reward_t for t in transitions], dtype=torch.float64),
        "state_t": torch.cat([torch.empty(0, state_size), *(t.state_t[None] for t in transitions)]),
        "metric_t": torch.tensor([t.metric_t for t in transitions], dtype=torch.float64),
    }


def unpack_transitions(packed: Mapping[str, Tensor]) -> list[Transition]:
    """Return the transitions that `pack_transitions` packed."""
    columns = {name: packed[name].clone() for name in Transition._fields}
    numbers = {name: columns[name].tolist() for name in ("reward_t", "metric_t")}
    return [Transition(*row) for row in zip(*{**columns, **numbers}.values(), strict=True)]


def average_logs(logs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of what was logged for each transition."""
    return {name: reduce(add, (log[name] for log in logs)) / len(logs) for name in logs[0]}


BASELINES = ("none", "moving average", "critic")
CRITIC_TARGETS = ("bootstrapped return", "return", "metric")


def _one_of(*names: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in names, "one of " + ", ".join(repr(name) for name in names)


def _number(above: float = -inf, at_least: float = -inf, at_most: float = inf) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and value > above and at_least <= value <= at_most


_COUNT = (lambda value: isinstance(value, int) and value >= 1, "a whole number of at least 1")
_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "state_size": _COUNT,
    "num_bins": _COUNT,
    "num_actions": _COUNT,
    "hidden_size": _COUNT,
    "old_policy_every": _COUNT,
    "episode_length": _COUNT,
    "target_every": _COUNT,
    "buffer_size": _COUNT,
    "batch_size": _COUNT,
    "epsilon_steps": _COUNT,
    "return_steps": _COUNT,
    "importance_steps": _COUNT,
    "learning_rate": (_number(above=0), "a number above 0"),
    "clip": (_number(above=0), "a number above 0"),
    "value_weight": (_number(at_least=0), "a number of at least 0"),
    "discount": (_number(at_least=0, at_most=1), "a number from 0 to 1"),
    "epsilon_start": (_number(at_least=0, at_most=1), "a number from 0 to 1"),
    "epsilon_end": (_number(at_least=0, at_most=1), "a number from 0 to 1"),
    "priority_exponent": (_number(at_least=0), "a number of at least 0"),
    "importance_start": (_number(at_least=0, at_most=1), "a number from 0 to 1"),
    "average_rate": (_number(above=0, at_most=1), "a number above 0 and at most 1"),
    "baseline": _one_of(*BASELINES),
    "critic_target": _one_of(*CRITIC_TARGETS),
    "seed": (lambda value: isinstance(value, int), "a whole number"),
}


def check_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of an agent; refuse one that has no meaning."""
    for name, value in options.items():
        is_allowed, description = _ALLOWED[name]
        if not is_allowed(value):
            raise UserError(f"the agent's {name} must be {description}, not {value!r}")
    return options
