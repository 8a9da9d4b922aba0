"""A miner for open-metric-learning: `TripletLossWithMiner(margin=0.2, miner=AdaptiveTripletsMiner(), need_logs=True)`.

Their library is imported only by `register`: it pins old versions of others, and what it calls is one method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pads.adapters.sampler import AdaptiveController, TripletSampler
from pads.errors import UserError
from pads.sampling.bins import bin_distribution
from pads.sampling.triplets import triplet_statistics

__all__ = ["AdaptiveController", "AdaptiveTripletsMiner", "register"]


class AdaptiveTripletsMiner(nn.Module):
    """Mine triplets as an `ITripletsMiner` of open-metric-learning; `last_logs` says what was drawn.

    As a module, it goes into the checkpoints of the loss that it is part of.
    """

    def __init__(
        self,
        curriculum: str = "learned",
        options: Mapping[str, Any] | None = None,
        *,
        negatives_from: str = "other classes",
        anchor_as_positive: bool = False,
        rho: float = 0.0,
        seed: int = 0,
        need_logs: bool = False,
    ) -> None:
        """
        curriculum, options: a name of `pads.CURRICULA` and its options.
        negatives_from, anchor_as_positive, rho: see `pads.draw_triplets`.
        need_logs: keep `last_logs`, which waits for the device at every step.
        """
        super().__init__()
        self.sampler = TripletSampler(
            curriculum,
            options,
            negatives_from=negatives_from,
            anchor_as_positive=anchor_as_positive,
            rho=rho,
            seed=seed,
        )
        self.need_logs = need_logs
        self.last_logs: dict[str, float] = {}

    def sample(self, features: Tensor, labels: Sequence[int] | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features of anchors, positives and negatives."""
        labels_B = torch.as_tensor(labels, device=features.device).reshape(-1)
        triplets = self.sampler(features.detach(), labels_B)
        if not len(triplets.anchors):
            raise UserError(
                "no image of the batch has another of its class and one of another: use a balanced sampler, as "
                "open-metric-learning's own miners need one."
            )
        if self.need_logs:
            bins = getattr(self.sampler.curriculum.rule, "distribution", None) or bin_distribution()
            counts = triplet_statistics(features, labels_B, triplets, bins).counts.tolist()
            learned = {name: self.sampler.log.get(name) for name in ("reward", "perplexity")}
            self.last_logs = {
                "negative_distance": counts[5] / counts[0],
                "negative_of_class_share": counts[4] / counts[0],
                **{name: float(value) for name, value in learned.items() if value is not None},
            }
        anchor, positive, negative = (features[index] for index in triplets)
        return anchor, positive, negative

    def get_extra_state(self) -> dict[str, Any]:
        return self.sampler.state_dict()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        self.sampler.load_state_dict(state)


def register(name: str = "pads") -> None:
    """Makes `criterion.args.miner.name: pads` work in their configs, and our miner an instance of their interface."""
    try:
        from oml.interfaces.miners import ITripletsMiner
        from oml.registry.miners import MINERS_REGISTRY
    except ModuleNotFoundError as error:
        raise UserError(
            "open-metric-learning is not installed; install it with: pip install open-metric-learning"
        ) from error
    ITripletsMiner.register(AdaptiveTripletsMiner)
    MINERS_REGISTRY[name] = AdaptiveTripletsMiner
