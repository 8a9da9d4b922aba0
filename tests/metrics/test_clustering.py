import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from pads.metrics.clustering import (
    class_ids,
    class_sums,
    k_means,
    nmi_from,
    normalised_mutual_information,
    start_draws,
)

torch.set_num_threads(1)


def mixture(num_images, dimension, num_classes, noise, seed=0):
    """Unit vectors around random directions; the larger the noise, the more the classes overlap."""
    generator = torch.Generator().manual_seed(seed)
    labels_N = torch.randint(0, num_classes, (num_images,), generator=generator)
    centres_CD = torch.randn(num_classes, dimension, generator=generator)
    embeddings_ND = centres_CD[labels_N] + noise * torch.randn(num_images, dimension, generator=generator)
    return torch.nn.functional.normalize(embeddings_ND, dim=1), labels_N


def draws(num_clusters, seeds):
    return start_draws(num_clusters, seeds, torch.device("cpu"))


def cluster(embeddings_ND, num_clusters, seed, **options):
    return k_means(embeddings_ND, draws(num_clusters, [seed]), **options)[0]


def inertia(embeddings_ND, assignments_N):
    sums_CD, counts_C = class_sums(embeddings_ND, assignments_N, int(assignments_N.max()) + 1)
    means_CD = sums_CD / counts_C[:, None].clamp(min=1)
    return (embeddings_ND - means_CD[assignments_N]).square().sum().item()


# NMI


@pytest.mark.parametrize("num_a, num_b", [(1, 5), (3, 3), (40, 7), (200, 200)])
def test_nmi_of_two_labellings_is_scikit_learns(num_a, num_b):
    generator = torch.Generator().manual_seed(num_a)
    a_N = torch.randint(0, num_a, (300,), generator=generator)
    b_N = torch.where(torch.rand(300, generator=generator) < 0.5, a_N % num_b, num_b - 1)
    expected = normalized_mutual_info_score(a_N, b_N, average_method="arithmetic")
    assert normalised_mutual_information(a_N, b_N).item() == pytest.approx(expected, abs=2e-6)
    assert normalised_mutual_information(b_N, a_N).item() == pytest.approx(expected, abs=2e-6)


def test_nmi_of_a_batch_of_labellings_is_that_of_each():
    labels_RN = torch.randint(0, 6, (4, 50), generator=torch.Generator().manual_seed(0))
    others_RN = torch.where(torch.arange(50) % 2 == 0, labels_RN, labels_RN.flip(0))
    together_R = normalised_mutual_information(labels_RN, others_RN)
    alone_R = torch.stack(
        [normalised_mutual_information(a_N, b_N) for a_N, b_N in zip(labels_RN, others_RN, strict=True)]
    )
    torch.testing.assert_close(together_R, alone_R)
    assert torch.equal(class_ids(labels_RN), torch.stack([class_ids(a_N) for a_N in labels_RN]))


def test_nmi_by_hand():
    # a splits in halves (1 bit), b in quarters (2 bits), a is known from b: I = 1 bit, mean entropy 1.5 bits
    a_N, b_N = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 3])
    assert normalised_mutual_information(a_N, b_N).item() == pytest.approx(1 / 1.5)


def test_nmi_ignores_the_names_of_the_labels():
    a_N = torch.tensor([5, 5, -3, 2**62, 2**62, -3, 5])
    assert normalised_mutual_information(a_N, class_ids(a_N) * 1000 - 17).item() == 1
    assert normalised_mutual_information(torch.zeros(4).long(), torch.ones(4).long()).item() == 1
    assert normalised_mutual_information(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])).item() == 0


def test_class_ids_are_the_inverse_of_unique():
    labels_N = torch.tensor([7, -2, 7, 2**60, 0, -2])
    assert torch.equal(class_ids(labels_N), labels_N.unique(return_inverse=True)[1])


def test_class_sums_agree_with_a_loop():
    embeddings_ND, labels_N = mixture(100, 8, 6, 1.0)
    sums_CD, counts_C = class_sums(embeddings_ND, labels_N, 7)
    for label in range(7):
        torch.testing.assert_close(sums_CD[label], embeddings_ND[labels_N == label].sum(0))
        assert counts_C[label] == (labels_N == label).sum()


# k-means


