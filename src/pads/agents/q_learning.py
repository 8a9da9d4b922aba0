"""Q-learning with a target network and replay (Watkins 1989; Mnih et al. 2015): the paper's "Q-Learn", Rainbow without extensions.

Dimensions: B batch, K bins, A actions, S state. Time: `_tm1` is when the actions were taken, `_t` one policy iteration
later.

A^K joint actions are too many for a value each. As with independent learners, each bin has values of its own, for
which the actions of all other bins are part of the world: they share the state and the reward.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pads.agents.agent import Transition, check_options
from pads.agents.networks import QNetwork, adam_state, draw_seed, load_adam_state, load_weights
from pads.agents.objectives import chosen_values, epsilon_greedy, linear_schedule, q_targets, td_loss
from pads.agents.replay import Replay
from pads.errors import UserError


class QLearning:
    """One step of Adam on the TD error of a few remembered transitions for every new one; ε-greedy in each bin."""

    def __init__(
        self,
        state_size: int,
        num_bins: int,
        num_actions: int,
        *,
        hidden_size: int = 128,
        learning_rate: float = 0.001,
        discount: float = 0.9,
        target_every: int = 10,
        buffer_size: int = 1000,
        batch_size: int = 32,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.05,
        epsilon_steps: int = 100,
        seed: int = 0,
    ) -> None:
        check_options(state_size=state_size, num_bins=num_bins, num_actions=num_actions, hidden_size=hidden_size)
        check_options(learning_rate=learning_rate, discount=discount, target_every=target_every)
        check_options(buffer_size=buffer_size, batch_size=batch_size)
        check_options(epsilon_start=epsilon_start, epsilon_end=epsilon_end, epsilon_steps=epsilon_steps)
        self.discount, self.target_every, self.batch_size = discount, target_every, batch_size
        self.epsilon_start, self.epsilon_end, self.epsilon_steps = epsilon_start, epsilon_end, epsilon_steps
        self.generator = torch.Generator().manual_seed(seed)
        self.network = QNetwork(state_size, num_bins, num_actions, hidden_size, seed=draw_seed(self.generator))
        self.target_network = copy.deepcopy(self.network)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate)
        self.replay = Replay(buffer_size, state_size, num_bins)
        self.num_updates = 0

    @property
    def epsilon(self) -> float:
        return linear_schedule(self.epsilon_start, self.epsilon_end, self.epsilon_steps, self.num_updates)

    @torch.no_grad()
    def act(self, state_S: Tensor) -> Tensor:
        """actions_K: in each bin the best one, or, with probability ε, any."""
        probs_KA = epsilon_greedy(self.network(state_S), self.epsilon)
        return torch.multinomial(probs_KA, 1, generator=self.generator).squeeze(-1)

    @torch.no_grad()
    def entropy(self, state_S: Tensor) -> Tensor:
        """entropy_K of how it acts, in nats: it depends on ε alone."""
        return torch.special.entr(epsilon_greedy(self.network(state_S), self.epsilon)).sum(-1)

    def learn(self, transition: Transition) -> dict[str, float]:
        """One gradient step on a batch of remembered transitions; every `target_every` steps the target catches up."""
        state_tm1, actions_tm1, reward_t, state_t, _ = transition
        self.replay.add(state_tm1, actions_tm1, reward_t, self.discount, state_t)
        positions_B, _ = self.replay.draw(self.batch_size, self.generator)
        batch = self.replay.at(positions_B)

        q_BK = chosen_values(self.network(batch.state_tm1_NS), batch.actions_tm1_NK)
        with torch.no_grad():
            value_BK = self.target_network(batch.state_t_NS).amax(-1)
        errors_BK = q_targets(batch.return_N, batch.discount_N, value_BK) - q_BK
        loss = td_loss(errors_BK)
        log = {
            "td_loss": loss.item(),
            "td_error": errors_BK.abs().mean().item(),
            "q_value": q_BK.mean().item(),
            "epsilon": self.epsilon,
            "policy_entropy": self.entropy(state_tm1).mean().item(),
        }

        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.num_updates += 1
        if self.num_updates % self.target_every == 0:
            self.target_network.load_state_dict(self.network.state_dict())
        return log

    def state_dict(self) -> dict[str, Any]:
        """Both networks, Adam's moments, the random stream, the memory: a copy, which later learning leaves alone."""
        return {
            "network": copy.deepcopy(dict(self.network.state_dict())),
            "target_network": copy.deepcopy(dict(self.target_network.state_dict())),
            "optimiser": adam_state(self.optimiser),
            "generator": self.generator.get_state(),
            "replay": self.replay.state_dict(),
            "num_updates": self.num_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        if state.keys() != self.state_dict().keys():
            raise UserError("the saved policy is of another kind of agent; choose the agent it was trained with")
        load_weights(self.network, state["network"])
        load_weights(self.target_network, state["target_network"])
        load_adam_state(self.optimiser, state["optimiser"])
        self.generator.set_state(state["generator"])
        self.replay.load_state_dict(state["replay"])
        self.num_updates = state["num_updates"]
