"""REINFORCE (Williams 1992), alone or with a baseline: the moving average of the rewards, or a critic (A2C).

Dimensions: K bins, A actions, S state. Time: `_tm1` is when the actions were taken, `_t` one policy iteration later.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pads.agents.agent import Transition, check_options, follows, mean_log, pack_transitions, unpack_transitions
from pads.agents.networks import PolicyNetwork, adam_state, draw_seed, load_adam_state, load_weights
from pads.agents.objectives import (
    categorical_entropy,
    chosen_log_probs,
    discounted_returns,
    moving_average,
    policy_gradient_loss,
    value_loss,
)
from pads.errors import UserError


class Reinforce:
    """One step of Adam along the policy gradient at the end of every episode, which has one step (T = 1) by default."""

    def __init__(
        self,
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
    ) -> None:
        check_options(state_size=state_size, num_bins=num_bins, num_actions=num_actions, hidden_size=hidden_size)
        check_options(learning_rate=learning_rate, value_weight=value_weight, average_rate=average_rate)
        check_options(baseline=baseline, critic_target=critic_target, discount=discount, episode_length=episode_length)
        self.sizes = (state_size, num_bins)
        self.baseline, self.critic_target, self.episode_length = baseline, critic_target, episode_length
        self.discount, self.value_weight, self.average_rate = discount, value_weight, average_rate
        self.generator = torch.Generator().manual_seed(seed)
        self.network = PolicyNetwork(state_size, num_bins, num_actions, hidden_size, seed=draw_seed(self.generator))
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=learning_rate)
        self.average_reward: float | None = None
        self.episode: list[Transition] = []
        self.num_updates = 0

    @torch.no_grad()
    def act(self, state_S: Tensor) -> Tensor:
        """actions_K, drawn from the current policy."""
        logits_KA, _ = self.network(state_S)
        return torch.multinomial(logits_KA.softmax(-1), 1, generator=self.generator).squeeze(-1)

    @torch.no_grad()
    def entropy(self, state_S: Tensor) -> Tensor:
        """entropy_K of the current policy, in nats."""
        logits_KA, _ = self.network(state_S)
        return categorical_entropy(logits_KA)

    def learn(self, transition: Transition) -> dict[str, float]:
        """One gradient step at the end of an episode."""
        self.episode = [*self.episode, transition] if follows(transition, self.episode) else [transition]
        if len(self.episode) < self.episode_length:
            return {}
        loss, log = self._loss(self.episode)
        self.episode = []
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.num_updates += 1
        return log

    def _loss(self, episode: list[Transition]) -> tuple[Tensor, dict[str, float]]:
        """The mean over the episode's transitions, and what to log."""
        rewards_t = [transition.reward_t for transition in episode]
        returns = discounted_returns(rewards_t, self.discount, self._value_after(episode[-1]))
        average_tm1 = self.average_reward or 0.0
        mean_return = sum(discounted_returns(rewards_t, self.discount)) / len(episode)
        self.average_reward = moving_average(self.average_reward, mean_return, self.average_rate)
        losses, logs = [], []
        for (state_tm1, actions_tm1, _, _, metric_t), return_tm1 in zip(episode, returns, strict=True):
            logits_KA, value_tm1 = self.network(state_tm1)
            log_probs_K = chosen_log_probs(logits_KA, actions_tm1)
            baseline_tm1 = {"none": 0.0, "moving average": average_tm1, "critic": value_tm1.item()}[self.baseline]
            gain = return_tm1 - baseline_tm1
            loss = policy_gradient_loss(log_probs_K, gain)
            log = {
                "policy_loss": loss.item(),
                "advantage": gain,
                "average_reward": self.average_reward,
                "policy_entropy": categorical_entropy(logits_KA).mean().item(),
            }
            if self.baseline == "critic":
                target_t = metric_t if self.critic_target == "metric" else return_tm1
                assert target_t == target_t, 'critic_target="metric" needs the transition\'s metric_t'
                critic_loss = value_loss(value_tm1, target_t)
                log["value_loss"] = critic_loss.item()
                loss = loss + self.value_weight * critic_loss
            losses.append(loss)
            logs.append(log)
        return torch.stack(losses).mean(), mean_log(logs)

    @torch.no_grad()
    def _value_after(self, last: Transition) -> float:
        """What the critic expects after the episode's last transition; nothing where the return ends with the episode."""
        if self.baseline != "critic" or self.critic_target == "return":
            return 0.0
        return self.network(last.state_t)[1].item()

    def state_dict(self) -> dict[str, Any]:
        """Weights, Adam's moments, the random stream and two numbers: a copy, which later learning leaves alone."""
        return {
            "network": copy.deepcopy(dict(self.network.state_dict())),
            "optimiser": adam_state(self.optimiser),
            "generator": self.generator.get_state(),
            "average_reward": self.average_reward or 0.0,
            "num_updates": self.num_updates,
            **({"episode": pack_transitions(self.episode, *self.sizes)} if self.episode_length > 1 else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        if state.keys() != self.state_dict().keys():
            raise UserError("the saved policy is of another kind of agent; choose the agent it was trained with")
        load_weights(self.network, state["network"])
        load_adam_state(self.optimiser, state["optimiser"])
        self.generator.set_state(state["generator"])
        self.num_updates = state["num_updates"]
        self.episode = unpack_transitions(state["episode"]) if self.episode_length > 1 else []
        self.average_reward = state["average_reward"] if self.num_updates else None