@pytest.mark.parametrize(
    "num_images, dimension, num_classes, noise",
    [(2000, 32, 50, 0.2), (900, 64, 100, 0.5), (900, 64, 100, 2.0)],
    ids=["blobs", "many small blobs", "overlapping"],
)
def test_k_means_is_as_good_as_scikit_learns(num_images, dimension, num_classes, noise):
    embeddings_ND, labels_N = mixture(num_images, dimension, num_classes, noise)
    ours = nmi_from(embeddings_ND, labels_N, draws(num_classes, range(40))).item()
    theirs = [
        normalized_mutual_info_score(
            labels_N, KMeans(num_classes, n_init=1, max_iter=25, tol=0, random_state=seed).fit_predict(embeddings_ND)
        )
        for seed in range(40)
    ]
    assert ours == pytest.approx(sum(theirs) / len(theirs), abs=0.005)


def test_k_means_leaves_no_more_inertia_than_scikit_learns():
    embeddings_ND, _ = mixture(1000, 16, 30, 1.0)
    ours = [inertia(embeddings_ND, cluster(embeddings_ND, 30, seed)) for seed in range(8)]
    theirs = [
        KMeans(30, n_init=1, max_iter=25, tol=0, random_state=seed).fit(embeddings_ND).inertia_ for seed in range(8)
    ]
    assert sum(ours) <= 1.02 * sum(theirs)


def test_more_iterations_never_raise_the_inertia():
    embeddings_ND, _ = mixture(500, 8, 20, 3.0)
    steps = [inertia(embeddings_ND, cluster(embeddings_ND, 20, 0, num_iterations=i)) for i in (1, 2, 4, 8, 100)]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < 0.95 * steps[0]


def test_at_convergence_every_image_is_in_the_cluster_with_the_nearest_mean():
    embeddings_ND, _ = mixture(500, 8, 20, 3.0)
    assignments_N = cluster(embeddings_ND, 20, 0, num_iterations=1000)
    sums_CD, counts_C = class_sums(embeddings_ND, assignments_N, 20)
    assert torch.equal(torch.cdist(embeddings_ND, sums_CD / counts_C[:, None]).argmin(1), assignments_N)


def test_a_seed_says_everything():
    embeddings_ND, _ = mixture(600, 32, 40, 1.5)
    torch.manual_seed(1)
    first = cluster(embeddings_ND, 40, 3)
    torch.manual_seed(2)
    assert torch.equal(cluster(embeddings_ND, 40, 3), first)
    assert not torch.equal(cluster(embeddings_ND, 40, 4), first)


