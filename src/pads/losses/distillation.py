"""S2SD: larger heads teach the embedding while it is trained (Roth et al. 2021), and are then thrown away.

Dimensions: B batch, b the own part of it, D embedding, F features of the backbone, T dimension of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pads.config import Part, build
from pads.errors import UserError
from pads.losses.pairs import cosine_similarities
from pads.pml.tuples import Tuples
from pads.sampling.rules import in_dimension

Draw = Callable[[Tensor, Any], Tuples]
"""Draws triplets among these embeddings by this rule."""
Gather = Callable[[Tensor], Tensor]
"""Gathers the rows of all processes."""


def divergence(student_BB: Tensor, teacher_BB: Tensor, temperature: float) -> Tensor:
    """Return the mean over rows of KL(teacher || student), both as a softmax of their similarities."""
    log_student_BB = F.log_softmax(student_BB / temperature, dim=1)
    log_teacher_BB = F.log_softmax(teacher_BB.detach() / temperature, dim=1)
    return F.kl_div(log_student_BB, log_teacher_BB, reduction="batchmean", log_target=True)


class S2SD(nn.Module):
    """Heads of several dimensions on the pooled features, each with its own loss, and what the base learns from them."""

    num_steps: Tensor

    def __init__(
        self,
        num_features: int,
        make_loss: Callable[[int], nn.Module],
        dims: Sequence[int] = (512, 1024, 1536, 2048),
        weight: float = 50.0,
        feature_weight: float = 50.0,
        feature_delay: int = 1000,
        temperature: float = 1.0,
    ) -> None:
        """
        num_features: F of the backbone. make_loss: makes the loss for embeddings of a dimension.
        dims: T of each head, a perceptron of two layers, F to T to T.
        weight: of the divergence of the base's similarities from those of the heads.
        feature_weight: of the divergence from those of the pooled features themselves.
        feature_delay: steps before the pooled features begin to teach.
        temperature: of the softmax over the similarities of an image.
        """
        super().__init__()
        if not dims or min(dims) < 3:
            raise UserError(f"dims is {list(dims)}: name at least one head, each of at least 3 dimensions.")
        if temperature <= 0:
            raise UserError(f"temperature is {temperature}: it must be above 0.")
        self.heads = nn.ModuleList(two_layers(num_features, dim) for dim in dims)
        self.losses = nn.ModuleList(make_loss(dim) for dim in dims)
        self.weight, self.feature_weight, self.feature_delay = weight, feature_weight, feature_delay
        self.temperature = temperature
        # on the device: a CUDA graph counts its own steps
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        loss: Tensor,
        embeddings_BD: Tensor,
        features: Sequence[Tensor],
        labels_B: Tensor,
        draw: Draw,
        rule: Any,
        gather: Gather,
    ) -> Tensor:
        """Return the whole loss, given that of the base and its embeddings.

        features: the pooled features that teach and those that go into the heads, of the own part of the batch.
        rule: that of the base, by which it has drawn already; each head draws by it in its own space and dimension.
        """
        pooled_bF, into_heads_bF = features
        similarities_BB = cosine_similarities(embeddings_BD)
        losses, divergences = [], []
        for head, head_loss in zip(self.heads, self.losses, strict=True):
            head_BT = gather(F.normalize(head(into_heads_bF), dim=1))
            needs_triplets = getattr(head_loss, "triplets", "drawn") == "drawn"
            triplets = draw(head_BT, in_dimension(rule, head_BT.shape[1])) if needs_triplets else None
            losses.append(head_loss(head_BT, labels_B, triplets))
            divergences.append(divergence(similarities_BB, cosine_similarities(head_BT.detach()), self.temperature))
        of_features = divergence(similarities_BB, cosine_similarities(gather(pooled_bF.detach())), self.temperature)
        begun = (self.num_steps >= self.feature_delay).to(loss.dtype)
        self.num_steps.add_(1)
        return (
            (loss + torch.stack(losses).mean()) / 2
            + self.weight * torch.stack(divergences).mean()
            + self.feature_weight * begun * of_features
        )

    def beside(self, network: nn.Module, loss_fn: nn.Module) -> tuple[nn.Module, nn.Module]:
        """Return what learns like the network and what learns like the loss, the heads and their losses included."""
        return nn.ModuleList([network, self.heads]), nn.ModuleList([loss_fn, self.losses])


def two_layers(num_features: int, dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(num_features, dim), nn.ReLU(), nn.Linear(dim, dim))


def no_distillation() -> None:
    """Train the embedding alone."""


DISTILLATIONS: dict[str, Callable[..., S2SD | None]] = {"none": no_distillation, "s2sd": S2SD}


def make_distillation(part: Part, **given: Any) -> S2SD | None:
    """Return the distillation of that name, None for `none`; given: num_features and make_loss."""
    return build(DISTILLATIONS, part, "distillation", **given)
