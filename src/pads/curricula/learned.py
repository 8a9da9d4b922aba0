"""PADS: a policy that adjusts the sampling distribution by what it did to a validation (paper, Sec. 4.2, Alg. 1).

Dimensions: K bins, S state. A policy that adapts rho too has K + 1 heads: the last acts on it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pads.agents import AGENTS, Transition
from pads.agents.rewards import CHANGES_KEPT, REWARD_FORMS, REWARDS, reward_level
from pads.agents.state import TrainingState
from pads.config import call, lookup
from pads.errors import UserError
from pads.runs import RunFolder
from pads.runtime.precision import fixed_threads
from pads.sampling.bins import BinDistribution, scaled_odds
from pads.sampling.rules import BinRule, bins

RHO_LIMITS = (0.01, 0.6)
"""Of an adapted rho: no factor could raise the odds of 0 again, and a network needs negatives too."""


class LearnedCurriculum:
    """Owns the bin distribution and the agent; `advance` is one iteration of the paper's Algorithm 1."""

    def __init__(
        self,
        *,
        agent: str = "ppo",
        agent_options: Mapping[str, Any] | None = None,
        bins: Mapping[str, Any] | None = None,
        multipliers: Sequence[float] = (0.8, 1.0, 1.25),
        state: Sequence[str] = ("recall", "distances", "nmi"),
        history: int = 20,
        averages: Sequence[int] = (2, 8, 16, 32),
        recall_at: Sequence[int] = (1, 2, 4, 8),
        dim: int = 128,
        reward: str = "recall@1+nmi",
        reward_form: str = "sign",
        adapt_rho: bool = False,
        policy: str | None = None,
        freeze: bool = False,
        seed: int = 0,
    ) -> None:
        """
        agent, agent_options: a name of `pads.AGENTS` and its options.
        bins: options of the distribution, see `pads.bin_distribution`.
        multipliers: {alpha, 1, beta}, the actions of each bin.
        state, history, averages: the composition of the training state s.
        dim: D of the embedding.
        reward: e of Eq. 3: "recall@1+nmi", "recall@1", "nmi" or "soft-recall".
        reward_form: "sign" of the change of e, or "difference": the change against the earlier ones, in their spread.
        adapt_rho: the policy adapts the share of flipped triplets too, which starts at bins.rho.
        policy: a run folder whose trained policy this one starts from; with freeze, it stays as it is.
        """
        self.rule = make_rule(bins or {}, dim)
        self.adapt_rho = adapt_rho
        if adapt_rho:
            check_rho(self.distribution.rho)
        self.multipliers = torch.tensor(check_multipliers(multipliers), dtype=torch.float64)
        self.state = TrainingState(
            tuple(state),
            history=history,
            averages=tuple(averages),
            num_bins=self.num_heads,
            recall_at=tuple(recall_at),
        )
        self.reward = reward
        self.reward_form = reward_form
        self.form_reward = lookup(REWARD_FORMS, reward_form, "reward_form")
        self.changes: deque[float] = deque(maxlen=CHANGES_KEPT)
        reward_metrics = lookup(REWARDS, reward, "reward")
        self.metrics: tuple[str, ...] = tuple(dict.fromkeys((*self.state.metrics, *reward_metrics)))
        self.agent = call(
            lookup(AGENTS, agent, "agent"),
            agent_options or {},
            "curriculum.options.agent_options",
            state_size=self.state.size,
            num_bins=self.num_heads,
            num_actions=len(self.multipliers),
            seed=seed,
        )
        self.freeze = freeze
        self.previous: dict[str, Any] | None = None
        if policy is not None:
            own_stream = {"generator": self.agent.state_dict()["generator"]}  # else every seed would act alike
            self.agent.load_state_dict({**trained_policy(policy), **own_stream})
        elif freeze:
            raise UserError("freeze keeps a trained policy as it is: name the run it comes from with policy=RUN.")

    @property
    def distribution(self) -> BinDistribution:
        return self.rule.distribution

    @property
    def num_heads(self) -> int:
        return self.distribution.num_bins + self.adapt_rho

    @property
    def adapted(self) -> Tensor:
        """What the policy may change, as its state shows it: p_K, and rho if it adapts that too."""
        rho = torch.tensor([self.distribution.rho] if self.adapt_rho else [], dtype=torch.float64)
        return torch.cat([self.distribution.probabilities_K, rho])

    def advance(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        """Rewards the last adjustment, learns from it, and adjusts the distribution again; returns what to log."""
        # hundreds of tiny products, for each of which waking other threads would cost more than it spares
        with fixed_threads(1):
            return self.advanced(metrics, progress)

    def advanced(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        level_t = reward_level(metrics, self.reward)
        state_t = self.state.observe(metrics, self.adapted, progress)
        log: dict[str, Any] = {"reward": None}
        if self.previous is not None:
            change_t = level_t - self.previous["level"]
            reward_t = self.form_reward(change_t, self.changes)
            self.changes.append(change_t)
            metric_t = level_t / len(REWARDS[self.reward])  # the authors' critic sees the mean of the metrics
            transition = Transition(self.previous["state"], self.previous["actions"], reward_t, state_t, metric_t)
            log = {"reward": reward_t, **({} if self.freeze else self.agent.learn(transition))}
        actions_t = self.agent.act(state_t)
        self.rule.adjust(self.acted_on(self.multipliers[actions_t]))
        self.previous = {"state": state_t, "actions": actions_t, "level": level_t}
        num_bins = self.distribution.num_bins
        return {
            **log,
            "actions": actions_t[:num_bins].tolist(),
            "policy_entropies": self.agent.entropy(state_t)[:num_bins].tolist(),
            "distribution": self.distribution.probabilities_K.tolist(),
            "perplexity": self.distribution.perplexity,
            "clipped_share": self.distribution.clipped_share,
            **({"rho": self.distribution.rho, "rho_action": int(actions_t[-1])} if self.adapt_rho else {}),
        }

    def acted_on(self, factors: Tensor) -> BinDistribution:
        """The distribution with p_K scaled by the first K factors, and the odds of rho by the last if it is adapted."""
        num_bins = self.distribution.num_bins
        scaled = self.distribution.scaled(factors[:num_bins])
        if not self.adapt_rho:
            return scaled
        assert scaled.rho is not None
        return replace(scaled, rho=scaled_odds(scaled.rho, factors[-1].item(), RHO_LIMITS))

    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": self.distribution.weights_K,
            "state": self.state.state_dict(),
            "agent": self.agent.state_dict(),
            "previous": self.previous,
            **({"rho": self.distribution.rho} if self.adapt_rho else {}),
            **({"changes": list(self.changes)} if self.reward_form != "sign" else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        rho = state.get("rho", self.distribution.rho)
        self.rule.adjust(replace(self.distribution, weights_K=state["weights"], rho=rho))
        self.state.load_state_dict(state["state"])
        self.agent.load_state_dict(state["agent"])
        self.previous = state["previous"]
        self.changes.clear()
        self.changes.extend(state.get("changes", []))


def make_rule(options: Mapping[str, Any], dim: int) -> BinRule:
    return call(bins, options, "curriculum.options.bins", dim=dim)


def check_rho(rho: float | None) -> None:
    low, high = RHO_LIMITS
    if rho is None or not low <= rho <= high:
        raise UserError(
            f"adapt_rho starts from bins.rho, which is {'not set' if rho is None else rho}: "
            f"give a share of flipped triplets between {low} and {high}, such as bins.rho=0.1."
        )


def check_multipliers(multipliers: Sequence[float]) -> list[float]:
    if len(multipliers) < 2 or not all(0 < factor < math.inf for factor in multipliers):
        raise UserError(
            f"multipliers are {list(multipliers)}: give at least two positive factors, such as [0.8, 1, 1.25]."
        )
    return [float(value) for value in multipliers]


def trained_policy(path: str) -> Mapping[str, Any]:
    """The agent of a trained run."""
    checkpoint = RunFolder.open(Path(path)).load_checkpoint()
    if checkpoint is None or "agent" not in checkpoint.get("curriculum", {}):
        raise UserError(f"{path} has no trained policy: name a run that was trained with the learned curriculum.")
    return checkpoint["curriculum"]["agent"]
