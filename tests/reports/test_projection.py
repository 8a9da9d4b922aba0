"""The map: PCA against scikit-learn, UMAP by what a map is for, and what is said where it is not installed."""

import importlib.util

import numpy as np
import pytest
from sklearn.decomposition import PCA

from pads.errors import UserError
from pads.reports import projection
from pads.reports.projection import project


def clusters(num_each, num_clusters=5, dim=16):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(num_clusters, dim))
    labels = np.repeat(np.arange(num_clusters), num_each)
    return (centres[labels] + 0.1 * rng.normal(size=(len(labels), dim))).astype(np.float32), labels


@pytest.fixture
def without_umap(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "umap" else find(name, *more))


def test_pca_is_that_of_scikit_learn_up_to_the_sign():
    embeddings, _ = clusters(20)
    xy, method = project(embeddings, "pca")
    assert (method, xy.dtype, xy.shape) == ("pca", np.float32, (100, 2))
    assert np.abs(xy) == pytest.approx(np.abs(PCA(2).fit_transform(embeddings)), abs=1e-4)


@pytest.mark.parametrize("shape", [(1, 8), (2, 8), (3, 1), (5, 2)])
def test_a_few_images_have_a_map_too(shape):
    xy, method = project(np.random.default_rng(0).normal(size=shape))
    assert xy.shape == (shape[0], 2)
    assert np.isfinite(xy).all()
    assert method == "pca"


def test_embeddings_that_are_all_the_same_are_one_point():
    xy, _ = project(np.ones((4, 3)), "pca")
    assert xy == pytest.approx(np.zeros((4, 2)), abs=1e-6)


def test_umap_keeps_neighbours_together_and_gives_the_same_map_again():
    embeddings, labels = clusters(40)
    xy, method = project(embeddings)
    assert (method, xy.dtype) == ("umap", np.float32)
    assert np.array_equal(xy, project(embeddings, "umap")[0])
    distances = np.linalg.norm(xy[:, None] - xy, axis=2) + 1e9 * np.eye(len(xy))
    assert (labels[distances.argmin(1)] == labels).mean() > 0.95


def test_many_or_few_images_are_drawn_by_pca_unless_told(monkeypatch):
    monkeypatch.setattr(projection, "umap", lambda embeddings: embeddings[:, :2])
    small, _ = clusters(10)
    assert project(small)[1] == "pca"
    assert project(small, "umap")[1] == "umap"
    monkeypatch.setattr(projection, "MOST_FOR_UMAP", 250)
    assert project(clusters(50)[0])[1] == "umap"
    assert project(clusters(51)[0])[1] == "pca"


def test_without_umap_the_map_is_pca_and_asking_for_umap_says_how_to_install_it(without_umap):
    embeddings, _ = clusters(60)
    assert project(embeddings)[1] == "pca"
    with pytest.raises(UserError, match=r'pip install "pads-dml\[umap\]"'):
        project(embeddings, "umap")


def test_an_unknown_method_is_refused():
    with pytest.raises(UserError, match="did you mean umap"):
        project(np.zeros((3, 2)), "umpa")
