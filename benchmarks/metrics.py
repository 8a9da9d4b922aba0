"""Speed of the metrics against their peers, each pair in one run.

    python benchmarks/metrics.py [--threads 1] [--quick]    the table, on the CPU
    python benchmarks/metrics.py --sop [--device cuda]      the test set of Stanford Online Products, seconds and memory

The best of several repetitions of each, interleaved, on unit vectors around random class centres. A ratio above 1 says
that pads is faster. "same" is the largest difference of a value.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from itertools import pairwise

import faiss
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from pads.metrics import compute_metrics
from pads.metrics.clustering import nmi_from, start_draws
from pads.metrics.neighbours import nearest_neighbours

VALIDATION = ("recall@1", "recall@2", "recall@4", "recall@8", "nmi", "intra", "inter")
RETRIEVAL = {"recall@1": "precision_at_1", "r-precision": "r_precision", "map@r": "mean_average_precision_at_r"}


def mixture(num_images: int, dimension: int, num_classes: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(num_images) % num_classes
    centres_CD = torch.randn(num_classes, dimension, generator=generator)
    embeddings_ND = centres_CD[labels_N] + noise * torch.randn(num_images, dimension, generator=generator)
    return torch.nn.functional.normalize(embeddings_ND, dim=1), labels_N


def best_seconds(functions: list[Callable[[], object]], repetitions: int) -> list[float]:
    best = [float("inf")] * len(functions)
    for _ in range(repetitions):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


Function = Callable[[], object]


def row(what: str, ours: Function, peer: str, theirs: Function, same: str, repetitions: int) -> None:
    seconds, peer_seconds = best_seconds([ours, theirs], repetitions)
    times = f"{seconds * 1e3:,.1f} ms | {peer} | {peer_seconds * 1e3:,.1f} ms"
    print(f"| {what} | {times} | {peer_seconds / seconds:.2f}x | {same} |", flush=True)


def retrieval(num_images: int, num_classes: int, repetitions: int) -> None:
    embeddings_ND, labels_N = mixture(num_images, 128, num_classes, 1.5)
    names = ("recall@2", "recall@4", "recall@8", *RETRIEVAL)
    ours = compute_metrics(embeddings_ND, labels_N, names)
    # Its default looks at all images for every query; "max_bin_count" is the setting that asks for what MAP@R needs.
    for label, k in (("its default k", None), ("k = max_bin_count", "max_bin_count")):
        peer = AccuracyCalculator(include=tuple(RETRIEVAL.values()), k=k, device=torch.device("cpu"))
        theirs = peer.get_accuracy(embeddings_ND, labels_N)
        same = f"{max(abs(ours[name] - theirs[RETRIEVAL[name]]) for name in RETRIEVAL):.0e}"
        row(
            f"R@1,2,4,8 + R-precision + MAP@R, {num_images:,} x 128",
            lambda: compute_metrics(embeddings_ND, labels_N, names),
            f"pytorch-metric-learning, {label}: P@1, R-precision, MAP@R",
            lambda peer=peer: peer.get_accuracy(embeddings_ND, labels_N),
            same,
            repetitions if k else 1,
        )


def neighbours(num_images: int, k: int, repetitions: int) -> None:
    embeddings_ND, _ = mixture(num_images, 128, 500, 1.5)

    def search() -> torch.Tensor:
        index = faiss.IndexFlatL2(128)
        index.add(embeddings_ND.numpy())
        return torch.from_numpy(index.search(embeddings_ND.numpy(), k + 1)[1][:, 1:])

    differing = (nearest_neighbours(embeddings_ND, k) != search()).float().mean().item()
    row(
        f"{k} neighbours, {num_images:,} x 128",
        lambda: nearest_neighbours(embeddings_ND, k),
        "faiss IndexFlatL2",
        search,
        f"{differing:.0e} of the places",
        repetitions,
    )


def clustering(num_images: int, dimension: int, num_classes: int, noise: float, repetitions: int) -> None:
    embeddings_ND, labels_N = mixture(num_images, dimension, num_classes, noise)

    def ours(seed: int = 0) -> float:
        return nmi_from(embeddings_ND, labels_N, start_draws(num_classes, [seed], embeddings_ND.device)).item()

    def theirs(seed: int = 0) -> float:
        peer = KMeans(num_classes, n_init=1, max_iter=25, tol=0, random_state=seed)
        return normalized_mutual_info_score(labels_N.numpy(), peer.fit_predict(embeddings_ND.numpy()))

    means = [sum(map(function, range(repetitions))) / repetitions for function in (ours, theirs)]
    row(
        f"k-means + NMI, {num_images:,} x {dimension}, {num_classes} classes, noise {noise}",
        ours,
        "scikit-learn KMeans + NMI, 25 iterations",
        theirs,
        f"NMI {means[0]:.4f} against {means[1]:.4f}",
        repetitions,
    )


def validation() -> None:
    for num_images, dimension, num_classes in ((888, 64, 100), (600, 128, 90), (4500, 64, 660)):
        embeddings_ND, labels_N = mixture(num_images, dimension, num_classes, 1.5)
        (seconds,) = best_seconds([lambda e=embeddings_ND, y=labels_N: compute_metrics(e, y, VALIDATION)], 5)
        what = f"{num_images:,} x {dimension}, {num_classes} classes"
        print(f"one validation ({', '.join(VALIDATION)}; 3 restarts), {what}: {seconds * 1e3:.1f} ms")


def growth() -> None:
    """Time against the number of images: 4 is quadratic."""
    sets = [mixture(num_images, 128, 500, 1.5) for num_images in (2500, 5000, 10_000)]
    seconds = best_seconds([lambda e=e, y=y: compute_metrics(e, y, ["recall@8"]) for e, y in sets], 3)
    print("recall@8, twice the images: " + ", ".join(f"{b / a:.1f}x" for a, b in pairwise(seconds)))


def sop(device: torch.device, num_images: int, num_classes: int) -> None:
    """As large as the test set of SOP; on a GPU twice, to see that the values are the same to the last bit."""
    embeddings_ND, labels_N = (tensor.to(device) for tensor in mixture(num_images, 128, num_classes, 1.5))
    names = ("recall@1", "recall@10", "recall@100", "recall@1000", "map@r", "r-precision", "nmi", "intra", "inter")
    before, found = peak_memory(device), []
    clock = time.process_time if device.type == "cpu" else time.perf_counter  # the machine may be busy with other work
    for part in (names[:6], names[6:]) if device.type == "cpu" else (names[:6], names[6:7], names, names):
        start = clock()
        found.append(compute_metrics(embeddings_ND, labels_N, part, num_restarts=1))
        more = (peak_memory(device) - before) / 2**30
        print(f"{', '.join(part)}: {clock() - start:.1f} s, {more:.2f} GiB on top so far", flush=True)
    print(
        f"{device}, {num_images:,} x 128, {num_classes:,} classes: peak {peak_memory(device) / 2**30:.2f} GiB; {found}"
    )
    if device.type == "cuda":
        print(f"the same twice: {found[-1] == found[-2]}")
    small = [tensor.to(device) for tensor in mixture(888, 64, 100, 1.5)]
    for num_restarts in (1, 3):
        (seconds,) = best_seconds([lambda n=num_restarts: compute_metrics(*small, VALIDATION, num_restarts=n)], 5)
        print(f"one validation, 888 x 64, {num_restarts} restart(s): {seconds * 1e3:.1f} ms")


def peak_memory(device: torch.device) -> int:
    """Bytes: of the GPU, or of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="a tenth of the images, to see that it runs")
    parser.add_argument("--sop", action="store_true", help="the size of SOP's test set instead of the table")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="for --sop")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    num_images, num_classes, repetitions = (1000, 50, 2) if options.quick else (10_000, 500, 5)
    if options.sop:
        return sop(options.device, *((6000, 1100) if options.quick else (60_502, 11_316)))
    with threadpool_limits(options.threads):
        print(f"torch {torch.__version__}, {options.threads} thread(s)\n")
        print("| what | pads | peer | its time | ratio | same |\n|---|--:|---|--:|--:|---|")
        retrieval(num_images, num_classes, repetitions)
        for k in (1, 8, 34):
            neighbours(num_images, k, repetitions)
        for noise in (0.4, 1.5):
            clustering(num_images, 128, num_classes, noise, repetitions)
        clustering(888, 64, 100, 1.5, 10)
        print()
        validation()
        growth()


if __name__ == "__main__":
    main()
