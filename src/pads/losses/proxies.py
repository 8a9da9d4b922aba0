"""Losses that compare an image with a learned vector for each class, its proxy: proxy-anchor and normalised softmax.

The proxies are parameters of the loss, so `optimiser.loss_learning_rate` is their learning rate.

Dimensions: B batch, D embedding, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.errors import UserError
from pads.losses.pairs import log_one_plus_sum_exp
from pads.pml.tuples import Tuples


def random_proxies(num_classes: int, embedding_size: int, seed: int) -> nn.Parameter:
    """Return normal proxies whose spread does not depend on D: a step of Adam then turns all heads by the same angle."""
    if num_classes < 1:
        raise UserError(f"num_classes is {num_classes}: a loss with proxies needs at least one class.")
    generator = torch.Generator().manual_seed(seed)
    return nn.Parameter(torch.randn(num_classes, embedding_size, generator=generator) * (2 / num_classes) ** 0.5)


def similarities_to(proxies_CD: Tensor, embeddings_BD: Tensor) -> Tensor:
    return F.normalize(embeddings_BD, dim=1) @ F.normalize(proxies_CD, dim=1).T


class ProxyAnchorLoss(nn.Module):
    """Takes each proxy as an anchor for all images of the batch (Kim et al. 2020)."""

    triplets = "all"

    def __init__(
        self, num_classes: int = 1, embedding_size: int = 128, margin: float = 0.1, alpha: float = 32.0, seed: int = 0
    ) -> None:
        """
        margin: by how much images of the class should be more similar to the proxy, and others less similar, than 0.
        alpha: how sharply hard images are weighed.
        """
        super().__init__()
        self.margin, self.alpha = margin, alpha
        self.proxies = random_proxies(num_classes, embedding_size, seed)

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples | None = None) -> Tensor:
        similarities_BC = similarities_to(self.proxies, embeddings_BD)
        num_classes = len(self.proxies)
        of_class_BC = labels_B[:, None] == torch.arange(num_classes, device=labels_B.device)
        of_positives_C = log_one_plus_sum_exp(self.alpha * (self.margin - similarities_BC), of_class_BC, 0)
        of_negatives_C = log_one_plus_sum_exp(self.alpha * (similarities_BC + self.margin), ~of_class_BC, 0)
        num_present = of_class_BC.any(0).sum().clamp(min=1)
        return of_positives_C.sum() / num_present + of_negatives_C.sum() / num_classes


class NormalisedSoftmaxLoss(nn.Module):
    """Classifies by the cosine similarity to each proxy (Zhai and Wu 2019)."""

    triplets = "all"

    def __init__(
        self, num_classes: int = 1, embedding_size: int = 128, temperature: float = 0.05, seed: int = 0
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise UserError(f"temperature is {temperature}: it must be above 0.")
        self.temperature = temperature
        self.proxies = random_proxies(num_classes, embedding_size, seed)

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor, triplets: Tuples | None = None) -> Tensor:
        return F.cross_entropy(similarities_to(self.proxies, embeddings_BD) / self.temperature, labels_B)
