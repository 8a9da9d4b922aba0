"""PADS: a policy that adjusts the sampling distribution by what it did to a validation (paper, Sec. 4.2, Alg. 1).

Dimensions: K bins, S state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pads.agents import AGENTS, Transition
from pads.agents.rewards import REWARDS, reward_level, sign_reward
from pads.agents.state import TrainingState
from pads.config import call, lookup
from pads.errors import UserError
from pads.runs import RunFolder
from pads.runtime.precision import use_threads
from pads.sampling.bins import BinDistribution, bin_distribution
from pads.sampling.rules import BinRule


class LearnedCurriculum:
    """Own the bin distribution and the agent; `advance` is one iteration of the paper's Algorithm 1."""

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
        reward: str = "recall@1+nmi",
        policy: str | None = None,
        freeze: bool = False,
        seed: int = 0,
    ) -> None:
        """
        agent, agent_options: a name of `pads.AGENTS` and its options.
        bins: options of the distribution, see `pads.bin_distribution`.
        multipliers: {alpha, 1, beta}, the actions of each bin.
        state, history, averages: the composition of the training state s.
        reward: e of Eq. 3: "recall@1+nmi", "recall@1" or "nmi".
        policy: a run folder whose trained policy this one starts from; with freeze, it stays as it is.
        """
        self.rule = BinRule(call(bin_distribution, bins or {}, "curriculum.options.bins"))
        self.multipliers = torch.tensor(check_multipliers(multipliers), dtype=torch.float64)
        self.state = TrainingState(
            tuple(state),
            history=history,
            averages=tuple(averages),
            num_bins=self.distribution.num_bins,
            recall_at=tuple(recall_at),
        )
        self.reward = reward
        reward_metrics = lookup(REWARDS, reward, "reward")
        self.metrics: tuple[str, ...] = tuple(dict.fromkeys((*self.state.metrics, *reward_metrics)))
        self.agent = call(
            lookup(AGENTS, agent, "agent"),
            agent_options or {},
            "curriculum.options.agent_options",
            state_size=self.state.size,
            num_bins=self.distribution.num_bins,
            num_actions=len(self.multipliers),
            seed=seed,
        )
        self.freeze = freeze
        self.previous: dict[str, Any] | None = None
        if policy is not None:
            own_stream = {"generator": self.agent.state_dict()["generator"]}  # else every seed would act alike
            self.agent.load_state_dict({**load_policy(policy), **own_stream})
        elif freeze:
            raise UserError("freeze keeps a trained policy as it is: name the run it comes from with policy=RUN.")

    @property
    def distribution(self) -> BinDistribution:
        """Return the distribution that the rule draws by now."""
        return self.rule.distribution

    def advance(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        """Reward the last adjustment, learn from it, and adjust the distribution again; return what to log."""
        # hundreds of tiny products, for each of which waking other threads would cost more than it spares
        with use_threads(1):
            return self.adjust_and_learn(metrics, progress)

    def adjust_and_learn(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        """Do what `advance` does, on as many threads as there are."""
        level_t = reward_level(metrics, self.reward)
        state_t = self.state.observe(metrics, self.distribution.probabilities_K, progress)
        log: dict[str, Any] = {"reward": None}
        if self.previous is not None:
            reward_t = sign_reward(level_t - self.previous["level"])
            metric_t = level_t / len(REWARDS[self.reward])  # the authors' critic sees the mean of the metrics
            transition = Transition(self.previous["state"], self.previous["actions"], reward_t, state_t, metric_t)
            log = {"reward": reward_t, **({} if self.freeze else self.agent.learn(transition))}
        actions_t = self.agent.act(state_t)
        self.rule.adjust(self.distribution.scale(self.multipliers[actions_t]))
        self.previous = {"state": state_t, "actions": actions_t, "level": level_t}
        return {
            **log,
            "actions": actions_t.tolist(),
            "policy_entropies": self.agent.entropy(state_t).tolist(),
            "distribution": self.distribution.probabilities_K.tolist(),
            "perplexity": self.distribution.perplexity,
            "clipped_share": self.distribution.clipped_share,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the distribution, the training state and the agent, random state included."""
        return {
            "weights": self.distribution.weights_K,
            "state": self.state.state_dict(),
            "agent": self.agent.state_dict(),
            "previous": self.previous,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state, so that training resumes bit for bit."""
        self.rule.adjust(replace(self.distribution, weights_K=state["weights"]))
        self.state.load_state_dict(state["state"])
        self.agent.load_state_dict(state["agent"])
        self.previous = state["previous"]


def check_multipliers(multipliers: Sequence[float]) -> list[float]:
    if len(multipliers) < 2 or not all(0 < factor < math.inf for factor in multipliers):
        raise UserError(
            f"multipliers are {list(multipliers)}: give at least two positive factors, such as [0.8, 1, 1.25]."
        )
    return [float(value) for value in multipliers]


def load_policy(path: str) -> Mapping[str, Any]:
    """Load the agent of a trained run."""
    checkpoint = RunFolder.open(Path(path)).load_checkpoint()
    if checkpoint is None or "agent" not in checkpoint.get("curriculum", {}):
        raise UserError(f"{path} has no trained policy: name a run that was trained with the learned curriculum.")
    return checkpoint["curriculum"]["agent"]
