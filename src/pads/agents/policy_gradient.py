"""REINFORCE (Williams 1992), A2C (Sutton and Barto 1998) and PPO (Schulman et al. 2017): one agent, `PolicyGradient`.

They differ in what is subtracted from the return and in whether the ratio to an old policy is clipped:
A2C is REINFORCE with the critic as its baseline, and so is PPO where the old policy is copied after every update.

PPO's old policy is not the one that acted: it is a copy made every few updates (PADS, Algorithm 1), so the clipped
ratio is no importance weight; it keeps a bin from moving far between two copies.

A critic of returns has hidden layers of its own: rewards of -1 and 1 are mostly luck, and learning them in the layers of the
policy would undo what the policy learns there. The authors' critic, of the metric, shares the policy's layers, as in their
code: the metric hardly moves.

Dimensions: K bins, A actions, S state. Time: `_tm1` is when the actions were taken, `_t` one policy iteration later.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pads.agents.agent import Transition, average_logs, check_options, follows, pack_transitions, unpack_transitions
from pads.agents.networks import PolicyNetwork, adam_state, draw_seed, load_adam_state, load_weights
from pads.agents.objectives import (
    categorical_entropy,
    clipped_policy_loss,
    discounted_returns,
    moving_average,
    policy_gradient_loss,
    select_log_probs,
    share_clipped,
    value_loss,
)
from pads.errors import UserError


def reinforce(
    state_size: int,
    num_bins: int,
    num_actions: int,
    *,
    hidden_size: int = 128,
    learning_rate: float = 0.01,
    baseline: str = "none",
    critic_target: str = "return",
    episode_length: int = 1,
    discount: float = 0.99,
    value_weight: float = 0.5,
    average_rate: float = 0.05,
    seed: int = 0,
) -> PolicyGradient:
    """Make the paper's "REINFORCE", alone or with a baseline."""
    return PolicyGradient(**check_options(locals()))


def a2c(
    state_size: int,
    num_bins: int,
    num_actions: int,
    *,
    hidden_size: int = 128,
    learning_rate: float = 0.01,
    critic_target: str = "return",
    episode_length: int = 1,
    discount: float = 0.99,
    value_weight: float = 0.5,
    seed: int = 0,
) -> PolicyGradient:
    """Make the paper's "REINFORCE, A2C": advantage actor-critic without PPO."""
    return PolicyGradient(**check_options(locals()), baseline="critic")


def ppo(
    state_size: int,
    num_bins: int,
    num_actions: int,
    *,
    hidden_size: int = 128,
    learning_rate: float = 0.01,
    clip: float = 0.2,
    old_policy_every: int = 5,
    baseline: str = "critic",
    critic_target: str = "return",
    episode_length: int = 1,
    discount: float = 0.99,
    value_weight: float = 0.5,
    average_rate: float = 0.05,
    seed: int = 0,
) -> PolicyGradient:
    """Make the paper's agent: PPO with a critic ("PPO, A2C") or with a moving average of the returns ("PPO, EMA")."""
    return PolicyGradient(**check_options(locals()))


