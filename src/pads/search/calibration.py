"""When two images show the same item: a distance for each precision, from the selection split of the run.

A backbone that was not trained here has seen none of the images: it is calibrated on those of the index, by their folders.

Every image of the split searches all others. Its neighbours within a distance t are accepted; precision(t) is the share of
the accepted that show the query's class: what a person who searches sees, and not what random pairs would give.

Two things keep it from promising too much. Strangers are as dense as there are images, so for an index with s times the
images of the split each stranger counts s times. And there is always one more stranger than was seen, so that a handful of
neighbours without any proves nothing: precision(t) = same(t) / (same(t) + s (strangers(t) + 1)).

That an image is another item is said by a distance of its own: among the ten nearest of each query, those farther than u are
refused, and the share of strangers among them is s strangers(u) / (s strangers(u) + same(u) + 1), with s at most 1. Of all
pairs, nearly any are strangers, so these would say nothing. Between t and u nothing is promised.

Dimensions: N images of the split, K neighbours, P points of the curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pads.data.loading import load_selection
from pads.data.manifest import Manifest
from pads.errors import UserError
from pads.evaluate import embed
from pads.metrics.neighbours import nearest_neighbours
from pads.model import Model
from pads.runs.watch import Watch

NUM_NEIGHBOURS = 100
"""Of each image; what is farther away will not be accepted at any precision worth naming."""
NUM_SHOWN = 10
"""Of each image, what a search shows unless told otherwise."""
MOST_IMAGES = 5_000
"""Of an index that is calibrated by its own labels."""


@dataclass(frozen=True)
class Calibration:
    """Accepted neighbours within a distance, of the query's class and of others, on the selection split."""

    num_images: int
    num_classes: int
    distances_P: tuple[float, ...]
    """Ascending."""
    same_P: tuple[int, ...]
    """Neighbours of the query's class below that distance."""
    strangers_P: tuple[int, ...]
    """Neighbours of other classes below it."""
    on: str = "the run's selection split"
    """Which images these are."""
    far_distances_P: tuple[float, ...] = ()
    """Descending."""
    far_strangers_P: tuple[int, ...] = ()
    """Neighbours of other classes beyond that distance, among the ten nearest."""
    far_same_P: tuple[int, ...] = ()
    """Neighbours of the query's class beyond it."""

    def precisions(self, num_indexed: int) -> np.ndarray:
        """Precision_P in an index of that many images."""
        same_P, strangers_P = np.array(self.same_P, dtype=float), np.array(self.strangers_P, dtype=float)
        return same_P / (same_P + max(1.0, num_indexed / self.num_images) * (strangers_P + 1))

    def point(self, precision: float, num_indexed: int) -> int | None:
        """The farthest point of the curve that has the precision."""
        good = np.flatnonzero(self.precisions(num_indexed) >= precision)
        return int(good[-1]) if len(good) else None

    def far_point(self, precision: float, num_indexed: int) -> int | None:
        """The nearest point beyond which neighbours are other items with the precision."""
        strangers_P = min(1.0, num_indexed / self.num_images) * np.array(self.far_strangers_P, dtype=float)
        good = np.flatnonzero(strangers_P / (strangers_P + np.array(self.far_same_P) + 1) >= precision)
        return int(good[-1]) if len(good) else None


def check_precision(precision: float) -> None:
    if not 0 < precision <= 1:
        raise UserError(f"--precision is {precision}: the share that must be right, above 0 and at most 1, like 0.95.")


def calibrate(embeddings_ND: Tensor, labels_N: Tensor) -> Calibration:
    """The curve of a split."""
    neighbours_NK = nearest_neighbours(embeddings_ND, NUM_NEIGHBOURS)
    distances_NK = torch.stack(
        [
            (embeddings_ND[rows_K] - query_D).norm(dim=1)
            for query_D, rows_K in zip(embeddings_ND, neighbours_NK, strict=True)
        ]
    )
    is_same_NK = labels_N[neighbours_NK] == labels_N[:, None]
    num_classes = len(labels_N.unique())
    near = curve(distances_NK.flatten().cpu().numpy(), is_same_NK.flatten().cpu().numpy())
    shown = distances_NK[:, :NUM_SHOWN].flatten().cpu().numpy(), is_same_NK[:, :NUM_SHOWN].flatten().cpu().numpy()
    distances_P, strangers_P, same_P = curve(-shown[0], ~shown[1])  # the same from the other end
    far_distances_P = tuple(-each for each in distances_P)
    found = Calibration(len(labels_N), num_classes, *near)
    return replace(found, far_distances_P=far_distances_P, far_strangers_P=strangers_P, far_same_P=same_P)


def curve(distances: np.ndarray, is_same: np.ndarray) -> tuple[tuple[float, ...], tuple[int, ...], tuple[int, ...]]:
    """Distances with the neighbours of the query's class and of others that are nearer.

    One point for each number of strangers, the farthest that has no more of them; from 100 strangers on, one for every 2 %.
    """
    order = np.argsort(distances, kind="stable")
    distances, same, strangers = distances[order], is_same[order].cumsum(), (~is_same[order]).cumsum()
    ends = np.flatnonzero(np.append(distances[1:] > distances[:-1], True))  # those equally far are accepted together
    last = np.append(strangers[ends[1:]] > strangers[ends[:-1]], True)
    ends = ends[last]
    steps = np.where(
        strangers[ends] < 100, strangers[ends], 100 + np.log(np.maximum(strangers[ends], 100) / 100) / 0.02
    )
    ends = ends[np.append(np.diff(np.floor(steps)) > 0, True)]
    following = np.minimum(ends + 1, len(distances) - 1)
    between = np.where(following > ends, (distances[ends] + distances[following]) / 2, np.nextafter(distances[ends], 9))
    return tuple(between.tolist()), tuple(same[ends].tolist()), tuple(strangers[ends].tolist())


def calibrate_by_labels(vectors_ND: np.ndarray, labels: Sequence[str | None]) -> Calibration | str:
    """The curve of images that the network did not learn from, by their own labels, or why there is none.

    Of very many images, whole classes at random are taken.
    """
    rows_N = np.array([row for row, label in enumerate(labels) if label is not None], dtype=np.int64)
    names, classes_N = np.unique([labels[row] for row in rows_N], return_inverse=True)
    sizes_C = np.bincount(classes_N) if len(rows_N) else np.zeros(0, dtype=np.int64)
    if len(names) < 2 or sizes_C.max() < 2:
        return "To tell it, the images must lie in a folder for each item, two or more in some of them."
    order_C = np.random.default_rng(0).permutation(len(names))
    taken_C = order_C[: max(2, int((sizes_C[order_C].cumsum() <= MOST_IMAGES).sum()))]
    kept_N = np.isin(classes_N, taken_C)
    found = calibrate(torch.from_numpy(vectors_ND[rows_N[kept_N]]), torch.from_numpy(classes_N[kept_N]))
    return replace(found, on="the indexed images themselves")


def calibrate_run(model: Model, watch: Watch, known: Manifest | None = None) -> Calibration | str:
    """The curve of the run's selection split, or a sentence that says why there is none; known: what the run's look found."""
    data = model.config.data
    if data.paper_protocol:
        return "The run selected its epoch on the test split and has no selection split to calibrate on."
    try:
        view = load_selection(model.config, next(model.network.parameters()).device, watch, known)
        if len(view) == 0:
            return "The run has no selection split to calibrate on."
        return calibrate(*embed(model.network, view))
    except (UserError, OSError) as error:
        return f"The run's selection split, to calibrate on, could not be used: {error}"
