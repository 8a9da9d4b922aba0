import math

import pytest
import torch
from sklearn.metrics.pairwise import cosine_distances

from pads.metrics.spread import inter_class_distance, intra_class_distance

torch.set_num_threads(1)


def naive_intra(embeddings_ND, labels_N):
    means = []
    for label in set(labels_N.tolist()):
        distances = cosine_distances(embeddings_ND[labels_N == label].double())
        if len(distances) > 1:
            means.append(distances.sum() / (len(distances) * (len(distances) - 1)))
    return sum(means) / len(means)


def naive_inter(embeddings_ND, labels_N):
    units_ND = torch.nn.functional.normalize(embeddings_ND.double(), dim=1)
    means = torch.stack([units_ND[labels_N == label].mean(0) for label in set(labels_N.tolist())])
    distances = cosine_distances(means)
    return distances.sum() / (len(distances) * (len(distances) - 1))


@pytest.mark.parametrize("num_classes", [2, 10, 60])
def test_closed_forms_agree_with_loops_over_classes_and_pairs(num_classes):
    generator = torch.Generator().manual_seed(num_classes)
    embeddings_ND = torch.randn(150, 12, generator=generator) + 0.5
    labels_N = torch.randint(0, num_classes, (150,), generator=generator) * 31 - 400  # some with a single image
    expected_intra, expected_inter = naive_intra(embeddings_ND, labels_N), naive_inter(embeddings_ND, labels_N)
    assert intra_class_distance(embeddings_ND, labels_N).item() == pytest.approx(expected_intra, abs=1e-6)
    assert inter_class_distance(embeddings_ND, labels_N).item() == pytest.approx(expected_inter, abs=1e-6)


def test_distances_by_hand():
    # class 0: a right angle, distance 1, mean along the diagonal; class 1: the same twice; class 2: alone, not in intra
    embeddings_ND = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0], [-3.0, 0.0], [0.0, 5.0]])
    labels_N = torch.tensor([0, 0, 1, 1, 2])
    assert intra_class_distance(embeddings_ND, labels_N).item() == pytest.approx((1 + 0) / 2)
    half = math.sqrt(0.5)  # cosines: diagonal and -x: -half, diagonal and y: half, -x and y: 0
    assert inter_class_distance(embeddings_ND, labels_N).item() == pytest.approx(1 - (-half + half + 0) / 3)


def test_without_a_pair_there_is_no_distance():
    assert math.isnan(intra_class_distance(torch.eye(3), torch.arange(3)).item())
    assert math.isnan(inter_class_distance(torch.eye(3), torch.zeros(3).long()).item())
