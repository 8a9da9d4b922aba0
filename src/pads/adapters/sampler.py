"""The sampler by itself: draws triplets by the rule of a curriculum, adapts it to what a validation says, and keeps its state.

What a library wants to call is a thin cover over `TripletSampler`. Dimensions: B batch, D embedding, R references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from pads.config import Part, option_names
from pads.curricula import Curriculum, ScheduledCurriculum, build_curriculum, list_curricula
from pads.errors import UserError
from pads.evaluate import evaluate, evaluation_mode
from pads.pml.names import is_theirs
from pads.sampling.distances import distances_to, pairwise_distances
from pads.sampling.triplets import Triplets, check_draw, draw_among, negative_candidates


class TripletSampler:
    """Draw a triplet for every anchor that has a positive and a candidate; seed, rank and the count of draws decide all chance."""

    def __init__(
        self,
        curriculum: str = "learned",
        options: Mapping[str, Any] | None = None,
        *,
        negatives_from: str = "other classes",
        anchor_as_positive: bool = False,
        rho: float = 0.0,
        seed: int = 0,
    ) -> None:
        """
        curriculum, options: a name of `pads.CURRICULA` ("learned" is PADS, "distance-weighted" a static rule), its options.
        negatives_from, anchor_as_positive, rho: see `pads.draw_triplets`.
        """
        check_draw(negatives_from, rho)
        self.part = Part(curriculum, dict(options or {}))
        if is_theirs(self.part):
            raise UserError(f"{curriculum} is a miner already: take it as it is.")
        self.drawing: dict[str, Any] = {
            "negatives_from": negatives_from,
            "anchor_as_positive": anchor_as_positive,
            "rho": rho,
        }
        self.seed = seed
        self.dim: int | None = None
        self.num_draws = self.num_steps = 0
        self.log: dict[str, Any] = {}
        """What the last adaptation logged."""
        self.curriculum: Curriculum = self.build()

    def build(self) -> Curriculum:
        """Build the curriculum for the dimension that is known."""
        given = {"dim": self.dim} if self.dim is not None else {}
        return build_curriculum(self.part, seed=self.seed, **given)

    def fit_to(self, dim: int) -> None:
        """Build distance-weighted rules for the dimension of the first batch, which their law of distances depends on."""
        if dim == self.dim:
            return
        if self.dim is not None:
            raise UserError(
                f"embeddings had {self.dim} dimensions and have {dim} now: make a sampler for each network."
            )
        self.dim = dim
        if "dim" in option_names(list_curricula()[self.part.name]):
            self.curriculum = self.build()

    @property
    def bin_probs(self) -> Tensor | None:
        """Return p_k of the bins, where the rule has any."""
        distribution = getattr(self.curriculum.rule, "distribution", None)
        return None if distribution is None else distribution.probabilities_K

    @torch.no_grad()
    def __call__(
        self,
        embeddings_BD: Tensor,
        labels_B: Tensor,
        references_RD: Tensor | None = None,
        reference_labels_R: Tensor | None = None,
    ) -> Triplets:
        """Anchors of the batch; positives and negatives of the references, or of the batch where there are none."""
        if embeddings_BD.ndim != 2 or labels_B.shape != embeddings_BD.shape[:1]:
            raise UserError(
                f"a sampler takes embeddings (B, D) and labels (B,), not {tuple(embeddings_BD.shape)} and {tuple(labels_B.shape)}."
            )
        self.fit_to(embeddings_BD.shape[1])
        self.num_draws += 1
        if references_RD is None or references_RD is embeddings_BD:
            distances_BR = pairwise_distances(embeddings_BD)
            same_BR = labels_B[:, None] == labels_B[None, :]
            self_BR = torch.eye(len(labels_B), dtype=torch.bool, device=labels_B.device)
            has_positive_B = (same_BR & ~self_BR).any(1)
        else:
            assert reference_labels_R is not None
            distances_BR = distances_to(embeddings_BD, references_RD)
            same_BR = labels_B[:, None] == reference_labels_R[None, :]
            self_BR = the_same_row(embeddings_BD, references_RD, distances_BR.masked_fill(~same_BR, torch.inf))
            has_positive_B = same_BR.any(1)
        with torch.autocast(embeddings_BD.device.type, enabled=False):
            rule, generator = self.curriculum.rule, self.generator(embeddings_BD.device)
            assert callable(rule)
            triplets = draw_among(distances_BR, same_BR, self_BR, rule, **self.drawing, generator=generator)
        candidates_BR = negative_candidates(same_BR, self_BR, self.drawing["negatives_from"])
        kept_B = has_positive_B & candidates_BR.any(1)
        return Triplets(*(index_B[kept_B] for index_B in triplets))

    def generator(self, device: torch.device) -> torch.Generator:
        """Return a fresh generator for every draw, seeded by its count: so the random state is a number, on any device and rank."""
        words = np.random.SeedSequence([self.seed, rank(), self.num_draws]).generate_state(2)
        return torch.Generator(device).manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a checkpoint needs: distribution, policy, its optimiser, random state."""
        return {
            "name": self.part.name,
            "curriculum": self.curriculum.state_dict(),
            "dim": self.dim,
            "num_draws": self.num_draws,
            "num_steps": self.num_steps,
            "log": dict(self.log),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state, so that the sampler resumes bit for bit."""
        if state["name"] != self.part.name:
            raise UserError(
                f"the state is that of the curriculum {state['name']!r}, and this sampler's is {self.part.name!r}."
            )
        if state["dim"] is not None and self.dim is None:
            self.fit_to(state["dim"])
        self.curriculum.load_state_dict(on_cpu(state["curriculum"]))
        self.num_draws, self.num_steps, self.log = state["num_draws"], state["num_steps"], dict(state["log"])


class AdaptiveController:
    """Count the training steps, and after every M of them measure, reward and adjust the sampler.

    The optimiser, the mode of the model and the random state are as before. With several processes the first one measures,
    and all go on with its distribution and its policy.
    """

    def __init__(self, miner: Any, *, every: int = 30, num_steps: int | None = None) -> None:
        """
        miner: an AdaptiveMiner, what wraps it (DistributedMinerWrapper, CrossBatchMemory), or a TripletSampler.
        every: M, the training steps between two adjustments.
        num_steps: of the whole training; the policy then sees how much of it is done.
        """
        inner = getattr(miner, "miner", miner)
        self.sampler: TripletSampler = getattr(inner, "sampler", inner)
        if not isinstance(self.sampler, TripletSampler):
            raise UserError(
                f"a controller adapts a sampler of pads, such as AdaptiveMiner(), not {type(miner).__name__}."
            )
        if every < 1 or (num_steps is not None and num_steps < 1):
            raise UserError("every and num_steps are numbers of training steps: each must be at least 1.")
        self.every, self.num_steps = every, num_steps

    def step(self, model: Callable[[Any], Tensor], loader: Iterable[Any] | None) -> dict[str, Any] | None:
        """Count one training step; call it after each. Return what was logged if it adapted, else None.

        loader: batches of (images, labels) that the network is not trained on; rank 0's counts.
        """
        self.sampler.num_steps += 1
        if self.sampler.num_steps % self.every:
            return None
        return self.adapt(model, loader)

    def adapt(self, model: Callable[[Any], Tensor], loader: Iterable[Any] | None) -> dict[str, Any]:
        """Adapt now."""
        if world_size() == 1:
            self.sampler.log = self.advance(model, loader)
            return self.sampler.log
        shared: list[dict[str, Any]] = [{}]
        failure: Exception | None = None
        if rank() == 0:
            try:
                shared[0]["log"] = self.advance(model, loader)
                shared[0]["curriculum"] = self.sampler.curriculum.state_dict()
            except Exception as error:  # told to the others, who would wait for ever
                failure, shared[0] = error, {"error": str(error)}
        distributed.broadcast_object_list(shared, src=0)
        if failure is not None:
            raise failure
        if "error" in shared[0]:
            raise UserError(f"the first process could not adapt: {shared[0]['error']}")
        self.sampler.log = shared[0]["log"]
        if rank() > 0:
            self.sampler.curriculum.load_state_dict(shared[0]["curriculum"])
        return self.sampler.log

    def advance(self, model: Callable[[Any], Tensor], loader: Iterable[Any] | None) -> dict[str, Any]:
        """Measure and advance the curriculum, on this process alone."""
        curriculum = self.sampler.curriculum
        if self.num_steps is None and isinstance(curriculum, ScheduledCurriculum):
            raise UserError("a schedule follows the progress of training: give the controller num_steps.")
        progress = min(1.0, self.sampler.num_steps / self.num_steps) if self.num_steps else 0.0
        metrics = self.measure(model, loader) if curriculum.metrics else {}
        return {**metrics, **curriculum.advance(metrics, progress)}

    def measure(self, model: Callable[[Any], Tensor], loader: Iterable[Any] | None) -> dict[str, float]:
        """Measure what the curriculum asks for on the held-out images."""
        if loader is None:
            raise UserError(
                "this curriculum learns from a validation: give step(model, loader) a loader of held-out images."
            )
        network = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
        device = device_of(network)
        gpus = [device] if device is not None and device.type == "cuda" else []
        # a DataLoader draws from the global generator
        with torch.random.fork_rng(devices=gpus), evaluation_mode(network):

            def unit(images: Any) -> Tensor:
                return F.normalize(network(images).float(), dim=1)

            return evaluate(unit, pairs(loader, device), self.sampler.curriculum.metrics)


def the_same_row(embeddings_BD: Tensor, references_RD: Tensor, distances_BR: Tensor) -> Tensor:
    """self_BR: the nearest reference, if it is the embedding itself to the bit, as in a memory or among all processes' rows."""
    nearest_B1 = distances_BR.argmin(1, keepdim=True)
    is_same_B1 = (embeddings_BD == references_RD[nearest_B1.squeeze(1)]).all(1, keepdim=True)
    return torch.zeros_like(distances_BR, dtype=torch.bool).scatter_(1, nearest_B1, is_same_B1)


def on_cpu(state: Any) -> Any:
    """The state as it was saved: whoever loads a checkpoint onto a GPU finds the policy's tensors there, too."""
    if isinstance(state, Mapping):
        return {key: on_cpu(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [on_cpu(value) for value in state]
    return state.cpu() if isinstance(state, Tensor) else state


def pairs(loader: Iterable[Any], device: torch.device | None) -> Iterator[tuple[Any, Tensor]]:
    """(images, labels) of every batch on the device of the network; open-metric-learning's batches are dicts."""
    for batch in loader:
        if isinstance(batch, Mapping) and {"input_tensors", "labels"} <= batch.keys():
            images, labels = batch["input_tensors"], batch["labels"]
        elif isinstance(batch, list | tuple) and len(batch) >= 2:
            images, labels = batch[:2]
        else:
            raise UserError("the loader must give batches of (images, labels).")
        labels = torch.as_tensor(labels)
        yield (images, labels) if device is None else (images.to(device), labels.to(device))


def device_of(model: Any) -> torch.device | None:
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return None if parameter is None else parameter.device


def rank() -> int:
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def world_size() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
