"""What the value-based agents remember and learn from again.

Dimensions: B batch, K bins, S state; N experiences, oldest first. Time: `_tm1` is when the actions were taken, `_t` is
one policy iteration later, or several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pads.agents.objectives import priority_probabilities


class Experiences(NamedTuple):
    """States, the actions taken in them, the discounted rewards up to a later state, and the discount from there on."""

    state_tm1_NS: Tensor
    actions_tm1_NK: Tensor
    return_N: Tensor
    discount_N: Tensor
    state_t_NS: Tensor


class Replay:
    """The last `size` experiences, each with a priority by which it may be drawn."""

    def __init__(self, size: int, state_size: int, num_bins: int) -> None:
        self.size = size
        states, numbers = torch.empty(0, state_size), torch.empty(0)
        self.experiences = Experiences(states, torch.empty(0, num_bins).long(), numbers, numbers, states)
        self.priorities_N = torch.empty(0)

    def __len__(self) -> int:
        return len(self.priorities_N)

    def add(self, state_tm1: Tensor, actions_tm1: Tensor, return_: float, discount: float, state_t: Tensor) -> None:
        """Add one with the highest priority there is, so that it is soon drawn; the oldest makes room."""
        new = (state_tm1, actions_tm1, torch.tensor(return_), torch.tensor(discount), state_t)
        self.experiences = Experiences(*map(self._append, self.experiences, new))
        highest = self.priorities_N.max() if len(self) else torch.tensor(1.0)
        self.priorities_N = self._append(self.priorities_N, highest)

    def _append(self, column: Tensor, value: Tensor) -> Tensor:
        return torch.cat([column, value[None]])[-self.size :]

    def draw(self, num: int, generator: torch.Generator, exponent: float = 0.0) -> tuple[Tensor, Tensor]:
        """Draw positions_B with replacement and probability ∝ priority^exponent; return them and their probs_B."""
        probs_N = priority_probabilities(self.priorities_N, exponent)
        positions_B = torch.multinomial(probs_N, num, replacement=True, generator=generator)
        return positions_B, probs_N[positions_B]

    def at(self, positions_B: Tensor) -> Experiences:
        """Return the experiences at these positions."""
        return Experiences(*(column[positions_B] for column in self.experiences))

    def prioritise(self, positions_B: Tensor, priorities_B: Tensor) -> None:
        """Give the experiences at these positions new priorities."""
        self.priorities_N[positions_B] = priorities_B

    def state_dict(self) -> dict[str, Tensor]:
        columns = {**self.experiences._asdict(), "priorities_N": self.priorities_N}
        return {name: column.clone() for name, column in columns.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        columns = {name: column[-self.size :].clone() for name, column in state.items()}
        self.priorities_N = columns.pop("priorities_N")
        self.experiences = Experiences(**columns)
