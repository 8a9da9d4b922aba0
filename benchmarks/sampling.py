"""Drawing triplets and the margin loss, against loops over anchors and against pytorch-metric-learning, in one run.

python benchmarks/sampling.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pytorch_metric_learning import miners

from pads.losses import MarginLoss
from pads.sampling import BinDistribution, bin_distribution, draw_triplets
from pads.sampling.rules import BinRule

torch.set_num_threads(1)


def main() -> None:
    print(f"{'what':60} {'ours':>9} {'theirs':>9} {'ratio':>7} {'goal':>6}")
    bins, miner = bin_distribution(), miners.DistanceWeightedMiner()
    for batch, goal in ((112, 10), (512, 20)):
        embeddings, labels = make_batch(batch)
        ours = milliseconds(draw_triplets, embeddings, labels, BinRule(bins))
        theirs = milliseconds(loop, embeddings, labels, bins)
        row(f"PADS triplets, batch {batch}, a NumPy loop over anchors", ours, theirs, goal)
        theirs = milliseconds(miner, embeddings, labels)
        row(f"PADS triplets, batch {batch}, PML's DistanceWeightedMiner", ours, theirs, 3)
    embeddings, labels = make_batch(112)
    triplets = draw_triplets(embeddings, labels, BinRule(bins))
    loss = MarginLoss(num_classes=56)
    ours = milliseconds(backward, loss, embeddings, labels, triplets)
    theirs = milliseconds(backward, loop_loss, embeddings, labels, triplets, loss.beta)
    row("margin loss and gradient, batch 112, a loop over triplets", ours, theirs, 20)
    for batch in (128, 256, 512, 1024):
        print(f"  drawing, batch {batch:5}: {milliseconds(draw_triplets, *make_batch(batch), BinRule(bins)):8.2f} ms")


def make_batch(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(batch // 2).repeat_interleave(2)
    centres = torch.randn(batch // 2, 128, generator=generator)
    embeddings = centres[labels] + torch.randn(batch, 128, generator=generator)
    return torch.nn.functional.normalize(embeddings, dim=1), labels


def loop(embeddings: torch.Tensor, labels: torch.Tensor, bins: BinDistribution) -> list[tuple[int, int, int]]:
    """The same rule, "bin then image", one anchor after the other."""
    unit, classes = embeddings.numpy(), labels.numpy()
    distances = np.sqrt(np.clip(2 - 2 * unit @ unit.T, 0, None))
    edges, p, random = bins.edges.numpy(), bins.probabilities_K.numpy(), np.random.default_rng(0)
    triplets = []
    for anchor in range(len(unit)):
        positives = np.flatnonzero(classes == classes[anchor])
        positive = random.choice(positives[positives != anchor])
        candidates = np.flatnonzero(classes != classes[anchor])
        index = np.digitize(distances[anchor, candidates], edges) - 1
        inside = (index >= 0) & (index < len(p))
        candidates, index = (
            (candidates[inside], index[inside]) if inside.any() else (candidates, np.zeros(len(candidates), int))
        )
        occupied = np.unique(index)
        chosen = random.choice(occupied, p=p[occupied] / p[occupied].sum())
        triplets.append((anchor, positive, random.choice(candidates[index == chosen])))
    return triplets


def loop_loss(embeddings: torch.Tensor, labels: torch.Tensor, triplets: Any, beta: torch.Tensor) -> torch.Tensor:
    terms = []
    for a, p, n in zip(*triplets, strict=True):
        boundary = beta[labels[a]]
        terms.append((((embeddings[a] - embeddings[p]).square().sum() + 1e-8).sqrt() - boundary + 0.2).relu())
        terms.append((boundary - ((embeddings[a] - embeddings[n]).square().sum() + 1e-8).sqrt() + 0.2).relu())
    losses = torch.stack(terms)
    return losses.sum() / (losses > 0).sum().clamp(min=1)


def backward(loss: Callable[..., torch.Tensor], embeddings: torch.Tensor, *arguments: Any) -> None:
    loss(embeddings.detach().requires_grad_(), *arguments).backward()


def milliseconds(function: Callable[..., Any], *arguments: Any, repeats: int = 20) -> float:
    function(*arguments)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - started)
    return 1e3 * min(times)


def row(what: str, ours: float, theirs: float, goal: float) -> None:
    print(f"{what:60} {ours:6.2f} ms {theirs:6.1f} ms {theirs / ours:6.1f}x {goal:5}x")


if __name__ == "__main__":
    main()
