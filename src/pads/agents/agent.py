"""What every agent offers, what it learns from, and what its options may be.

Dimensions: K bins, A actions, S state. Time: `_tm1` is when the actions were taken, `_t` one policy iteration later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any, NamedTuple, Protocol

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
        """actions_K, int64 in 0..A-1, each bin drawn from its own categorical distribution."""
        ...

    def learn(self, transition: Transition) -> dict[str, float]:
        """One gradient step; returns what to log."""
        ...

    def entropy(self, state_S: Tensor) -> Tensor:
        """entropy_K: the entropy of the policy in each bin, in nats."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue bit for bit, as nested dicts of tensors and plain numbers."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        ...


BASELINES = ("none", "moving average", "critic")
CRITIC_TARGETS = ("return", "metric")


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
    "learning_rate": (_number(above=0), "a number above 0"),
    "clip": (_number(above=0), "a number above 0"),
    "value_weight": (_number(at_least=0), "a number of at least 0"),
    "discount": (_number(at_least=0, at_most=1), "a number from 0 to 1"),
    "average_rate": (_number(above=0, at_most=1), "a number above 0 and at most 1"),
    "baseline": _one_of(*BASELINES),
    "critic_target": _one_of(*CRITIC_TARGETS),
}


def check_options(**options: Any) -> None:
    """Refuse an option of an agent that has no meaning."""
    for name, value in options.items():
        is_allowed, description = _ALLOWED[name]
        if not is_allowed(value):
            raise UserError(f"the agent's {name} must be {description}, not {value!r}")
