"""phi(I; zeta): a backbone, a linear embedding, unit length (paper, Sec. 3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class EmbeddingNetwork(nn.Module):
    """images_BCHW -> embeddings_BD on the unit sphere."""

    def __init__(self, backbone: nn.Module, embedding_dim: int = 128, *, frozen_batch_norm: bool = False) -> None:
        """frozen_batch_norm: batch norms keep their statistics during training; their scales and shifts still learn."""
        super().__init__()
        self.backbone = backbone
        self.embedding = nn.Linear(int(backbone.num_features), embedding_dim)  # type: ignore[arg-type]
        self.frozen_batch_norm = frozen_batch_norm

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return F.normalize(self.embedding(self.backbone(images_BCHW)).float(), dim=1)

    def train(self, mode: bool = True) -> EmbeddingNetwork:
        super().train(mode)
        if self.frozen_batch_norm:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Initial weights by seed, without disturbing the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
