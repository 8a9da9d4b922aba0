"""One query among a million vectors of 128 dimensions: how long, and how much of the truth it finds.

Two made-up sets: clusters on the sphere, as a trained network gives, and uniform on it, where no structure helps and every
list has to be probed. Queries are new vectors of the same kind. The peer is faiss's own exact search, in the same process;
its answers are the truth. `python benchmarks/search.py [--num 1000000] [--dim 128]`; about three minutes.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import faiss
import numpy as np

from pads.search.engines import FaissCodes, FaissExact, make_codes, rank_candidates

NUM_QUERIES = 200
K = 10


def draw_clusters(num: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """20 images to a class, classes uniform on the sphere; same class at a distance of about 0.8, others at 1.4."""
    centres = rng.standard_normal((num // 20, dim), dtype=np.float32)
    vectors = centres[rng.integers(0, len(centres), num)]
    vectors += 0.7 * rng.standard_normal((num, dim), dtype=np.float32)
    return unit(vectors)


def draw_uniform(num: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    return unit(rng.standard_normal((num, dim), dtype=np.float32))


def unit(vectors: np.ndarray) -> np.ndarray:
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def measure(name: str, make: Callable[..., np.ndarray], num: int, dim: int) -> None:
    everything = make(num + NUM_QUERIES, dim, np.random.default_rng(0))
    vectors, queries = everything[:num], everything[num:]
    started = time.perf_counter()
    codes = make_codes(vectors)
    seconds = time.perf_counter() - started
    engine, exact = FaissCodes(vectors, **codes), FaissExact(vectors)
    truth = exact.candidates(queries, K)
    found = [
        rank_candidates(vectors, queries[at : at + 1], engine.candidates(queries[at : at + 1], K), K)[1]
        for at in range(NUM_QUERIES)
    ]
    recall = np.mean(
        [len(set(a) & set(b)) / K for a, b in zip(truth.tolist(), np.concatenate(found).tolist(), strict=True)]
    )

    def one(engine: FaissCodes | FaissExact, at: int) -> float:
        query = queries[at : at + 1]
        started = time.perf_counter()
        rank_candidates(vectors, query, engine.candidates(query, K), K)
        return 1e3 * (time.perf_counter() - started)

    ours = [one(engine, at) for at in range(NUM_QUERIES)]
    peers = [one(exact, at) for at in range(20)]
    median, memory = statistics.median(ours), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{name}: {num:,} x {dim}, {faiss.omp_get_max_threads()} threads")
    print(f"  {engine.name}")
    print(f"  one query: median {median:.1f} ms, 95 % within {np.quantile(ours, 0.95):.1f} ms")
    print(f"  recall@10 against exact search, {NUM_QUERIES} new queries: {recall:.3f}")
    print(f"  faiss, exact: median {statistics.median(peers):.1f} ms, {statistics.median(peers) / median:.1f}x as long")
    print(f"  building: {seconds:.0f} s; {codes['content'].nbytes / 1e6:.0f} MB of codes")
    print(f"  vectors: {vectors.nbytes / 1e6:.0f} MB; most memory of this process so far: {memory / 1e9:.1f} GB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    options = parser.parse_args()
    for name, make in (("clustered", draw_clusters), ("uniform", draw_uniform)):
        measure(name, make, options.num, options.dim)
