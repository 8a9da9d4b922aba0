"""Embeddings as points of a plane, for a map: UMAP where it is installed, else the two main axes (PCA).

Dimensions: N images, D embedding, K neighbours.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import torch

from pads.config import lookup
from pads.errors import missing_extra
from pads.metrics.neighbours import nearest_neighbours

METHODS = ("auto", "umap", "pca")
NUM_NEIGHBOURS = 15
"""Of UMAP, the image itself among them: its own default."""
FEWEST_FOR_UMAP, MOST_FOR_UMAP = 200, 20_000
"""What "auto" takes UMAP for: fewer images do not need it, and more take longer than anybody waits for a page."""


def project(embeddings_ND: Any, method: str = "auto") -> tuple[np.ndarray, str]:
    """xy_N2 (float32) and the name of the method that made it, "umap" or "pca"; the same for the same embeddings.

    "auto" is UMAP where it is installed and there are between 200 and 20,000 images, else PCA.
    """
    lookup(dict.fromkeys(METHODS), method, "map")
    if isinstance(embeddings_ND, torch.Tensor):
        embeddings_ND = embeddings_ND.detach().cpu()
    embeddings_ND = np.ascontiguousarray(np.asarray(embeddings_ND, dtype=np.float32))
    is_installed = importlib.util.find_spec("umap") is not None
    if method == "auto":
        is_fit = FEWEST_FOR_UMAP <= len(embeddings_ND) <= MOST_FOR_UMAP
        method = "umap" if is_installed and is_fit else "pca"
    elif method == "umap" and not is_installed:
        raise missing_extra("umap-learn", "umap")
    if method == "umap" and len(embeddings_ND) > 3:  # fewer have no neighbourhood to keep
        return umap(embeddings_ND), "umap"
    return pca(embeddings_ND), "pca"


def pca(embeddings_ND: np.ndarray) -> np.ndarray:
    """The coordinates along the two axes of largest variance; an axis points to where its largest part does."""
    centred_ND = embeddings_ND.astype(np.float64) - embeddings_ND.mean(0, dtype=np.float64)
    _, axes_DD = np.linalg.eigh(centred_ND.T @ centred_ND)
    axes_D2 = np.zeros((embeddings_ND.shape[1], 2))
    axes_D2[:, : min(2, axes_DD.shape[1])] = axes_DD[:, ::-1][:, :2]
    largest_2 = axes_D2[np.abs(axes_D2).argmax(0), np.arange(2)]
    return (centred_ND @ (axes_D2 * np.where(largest_2 < 0, -1, 1))).astype(np.float32)


def umap(embeddings_ND: np.ndarray) -> np.ndarray:
    """UMAP from PCA's coordinates and our own exact neighbours.

    Left to itself UMAP searches the neighbours approximately, which takes numba half a minute to compile.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that new images cannot be added to the map, which nobody wants to
        from umap import UMAP

        neighbours_NK, distances_NK = neighbours_and_self(embeddings_ND, NUM_NEIGHBOURS - 1)
        start_N2 = pca(embeddings_ND)
        start_N2 *= 10 / max(np.abs(start_N2).max(), 1e-12)  # the extent that UMAP's own starts have
        made = UMAP(
            n_neighbors=neighbours_NK.shape[1],
            precomputed_knn=(neighbours_NK, distances_NK, None),
            force_approximation_algorithm=True,  # else it ignores the given neighbours of a small set
            init=start_N2,
            n_epochs=200,  # its own choice for large sets; for small ones it would take 500, and twice as long
            random_state=0,
            n_jobs=1,  # what a fixed seed comes down to
        ).fit_transform(embeddings_ND)
    return np.asarray(made, dtype=np.float32)


def neighbours_and_self(embeddings_ND: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    vectors_ND = torch.from_numpy(embeddings_ND)
    neighbours_NK = nearest_neighbours(vectors_ND, k).numpy()
    own_N1 = np.arange(len(embeddings_ND))[:, None]
    indices_NK = np.concatenate([own_N1, neighbours_NK], axis=1)
    distances_NK = np.stack([np.linalg.norm(embeddings_ND - embeddings_ND[row_N], axis=1) for row_N in indices_NK.T], 1)
    return indices_NK, distances_NK.astype(np.float32)
