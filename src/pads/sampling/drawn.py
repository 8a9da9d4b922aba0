"""What the sampler drew since the last record, and what it cost: sums on the device.

Dimensions: B batch, D embedding, K bins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pads.errors import UserError
from pads.sampling.bins import BinDistribution, bin_distribution
from pads.sampling.triplets import triplet_statistics


class DrawnTriplets:
    """Sums over the steps since the last record: the loss, and what was drawn. Adding waits for nothing."""

    names = ("triplets", "below", "above", "positive_is_anchor", "negative_of_class", "distance")

    def __init__(self, rule: object, device: torch.device) -> None:
        self.bins: BinDistribution = getattr(rule, "distribution", None) or bin_distribution()
        self.histogram_K = torch.zeros(self.bins.num_bins, device=device)
        self.counts = torch.zeros(len(self.names), device=device)
        self.losses = torch.zeros(3, dtype=torch.float64, device=device)  # steps, loss, share of triplets that cost

    def add(
        self, loss: Tensor, share: Tensor, embeddings_BD: Tensor, labels_B: Tensor, triplets: tuple[Tensor, ...]
    ) -> None:
        """Add a step; `share` is that of triplets that cost something, nan if the loss does not say it."""
        drawn_K, counts = triplet_statistics(embeddings_BD, labels_B, triplets, self.bins)
        self.histogram_K += drawn_K
        self.counts += counts
        self.losses += torch.stack([torch.ones_like(loss), loss, share]).double()

    def check_finite(self, step: int) -> None:
        """Before anything is saved: a network that has become nan must not take the place of one that is good."""
        if not torch.isfinite(self.losses[1]):
            raise divergence_error(step)

    def summary(self, step: int) -> dict[str, Any]:
        """The means since the last call."""
        self.check_finite(step)
        steps, loss, cost = self.losses.tolist()
        counts = dict(zip(self.names, self.counts.tolist(), strict=True))
        triplets = max(1.0, counts["triplets"])  # a miner may have found none
        histogram = (self.histogram_K / triplets).tolist()
        for total in (self.histogram_K, self.counts, self.losses):
            total.zero_()
        return {
            "loss": loss / steps,
            **({} if math.isnan(cost) else {"violation_share": cost / steps}),
            "drawn": histogram,
            "below_share": counts["below"] / triplets,
            "above_share": counts["above"] / triplets,
            "positive_is_anchor_share": counts["positive_is_anchor"] / triplets,
            "negative_of_class_share": counts["negative_of_class"] / triplets,
            "negative_distance": counts["distance"] / triplets,
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {"histogram": self.histogram_K, "counts": self.counts, "losses": self.losses}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.histogram_K.copy_(state["histogram"])
        self.counts.copy_(state["counts"])
        self.losses.copy_(state["losses"])


def divergence_error(step: int) -> UserError:
    return UserError(
        f"the loss or a weight is no longer a finite number (noticed at step {step}): lower optimiser.learning_rate, or "
        "look for broken images. Nothing was saved since; the last good checkpoint is kept."
    )