def test_k_means_does_not_touch_the_global_random_state():
    before = torch.get_rng_state()
    cluster(mixture(50, 4, 5, 1.0)[0], 5, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_restarts_are_the_runs_of_their_seeds():
    embeddings_ND, labels_N = mixture(400, 16, 20, 1.5)
    together = k_means(embeddings_ND, draws(20, [5, 6, 7]))
    alone = [cluster(embeddings_ND, 20, seed) for seed in (5, 6, 7)]
    assert [a.tolist() for a in together] == [a.tolist() for a in alone]
    values = [normalised_mutual_information(a, labels_N).item() for a in alone]
    assert nmi_from(embeddings_ND, labels_N, draws(20, [5, 6, 7])).item() == pytest.approx(sum(values) / 3)


def test_restarts_side_by_side_are_the_restarts_one_by_one():
    """On a GPU all restarts take each step together."""
    from pads.metrics.clustering import _lloyd, _lloyd_side_by_side, _starts

    embeddings_ND, _ = mixture(300, 8, 12, 1.0)
    centroids_RCD = embeddings_ND[_starts(embeddings_ND, draws(12, [0, 1, 2]))]
    centroids_RCD[1, 3] = 100.0  # far from everything: it wins no image and keeps its place
    together_RN = _lloyd_side_by_side(embeddings_ND, centroids_RCD, 15)
    alone_RN = torch.stack([_lloyd(embeddings_ND, centroids_CD, 15) for centroids_CD in centroids_RCD])
    assert torch.equal(together_RN, alone_RN)
    assert 3 not in together_RN[1]


@pytest.mark.parametrize("at_hand", [True, False], ids=["all distances at hand", "row by row"])
@pytest.mark.parametrize("num_images, num_classes, noise", [(90, 10, 0.3), (90, 10, 3.0), (40, 40, 1.0), (12, 1, 1.0)])
def test_starts_are_those_of_a_loop_in_whole_numbers(monkeypatch, at_hand, num_images, num_classes, noise):
    from pads.metrics import clustering

    monkeypatch.setattr(clustering, "AT_HAND", num_images**2 if at_hand else 0)
    embeddings_ND, _ = mixture(num_images, 8, num_classes, noise)
    draws_CRL = draws(num_classes, [0, 1, 2])
    starts_RC = clustering._starts(embeddings_ND, draws_CRL)
    scaled_ND = (embeddings_ND / embeddings_ND.norm(dim=1).max()).double() * 2**19
    distances = (scaled_ND[:, None] - scaled_ND).square().sum(2).long().tolist()
    for restart in range(3):
        assert starts_RC[restart].tolist() == starts_by_hand(distances, draws_CRL[:, restart].tolist())


def starts_by_hand(distances, draws_CL):
    closest, starts = [2**40] * len(distances), []
    for draws_L in draws_CL:
        trials = []
        for draw in draws_L:
            target, at = draw * sum(closest), 0
            while at < len(closest) - 1 and sum(closest[: at + 1]) <= target:
                at += 1
            trials.append(at)
        left = {at: list(map(min, distances[at], closest)) for at in trials}
        starts.append(min(trials, key=lambda at: sum(left[at])))
        closest = left[starts[-1]]
    return starts


def test_starts_do_not_depend_on_where_the_distances_come_from(monkeypatch):
    from pads.metrics import clustering

    embeddings_ND, _ = mixture(800, 32, 100, 1.0)
    draws_CRL = draws(100, range(4))
    beforehand_RC = clustering._starts(embeddings_ND, draws_CRL)
    monkeypatch.setattr(clustering, "AT_HAND", 0)
    assert torch.equal(clustering._starts(embeddings_ND, draws_CRL), beforehand_RC)


def test_starts_spread_over_well_separated_groups():
    centres_CD = 100 * torch.eye(12)
    embeddings_ND = centres_CD.repeat(10, 1) + 0.01 * torch.randn(120, 12, generator=torch.Generator().manual_seed(0))
    for seed in range(5):
        assert nmi_from(embeddings_ND, torch.arange(120) % 12, draws(12, [seed])).item() == 1


def test_fewer_different_images_than_clusters_leave_clusters_empty():
    embeddings_ND = torch.eye(3).repeat(5, 1)
    assignments_N = cluster(embeddings_ND, 10, 0)
    assert normalised_mutual_information(assignments_N, torch.arange(15) % 3) == 1
    assert torch.equal(cluster(torch.ones(6, 4), 3, 0), torch.zeros(6).long())


def test_a_cluster_that_lost_its_images_keeps_its_place():
    from pads.metrics.clustering import _lloyd

    embeddings_ND = torch.tensor([[0.0], [1.0], [10.0]])
    assignments_N = _lloyd(embeddings_ND, torch.tensor([[0.0], [-100.0], [10.0]]), 5)
    assert assignments_N.tolist() == [0, 0, 2]


@pytest.mark.parametrize("num_moved", [1, 25, 55])
def test_reassigning_what_moved_is_assigning_everything(num_moved):
    from pads.metrics.clustering import _reassign
    from pads.metrics.neighbours import nearest

    embeddings_ND, _ = mixture(800, 8, 40, 2.0)
    generator = torch.Generator().manual_seed(0)
    before_CD = embeddings_ND[torch.randperm(800, generator=generator)[:60]]
    moved_M = torch.randperm(60, generator=generator)[:num_moved].sort().values
    after_CD = before_CD.index_copy(0, moved_M, embeddings_ND[:num_moved])
    found_N1, scores_N1 = _reassign(embeddings_ND, after_CD, moved_M, *nearest(embeddings_ND, before_CD, 1))
    expected_N1, expected_scores_N1 = nearest(embeddings_ND, after_CD, 1)
    assert torch.equal(found_N1, expected_N1)
    torch.testing.assert_close(scores_N1, expected_scores_N1)


def test_trials_are_drawn_in_proportion_to_the_weights():
    from pads.metrics.clustering import _draw

    weights_RN = torch.tensor([[0.0, 1.0, 3.0, 0.0, 4.0, 0.0]]) * 2**37
    draws_RL = (torch.arange(8000)[None] + 0.5) / 8000
    counts = torch.bincount(_draw(weights_RN, draws_RL)[0], minlength=6)
    assert counts.tolist() == pytest.approx([0, 1000, 3000, 0, 4000, 0], abs=1)
    assert _draw(weights_RN, torch.zeros(1, 1)).item() == 1  # never an image with weight 0


def test_as_many_clusters_as_images_and_one_cluster_are_possible():
    embeddings_ND, _ = mixture(20, 4, 5, 1.0)
    assert cluster(embeddings_ND, 20, 0).unique().tolist() == list(range(20))
    assert cluster(embeddings_ND, 1, 0).tolist() == [0] * 20
