"""Evaluation looks and does not touch: modes, statistics and random state are afterwards what they were before."""

import pytest
import torch
from torch import nn

from pads import UserError, compute_metrics, evaluate
from pads.evaluate import REPORTED, embed, raw_pixels
from pads.networks import EmbeddingNetwork, use_seed
from pads.networks.small import SmallNetwork


def network(**options):
    with use_seed(0):
        return EmbeddingNetwork(SmallNetwork(width=8), 6, **options)


@pytest.fixture
def batches(generator):
    """30 pictures of 6 classes, in batches of unequal size."""
    labels = torch.arange(30) % 6
    images = torch.randn(6, 3, 16, 16, generator=generator)[labels] + torch.randn(30, 3, 16, 16, generator=generator)
    return list(zip(images.split([13, 7, 10]), labels.split([13, 7, 10]), strict=True))


class Split(list):
    """Batches that are divided into queries and gallery."""

    def __init__(self, batches, is_query_N, is_gallery_N):
        super().__init__(batches)
        self.is_query_N, self.is_gallery_N = is_query_N, is_gallery_N


def test_the_metrics_are_those_of_the_embeddings_of_all_batches_together(batches):
    net = network().eval()
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    with torch.no_grad():
        embeddings = net(images)
    found = evaluate(net, batches)
    assert found == pytest.approx(compute_metrics(embeddings, labels, REPORTED), abs=1e-5)
    assert list(found) == list(REPORTED)
    assert list(evaluate(net, batches, ("nmi", "recall@2"))) == ["nmi", "recall@2"]


def test_embeddings_and_labels_come_in_the_order_of_the_images(batches):
    embeddings, labels = embed(raw_pixels, batches)
    assert torch.equal(labels, torch.cat([labels_B for _, labels_B in batches]))
    expected = torch.cat([images for images, _ in batches]).flatten(1)
    torch.testing.assert_close(embeddings, expected / expected.norm(dim=1, keepdim=True))


def test_the_options_of_the_metrics_are_handed_on(batches):
    found = [evaluate(raw_pixels, batches, ("nmi",), seed=seed, num_restarts=1)["nmi"] for seed in range(8)]
    embeddings, labels = embed(raw_pixels, batches)
    assert found == [compute_metrics(embeddings, labels, ("nmi",), seed=s, num_restarts=1)["nmi"] for s in range(8)]
    assert len(set(found)) > 1


# -- nothing is touched ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("training", "frozen"), [(True, True), (True, False), (False, True), (False, False)])
def test_the_mode_is_afterwards_what_it_was(batches, training, frozen):
    net = network(frozen_batch_norm=frozen).train(training)
    before = [module.training for module in net.modules()]
    evaluate(net, batches, ("recall@1",))
    assert [module.training for module in net.modules()] == before
    assert net.training == training


def test_a_part_that_somebody_froze_by_hand_stays_frozen(batches):
    net = network().train()
    net.backbone.bn1.eval()
    evaluate(net, batches, ("recall@1",))
    assert net.training
    assert net.backbone.blocks.training
    assert not net.backbone.bn1.training


def test_the_mode_is_put_back_also_if_an_image_fails(batches):
    net = network().train()
    with pytest.raises(RuntimeError):
        evaluate(net, [*batches, (torch.zeros(1, 9, 16, 16), torch.zeros(1))], ("recall@1",))
    assert net.training
    assert net.backbone.bn1.training


@pytest.mark.parametrize("training", [True, False])
def test_no_statistic_weight_or_random_state_changes(batches, training):
    net = nn.Sequential(network(), nn.Dropout(0.5)).train(training)
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    random_state = torch.get_rng_state()
    evaluate(net, batches)
    assert all(torch.equal(before[key], tensor) for key, tensor in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_a_network_in_training_is_measured_as_it_is_in_evaluation(batches):
    """Batch norm by the batch or by its statistics, dropout or none: what is deployed is the latter."""
    net = nn.Sequential(network(), nn.Dropout(0.5))
    in_training, in_evaluation = evaluate(net.train(), batches), evaluate(net.eval(), batches)
    assert in_training == in_evaluation


def test_no_gradient_is_kept_and_learning_goes_on_afterwards(batches):
    net = network().train()
    embeddings, _ = embed(net, batches)
    assert not embeddings.requires_grad
    net(batches[0][0])[:, 0].sum().backward()
    assert net.embedding.weight.grad.abs().sum() > 0


# -- little or nothing to do -------------------------------------------------------------------------------------------


def test_nothing_asked_is_answered_without_work():
    def never(images):
        raise AssertionError("nobody asked")

    def no_batches():
        raise AssertionError("nobody asked")
        yield

    assert evaluate(never, no_batches(), ()) == {}
    assert evaluate(never, no_batches(), []) == {}


def test_no_images_are_refused_in_one_sentence():
    with pytest.raises(UserError, match="there is no image to evaluate"):
        evaluate(raw_pixels, [], ("recall@1",))


# -- queries and gallery -----------------------------------------------------------------------------------------------


def test_queries_are_searched_in_the_gallery_that_the_split_names(generator):
    batches = [(torch.randn(10, 3, 4, 4, generator=generator), torch.arange(10) % 2) for _ in range(3)]
    is_query_N = torch.arange(30) < 12
    split = Split(batches, is_query_N, ~is_query_N)
    embeddings, labels = embed(raw_pixels, batches)
    found = evaluate(raw_pixels, split, ("recall@1", "map@r"))
    hits = []
    for query in range(12):
        distances = (embeddings[12:] - embeddings[query]).norm(dim=1)
        hits.append(bool(labels[12:][distances.argmin()] == labels[query]))
    assert 0 < sum(hits) < 12  # else everything would be right
    assert found["recall@1"] == pytest.approx(sum(hits) / 12)
    assert found != evaluate(raw_pixels, batches, ("recall@1", "map@r"))


def test_a_split_whose_flags_are_none_is_searched_among_itself(batches):
    assert evaluate(raw_pixels, Split(batches, None, None)) == evaluate(raw_pixels, batches)
