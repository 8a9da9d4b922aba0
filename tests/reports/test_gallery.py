"""Average precision, the good and the bad, the confused: against naive loops over all pairs."""

import numpy as np
import pytest
import torch

from pads.reports.gallery import average_precisions, find_confused_classes, good_and_bad, retrieve


def example(seed, num_images=40, num_classes=6, flags=False):
    generator = torch.Generator().manual_seed(seed)
    labels_N = torch.cat(
        [torch.arange(num_classes), torch.randint(num_classes, (num_images - num_classes,), generator=generator)]
    )
    centres = torch.randn(num_classes, 5, generator=generator)
    embeddings_ND = centres[labels_N] + 0.9 * torch.randn(num_images, 5, generator=generator)
    embeddings_ND = torch.nn.functional.normalize(embeddings_ND, dim=1)
    is_query_N = torch.rand(num_images, generator=generator) < 0.6 if flags else None
    is_gallery_N = torch.rand(num_images, generator=generator) < 0.7 if flags else None
    return embeddings_ND, labels_N, is_query_N, is_gallery_N


def naive(embeddings_ND, labels_N, is_query_N=None, is_gallery_N=None):
    """{query: (its gallery, nearest first, average precision among the R nearest)}."""
    vectors, labels = embeddings_ND.double().tolist(), labels_N.tolist()
    queries = range(len(labels)) if is_query_N is None else is_query_N.nonzero().squeeze(1).tolist()
    gallery = range(len(labels)) if is_gallery_N is None else is_gallery_N.nonzero().squeeze(1).tolist()
    made = {}
    for query in queries:
        others = [image for image in gallery if image != query]
        others.sort(
            key=lambda image, q=query: sum((a - b) ** 2 for a, b in zip(vectors[q], vectors[image], strict=True))
        )
        relevant = sum(labels[image] == labels[query] for image in others)
        hits, total = 0, 0.0
        for rank, image in enumerate(others[:relevant], start=1):
            if labels[image] == labels[query]:
                hits += 1
                total += hits / rank
        made[query] = (others, total / relevant if relevant else float("nan"))
    return made


@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_and_average_precisions_are_those_of_a_naive_search(seed, flags):
    given = example(seed, flags=flags)
    found, expected = retrieve(*given), naive(*given)
    assert found.queries_Q.tolist() == list(expected)
    for row, (others, precision) in enumerate(expected.values()):
        width = found.neighbours_QK.shape[1]
        assert found.neighbours_QK[row].tolist() == others[:width]
        assert found.precisions_Q[row] == pytest.approx(precision, nan_ok=True)
        query = given[0][found.queries_Q[row]]
        assert found.distances_QK[row, 0] == pytest.approx((query - given[0][others[0]]).norm().item(), abs=1e-5)


def test_a_query_with_nothing_to_find_has_no_average_precision():
    assert np.isnan(average_precisions(np.zeros((1, 3), bool), np.array([0]))).all()


def test_average_precision_by_hand():
    matches = np.array([[True, False, True, True], [False, True, True, False]])
    assert average_precisions(matches, np.array([3, 2])) == pytest.approx([(1 + 2 / 3) / 3, (1 / 2) / 2])


@pytest.mark.parametrize("seed", range(3))
def test_good_and_bad_queries_are_the_ends_of_the_ranking_one_of_each_class(seed):
    embeddings_ND, labels_N, *_ = example(seed)
    found, labels = retrieve(embeddings_ND, labels_N), labels_N.numpy()
    good, bad = good_and_bad(found, labels, most=3)
    precisions = found.precisions_Q
    for rows in (good, bad):
        assert len({labels[found.queries_Q[row]] for row in rows}) == len(rows) == 3
    assert precisions[good[0]] == np.nanmax(precisions)
    assert precisions[bad[0]] == np.nanmin(precisions)
    assert [precisions[row] for row in good] == sorted((precisions[row] for row in good), reverse=True)
    assert [precisions[row] for row in bad] == sorted(precisions[row] for row in bad)
    assert not set(good) & set(bad)


def test_a_perfect_embedding_has_no_bad_queries_and_confuses_nothing():
    labels_N = torch.arange(4).repeat_interleave(3)
    found = retrieve(torch.eye(4)[labels_N], labels_N)
    good, bad = good_and_bad(found, labels_N.numpy())
    assert (len(good), bad) == (4, [])
    assert find_confused_classes(found, labels_N.numpy()) == []


@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_confused_classes_are_those_of_a_naive_count(seed, flags):
    given = example(seed, flags=flags)
    labels = given[1].tolist()
    wrong, places, nearest = {}, dict.fromkeys(labels, 0), {}
    for query, (others, _) in naive(*given).items():
        relevant = sum(labels[image] == labels[query] for image in others)
        places[labels[query]] += relevant
        for image in others[:relevant]:
            if labels[image] != labels[query]:
                pair = tuple(sorted((labels[query], labels[image])))
                wrong[pair] = wrong.get(pair, 0) + 1
                distance = (given[0][query] - given[0][image]).norm().item()
                nearest[pair] = min(nearest.get(pair, (9.0, 0, 0)), (distance, query, image))
    shares = {pair: count / (places[pair[0]] + places[pair[1]]) for pair, count in wrong.items()}
    made = find_confused_classes(retrieve(*given), np.array(labels), most=5)
    assert [pair.share for pair in made] == pytest.approx(sorted(shares.values(), reverse=True)[:5])
    for pair in made:
        assert pair.share == pytest.approx(shares[pair.first, pair.second])
        assert pair.first < pair.second
        assert {labels[pair.query], labels[pair.found]} == {pair.first, pair.second}
        distance = (given[0][pair.query] - given[0][pair.found]).norm().item()
        assert distance == pytest.approx(nearest[pair.first, pair.second][0], abs=1e-5)


def test_a_class_may_have_no_query_at_all():
    embeddings_ND, labels_N, *_ = example(0)
    is_query_N = labels_N != 2
    made = find_confused_classes(retrieve(embeddings_ND, labels_N, is_query_N), labels_N.numpy())
    assert all(0 < pair.share <= 1 for pair in made)
