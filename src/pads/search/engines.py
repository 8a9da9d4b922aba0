"""What finds neighbours among stored vectors: exactly, or beyond 100,000 vectors by short codes and then exactly.

An engine gives the rows of candidates, in any order; `rank_candidates` compares their own vectors with the query, so distances and
order are exact whatever found them. Engines hold nothing that a search changes: threads may share one.

Dimensions: N images, D embedding, E the same made even, Q queries, K neighbours, M candidates, L lists, P pairs of dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from pads.metrics.neighbours import largest

EXACT_UP_TO = 100_000
"""More vectors than this are searched by codes, if faiss is there."""
NUM_CANDIDATES = 1024
"""What the codes find before the vectors themselves decide."""
RECALL_AT_10 = 0.98
"""Of the codes on a sample, against exact search: as many lists are probed as that takes."""
NUM_SAMPLED = 100
CHUNK = 65_536
CODES = ("centres_LE", "books_P32", "lists_N", "codes_NW")
"""The arrays of the codes: centres of the lists, of each pair of dimensions the 16 it may be, list and codes of each vector."""


class Engine(Protocol):
    name: str

    def candidates(self, vectors_QD: np.ndarray, k: int) -> np.ndarray:
        """Rows_QM with M >= k, the k nearest of each query among them; -1 where there are fewer."""
        ...


class TorchExact:
    """Every vector is compared."""

    name = "torch, exact"

    def __init__(self, vectors_ND: np.ndarray) -> None:
        self.vectors_ND = torch.from_numpy(vectors_ND)
        self.bias_N = torch.cat([part.square().sum(1) / -2 for part in self.vectors_ND.split(CHUNK)])

    def candidates(self, vectors_QD: np.ndarray, k: int) -> np.ndarray:
        num_queries = max(1, 2**24 // len(self.vectors_ND))  # 64 MB of scores at a time
        parts = torch.from_numpy(vectors_QD).split(num_queries)
        return torch.cat([self._largest(part_QD, k) for part_QD in parts]).numpy()

    def _largest(self, vectors_QD: torch.Tensor, k: int) -> torch.Tensor:
        return largest(torch.addmm(self.bias_N, vectors_QD, self.vectors_ND.T), k)


class FaissExact:
    """Every vector is compared."""

    name = "faiss, exact"

    def __init__(self, vectors_ND: np.ndarray) -> None:
        import faiss

        self.index = faiss.IndexFlatL2(vectors_ND.shape[1])
        self.index.add(np.ascontiguousarray(vectors_ND))

    def candidates(self, vectors_QD: np.ndarray, k: int) -> np.ndarray:
        return self.index.search(vectors_QD, k)[1]


class FaissCodes:
    """Inverted lists of 4-bit codes, two dimensions each (faiss's IVFPQFastScan): small enough to scan all, if need be."""

    def __init__(
        self, vectors_ND: np.ndarray, content: Mapping[str, np.ndarray], num_probes: int, recall: float
    ) -> None:
        """content: the arrays of `make_codes`, of which a stranger's are checked first; faiss would believe anything."""
        import faiss

        check_codes(vectors_ND, content)
        self.vectors_ND = vectors_ND
        num_lists = len(content["centres_LE"])
        self.lists = fill_lists(content)
        self.index = faiss.IndexIVFPQFastScan(self.lists)  # the same codes in blocks, and the same centres
        self.index.nprobe = min(num_probes, num_lists)
        self.name = (
            f"faiss, IVF with 4-bit codes ({num_probes:,} of {num_lists:,} lists), then exact; "
            f"measured recall@10 {recall:.3f}"
        )

    def candidates(self, vectors_QD: np.ndarray, k: int) -> np.ndarray:
        if k <= NUM_CANDIDATES // 4:
            rows_QM = self.index.search(even(vectors_QD), NUM_CANDIDATES)[1]
            if ((rows_QM >= 0).sum(1) >= k).all():
                return rows_QM
        return nearest_of_all(vectors_QD, self.vectors_ND, k)  # more than the lists that are probed may hold


def pick_engine(vectors_ND: np.ndarray, codes: dict[str, Any] | None) -> Engine:
    """The fastest that is there. `codes` is what `make_codes` made, None where there are none."""
    if not has_faiss():
        return TorchExact(vectors_ND)
    return FaissExact(vectors_ND) if codes is None else FaissCodes(vectors_ND, **codes)


def has_faiss() -> bool:
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def needs_codes(num_vectors: int) -> bool:
    return num_vectors > EXACT_UP_TO and has_faiss()


def make_codes(vectors_ND: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """The lists and codes of the vectors, with as many lists to probe as these very vectors need."""
    num, rng = len(vectors_ND), np.random.default_rng(seed)
    dim = vectors_ND.shape[1] + vectors_ND.shape[1] % 2
    num_lists = 2 ** round(math.log2(math.sqrt(num)))
    index = make_lists(dim, num_lists)
    index.cp.max_points_per_centroid = 64
    sample = np.sort(rng.choice(num, min(num, 64 * num_lists), replace=False))
    index.train(even(vectors_ND[sample]))
    content = encode(index, vectors_ND)
    queries_QD = vectors_ND[np.sort(rng.choice(num, min(num, NUM_SAMPLED), replace=False))]
    farthest_Q1 = rank_candidates(vectors_ND, queries_QD, nearest_of_all(queries_QD, vectors_ND, 10), 10)[0][:, -1:]
    num_probes = min(8, num_lists)
    while True:
        rows_QM = FaissCodes(vectors_ND, content, num_probes, 1.0).candidates(queries_QD, 10)
        recall = float((rank_candidates(vectors_ND, queries_QD, rows_QM, 10)[0] <= farthest_Q1).mean())
        if recall >= RECALL_AT_10 or num_probes == num_lists:
            return {"content": content, "num_probes": num_probes, "recall": recall}
        num_probes = min(2 * num_probes, num_lists)


def encode(index: Any, vectors_ND: np.ndarray) -> dict[str, np.ndarray]:
    """What a trained index makes of the vectors, as plain arrays: the list of each and its codes, beside what was learned."""
    import faiss

    num, width = len(vectors_ND), index.pq.code_size
    lists_N, codes_NW = np.empty(num, np.int64), np.empty((num, width), np.uint8)
    for start in range(0, num, CHUNK):
        part_CE, here = even(vectors_ND[start : start + CHUNK]), slice(start, start + CHUNK)
        lists_N[here] = index.quantizer.search(part_CE, 1)[1][:, 0]
        index.encode_vectors(
            len(part_CE), faiss.swig_ptr(part_CE), faiss.swig_ptr(lists_N[here]), faiss.swig_ptr(codes_NW[here])
        )
    return {
        # an array in any case: where faiss.contrib.torch_utils was imported (pytorch-metric-learning does), it is a tensor
        "centres_LE": np.asarray(index.quantizer.reconstruct_n(0, index.nlist)),
        "books_P32": faiss.vector_to_array(index.pq.centroids).reshape(index.pq.M, -1),
        "lists_N": lists_N.astype(np.int32),
        "codes_NW": codes_NW,
    }


def fill_lists(content: Mapping[str, np.ndarray]) -> Any:
    """The inverted lists of faiss with these codes."""
    import faiss

    centres_LE, books_P32, lists_N, codes_NW = (content[name] for name in CODES)
    index = make_lists(centres_LE.shape[1], len(centres_LE))
    index.quantizer.add(np.ascontiguousarray(centres_LE))
    faiss.copy_array_to_vector(np.ascontiguousarray(books_P32).reshape(-1), index.pq.centroids)
    index.is_trained = True
    order_N = np.argsort(lists_N, kind="stable")
    ends_L = np.searchsorted(lists_N[order_N], np.arange(len(centres_LE) + 1))
    for number, (start, end) in enumerate(itertools.pairwise(ends_L)):
        rows_C = np.ascontiguousarray(order_N[start:end])
        if len(rows_C):
            codes_CW = np.ascontiguousarray(codes_NW[rows_C])
            index.invlists.add_entries(number, len(rows_C), faiss.swig_ptr(rows_C), faiss.swig_ptr(codes_CW))
    index.ntotal = len(lists_N)
    return index


def make_lists(dim: int, num_lists: int) -> Any:
    """Empty lists, which know nothing yet."""
    import faiss

    index = faiss.IndexIVFPQ(faiss.IndexFlatL2(dim), dim, num_lists, dim // 2, 4)
    index.by_residual = False
    return index


def check_codes(vectors_ND: np.ndarray, content: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless the arrays fit each other and the vectors."""
    num, dim = vectors_ND.shape
    dim += dim % 2
    found = {name: (content[name].dtype, content[name].shape) for name in CODES}
    num_lists = len(content["centres_LE"])
    expected = {
        "centres_LE": (np.float32, (num_lists, dim)),
        "books_P32": (np.float32, (dim // 2, 32)),
        "lists_N": (np.int32, (num,)),
        "codes_NW": (np.uint8, (num, -(-(dim // 2) // 2))),
    }
    if found != expected or not num_lists:
        raise ValueError("its arrays are not those of the vectors")
    if content["lists_N"].min() < 0 or content["lists_N"].max() >= num_lists:
        raise ValueError("it names lists that there are not")
    if not all(np.isfinite(content[name]).all() for name in ("centres_LE", "books_P32")):
        raise ValueError("it holds what is no number")


def even(vectors_QD: np.ndarray) -> np.ndarray:
    """A zero beside an odd number of dimensions, since a code is of two."""
    padded = vectors_QD if vectors_QD.shape[1] % 2 == 0 else np.pad(vectors_QD, ((0, 0), (0, 1)))
    return np.ascontiguousarray(padded)


def nearest_of_all(queries_QD: np.ndarray, vectors_ND: np.ndarray, k: int) -> np.ndarray:
    """Rows_QK of the k nearest, chunk by chunk, so that nothing of the size of the vectors is made."""
    rows_QK = np.empty((len(queries_QD), 0), dtype=np.int64)
    for start in range(0, len(vectors_ND), CHUNK):
        chunk_ND = np.ascontiguousarray(vectors_ND[start : start + CHUNK])
        found_QK = start + TorchExact(chunk_ND).candidates(queries_QD, min(k, len(chunk_ND)))
        rows_QK = rank_candidates(vectors_ND, queries_QD, np.concatenate([rows_QK, found_QK], axis=1), k)[1]
    return rows_QK


def rank_candidates(
    vectors_ND: np.ndarray, queries_QD: np.ndarray, rows_QM: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Distances_QK and rows_QK of the k nearest candidates, nearest first; those equally far in the order of rows."""
    distances_QK, rows_QK = [], []
    for query_D, rows_M in zip(queries_QD, rows_QM, strict=True):
        rows_M = np.sort(rows_M[rows_M >= 0])
        # from the difference itself: |a|² + |b|² - 2ab would leave a duplicate at 0.0003 instead of 0
        distances_M = np.linalg.norm(vectors_ND[rows_M] - query_D, axis=1)
        order_K = np.argsort(distances_M, kind="stable")[:k]
        distances_QK.append(distances_M[order_K])
        rows_QK.append(rows_M[order_K])
    shape = (len(queries_QD), -1) if len(queries_QD) else (0, k)
    return np.array(distances_QK, dtype=np.float32).reshape(shape), np.array(rows_QK, dtype=np.int64).reshape(shape)
