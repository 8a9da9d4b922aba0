"""A curriculum owns the sampling rule and may change it after a validation.

Every static baseline and PADS are the same kind of thing, chosen from one dict and compared on one axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from pads.config import Config, Part, build, unknown
from pads.curricula.controls import CONTROLS, OF_ANOTHER_RUN, keep_last_distribution, replay_run
from pads.curricula.fixed import FixedCurriculum, Rule, make_fixed
from pads.curricula.learned import LearnedCurriculum
from pads.curricula.scheduled import ScheduledCurriculum, linear, non_linear
from pads.pml.miners import build_miner
from pads.pml.names import is_theirs, suggest_names
from pads.sampling import BinDistribution
from pads.sampling.rules import NEGATIVE_RULES


class Curriculum(Protocol):
    @property
    def rule(self) -> Rule: ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the reward split that `advance` wants; none, and no validation is made for it."""
        ...

    def advance(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        """Called every M steps; may change the rule; returns what to log."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def list_curricula() -> dict[str, Callable[..., Curriculum]]:
    return {**CURRICULA, **{name: make_fixed(name) for name in NEGATIVE_RULES if name not in CURRICULA}}


def build_curriculum(part: Part, **given: Any) -> Curriculum:
    """The curriculum of that name; a rule that somebody added to NEGATIVE_RULES is one too, and so is `pml:` a miner."""
    if is_theirs(part):
        return FixedCurriculum(build_miner(part))
    known = list_curricula()
    if part.name not in known:
        raise unknown("curriculum", part.name, [*known, *suggest_names(part.name, "miners")])
    return build(known, part, "curriculum", **given)


def make_curriculum(config: Config) -> Curriculum:
    return build_curriculum(
        config.curriculum, dim=config.network.embedding_dim, recall_at=config.recall_at, seed=config.seed
    )


def is_adaptive(config: Config) -> bool:
    """Whether the curriculum follows a validation, for which it asks in `metrics`: whoever treats those apart asks here."""
    return bool(make_curriculum(config).metrics)


def make_initial(config: Config) -> Curriculum:
    """Make the curriculum as a run began with it, without the policy of another run, which may be gone."""
    own = {name: value for name, value in config.curriculum.options.items() if name not in OF_ANOTHER_RUN}
    return make_curriculum(replace(config, curriculum=Part(config.curriculum.name, own)))


def find_initial(config: Config) -> BinDistribution | None:
    """Return the distribution that a run of this config begins with, None where it adapts none."""
    curriculum = make_initial(config)
    return getattr(curriculum.rule, "distribution", None) if curriculum.metrics else None


def replay(*, run: str | None = None) -> ScheduledCurriculum:
    """Repeat the distributions of `run`, the folder of another run that adapted them."""
    return replay_run(run, find_initial)


def keep_last(*, run: str | None = None) -> FixedCurriculum:
    """Draw by the last distribution of `run`, the folder of another run that adapted it."""
    return keep_last_distribution(run, find_initial)


CURRICULA: dict[str, Callable[..., Curriculum]] = {
    **{name: make_fixed(name) for name in NEGATIVE_RULES},
    "linear": linear,
    "non-linear": non_linear,
    "learned": LearnedCurriculum,
    **CONTROLS,
    "replayed": replay,
    "last distribution": keep_last,
}
"""Look up a curriculum by name: `--set curriculum.name=distance-weighted`."""

__all__ = [
    "CURRICULA",
    "Curriculum",
    "FixedCurriculum",
    "LearnedCurriculum",
    "ScheduledCurriculum",
    "build_curriculum",
    "is_adaptive",
    "list_curricula",
    "make_curriculum",
    "make_initial",
]
