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
}
"""The metrics of each part of the state; `recall_at` changes those of "recall"."""


class TrainingState:
    """Remembers the metrics and lays them out: past values, running averages, last distribution, progress."""

    def __init__(
        self,
        composition: Sequence[str] = ("recall", "distances", "nmi"),
        *,
        num_bins: int,
        history: int = 20,
        averages: Sequence[int] = (2, 8, 16, 32),
        recall_at: Sequence[int] = (1, 2, 4, 8),
    ) -> None:
        check_composition(composition)
        if not all(isinstance(number, int) and number >= 1 for number in (num_bins, history, *averages, *recall_at)):
            raise UserError("the state's num_bins, history, averages and recall_at must be whole numbers of at least 1")
        parts = {**STATE_PARTS, "recall": tuple(f"recall@{k}" for k in recall_at)}
        self.metrics = tuple(name for part in composition for name in parts[part])
        self.history, self.averages, self.num_bins = history, tuple(averages), num_bins
        self.size = (history + len(self.averages)) * len(self.metrics) + num_bins + 1
        self.observed: deque[list[float]] = deque(maxlen=max(history, *self.averages, 0))

    def observe(self, metrics: Mapping[str, float], probabilities_K: Tensor, progress: float) -> Tensor:
        """Return state_S: [history, oldest first] [running averages] [previous distribution] [progress].

        The progress is the share of the training that is done.
        """
        assert probabilities_K.shape == (self.num_bins,), (probabilities_K.shape, self.num_bins)
        self.observed.append(pick_metrics(metrics, self.metrics))
        observed_TM = torch.tensor(list(self.observed), dtype=torch.float64)
        # A history not yet full begins with copies of the first metrics; the averages hold only what was measured.
        num_missing = max(self.history - len(observed_TM), 0)
        history_HM = torch.cat([observed_TM[:1].expand(num_missing, -1), observed_TM[-self.history :]])
        averages = [observed_TM[-length:].mean(0) for length in self.averages]
        distribution_K = probabilities_K.detach().to("cpu", torch.float64)
        return torch.cat([history_HM.flatten(), *averages, distribution_K, torch.tensor([progress])]).float()

    def state_dict(self) -> dict[str, Any]:
        """Return the metrics remembered, oldest first."""
        return {"observed": [list(values) for values in self.observed]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.observed.clear()
        self.observed.extend(list(values) for values in state["observed"])


def pick_metrics(metrics: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """Return the values of these metrics; refuse one that is missing or not finite, as a nan would spoil the policy."""
    missing = [name for name in names if name not in metrics]
    if missing:
        raise UserError(f"the policy needs the metrics {', '.join(missing)}; measured: {', '.join(metrics) or 'none'}")
    values = [float(metrics[name]) for name in names]
    for name, value in zip(names, values, strict=True):
        if not isfinite(value):
            raise UserError(f"the metric {name} is {value} on the reward split; give it more images of each class")
    return values


def check_composition(composition: Sequence[str]) -> None:
    """Refuse a composition that is empty, names a part twice, or names one that does not exist."""
    choices = ", ".join(STATE_PARTS)
    if not composition:
        raise UserError(f"the state's composition is empty; name one or more of {choices}")
    for part in composition:
        if part not in STATE_PARTS:
            raise UserError(f"the state's composition has no part {part!r}; choose from {choices}")
    if len(set(composition)) < len(composition):
        raise UserError(f"the state's composition names a part twice: {', '.join(composition)}")
