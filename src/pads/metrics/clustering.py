"""k-means, and how well its clusters agree with the classes (NMI).

N images, D embedding, C clusters or classes, R restarts, L trials per centroid, T = R·L, M centroids that moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from pads.metrics.neighbours import full_precision, nearest
from pads.runtime.graphs import Replayed

SIDE_BY_SIDE = 2**25
"""Restarts x clusters x images up to which restarts run at once on a GPU: a tenth of a gigabyte."""
AT_HAND = 2**22
"""Images x images up to which the distances between all of them are computed beforehand: 2,048 images, 32 megabytes."""


def k_means(embeddings_ND: Tensor, draws_CRL: Tensor, num_iterations: int = 25) -> Tensor:
    """Return assignments_RN by Lloyd's algorithm from greedy k-means++ starts, whose random numbers are `start_draws`."""
    with full_precision(embeddings_ND.device.type):
        starts_RC = _starts(embeddings_ND, draws_CRL)
        if embeddings_ND.is_cuda and starts_RC.numel() * len(embeddings_ND) <= SIDE_BY_SIDE:
            return _lloyd_side_by_side(embeddings_ND, embeddings_ND[starts_RC], num_iterations)
        return torch.stack([_lloyd(embeddings_ND, embeddings_ND[start_C], num_iterations) for start_C in starts_RC])


def _nmi(embeddings_ND: Tensor, labels_N: Tensor, draws_CRL: Tensor) -> Tensor:
    assignments_RN = k_means(embeddings_ND, draws_CRL)
    return normalised_mutual_information(assignments_RN, labels_N.expand_as(assignments_RN)).mean()


# thousands of small kernels: on a GPU, launching them one by one costs ten times as much as running them
nmi_from = Replayed(_nmi)


