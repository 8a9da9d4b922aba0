"""Q-learning (Watkins 1989; Mnih et al. 2015) and Rainbow (Hessel et al. 2018): one agent, `ValueBased`.

Rainbow has the two extensions that PADS names, prioritised replay and 2-step returns. Without them it is Q-learning with
a target network and uniform replay.

A^K joint actions are too many for a value each. As with independent learners, each bin has values of its own, for
which the actions of all other bins are part of the world: they share the state and the reward. An experience has one
priority, the mean TD error of its bins.

Dimensions: B batch, K bins, A actions, S state. Time: `_tm1` is when the actions were taken, `_t` one policy iteration
later, or `return_steps` later in what is remembered.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pads.agents.agent import Transition, check_options, follows, pack_transitions, unpack_transitions
from pads.agents.networks import QNetwork, adam_state, draw_seed, load_adam_state, load_weights
from pads.agents.objectives import (
    discounted_returns,
    epsilon_greedy,
    importance_weights,
    linear_schedule,
    q_targets,
    select_values,
    td_loss,
)
from pads.agents.replay import Replay
from pads.errors import UserError

LEAST_PRIORITY = 1e-6  # else what was once predicted exactly would never be drawn again


def q_learning(
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
) -> ValueBased:
    """Make the paper's "Q-Learn"."""
    return ValueBased(**check_options(locals()))


def rainbow(
    state_size: int,
    num_bins: int,
    num_actions: int,
    *,
    hidden_size: int = 128,
    learning_rate: float = 0.001,
    discount: float = 0.9,
    return_steps: int = 2,
    target_every: int = 10,
    buffer_size: int = 1000,
    batch_size: int = 32,
    priority_exponent: float = 0.5,
    importance_start: float = 0.4,
    importance_steps: int = 400,
    epsilon_start: float = 1.0,
    epsilon_end: float = 0.05,
    epsilon_steps: int = 100,
    seed: int = 0,
) -> ValueBased:
    """Make the paper's "Q-Learn, PR/2-Step"."""
    return ValueBased(**check_options(locals()))


class ValueBased:
    """Takes one step of Adam on a batch of what it remembers for every new transition; ε-greedy in each bin."""

    def __init__(
        self,
        state_size: int,
        num_bins: int,
        num_actions: int,
        *,
        hidden_size: int,
        learning_rate: float,
        discount: float,
        target_every: int,
        buffer_size: int,
        batch_size: int,
        epsilon_start: float,
        epsilon_end: float,
        epsilon_steps: int,
        return_steps: int = 1,
        priority_exponent: float = 0.0,
        importance_start: float = 1.0,
        importance_steps: int = 1,
        seed: int,
    ) -> None:
        self.sizes = (state_size, num_bins)
        self.discount, self.return_steps = discount, return_steps
        self.target_every, self.batch_size, self.priority_exponent = target_every, batch_size, priority_exponent
        self.importance_start, self.importance_steps = importance_start, importance_steps
        self.epsilon_start, self.epsilon_end, self.epsilon_steps = epsilon_start, epsilon_end, epsilon_steps
        self.generator = torch.Generator().manual_seed(seed)
        self.network = QNetwork(state_size, num_bins, num_actions, hidden_size, seed=draw_seed(self.generator))
        self.target_network = copy.deepcopy(self.network)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate)
        self.replay = Replay(buffer_size, state_size, num_bins)
        self.unfinished: list[Transition] = []
        self.num_updates = 0

    @property
    def epsilon(self) -> float:
        return linear_schedule(self.epsilon_start, self.epsilon_end, self.epsilon_steps, self.num_updates)

    @torch.no_grad()
    def act(self, state_S: Tensor) -> Tensor:
        """Draw actions_K: in each bin the best one, or, with probability ε, any."""
        probs_KA = epsilon_greedy(self.network(state_S), self.epsilon)
        return torch.multinomial(probs_KA, 1, generator=self.generator).squeeze(-1)

    @torch.no_grad()
    def entropy(self, state_S: Tensor) -> Tensor:
        """Return entropy_K of how it acts, in nats: it depends on ε alone."""
        return torch.special.entr(epsilon_greedy(self.network(state_S), self.epsilon)).sum(-1)

    def learn(self, transition: Transition) -> dict[str, float]:
        """Take one gradient step on a batch of what is remembered; every `target_every` steps, copy the target."""
        self._remember(transition)
        log = {"epsilon": self.epsilon, "policy_entropy": self.entropy(transition.state_tm1).mean().item()}
        if not len(self.replay):  # the first transitions wait for the rewards that follow
            return log
        positions_B, probs_B = self.replay.draw(self.batch_size, self.generator, self.priority_exponent)
        exponent = linear_schedule(self.importance_start, 1.0, self.importance_steps, self.num_updates)
        weights_B = importance_weights(probs_B, len(self.replay), exponent)
        errors_BK, q_BK = self._errors(positions_B)
        loss = td_loss(errors_BK, weights_B)
        log |= {"td_loss": loss.item(), "td_error": errors_BK.abs().mean().item(), "q_value": q_BK.mean().item()}

        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.replay.prioritise(positions_B, errors_BK.detach().abs().mean(-1) + LEAST_PRIORITY)
        self.num_updates += 1
        if self.num_updates % self.target_every == 0:
            self.target_network.load_state_dict(self.network.state_dict())
        return log

    def _remember(self, transition: Transition) -> None:
        """Keep the oldest transition once `return_steps` rewards are known, or all where the thread of states breaks."""
        if not follows(transition, self.unfinished):
            while self.unfinished:
                self._keep_oldest()
        self.unfinished = [*self.unfinished, transition]
        while len(self.unfinished) >= self.return_steps:  # several where a saved policy had more steps
            self._keep_oldest()

    def _keep_oldest(self) -> None:
        oldest, last = self.unfinished[0], self.unfinished[-1]
        return_ = discounted_returns([transition.reward_t for transition in self.unfinished], self.discount)[0]
        discount = self.discount ** len(self.unfinished)
        self.replay.add(oldest.state_tm1, oldest.actions_tm1, return_, discount, last.state_t)
        self.unfinished = self.unfinished[1:]

    def _errors(self, positions_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the TD errors errors_BK, and the values q_BK that were in error."""
        batch = self.replay.at(positions_B)
        q_BK = select_values(self.network(batch.state_tm1_NS), batch.actions_tm1_NK)
        with torch.no_grad():
            value_BK = self.target_network(batch.state_t_NS).amax(-1)
        return q_targets(batch.return_N, batch.discount_N, value_BK) - q_BK, q_BK

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of both networks, Adam's moments, the random stream and the memory."""
        return {
            "network": copy.deepcopy(dict(self.network.state_dict())),
            "target_network": copy.deepcopy(dict(self.target_network.state_dict())),
            "optimiser": adam_state(self.optimiser),
            "generator": self.generator.get_state(),
            "replay": self.replay.state_dict(),
            "unfinished": pack_transitions(self.unfinished, *self.sizes),
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
        self.unfinished = unpack_transitions(state["unfinished"])
        self.num_updates = state["num_updates"]
