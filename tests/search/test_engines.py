"""Every engine finds what a loop finds; the codes find nearly all of it, as much as they say."""

import numpy as np
import pytest

from pads.search import engines
from pads.search.engines import (
    FaissCodes,
    FaissExact,
    TorchExact,
    make_codes,
    nearest_of_all,
    pick_engine,
    rank_candidates,
)


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def clustered(num, dim, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(50, dim))
    return unit(centres[rng.integers(0, 50, num)] + 0.5 * rng.normal(size=(num, dim)))


def naive(vectors_ND, queries_QD, k):
    distances_QN = np.array([[np.linalg.norm(query - vector) for vector in vectors_ND] for query in queries_QD])
    return np.sort(distances_QN, axis=1)[:, :k]


@pytest.mark.parametrize("engine", [TorchExact, FaissExact])
@pytest.mark.parametrize("k", [1, 7, 200])
def test_exact_engines_find_what_a_loop_finds(engine, k):
    vectors, queries = clustered(200, 12), clustered(5, 12, seed=1)
    distances, rows = rank_candidates(vectors, queries, engine(vectors).candidates(queries, k), k)
    np.testing.assert_allclose(distances, naive(vectors, queries, k), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors[rows] - queries[:, None], axis=2), distances, atol=1e-6)


def test_chunks_make_no_difference(monkeypatch):
    vectors, queries = clustered(200, 12), clustered(5, 12, seed=1)
    monkeypatch.setattr(engines, "CHUNK", 7)
    rows = nearest_of_all(queries, vectors, 20)
    np.testing.assert_allclose(rank_candidates(vectors, queries, rows, 20)[0], naive(vectors, queries, 20), atol=1e-6)


def test_ranking_drops_what_is_not_there_and_orders_ties_by_row():
    vectors = np.array([[1, 0], [0, 1], [1, 0], [-1, 0]], dtype=np.float32)
    distances, rows = rank_candidates(vectors, vectors[:1], np.array([[-1, 3, 2, 1, 0]]), 3)
    assert rows.tolist() == [[0, 2, 1]]
    np.testing.assert_allclose(distances, [[0, 0, 2**0.5]], rtol=1e-6)


def test_a_duplicate_is_at_distance_0_exactly():
    vectors = clustered(500, 128)
    for engine in (TorchExact(vectors), FaissExact(vectors)):
        assert (rank_candidates(vectors, vectors, engine.candidates(vectors, 1), 1)[0] == 0).all()


@pytest.fixture(scope="module", params=[16, 15], ids=["even", "odd"])
def coded(request):
    vectors = clustered(6000, request.param)
    return vectors, make_codes(vectors)


def test_the_codes_find_as_much_as_they_say(coded):
    vectors, codes = coded
    queries = clustered(200, vectors.shape[1], seed=2)
    found = rank_candidates(vectors, queries, FaissCodes(vectors, **codes).candidates(queries, 10), 10)[0]
    exact = rank_candidates(vectors, queries, nearest_of_all(queries, vectors, 10), 10)[0]
    assert codes["recall"] >= engines.RECALL_AT_10
    assert (found <= exact[:, -1:]).mean() > 0.95


@pytest.mark.parametrize("k", [5, 257, 6000])
def test_the_codes_give_as_many_neighbours_as_are_asked_for(coded, k):
    vectors, codes = coded
    rows = FaissCodes(vectors, **codes).candidates(vectors[:3], k)
    assert rank_candidates(vectors, vectors[:3], rows, k)[1].shape == (3, k)


def test_uniform_vectors_are_searched_more_widely_than_clustered_ones():
    uniform = unit(np.random.default_rng(0).normal(size=(6000, 32)))
    codes, easy = make_codes(uniform), make_codes(clustered(6000, 32))
    assert codes["recall"] >= engines.RECALL_AT_10 and codes["num_probes"] > easy["num_probes"]


def test_the_engine_is_chosen_by_the_number_of_vectors(monkeypatch, coded):
    vectors, codes = coded
    assert not engines.needs_codes(100_000) and engines.needs_codes(100_001)
    assert isinstance(pick_engine(vectors, None), FaissExact)
    assert isinstance(pick_engine(vectors, codes), FaissCodes)
    assert f"{codes['recall']:.3f}" in pick_engine(vectors, codes).name
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    assert not engines.needs_codes(100_001)
    assert isinstance(pick_engine(vectors, codes), TorchExact)


def test_codes_are_plain_arrays_also_where_faiss_was_taught_to_return_tensors():
    """pytorch-metric-learning imports faiss.contrib.torch_utils, and from then on faiss makes tensors in this process."""
    pytest.importorskip("faiss.contrib.torch_utils")
    vectors = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    content = make_codes(vectors)["content"]
    assert all(isinstance(array, np.ndarray) for array in content.values())
