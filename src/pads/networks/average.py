"""An exponential moving average of a network's weights, which is measured and kept in place of the last ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage(nn.Module):
    """Follows the weights of a network: average <- decay * average + (1 - decay) * weights, once a step.

    The first steps count more, so that the weights at the start are soon forgotten. All of it stays on the device, inside
    the captured step.
    """

    num_steps: Tensor

    def __init__(self, network: nn.Module, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.weights = list(network.parameters())
        self.averages = nn.ParameterList(nn.Parameter(weight.detach().clone(), False) for weight in self.weights)
        self.register_buffer("num_steps", torch.zeros((), device=self.weights[0].device))

    @torch.no_grad()
    def update(self) -> None:
        self.num_steps.add_(1)
        share = torch.clamp((1 + self.num_steps) / (10 + self.num_steps), max=self.decay)
        averages = [average.data for average in self.averages]
        changes = torch._foreach_sub([weight.data for weight in self.weights], averages)
        torch._foreach_mul_(changes, 1 - share)
        torch._foreach_add_(averages, changes)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the network have the average for a while; then it has its own weights again, to the bit."""
        own = [weight.detach().clone() for weight in self.weights]
        self.copy_into(self.averages)
        try:
            yield
        finally:
            self.copy_into(own)

    @torch.no_grad()
    def copy_into(self, values: nn.ParameterList | list[Tensor]) -> None:
        for weight, value in zip(self.weights, values, strict=True):
            weight.copy_(value)