class PolicyGradient:
    """Takes one step of Adam at the end of every episode; without a `clip` there is no old policy."""

    def __init__(
        self,
        state_size: int,
        num_bins: int,
        num_actions: int,
        *,
        hidden_size: int,
        learning_rate: float,
        baseline: str,
        critic_target: str,
        episode_length: int,
        discount: float,
        value_weight: float,
        average_rate: float = 0.05,
        clip: float | None = None,
        old_policy_every: int = 1,
        seed: int,
    ) -> None:
        self.sizes = (state_size, num_bins)
        self.baseline, self.critic_target, self.episode_length = baseline, critic_target, episode_length
        self.discount, self.value_weight, self.average_rate = discount, value_weight, average_rate
        self.clip, self.old_policy_every = clip, old_policy_every
        self.generator = torch.Generator().manual_seed(seed)
        own_critic = critic_target != "metric"
        self.network = PolicyNetwork(
            *(state_size, num_bins, num_actions, hidden_size), own_critic=own_critic, seed=draw_seed(self.generator)
        )
        self.old_network = None if clip is None else copy.deepcopy(self.network)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate)
        self.average_reward: float | None = None
        self.episode: list[Transition] = []
        self.num_updates = 0

    @torch.no_grad()
    def act(self, state_S: Tensor) -> Tensor:
        """Draw actions_K from the current policy."""
        logits_KA, _ = self.network(state_S)
        return torch.multinomial(logits_KA.softmax(-1), 1, generator=self.generator).squeeze(-1)

    @torch.no_grad()
    def entropy(self, state_S: Tensor) -> Tensor:
        """Return entropy_K of the current policy, in nats."""
        logits_KA, _ = self.network(state_S)
        return categorical_entropy(logits_KA)

    def learn(self, transition: Transition) -> dict[str, float]:
        """Take one gradient step at the end of an episode; every `old_policy_every` of them, copy the old policy."""
        self.episode = [*self.episode, transition] if follows(transition, self.episode) else [transition]
        if len(self.episode) < self.episode_length:
            return {}
        loss, log = self._episode_loss(self.episode)
        self.episode = []
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.num_updates += 1
        if self.old_network is not None and self.num_updates % self.old_policy_every == 0:
            self.old_network.load_state_dict(self.network.state_dict())
        return log

    def _episode_loss(self, episode: list[Transition]) -> tuple[Tensor, dict[str, float]]:
        """Return the mean loss over the episode's transitions, and what to log."""
        rewards_t = [transition.reward_t for transition in episode]
        returns = discounted_returns(rewards_t, self.discount, self._value_after(episode[-1]))
        average_tm1 = self.average_reward or 0.0
        mean_return = sum(discounted_returns(rewards_t, self.discount)) / len(episode)
        self.average_reward = moving_average(self.average_reward, mean_return, self.average_rate)
        parts = [self._loss(*step, average_tm1) for step in zip(episode, returns, strict=True)]
        loss = torch.stack([loss for loss, _ in parts]).mean()
        return loss, {**average_logs([log for _, log in parts]), "average_reward": self.average_reward}

    def _loss(self, transition: Transition, return_tm1: float, average_tm1: float) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of the policy, and of the critic where it is the baseline, and what to log."""
        logits_KA, value_tm1 = self.network(transition.state_tm1)
        log_probs_K = select_log_probs(logits_KA, transition.actions_tm1)
        baseline_tm1 = {"none": 0.0, "moving average": average_tm1, "critic": value_tm1.item()}[self.baseline]
        advantage = return_tm1 - baseline_tm1
        log = {"advantage": advantage, "policy_entropy": categorical_entropy(logits_KA.detach()).mean().item()}
        if self.clip is None:
            loss = policy_gradient_loss(log_probs_K, advantage)
        else:
            old_log_probs_K = self._old_log_probs(transition)
            loss = clipped_policy_loss(log_probs_K, old_log_probs_K, advantage, self.clip)
            log["ratio_clipped"] = share_clipped(log_probs_K.detach(), old_log_probs_K, self.clip).item()
        log["policy_loss"] = loss.item()
        if self.baseline == "critic":
            target_t = transition.metric_t if self.critic_target == "metric" else return_tm1
            assert target_t == target_t, 'critic_target="metric" needs the transition\'s metric_t'
            critic_loss = value_loss(value_tm1, target_t)
            log["value_loss"] = critic_loss.item()
            loss = loss + self.value_weight * critic_loss
        return loss, log

    @torch.no_grad()
    def _old_log_probs(self, transition: Transition) -> Tensor:
        """Return old_log_probs_K of the actions taken."""
        assert self.old_network is not None
        return select_log_probs(self.old_network(transition.state_tm1)[0], transition.actions_tm1)

    @torch.no_grad()
    def _value_after(self, last: Transition) -> float:
        """Return what the critic expects after the episode; 0 where the return ends with the episode."""
        if self.baseline != "critic" or self.critic_target == "return":
            return 0.0
        return self.network(last.state_t)[1].item()

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the weights, Adam's moments, the random stream, the episode so far and what is counted."""
        old = self.old_network
        return {
            "network": copy.deepcopy(dict(self.network.state_dict())),
            **({} if old is None else {"old_network": copy.deepcopy(dict(old.state_dict()))}),
            "optimiser": adam_state(self.optimiser),
            "generator": self.generator.get_state(),
            "episode": pack_transitions(self.episode, *self.sizes),
            "average_reward": self.average_reward or 0.0,
            "num_updates": self.num_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        if state.keys() != self.state_dict().keys():
            raise UserError("the saved policy is of another kind of agent; choose the agent it was trained with")
        load_weights(self.network, state["network"])
        if self.old_network is not None:
            load_weights(self.old_network, state["old_network"])
        load_adam_state(self.optimiser, state["optimiser"])
        self.generator.set_state(state["generator"])
        self.episode = unpack_transitions(state["episode"])
        self.num_updates = state["num_updates"]
        self.average_reward = state["average_reward"] if self.num_updates else None
