"""The progression of a distribution over training: p(I_n | I_a), or what was drawn; its mean over runs.

Dimensions: T steps, K bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

LOG_FLOOR = 1e-5
"""The least probability that a logarithmic scale tells from 0."""


@dataclass(frozen=True)
class Progression:
    edges: np.ndarray
    """(K + 1,) the limits of the bins, in distances."""
    steps_T: np.ndarray
    shares_TK: np.ndarray
    until: float
    """The last step that this tells about."""
    is_drawn: bool
    """What was drawn, up to each step; else p, from each step on."""

    @classmethod
    def of(cls, series: Mapping[str, Any], kind: str) -> Progression | None:
        """`distribution` or `drawn` of what `series_of` gives; None where the run has none."""
        values = series[kind]
        if values is None:
            return None
        is_drawn = kind == "drawn"
        shares_TK = np.asarray(values["share" if is_drawn else "p"], dtype=np.float64)
        until = max([1, *values["steps"], *(curve["steps"][-1] for curve in series["curves"].values())])
        steps_T = np.asarray(values["steps"])
        return cls(np.asarray(values["edges"]), steps_T, shares_TK, steps_T[-1] if is_drawn else until, is_drawn)

    @property
    def limits(self) -> np.ndarray:
        """(T + 1,) the steps between which each row holds."""
        return np.array([0, *self.steps_T]) if self.is_drawn else np.array([*self.steps_T, self.until])

    def thin(self, most: int) -> Progression:
        """Keep at most that many steps, evenly spread, the first and the last among them."""
        if len(self.steps_T) <= most:
            return self
        kept = np.unique(np.linspace(0, len(self.steps_T) - 1, most).round().astype(int))
        return replace(self, steps_T=self.steps_T[kept], shares_TK=self.shares_TK[kept])


def mean_progression(progressions: Sequence[Progression]) -> Progression:
    """The mean over runs, at the steps that all of them reached (paper, Fig. 4)."""
    first = progressions[0]
    assert all(np.array_equal(each.edges, first.edges) for each in progressions), (
        "runs of one config have the same bins"
    )
    steps = first.steps_T
    for each in progressions[1:]:
        steps = np.intersect1d(steps, each.steps_T)
    rows = [each.shares_TK[np.searchsorted(each.steps_T, steps)] for each in progressions]
    until = min(each.until for each in progressions)
    return replace(first, steps_T=steps, shares_TK=np.mean(rows, axis=0), until=until)
