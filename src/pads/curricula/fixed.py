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
    """Keep one rule for the whole training."""

    metrics: tuple[str, ...] = ()

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def advance(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        """Change nothing, and return nothing to log."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Accept the empty state."""
        assert not state, "a fixed curriculum has no state"


def make_fixed(name: str) -> Callable[..., FixedCurriculum]:
    """Return what makes the curriculum of the rule of that name; its options are the rule's."""
    maker = NEGATIVE_RULES[name]

    def make(**options: Any) -> FixedCurriculum:
        return FixedCurriculum(call(maker, options, "curriculum.options"))

    make.__wrapped__ = maker  # type: ignore[attr-defined]  # its signature, for the check of options
    return make
