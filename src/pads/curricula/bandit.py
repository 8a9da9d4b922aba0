"""A bandit: few, meaningful actions instead of a switch for every bin, and a posterior instead of a policy network.

An arm is the shape of the whole distribution: where it lies, how wide it is, and the share of flipped triplets. Every M steps
one arm is chosen by Thompson sampling from a Bayesian linear regression of the reward on what describes arm and moment.

Dimensions: K bins, A arms, F features, V values of a factor.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pads.agents.state import pick_metrics
from pads.config import call
from pads.errors import UserError
from pads.metrics import check_metric_names
from pads.sampling.bins import BinDistribution, bin_distribution, check_choice
from pads.sampling.rules import BinRule

CHOICES = ("thompson", "uniform", "fixed")
SMALLEST_SD = 1e-6
"""Of the changes of a level: below it they are the rounding of float32."""


class Arm(NamedTuple):
    location: float
    width: float
    rho: float


class BanditCurriculum:
    """Owns the posterior and the arm that is drawn by; `advance` rewards the last arm and chooses the next."""

    def __init__(
        self,
        *,
        locations: Sequence[float] = (0.3, 0.5, 0.7, 0.9, 1.1),
        widths: Sequence[float] = (0.05, 0.15),
        rhos: Sequence[float] = (0.0, 0.15, 0.3),
        choice: str = "thompson",
        reward: str = "soft-recall",
        prior: float = 0.3,
        forgetting: float = 0.99,
        baseline: float = 0.9,
        bins: Mapping[str, Any] | None = None,
        dim: int = 128,
        seed: int = 0,
    ) -> None:
        """
        locations, widths, rhos: the grid of the arms: N(location, width) over the bins, and the share of flipped triplets.
        choice: "thompson"; or a control: "uniform", arms at random, or "fixed", the first arm for ever.
        reward: the metric of the reward split whose change is the reward; more of it must be better.
        prior: the standard deviation of a weight before anything is seen, where the reward's is 1: more explores longer.
        forgetting: what an observation still counts after one more adjustment.
        baseline: the same for the running mean and deviation that the change is compared with.
        bins: options of the distribution but `initial` and `rho`, see `pads.bin_distribution`. dim: D of the embedding.
        """
        check_choice("choice", choice, CHOICES)
        check_metric_names([reward])
        check_rates(prior, forgetting, baseline)
        self.arms = make_arms(locations, widths, rhos)
        self.distributions = [shape_of(arm, bins or {}, dim) for arm in self.arms]
        self.described = describe(self.arms)
        self.choice, self.prior, self.forgetting, self.baseline = choice, prior, forgetting, baseline
        self.metrics: tuple[str, ...] = (reward,)
        # by a name too, because the draws of the training come from the same seed
        self.generator = torch.Generator().manual_seed(random.Random(f"bandit {seed}").getrandbits(62))
        self.evidence = no_evidence(features(self.described, 0.0, 0.0).shape[1])
        self.changes = Changes(0.0, 0.0, 0.0)
        self.level: float | None = None
        self.arm, self.features_F, _ = self.choose(0.0)
        self.rule = BinRule(self.distributions[self.arm])

    @property
    def distribution(self) -> BinDistribution:
        return self.rule.distribution

    def advance(self, metrics: Mapping[str, float], progress: float) -> dict[str, Any]:
        """Rewards the last arm, learns from it, and chooses again; returns what to log."""
        (level,) = pick_metrics(metrics, self.metrics)
        reward: float | None = None
        if self.level is not None:
            change = level - self.level
            self.changes = with_change(self.changes, change, self.baseline)
            reward = standardised(change, self.changes)
            self.evidence = observed(self.evidence, self.features_F, reward, self.forgetting)
        self.level = level
        self.arm, self.features_F, expected = self.choose(progress)
        self.rule.adjust(self.distributions[self.arm])
        return {
            "reward": reward,
            "arm": self.arm,
            **self.arms[self.arm]._asdict(),
            "expected": expected,
            "distribution": self.distribution.probabilities_K.tolist(),
            "perplexity": self.distribution.perplexity,
        }

    def choose(self, progress: float) -> tuple[int, Tensor, float]:
        """The next arm, its features, and the reward that is expected of it."""
        features_AF = features(self.described, progress, slope(self.changes))
        mean_F, precision_FF = posterior(self.evidence, self.prior)
        arm = 0
        if self.choice == "uniform":
            arm = int(torch.randint(len(self.arms), (), generator=self.generator))
        elif self.choice == "thompson":
            arm = int((features_AF @ draw_weights(mean_F, precision_FF, self.generator)).argmax())
        return arm, features_AF[arm], float(features_AF[arm] @ mean_F)

    def state_dict(self) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "features": self.features_F,
            "level": self.level,
            "changes": list(self.changes),
            "evidence": self.evidence._asdict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.arm, self.features_F, self.level = state["arm"], state["features"], state["level"]
        self.changes = Changes(*state["changes"])
        self.evidence = Evidence(**state["evidence"])
        self.generator.set_state(state["generator"])
        self.rule.adjust(self.distributions[self.arm])


# -- arms --------------------------------------------------------------------------------------------------------------


def make_arms(locations: Sequence[float], widths: Sequence[float], rhos: Sequence[float]) -> list[Arm]:
    """Every location with every width and every share of flipped triplets."""
    for name, values in (("locations", locations), ("widths", widths), ("rhos", rhos)):
        if not values or len(set(values)) < len(values) or not all(map(math.isfinite, values)):
            raise UserError(f"{name} are {list(values)}: give one or more different numbers.")
    return [Arm(float(a), float(b), float(c)) for a, b, c in itertools.product(locations, widths, rhos)]


def shape_of(arm: Arm, options: Mapping[str, Any], dim: int) -> BinDistribution:
    """The distribution of an arm: N(location, width) over the bins, and its rho."""
    taken = [name for name in ("initial", "rho") if name in options]
    if taken:
        raise UserError(f"the arms say what {taken[0]} is: leave it out of curriculum.options.bins.")
    initial = f"N({arm.location}, {arm.width})"
    made = call(bin_distribution, options, "curriculum.options.bins", initial=initial, rho=arm.rho, dim=dim)
    if not made.interval[0] <= arm.location <= made.interval[1]:
        raise UserError(f"the location {arm.location} lies outside the bins, which cover {list(made.interval)}.")
    return made


# -- features ----------------------------------------------------------------------------------------------------------


def smooth_one_hot(values: Sequence[float]) -> Tensor:
    """For each of the values a row of length 1; rows of neighbours on the grid have the product exp(-1/2), and so on.

    The root of the kernel exp(-(i - j)² / 2) of their ranks. With it a value says something of its neighbours and all are
    equally uncertain before anything is seen; a slope and a square would make the ends of the grid the most tempting.
    """
    _, ranks_A = torch.tensor(values, dtype=torch.float64).unique(return_inverse=True)
    ranks_V = torch.arange(int(ranks_A.max()) + 1, dtype=torch.float64)
    kernel_VV = torch.exp(-0.5 * (ranks_V[:, None] - ranks_V) ** 2)
    sizes_V, directions_VV = torch.linalg.eigh(kernel_VV)
    return (directions_VV * sizes_V.clamp(min=0).sqrt() @ directions_VV.T)[ranks_A]


def describe(arms: Sequence[Arm]) -> tuple[Tensor, Tensor]:
    """What is said of an arm: [l, w, r], the smooth one-hots of its factors; and [l w, l r], their products, at half weight."""
    l_AV, w_AV, r_AV = (smooth_one_hot(factor) for factor in zip(*arms, strict=True))
    products = [torch.einsum("ai,aj->aij", l_AV, other_AV).flatten(1) / 2 for other_AV in (w_AV, r_AV)]
    return torch.cat([l_AV, w_AV, r_AV], 1), torch.cat(products, 1)


def features(described: tuple[Tensor, Tensor], progress: float, slope: float) -> Tensor:
    """features_AF: [1, t, s] [l, w, r] [l w, l r] t [l, w, r] s [l, w, r], with t = 2 progress - 1 and s the slope.

    The first three are the same for all arms: what a moment does to every reward is not put down to the arm.
    """
    factors_AF, products_AF = described
    t = 2 * progress - 1
    moment_AF = torch.tensor([1.0, t, slope], dtype=torch.float64).expand(len(factors_AF), 3)
    return torch.cat([moment_AF, factors_AF, products_AF, t * factors_AF, slope * factors_AF], 1)


# -- the reward --------------------------------------------------------------------------------------------------------


class Changes(NamedTuple):
    """Of the changes of the level so far, older ones counting less: sum of weights, mean, sum of squared deviations."""

    weight: float
    mean: float
    squares: float

    @property
    def variance(self) -> float:
        return self.squares / self.weight if self.weight else 0.0


def with_change(changes: Changes, change: float, decay: float) -> Changes:
    """One more (Welford's update with weights): exact, and without the difference of two large numbers."""
    weight = decay * changes.weight + 1
    mean = changes.mean + (change - changes.mean) / weight
    return Changes(weight, mean, decay * changes.squares + (change - changes.mean) * (change - mean))


def standardised(change: float, changes: Changes) -> float:
    """r = (change - mean) / standard deviation, both with the change itself, which bounds r; 0 if all changes are equal."""
    sd = math.sqrt(changes.variance)
    return (change - changes.mean) / sd if sd > SMALLEST_SD else 0.0


def slope(changes: Changes) -> float:
    """How steadily the level rises (1) or falls (-1): the mean of the changes over their root mean square."""
    size = math.sqrt(changes.mean**2 + changes.variance)
    return changes.mean / size if size > SMALLEST_SD else 0.0


# -- the posterior -----------------------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """What a linear regression keeps of its observations, older ones counting less."""

    gram_FF: Tensor
    """sum of x xᵀ"""
    moment_F: Tensor
    """sum of r x"""


def no_evidence(num_features: int) -> Evidence:
    zeros_FF = torch.zeros(num_features, num_features, dtype=torch.float64)
    return Evidence(zeros_FF, zeros_FF[0].clone())


def observed(evidence: Evidence, features_F: Tensor, reward: float, forgetting: float) -> Evidence:
    """One more observation; the others count `forgetting` times what they did. The prior is never forgotten."""
    return Evidence(
        forgetting * evidence.gram_FF + torch.outer(features_F, features_F),
        forgetting * evidence.moment_F + reward * features_F,
    )


def posterior(evidence: Evidence, prior: float) -> tuple[Tensor, Tensor]:
    """Mean and precision of the weights under N(0, prior²) and rewards of variance 1, which standardised ones have."""
    identity_FF = torch.eye(len(evidence.moment_F), dtype=torch.float64)
    precision_FF = evidence.gram_FF + identity_FF / prior**2
    return torch.linalg.solve(precision_FF, evidence.moment_F), precision_FF


def draw_weights(mean_F: Tensor, precision_FF: Tensor, generator: torch.Generator) -> Tensor:
    """w ~ N(mean, precision⁻¹): mean + L⁻ᵀ z, with precision = L Lᵀ."""
    normal_F1 = torch.randn(len(mean_F), 1, dtype=torch.float64, generator=generator)
    lower_FF = torch.linalg.cholesky(precision_FF)
    return mean_F + torch.linalg.solve_triangular(lower_FF.T, normal_F1, upper=True).squeeze(1)


def check_rates(prior: float, forgetting: float, baseline: float) -> None:
    if not 0 < prior < math.inf:
        raise UserError(f"prior is {prior}: it is a standard deviation, above 0, such as 0.3.")
    for name, rate in (("forgetting", forgetting), ("baseline", baseline)):
        if not 0 < rate <= 1:
            raise UserError(f"{name} is {rate}: it must be above 0 and at most 1, where nothing is forgotten.")
