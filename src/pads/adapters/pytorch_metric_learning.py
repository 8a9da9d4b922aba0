"""Miners for pytorch-metric-learning 2.x: `loss(embeddings, labels, miner(embeddings, labels))`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn.functional import normalize

from pads.adapters.sampler import AdaptiveController, TripletSampler
from pads.config import lookup
from pads.errors import UserError, missing_extra
from pads.sampling import NEGATIVE_RULES, Triplets

try:
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.miners import BaseMiner
except ModuleNotFoundError as error:
    raise missing_extra("pytorch-metric-learning", "pml") from error

__all__ = ["AdaptiveController", "AdaptiveMiner", "RuleMiner"]


class AdaptiveMiner(BaseMiner):
    """Mine a triplet for every anchor, by a curriculum of pads.

    An `AdaptiveController` adapts it. All its state is in `state_dict()`: distribution, policy, its optimiser, the metrics
    it has seen, random state. Distances are Euclidean between unit vectors, in float32.
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
        **kwargs: Any,
    ) -> None:
        """
        curriculum, options: a name of `pads.CURRICULA` and its options.
        negatives_from: "all but the anchor" is the paper's self-regularisation. The positive may then be drawn as the
            negative, too, which losses over a matrix of pairs (CircleLoss, MultiSimilarityLoss, ...) refuse.
        kwargs: `collect_stats` and `distance`, as for every miner of theirs.
        """
        super().__init__(**kwargs)
        wanted = {"p": 2, "power": 1, "normalize_embeddings": True}
        if type(self.distance) is not LpDistance or any(getattr(self.distance, k) != v for k, v in wanted.items()):
            raise UserError("the bins are distances between unit vectors: leave out distance, or give LpDistance().")
        self.sampler = TripletSampler(
            curriculum,
            options,
            negatives_from=negatives_from,
            anchor_as_positive=anchor_as_positive,
            rho=rho,
            seed=seed,
        )
        self.add_to_recordable_attributes(list_of_names=["mean_neg_dist", "frac_self_pairs"], is_stat=True)
        if self.bin_probs is not None:
            self.add_to_recordable_attributes(name="bin_probs")

    @property
    def bin_probs(self) -> Tensor | None:
        """Return p_k of the bins, where the rule has any."""
        return self.sampler.bin_probs

    def mine(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        triplets = self.sampler(embeddings, labels, ref_emb, ref_labels)
        if self.collect_stats:
            self.set_stats(embeddings, labels, ref_emb, ref_labels, triplets)
        return tuple(triplets)  # type: ignore[return-value]

    def set_stats(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor, triplets: Triplets
    ) -> None:
        """Record mean_neg_dist and frac_self_pairs, the share of negatives that are of the anchor's class."""
        a, _, n = triplets
        if len(a):
            anchors, negatives = (normalize(rows.float(), dim=1) for rows in (embeddings[a], ref_emb[n]))
            self.mean_neg_dist = (anchors - negatives).norm(dim=1).mean().item()
            self.frac_self_pairs = (labels[a] == ref_labels[n]).float().mean().item()

    def get_extra_state(self) -> dict[str, Any]:
        return self.sampler.state_dict()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        self.sampler.load_state_dict(state)


class RuleMiner(AdaptiveMiner):
    """Mine by a static rule: random, hard, semihard, softhard, distance-weighted or bins."""

    def __init__(
        self, rule: str = "distance-weighted", options: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """rule, options: a name of `pads.NEGATIVE_RULES` and its options; kwargs: those of AdaptiveMiner."""
        lookup(NEGATIVE_RULES, rule, "rule")
        super().__init__(rule, options, **kwargs)
