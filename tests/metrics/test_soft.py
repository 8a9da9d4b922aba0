import math

import pytest
import torch

from pads.metrics import compute_metrics, soft
from pads.metrics.soft import soft_recall


def naive(embeddings, labels):
    points = embeddings.double().tolist()
    squared = [[math.dist(a, b) ** 2 for b in points] for a in points]
    num = len(points)
    width = sum(min(squared[i][j] for j in range(num) if j != i) for i in range(num)) / num / 4
    total = 0.0
    for i in range(num):
        weights = [math.exp(-squared[i][j] / width) if j != i else 0.0 for j in range(num)]
        total += sum(w for w, label in zip(weights, labels, strict=True) if label == labels[i]) / sum(weights)
    return total / num


@pytest.fixture
def cloud(generator):
    labels = torch.arange(5).repeat_interleave(6)
    centres = torch.randn(5, 8, generator=generator)
    return centres[labels] + torch.randn(30, 8, generator=generator), labels


def test_soft_recall_is_what_a_loop_finds(cloud):
    assert soft_recall(*cloud).item() == pytest.approx(naive(*cloud), abs=1e-5)


def test_soft_recall_does_not_depend_on_chunks(cloud, monkeypatch):
    whole = soft_recall(*cloud)
    monkeypatch.setattr(soft, "CHUNK", 70)
    assert soft_recall(*cloud).item() == pytest.approx(whole.item(), abs=1e-6)


def test_soft_recall_does_not_depend_on_scale(cloud):
    embeddings, labels = cloud
    assert soft_recall(embeddings * 37, labels).item() == pytest.approx(
        soft_recall(embeddings, labels).item(), abs=1e-5
    )


def test_soft_recall_is_1_for_classes_far_apart_and_chance_for_labels_at_random(cloud, generator):
    _, labels = cloud
    apart = 1000 * torch.eye(5)[labels] + torch.rand(30, 5, generator=generator)
    assert soft_recall(apart, labels).item() == pytest.approx(1)
    noise = torch.randn(600, 4, generator=generator)
    assert soft_recall(noise, torch.arange(600) % 10).item() == pytest.approx(0.1, abs=0.03)


def test_a_step_along_its_gradient_raises_it(cloud):
    embeddings, labels = cloud
    embeddings.requires_grad_()
    before = soft_recall(embeddings, labels)
    before.backward()
    assert soft_recall(embeddings.detach() + 0.1 * embeddings.grad, labels) > before


def test_images_that_all_lie_in_one_point_give_chance():
    labels = torch.arange(4).repeat(2)
    assert soft_recall(torch.ones(8, 3), labels).item() == pytest.approx(1 / 7)


def test_it_is_a_metric_by_name(cloud):
    assert compute_metrics(*cloud, ["soft-recall"])["soft-recall"] == pytest.approx(soft_recall(*cloud).item())


def test_the_gradient_does_not_ask_for_another_scale(cloud):
    embeddings, labels = cloud
    embeddings.requires_grad_()
    (gradient,) = torch.autograd.grad(soft_recall(embeddings, labels), embeddings)
    assert (gradient * embeddings).sum().abs() < 1e-4 * gradient.norm() * embeddings.norm()
