"""Against over-fitting: the further the training has drawn its own pairs together, the more of its triplets are flipped.

A network that over-fits pulls the images of a training class together and leaves unseen images of the same classes where they
were: the gap between the two distances, both measured on evaluation crops, opens as the training over-fits. What works
against it is rho, the share of triplets with a true positive as the negative (R-Margin, Roth et al. 2020). So rho follows
the gap: none while there is none, which lets the training begin at full speed, and more as it opens.

Dimensions: N images, D embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from pads.curricula.learned import make_rule
from pads.errors import UserError
from pads.sampling.bins import BinDistribution
from pads.sampling.distances import pairwise_distances


class GapCurriculum:
    """Bins that stay as they are, and a rho that follows the gap between training pairs and unseen ones."""

    metrics: tuple[str, ...] = ("recall@1",)

    def __init__(
        self,
        *,
        bins: Mapping[str, Any] | None = None,
        gain: float = 5.0,
        average: float = 0.2,
        limit: float = 0.45,
        dim: int = 128,
    ) -> None:
        """
        bins: options of the distribution, see `pads.bin_distribution`; its `rho` is where this one starts (0).
        gain: rho for each unit of the gap: with 5, a fifth of the triplets where training pairs are 4 % closer than unseen ones.
        average: how much of the running gap is new each time.
        limit: of rho; from a half on, positives are pushed apart as often as pulled, and nothing is learned.
        dim: D of the embedding.
        """
        if gain <= 0 or not 0 < average <= 1 or not 0 < limit <= 1:
            raise UserError("gain must be above 0, average and limit above 0 and at most 1.")
        self.rule = make_rule({"rho": 0.0, **(bins or {})}, dim)
        self.gain, self.average, self.limit = gain, average, limit
        self.first: float | None = None
        self.running = 0.0

    @property
    def distribution(self) -> BinDistribution:
        return self.rule.distribution

    def look(
        self, embeddings_ND: Tensor, labels_N: Tensor, seen: tuple[Tensor, Tensor], loss_fn: nn.Module | None = None
    ) -> dict[str, Any]:
        """How far apart two images of a class are, of those that are trained on and of the reward split."""
        pairs = {
            "trained_distance": positive_distance(*seen),
            "unseen_distance": positive_distance(embeddings_ND, labels_N),
        }
        return {name: float(value) for name, value in pairs.items()}

    def advance(self, metrics: Mapping[str, Any], progress: float) -> dict[str, Any]:
        """Sets rho by the gap; returns what to log."""
        ratio_t = metrics["trained_distance"] / max(metrics["unseen_distance"], 1e-6)
        if self.first is None:
            self.first = ratio_t  # the two sets differ by themselves: what counts is what the training adds
        gap_t = max(0.0, 1 - ratio_t / max(self.first, 1e-6))
        self.running = (1 - self.average) * self.running + self.average * gap_t
        rho = min(self.gain * self.running, self.limit)
        self.rule.adjust(replace(self.distribution, rho=rho))
        return {
            "gap": self.running,
            "rho": rho,
            "distribution": self.distribution.probabilities_K.tolist(),
            "perplexity": self.distribution.perplexity,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"first": self.first, "running": self.running, "rho": self.distribution.rho}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.first, self.running = state["first"], state["running"]
        self.rule.adjust(replace(self.distribution, rho=state["rho"]))


def positive_distance(embeddings_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Mean distance on the unit sphere of two different images of a class, each pair alike; 0 where there is none."""
    distances_NN = pairwise_distances(embeddings_ND.detach())
    pairs_NN = (labels_N[:, None] == labels_N[None, :]).float()
    pairs_NN.fill_diagonal_(0)
    return (distances_NN * pairs_NN).sum() / pairs_NN.sum().clamp(min=1)
