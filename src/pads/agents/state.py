"""The training state s that the policy sees (PADS, "Training states" and implementation details).

Dimensions: K bins, S state; H history, M metrics, T observations so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from pads.errors import UserError

STATE_PARTS = {
    "recall": ("recall@1", "recall@2", "recall@4", "recall@8"),
    "distances": ("intra", "inter"),
    "nmi": ("nmi",),
    "soft-recall": ("soft-recall",),
    "fall": (),
}
"""The metrics of each part; "fall" looks at those of the other parts that have a best: all but the distances."""


class TrainingState:
    """Remembers the metrics and lays them out: past values, running averages, falls, last distribution, progress."""

    def __init__(
        self,
        composition: Sequence[str] = ("recall", "distances", "nmi"),
        *,
        num_bins: int,
        history: int = 20,
        averages: Sequence[int] = (2, 8, 16, 32),
        recall_at: Sequence[int] = (1, 2, 4, 8),
    ) -> None:
        _check(composition, num_bins, history, averages, recall_at)
        parts = {**STATE_PARTS, "recall": tuple(f"recall@{k}" for k in recall_at)}
        self.metrics = tuple(name for part in composition for name in parts[part])
        self.history, self.averages, self.num_bins = history, tuple(averages), num_bins
        have_best = [name for name in self.metrics if name not in STATE_PARTS["distances"]]
        self.falling = tuple(have_best) if "fall" in composition else ()
        self.size = (history + len(self.averages)) * len(self.metrics) + 2 * len(self.falling) + num_bins + 1
        self.observed: deque[list[float]] = deque(maxlen=max(history, *self.averages, 0))
        self.marks: dict[str, tuple[float, float, float]] = {}
        """Of each falling metric, the worst and the best so far, and the progress at which it was last at its best."""

    def observe(self, metrics: Mapping[str, float], probabilities_K: Tensor, progress: float) -> Tensor:
        """state_S: [history, oldest first] [running averages] [falls, and how long] [previous distribution] [progress].

        The progress is the share of the training that is done; falls are there if the composition names them.
        """
        assert probabilities_K.shape == (self.num_bins,), (probabilities_K.shape, self.num_bins)
        self.observed.append(pick_metrics(metrics, self.metrics))
        for name in self.falling:
            self.marks[name] = moved_marks(self.marks.get(name), metrics[name], progress)
        falls = [fall(metrics[name], self.marks[name]) for name in self.falling]
        since = [progress - self.marks[name][2] for name in self.falling]
        observed_TM = torch.tensor(list(self.observed), dtype=torch.float64)
        # A history not yet full begins with copies of the first metrics; the averages hold only what was measured.
        num_missing = max(self.history - len(observed_TM), 0)
        history_HM = torch.cat([observed_TM[:1].expand(num_missing, -1), observed_TM[-self.history :]])
        averages = [observed_TM[-length:].mean(0) for length in self.averages]
        distribution_K = probabilities_K.detach().to("cpu", torch.float64)
        fallen = torch.tensor([*falls, *since], dtype=torch.float64)
        return torch.cat([history_HM.flatten(), *averages, fallen, distribution_K, torch.tensor([progress])]).float()

    def state_dict(self) -> dict[str, Any]:
        """The metrics remembered, oldest first, and the marks of those that may fall."""
        marks = {"marks": {name: list(values) for name, values in self.marks.items()}} if self.falling else {}
        return {"observed": [list(values) for values in self.observed], **marks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.observed.clear()
        self.observed.extend(list(values) for values in state["observed"])
        self.marks = {name: tuple(values) for name, values in state.get("marks", {}).items()}


def moved_marks(marks: tuple[float, float, float] | None, value: float, progress: float) -> tuple[float, float, float]:
    """The worst and the best value so far and the progress at which the best was last seen, with one value more."""
    if marks is None:
        return value, value, progress
    worst, best, best_at = marks
    return min(worst, value), max(best, value), progress if value >= best else best_at


def fall(value: float, marks: tuple[float, float, float]) -> float:
    """How much of the way from its worst to its best a metric has lost again: 0 at its best, 1 at its worst so far.

    A few hundredths of Recall@1 are much in a training; as a share of the way the network can see them.
    """
    worst, best, _ = marks
    return (best - value) / (best - worst) if best > worst else 0.0


def pick_metrics(metrics: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """The values of these metrics, all there and all finite: a nan would spoil the policy for good."""
    missing = [name for name in names if name not in metrics]
    if missing:
        raise UserError(f"the policy needs the metrics {', '.join(missing)}; measured: {', '.join(metrics) or 'none'}")
    values = [float(metrics[name]) for name in names]
    for name, value in zip(names, values, strict=True):
        if not isfinite(value):
            raise UserError(f"the metric {name} is {value} on the reward split; give it more images of each class")
    return values


def _check(
    composition: Sequence[str], num_bins: int, history: int, averages: Sequence[int], recall_at: Sequence[int]
) -> None:
    choices = ", ".join(STATE_PARTS)
    if not composition:
        raise UserError(f"the state's composition is empty; name one or more of {choices}")
    for part in composition:
        if part not in STATE_PARTS:
            raise UserError(f"the state's composition has no part {part!r}; choose from {choices}")
    if len(set(composition)) < len(composition):
        raise UserError(f"the state's composition names a part twice: {', '.join(composition)}")
    if "fall" in composition and not set(composition) - {"fall", "distances"}:
        raise UserError("the state's part fall is that of a metric with a best; name recall, nmi or soft-recall too")
    if not all(isinstance(number, int) and number >= 1 for number in (num_bins, history, *averages, *recall_at)):
        raise UserError("the state's num_bins, history, averages and recall_at must be whole numbers of at least 1")
