"""A look at the test images through a trained network: embeddings, what each query finds, the map, the thumbnails.

Dimensions: N images of the test split, M of them shown, D embedding, S pixels on a side.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pads.config import Config, lookup
from pads.data.benchmark import Benchmark, QueryGallery, find_answerable
from pads.data.loading import load_test_view
from pads.data.manifest import Changes, find_changes, list_data, pick_unchanged, read_manifest
from pads.data.prepare import Prepared
from pads.errors import UserError
from pads.evaluate import embed
from pads.metrics.retrieval import map_at_r, recall_at
from pads.model import load
from pads.reports.gallery import SHOWN, Confusion, Retrieval, find_confused_classes, good_and_bad, retrieve
from pads.reports.projection import project
from pads.reports.thumbnails import SIZES, thumbnails
from pads.runs import RunFolder
from pads.runs.watch import nobody
from pads.runtime.precision import float32_rounding, use_threads

MOST_SHOWN = 6_000
"""Images with a thumbnail and a place on the map; all of CUB200-2011's test split (5,924)."""


@dataclass(frozen=True)
class Look:
    class_names: tuple[str, ...]
    labels_N: np.ndarray
    paths: tuple[Path, ...]
    found: Retrieval
    good: list[int]
    """Rows of `found`."""
    bad: list[int]
    confused: list[Confusion]
    pinned: list[int]
    """Classes that were asked for by name."""
    shown_M: np.ndarray
    """The images that have a thumbnail, in the order of the split."""
    thumbnails_MSS3: np.ndarray
    xy_M2: np.ndarray | None
    """None where no map was wanted."""
    method: str
    """Of the map: umap, pca or none."""
    note: str = ""
    """Which of the test images are not shown, and why."""

    def cells(self, position: int) -> tuple[str, str]:
        """File and class of an image."""
        return str(self.paths[position]), self.class_names[self.labels_N[position]]

    def short_name(self, position: int) -> str:
        """The file's name, after its folder's unless that is the class."""
        path, name = self.paths[position], self.class_names[self.labels_N[position]]
        return path.name if path.parent.name in ("", name) else f"{path.parent.name}/{path.name}"

    def figures(self, recall_ks: Sequence[int]) -> dict[str, float]:
        """Recall@k and MAP@R of this very network."""
        matches_QK = torch.from_numpy(self.found.matches_QK)
        relevant_Q = torch.from_numpy(self.found.num_relevant_Q)
        within = [k for k in recall_ks if k <= matches_QK.shape[1]]
        recalls = {f"recall@{k}": recall_at(matches_QK, k).item() for k in within}
        return {**recalls, "map@r": map_at_r(matches_QK, relevant_Q).item()}


def look_at(run: RunFolder, *, map_method: str = "auto", classes: Sequence[str] = ()) -> Look:
    """Embeds the test split with the network that the run selected."""
    model = load(run)
    with use_threads(model.config.threads), float32_rounding(model.config.precision):  # as in training: the same bits
        device = next(model.network.parameters()).device
        config = replace(model.config, compiled=False)  # to compile takes longer than to look
        notes: list[str] = []
        choose = functools.partial(keep_recorded, run, config, notes)
        view = load_test_view(config, device, nobody, choose, read_manifest(run.manifest_path))
        images, rows = view.store.images, view.indices_N.cpu().numpy()
        class_names = tuple(images.class_names[label] for label in np.unique(images.labels[rows]))
        pinned = [lookup({name: at for at, name in enumerate(class_names)}, name, "class") for name in classes]
        embeddings_ND, labels = embed(model.network, view)
        found = retrieve(embeddings_ND, labels, view.is_query_N, view.is_gallery_N)
        labels_N = labels.cpu().numpy()
        good, bad = good_and_bad(found, labels_N)
        confused = find_confused_classes(found, labels_N)
        shown_M = images_to_show(found, labels_N, [*good, *bad], confused, pinned)
        xy_M2, method = None, "none"
        if map_method != "none":
            xy_M2, method = project(embeddings_ND[torch.as_tensor(shown_M, device=device)], map_method)
        return Look(
            class_names,
            labels_N,
            tuple(images.paths[row] for row in rows),
            found,
            good,
            bad,
            confused,
            pinned,
            shown_M,
            thumbnails(view, shown_M.tolist(), SIZES[0][0]),
            xy_M2,
            method,
            " ".join(notes),
        )


def keep_recorded(
    run: RunFolder, config: Config, notes: list[str], benchmark: Benchmark, prepared: Prepared | None
) -> Benchmark:
    """Keep the test images that are as they were when the run began; a note says if these are not all."""
    before = read_manifest(run.manifest_path)
    changes = Changes()
    if before is not None:
        now = list_data(config.data, benchmark, prepared, before)
        changes = find_changes(before, now)
    if before is None or not changes:
        return benchmark
    if prepared is not None or not before.is_listed:
        raise UserError(f"the images are not those that the run began with: {changes.name()}.")
    test = pick_unchanged(before, now, benchmark)
    if isinstance(test, QueryGallery):
        test = replace(test, is_query=find_answerable(test))
    if len(test) == len(before.splits["test"]):
        return replace(benchmark, test=test)
    of_all, why = f"{len(test):,} of {len(before.splits['test']):,}", changes.name()
    notes.append(f"{of_all} test images are shown, those that are as they were when the run began: {why}.")
    return replace(benchmark, test=test)


def images_to_show(
    found: Retrieval,
    labels_N: np.ndarray,
    rows: Sequence[int],
    confused: Sequence[Confusion],
    pinned: Sequence[int],
    most: int = MOST_SHOWN,
) -> np.ndarray:
    """All images, or as many as a page can hold: what the gallery shows, then whole classes at random."""
    if len(labels_N) <= most:
        return np.arange(len(labels_N))
    wanted_rows = [*rows, *np.flatnonzero(np.isin(labels_N[found.queries_Q], pinned))]
    needed = {int(image) for pair in confused for image in (pair.query, pair.found)}
    needed |= set(found.queries_Q[wanted_rows].tolist())
    needed |= set(found.neighbours_QK[wanted_rows, :SHOWN].ravel().tolist())
    needed |= set(np.flatnonzero(np.isin(labels_N, pinned)).tolist())
    of_class = np.split(np.argsort(labels_N, kind="stable"), np.cumsum(np.bincount(labels_N))[:-1])
    for label in np.random.default_rng(0).permutation(len(of_class)):
        if len(needed) + len(of_class[label]) > most:
            break
        needed.update(of_class[label].tolist())
    return np.array(sorted(needed))
