"""Recall@k, MAP@R, R-precision and NMI of embeddings as one torchmetrics `Metric`, on one process or several.

Dimensions: B batch, D embedding, N images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pads.errors import UserError
from pads.metrics import check_metric_names, compute_metrics

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ModuleNotFoundError as error:
    raise UserError("torchmetrics is not installed; install it with: pip install torchmetrics") from error

UNKNOWN = -1


class EmbeddingRetrieval(Metric):
    """Measure each image as a query against all others. `compute` gives a dict of fractions, exact, in chunks, without FAISS."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    embeddings: list[Tensor] | Tensor
    labels: list[Tensor] | Tensor
    ids: list[Tensor] | Tensor

    def __init__(
        self,
        names: Sequence[str] = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "nmi"),
        *,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        """names: those of `pads.METRICS`, with any k; seed: of the k-means behind NMI."""
        super().__init__(**kwargs)
        check_metric_names(names)
        self.names, self.seed = tuple(names), seed
        for state in ("embeddings", "labels", "ids"):
            self.add_state(state, default=[], dist_reduce_fx="cat")

    def update(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Add a batch of embeddings.

        ids: the numbers of the images in their data set. An image that came twice, because a DistributedSampler filled up
            the last batch, then counts once, and the order in which the images came does not matter.
        """
        if (
            embeddings.ndim != 2
            or labels.shape != embeddings.shape[:1]
            or (ids is not None and ids.shape != labels.shape)
        ):
            raise UserError(
                f"update takes embeddings (B, D), labels (B,) and ids (B,), not {tuple(embeddings.shape)}, "
                f"{tuple(labels.shape)}" + ("." if ids is None else f" and {tuple(ids.shape)}.")
            )
        for states, values in (
            (self.embeddings, embeddings.detach().float()),
            (self.labels, labels.long()),
            (self.ids, torch.full_like(labels, UNKNOWN, dtype=torch.long) if ids is None else ids.long()),
        ):
            assert isinstance(states, list)
            states.append(values)

    def compute(self) -> dict[str, Tensor]:
        embeddings_ND, labels_N, ids_N = map(dim_zero_cat, (self.embeddings, self.labels, self.ids))
        known_N = ids_N != UNKNOWN
        if known_N.any():
            if not known_N.all():
                raise UserError("some updates had ids and some had none: give them to all.")
            first_N = first_of_each(ids_N)
            embeddings_ND, labels_N = embeddings_ND[first_N], labels_N[first_N]
        values = compute_metrics(embeddings_ND, labels_N, self.names, seed=self.seed)
        return {name: torch.tensor(value, device=embeddings_ND.device) for name, value in values.items()}


def first_of_each(ids_N: Tensor) -> Tensor:
    """Where each number comes first, in the order of the numbers."""
    ordered_N, places_N = ids_N.sort(stable=True)
    is_first_N = torch.ones_like(ordered_N, dtype=torch.bool)
    is_first_N[1:] = ordered_N[1:] != ordered_N[:-1]
    return places_N[is_first_N]