def start_draws(num_clusters: int, seeds: Sequence[int], device: torch.device) -> Tensor:
    """The random numbers of greedy k-means++, drawn on the CPU, so that a seed means the same on every device."""
    num_trials = 2 + int(math.log(num_clusters))  # L as in scikit-learn
    draws = [torch.rand(num_clusters, num_trials, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(draws, dim=1).to(device)


def normalised_mutual_information(a_N: Tensor, b_N: Tensor) -> Tensor:
    """I(a, b) / mean(H(a), H(b)): 1 if two labellings are the same up to names, 0 if they are independent.

    What is said of two labellings holds for a batch of them too.
    """
    a_N, b_N = class_ids(a_N), class_ids(b_N)
    entropy_a, entropy_b, joint = _entropy(a_N), _entropy(b_N), _entropy(class_ids(a_N * b_N.shape[-1] + b_N))
    total = entropy_a + entropy_b
    # Two labellings of one class each agree.
    return torch.where(total > 0, 2 * (total - joint) / total, 1.0).clamp(0, 1)


def class_ids(labels_N: Tensor) -> Tensor:
    """Labels renamed 0 … C - 1 in their order; torch.unique would wait for the device to learn C."""
    sorted_N, order_N = labels_N.sort(stable=True)
    steps_N = torch.zeros_like(order_N)
    steps_N[..., 1:] = sorted_N[..., 1:] != sorted_N[..., :-1]
    return torch.empty_like(order_N).scatter_(-1, order_N, steps_N.cumsum(-1))


def class_sums(values_ND: Tensor, classes_N: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sums_CD and counts_C of the classes; index_put adds in a fixed order, which index_add does not on a GPU.

    For that it sorts; a product with the 0-1 matrix of who is where is faster there, if it is small.
    """
    if values_ND.is_cuda and num_classes * len(classes_N) <= AT_HAND:
        members_CN = classes_N == torch.arange(num_classes, device=classes_N.device)[:, None]
        with full_precision(values_ND.device.type):
            return members_CN.to(values_ND.dtype) @ values_ND, members_CN.sum(1)
    sums_CD = values_ND.new_zeros(num_classes, values_ND.shape[1]).index_put_((classes_N,), values_ND, accumulate=True)
    counts_C = classes_N.new_zeros(num_classes).index_add_(0, classes_N, torch.ones_like(classes_N))
    return sums_CD, counts_C


def _entropy(classes_N: Tensor) -> Tensor:
    counts_N = torch.zeros_like(classes_N).scatter_add_(-1, classes_N, torch.ones_like(classes_N))
    return torch.special.entr(counts_N / classes_N.shape[-1]).sum(-1)


def _starts(embeddings_ND: Tensor, draws_CRL: Tensor) -> Tensor:
    """Indices_RC by greedy k-means++: of L images drawn by squared distance, the one that leaves the least inertia.

    Arthur and Vassilvitskii 2007, section 7.
    """
    # Scaled so that no squared distance is above 2**40, for _draw.
    longest = embeddings_ND.norm(dim=1).max().clamp(min=torch.finfo(torch.float32).tiny)
    scaled_ND = embeddings_ND / longest * 2**19
    squares_N = scaled_ND.square().sum(1)
    num_images, num_trials = len(embeddings_ND), draws_CRL[:, 0].numel()
    # By the trials of one restart: how many others run beside it makes no difference to it.
    if num_images <= 4 * num_trials and num_images**2 <= AT_HAND:
        return _starts_at_hand(_distances(scaled_ND, squares_N, slice(None)), draws_CRL)
    closest_RN = torch.full((draws_CRL.shape[1], num_images), 2.0**40, device=embeddings_ND.device)
    starts_CR = []
    for draws_RL in draws_CRL:
        trials_RL = _draw(closest_RN, draws_RL)
        distances_TN = _distances(scaled_ND, squares_N, trials_RL.flatten())
        left_RLN = torch.minimum(distances_TN.unflatten(0, trials_RL.shape), closest_RN[:, None])
        best_R1 = left_RLN.sum(2).argmin(1, keepdim=True)
        closest_RN = left_RLN.take_along_dim(best_R1[:, :, None], dim=1).squeeze(1)
        starts_CR.append(trials_RL.gather(1, best_R1).squeeze(1))
    return torch.stack(starts_CR, dim=1)


def _starts_at_hand(distances_NN: Tensor, draws_CRL: Tensor) -> Tensor:
    """The same with half the kernels, of which each waits for the one before: where few images are tried often.

    Distances are cut to whole numbers as in _draw, once for all, in float64, which adds them up exactly in any order.
    """
    num_images, num_restarts = len(distances_NN), draws_CRL.shape[1]
    # Once every image is a start, or lies on one, a draw finds a place behind the last: a row more, which is the last again.
    distances_NN = torch.cat([distances_NN, distances_NN[-1:]]).double().floor_()
    closest_RN = distances_NN.new_full((num_restarts, num_images), 2.0**40)
    total_R1 = closest_RN.sum(1, keepdim=True)
    trials_CRL, best_CR1 = [], []
    for draws_RL in draws_CRL.double():
        trials_RL = torch.searchsorted(closest_RN.cumsum(1), draws_RL * total_R1, right=True)
        left_RLN = torch.minimum(distances_NN[trials_RL], closest_RN[:, None])
        total_R1, best_R1 = left_RLN.sum(2).min(1, keepdim=True)
        closest_RN = left_RLN.gather(1, best_R1[:, :, None].expand(-1, -1, num_images)).squeeze(1)
        trials_CRL.append(trials_RL)
        best_CR1.append(best_R1)
    starts_RC1 = torch.stack(trials_CRL, dim=1).gather(2, torch.stack(best_CR1, dim=1))
    return starts_RC1.squeeze(2).clamp(max=num_images - 1)


def _distances(scaled_ND: Tensor, squares_N: Tensor, rows: Tensor | slice) -> Tensor:
    """The squared distances of these images to all."""
    products_TN = torch.addmm(squares_N, scaled_ND[rows], scaled_ND.T, alpha=-2)
    return products_TN.add_(squares_N[rows, None]).clamp_(min=0)


def _draw(weights_RN: Tensor, draws_RL: Tensor) -> Tensor:
    """Indices_RL in proportion to the weights, which are cut to whole numbers: a GPU adds up floats in any order."""
    heights_RN = weights_RN.long().cumsum(1)
    targets_RL = (draws_RL * heights_RN[:, -1:]).long()
    return torch.searchsorted(heights_RN, targets_RL, right=True).clamp_(max=weights_RN.shape[1] - 1)


def _lloyd(embeddings_ND: Tensor, centroids_CD: Tensor, num_iterations: int) -> Tensor:
    assignments_N1, scores_N1 = nearest(embeddings_ND, centroids_CD, 1)
    for _ in range(num_iterations - 1):
        sums_CD, counts_C = class_sums(embeddings_ND, assignments_N1.squeeze(1), len(centroids_CD))
        # A cluster that lost its last image keeps its place, from where it may win some back.
        means_CD = torch.where(counts_C[:, None] > 0, sums_CD / counts_C[:, None].clamp(min=1), centroids_CD)
        if embeddings_ND.device.type == "cpu":  # elsewhere, asking what moved would cost more than it spares
            moved_M = (means_CD != centroids_CD).any(1).nonzero().squeeze(1)
            if not len(moved_M):
                break
            assignments_N1, scores_N1 = _reassign(embeddings_ND, means_CD, moved_M, assignments_N1, scores_N1)
        else:
            assignments_N1, scores_N1 = nearest(embeddings_ND, means_CD, 1)
        centroids_CD = means_CD
    return assignments_N1.squeeze(1)


def _lloyd_side_by_side(embeddings_ND: Tensor, centroids_RCD: Tensor, num_iterations: int) -> Tensor:
    """Assignments_RN of every restart at once. Sums are a product with the 0-1 matrix of who is where: few kernels."""
    num_restarts, num_clusters, _ = centroids_RCD.shape
    images_RND = embeddings_ND.expand(num_restarts, -1, -1)
    counted_RND = F.pad(images_RND, (0, 1), value=1.0)  # a last column of ones, which counts the members
    clusters_C1 = torch.arange(num_clusters, device=embeddings_ND.device)[:, None]
    for iteration in range(num_iterations):
        squares_R1C = centroids_RCD.square().sum(2)[:, None]
        assignments_RN = torch.baddbmm(squares_R1C, images_RND, centroids_RCD.mT, beta=-0.5).argmax(2)
        if iteration < num_iterations - 1:
            sums_RCD = (assignments_RN[:, None] == clusters_C1).float() @ counted_RND
            counts_RC1 = sums_RCD[:, :, -1:]
            # an empty cluster keeps its place
            centroids_RCD = torch.where(counts_RC1 > 0, sums_RCD[:, :, :-1] / counts_RC1, centroids_RCD)
    return assignments_RN


def _reassign(
    embeddings_ND: Tensor, centroids_CD: Tensor, moved_M: Tensor, assignments_N1: Tensor, scores_N1: Tensor
) -> tuple[Tensor, Tensor]:
    """What `nearest` would say, sooner: an image whose centroid stayed can only be won by a centroid that moved."""
    if 2 * len(moved_M) > len(centroids_CD):
        return nearest(embeddings_ND, centroids_CD, 1)
    rivals_N1, rival_scores_N1 = nearest(embeddings_ND, centroids_CD[moved_M], 1)
    wins_N1 = rival_scores_N1 > scores_N1
    unsettled = torch.isin(assignments_N1.squeeze(1), moved_M).nonzero().squeeze(1)
    assignments_N1 = torch.where(wins_N1, moved_M[rivals_N1], assignments_N1)
    scores_N1 = torch.where(wins_N1, rival_scores_N1, scores_N1)
    assignments_N1[unsettled], scores_N1[unsettled] = nearest(embeddings_ND[unsettled], centroids_CD, 1)
    return assignments_N1, scores_N1
