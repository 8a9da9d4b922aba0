"""phi(I; zeta): a backbone, a linear embedding, unit length unless told otherwise (paper, Sec. 3)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.errors import UserError
from pads.networks.heads import Head
from pads.networks.pooling import pool_twice
from pads.networks.weights import WeightsUsed


class EmbeddingNetwork(nn.Module):
    """Map images_BCHW, or features_BF of its backbone, to embeddings_BD, of unit length if `normalise`."""

    weights_used: WeightsUsed | None = None
    """The file that the backbone started from."""
    gives_features = False
    """In training it returns embeddings, pooled features, and mean plus maximum of the last maps."""

    def __init__(
        self,
        backbone: nn.Module,
        embedding_dim: int = 128,
        *,
        frozen_batch_norm: bool = False,
        normalise: bool = True,
        bfloat16: bool = False,
    ) -> None:
        """
        frozen_batch_norm: batch norms keep their statistics during training; their scales and shifts still learn.
        bfloat16: the backbone computes in bfloat16; its weights and the head stay float32.
        """
        super().__init__()
        self.backbone = backbone
        self.embedding = nn.Linear(count_features(backbone), embedding_dim)
        self.frozen_batch_norm, self.normalise, self.in_bfloat16 = frozen_batch_norm, normalise, bfloat16
        # here and not where it is trained: another memory layout would give other bits to the network that is loaded
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def give_features(self) -> None:
        """Return the pooled features, too, in training from now on; in evaluation the embeddings alone, as before."""
        pool: Any = getattr(self.backbone, "pool", None)
        if not callable(pool) or isinstance(pool, nn.Module):
            raise UserError(
                "this backbone has its own pooling, and a distillation needs the maps before it: "
                "take a backbone of pads, or --set distillation.name=none."
            )
        if not self.gives_features:
            self.backbone.pool = pool_twice(pool)  # type: ignore[assignment]  # a function, and no module
            self.gives_features = True

    def forward(self, images_BCHW: Tensor) -> Any:
        features_BF = self.pool_features(images_BCHW)
        if self.gives_features:
            features_BF, of_both_BF = features_BF
        # the head stays in float32: half precision in the last layer would move distances by a good part of a bin
        with torch.autocast(images_BCHW.device.type, enabled=False):
            embeddings_BD = self.embedding(features_BF.float())
        embeddings_BD = F.normalize(embeddings_BD, dim=1) if self.normalise else embeddings_BD
        if self.gives_features and self.training:
            return embeddings_BD, features_BF.float(), of_both_BF.float()
        return embeddings_BD

    def pool_features(self, images_BCHW: Tensor) -> Any:
        """Return the pooled features of the backbone, in its own precision; with mean plus maximum if it gives both.

        Features_BF in place of images are these features already.
        """
        if images_BCHW.ndim == 2:
            return images_BCHW
        kind = images_BCHW.device.type
        with torch.autocast(kind, torch.bfloat16, cache_enabled=False) if self.in_bfloat16 else nullcontext():
            return self.backbone(images_BCHW)

    def freeze_backbone(self) -> None:
        """Let the head learn alone."""
        self.backbone.requires_grad_(False)

    def start_from(self, head: Head) -> None:
        """Put this head in place of the random one."""
        with torch.no_grad():
            self.embedding.weight.copy_(head.weight_DF)
            self.embedding.bias.copy_(head.bias_D)

    def train(self, mode: bool = True) -> EmbeddingNetwork:
        super().train(mode)
        if self.frozen_batch_norm:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self


def count_features(backbone: nn.Module) -> int:
    """Return how many features a backbone gives."""
    # timm calls the width behind its heads head_hidden_size, where that is not the number of feature maps
    num_features: Any = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    return int(num_features)


class PooledFeatures(nn.Module):
    """Map images_BCHW to the pooled features_BF of a network's backbone, without its head."""

    def __init__(self, network: EmbeddingNetwork, *, normalise: bool = False) -> None:
        super().__init__()
        self.network, self.normalise = network, normalise

    def forward(self, images_BCHW: Tensor) -> Tensor:
        features = self.network.pool_features(images_BCHW)
        features_BF = (features[0] if self.network.gives_features else features).float()
        return F.normalize(features_BF, dim=1) if self.normalise else features_BF


@contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """Draw initial weights by this seed, without disturbing the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs too, which are not forked
        yield
