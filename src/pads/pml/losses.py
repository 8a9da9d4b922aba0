"""Losses of pytorch-metric-learning under our call.

Dimensions: B batch, D embedding.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from pads.config import Part, call, lookup
from pads.errors import UserError
from pads.pml.names import PREFIX, maker, own_randomness, their_parts
from pads.pml.tuples import Tuples

WITHOUT_TUPLES = {
    *(
        "ArcFaceLoss",
        "CosFaceLoss",
        "LargeMarginSoftmaxLoss",
        "NormalizedSoftmaxLoss",
        "P2SGradLoss",
        "ProxyAnchorLoss",
    ),
    *("ProxyNCALoss", "SoftTripleLoss", "SphereFaceLoss", "SubCenterArcFaceLoss"),  # compare with classes, not images
    *("FastAPLoss", "InstanceLoss", "NCALoss", "PNPLoss", "RankedListLoss", "SmoothAPLoss"),  # rank the whole batch
}
"""Losses that compare an image with all others or with a vector of each class: there are no triplets to give them."""
NOT_HERE = {
    "CrossBatchMemory": "it wraps a loss and a miner: use it in your own loop, with pads' AdaptiveMiner as its miner",
    "GenericPairLoss": "it is the base of the pair losses: name one of them, such as pml:ContrastiveLoss",
    "ManifoldLoss": "it learns without labels, and a run has labels",
    "MultipleLosses": "it wraps other losses: use it in your own loop",
    "SelfSupervisedLoss": "it learns without labels, and a run has labels",
    "VICRegLoss": "it learns without labels, and a run has labels",
}


class PmlLoss(nn.Module):
    """One of their losses, given the triplets that were drawn, or none: then it forms all its pairs by itself."""

    def __init__(self, loss: nn.Module, triplets: str = "drawn", seed: int = 0) -> None:
        super().__init__()
        self.loss, self.triplets, self.seed = loss, triplets, seed
        self.num_calls = 0

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples) -> Tensor:
        self.num_calls += 1
        for name, value in self.plain_tensors().items():
            setattr(self.loss, name, value)  # without the graph of the last step, which they would go through again
        with own_randomness(self.seed + self.num_calls):
            return self.loss(embeddings_BD, labels_B, self.tuples(triplets))

    def tuples(self, triplets: Tuples) -> tuple[Tensor, ...] | None:
        """Self-regularisation may draw the positive as negative, too; losses over a matrix of pairs refuse such triplets."""
        if self.triplets == "all":
            return None
        over_matrix = getattr(self.loss, "loss_method", None) == getattr(self.loss, "mat_based_loss", ...)
        if over_matrix and len(triplets) == 3:
            kept_B = triplets[1] != triplets[2]
            return tuple(index_B[kept_B] for index_B in triplets)
        return triplets

    def plain_tensors(self) -> dict[str, Tensor]:
        """What they keep in plain attributes, such as the histogram of DynamicSoftMarginLoss."""
        return {name: value.detach() for name, value in vars(self.loss).items() if isinstance(value, Tensor)}

    def get_extra_state(self) -> dict[str, Any]:
        return {"num_calls": self.num_calls, "tensors": self.plain_tensors()}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        self.num_calls = state["num_calls"]
        for name, value in state["tensors"].items():
            setattr(self.loss, name, value.to(getattr(self.loss, name).device))


def pml_loss(part: Part, **given: Any) -> PmlLoss:
    """`pml:NAME` with its options, and `triplets`: "drawn" or "all"."""
    name = part.name.removeprefix(PREFIX)
    if name in NOT_HERE:
        raise UserError(f"the loss {part.name} cannot be named in a run: {NOT_HERE[name]}.")
    kinds = {key: kind for key, kind in their_parts("losses").items() if is_named(kind.__name__)}
    make_loss = maker(lookup(kinds, part.name, "loss"), "loss.options")

    def make(triplets: str | None = None, seed: int = 0, **options: Any) -> PmlLoss:
        if triplets == "drawn" and name in WITHOUT_TUPLES:
            raise UserError(f"{part.name} takes no triplets: leave loss.options.triplets out.")
        triplets = triplets or ("all" if name in WITHOUT_TUPLES else "drawn")
        if triplets not in ("drawn", "all"):
            raise UserError(f"loss.options.triplets is {triplets!r}: choose 'drawn' or 'all'.")
        with own_randomness(seed):
            return PmlLoss(make_loss(**options), triplets, seed)

    own = list(inspect.signature(make, eval_str=True).parameters.values())[:2]
    theirs = inspect.signature(make_loss).parameters.values()
    make.__signature__ = inspect.Signature([*own, *theirs])  # type: ignore[attr-defined]
    return call(make, part.options, "loss.options", descriptors_dim=given.get("embedding_size"), **given)


def is_named(name: str) -> bool:
    return name.endswith("Loss") and name not in NOT_HERE
