"""Curricula that never change their rule: every static baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pads.config import call
from pads.pml.miners import Mined
from pads.sampling.rules import NEGATIVE_RULES, NegativeRule

Rule = NegativeRule | Mined
"""What a curriculum owns: a rule that gives weights, or a miner that forms its triplets itself."""


class FixedCurriculum:
    """A rule that stays as it is."""

    metrics: tuple[str, ...] = ()

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def advance(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state, "a fixed curriculum has no state"


def fixed(name: str) -> Callable[..., FixedCurriculum]:
    """The curriculum over the rule of that name; its options are the rule's."""
    maker = NEGATIVE_RULES[name]

    def make(**options: Any) -> FixedCurriculum:
        return FixedCurriculum(call(maker, options, "curriculum.options"))

    make.__wrapped__ = maker  # type: ignore[attr-defined]  # its signature, for the check of options
    return make
