"""The policy with its critic, the action values, and how weights and optimisers are saved.

Dimensions: K bins, A actions, S state; H hidden.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pads.errors import UserError


class PolicyNetwork(nn.Module):
    """Two hidden layers with ReLU, shared by a head of logits for every bin and a head for the value of the state.

    With `own_critic` the value has two hidden layers of its own, so that learning it does not move the policy.
    """

    def __init__(
        self,
        state_size: int,
        num_bins: int,
        num_actions: int,
        hidden_size: int = 128,
        *,
        own_critic: bool = False,
        seed: int,
    ) -> None:
        super().__init__()
        self.shape = (num_bins, num_actions)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs too, which are not forked
            self.trunk = make_trunk(state_size, hidden_size)
            self.policy = nn.Linear(hidden_size, num_bins * num_actions)
            self.value = nn.Linear(hidden_size, 1)
            # drawn last: the policy begins with the same weights whichever critic it has
            self.critic = make_trunk(state_size, hidden_size) if own_critic else None

    def forward(self, state_S: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits_KA and the value V(s), a scalar."""
        hidden_H = self.trunk(state_S)
        critic_H = hidden_H if self.critic is None else self.critic(state_S)
        return self.policy(hidden_H).unflatten(-1, self.shape), self.value(critic_H).squeeze(-1)


class QNetwork(nn.Module):
    """The policy's two hidden layers, shared by a head of action values for every bin."""

    def __init__(self, state_size: int, num_bins: int, num_actions: int, hidden_size: int = 128, *, seed: int) -> None:
        super().__init__()
        self.shape = (num_bins, num_actions)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.trunk = make_trunk(state_size, hidden_size)
            self.values = nn.Linear(hidden_size, num_bins * num_actions)

    def forward(self, state_S: Tensor) -> Tensor:
        """Return q_KA, Q(s, k, a)."""
        return self.values(self.trunk(state_S)).unflatten(-1, self.shape)


def make_trunk(state_size: int, hidden_size: int) -> nn.Sequential:
    """Return two hidden layers with ReLU."""
    return nn.Sequential(
        nn.Linear(state_size, hidden_size),
        nn.ReLU(),
        nn.Linear(hidden_size, hidden_size),
        nn.ReLU(),
    )


def draw_seed(generator: torch.Generator) -> int:
    """Draw a seed for another stream, so that weights and actions do not come from the same numbers."""
    return int(torch.randint(2**62, (), generator=generator))


def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy saved weights into a network of the same shape."""
    shapes = {name: tuple(weight.shape) for name, weight in network.state_dict().items()}
    saved = {name: tuple(weight.shape) for name, weight in weights.items()}
    if saved != shapes:
        raise UserError(
            f"the saved policy does not fit: its weights are {saved}, here they are {shapes}; "
            "use the state, the bins, the actions and the hidden_size it was trained with"
        )
    network.load_state_dict(weights)


def adam_state(optimiser: torch.optim.Adam) -> dict[str, dict[str, Tensor]]:
    """Return Adam's moments of each parameter by its position; before its first step they are zeros, as Adam begins."""
    return {
        str(position): {
            "step": state["step"].clone() if state else torch.zeros(()),
            "exp_avg": state["exp_avg"].clone() if state else torch.zeros_like(parameter),
            "exp_avg_sq": state["exp_avg_sq"].clone() if state else torch.zeros_like(parameter),
        }
        for position, parameter in enumerate(optimiser.param_groups[0]["params"])
        for state in [optimiser.state.get(parameter)]
    }


def load_adam_state(optimiser: torch.optim.Adam, moments: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Put saved moments back; the learning rate stays the one the optimiser was made with."""
    for position, parameter in enumerate(optimiser.param_groups[0]["params"]):
        optimiser.state[parameter] = {name: moment.clone() for name, moment in moments[str(position)].items()}
