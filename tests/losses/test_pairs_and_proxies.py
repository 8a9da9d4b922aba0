"""Losses over pairs and over proxies against pytorch-metric-learning: values and gradients."""

import pytest
import torch
from pytorch_metric_learning import losses, miners

from pads.losses import ContrastiveLoss, MultiSimilarityLoss, NormalisedSoftmaxLoss, ProxyAnchorLoss

SHAPES = [(8, 2, 16), (5, 4, 32), (3, 7, 8), (28, 2, 128)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
TOLERANCE = 1e-5


def random_batch(shape, spread=1.0):
    """Classes x samples on the sphere, classes near enough to each other for every kind of pair to be there."""
    num_classes, num_samples, dim = shape
    generator = torch.Generator().manual_seed(sum(shape))
    centres = torch.randn(num_classes, 1, dim, generator=generator)
    rows = centres + spread * torch.randn(num_classes, num_samples, dim, generator=generator)
    labels = torch.arange(num_classes).repeat_interleave(num_samples)
    order = torch.randperm(len(labels), generator=generator)
    return torch.nn.functional.normalize(rows.flatten(0, 1), dim=1)[order], labels[order]


def value_and_gradient(loss_fn, embeddings, *arguments):
    embeddings = embeddings.clone().requires_grad_()
    loss = loss_fn(embeddings, *arguments)
    loss.backward()
    return loss.detach(), embeddings.grad


def assert_agree(ours, theirs, embeddings, labels, tuples=None):
    found, gradient = value_and_gradient(ours, embeddings, labels, None)
    expected, their_gradient = value_and_gradient(theirs, embeddings, labels, tuples)
    assert found > 0
    assert (found - expected).abs() < TOLERANCE
    assert (gradient - their_gradient).abs().max() < TOLERANCE


@every_shape
@pytest.mark.parametrize("options", [{}, {"alpha": 1.0, "beta": 40.0, "base": 0.3}])
def test_multi_similarity_over_all_pairs(shape, options):
    assert_agree(MultiSimilarityLoss(**options), losses.MultiSimilarityLoss(**options), *random_batch(shape))


@every_shape
@pytest.mark.parametrize("epsilon", [0.1, 0.0, -0.05])
def test_multi_similarity_over_mined_pairs(shape, epsilon):
    embeddings, labels = random_batch(shape, spread=2.0)
    tuples = miners.MultiSimilarityMiner(epsilon=epsilon)(embeddings, labels)
    ours, plain = MultiSimilarityLoss(epsilon=epsilon), MultiSimilarityLoss()
    assert_agree(ours, losses.MultiSimilarityLoss(), embeddings, labels, tuples)
    if epsilon <= 0:  # pairs were left out at all
        assert ours(embeddings, labels) < plain(embeddings, labels)


def test_multi_similarity_mines_nothing_for_an_anchor_without_a_positive():
    embeddings, labels = random_batch((6, 1, 8))
    assert MultiSimilarityLoss(epsilon=0.1)(embeddings, labels) == 0
    assert MultiSimilarityLoss()(embeddings, labels) > 0


@every_shape
@pytest.mark.parametrize("margins", [(0.0, 1.0), (0.0, 0.5), (0.3, 1.2)])
def test_contrastive(shape, margins):
    theirs = losses.ContrastiveLoss(pos_margin=margins[0], neg_margin=margins[1])
    assert_agree(ContrastiveLoss(*margins), theirs, *random_batch(shape))


def test_contrastive_of_a_perfect_batch_is_nothing():
    assert ContrastiveLoss(positive_margin=0.1)(torch.eye(4)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])) == 0


PROXY_LOSSES = {
    "proxy-anchor": (ProxyAnchorLoss, losses.ProxyAnchorLoss, "proxies"),
    "normalised-softmax": (NormalisedSoftmaxLoss, losses.NormalizedSoftmaxLoss, "W"),
}
every_proxy_loss = pytest.mark.parametrize("name", PROXY_LOSSES)


@every_shape
@every_proxy_loss
@pytest.mark.parametrize("num_absent", [0, 5])
def test_proxy_losses_and_the_gradients_of_their_proxies(name, shape, num_absent):
    """Classes that are not in the batch have proxies all the same."""
    ours, theirs, their_name = PROXY_LOSSES[name]
    ours, theirs = (kind(num_classes=shape[0] + num_absent, embedding_size=shape[2]) for kind in (ours, theirs))
    their_proxies = getattr(theirs, their_name)
    with torch.no_grad():
        their_proxies.copy_(ours.proxies if name == "proxy-anchor" else ours.proxies.T)
    assert_agree(ours, theirs, *random_batch(shape))
    gradient = their_proxies.grad if name == "proxy-anchor" else their_proxies.grad.T
    assert (ours.proxies.grad - gradient).abs().max() < TOLERANCE


@every_proxy_loss
def test_proxies_are_parameters_and_saved(name):
    loss_fn = PROXY_LOSSES[name][0](num_classes=7, embedding_size=12)
    assert [parameter.shape for parameter in loss_fn.parameters()] == [(7, 12)]
    assert loss_fn.state_dict().keys() == {"proxies"}


@every_proxy_loss
def test_proxies_follow_from_the_seed_alone(name):
    torch.manual_seed(1)
    one = PROXY_LOSSES[name][0](num_classes=7, embedding_size=12, seed=3)
    torch.manual_seed(2)
    same, other = (PROXY_LOSSES[name][0](num_classes=7, embedding_size=12, seed=seed) for seed in (3, 4))
    assert torch.equal(one.proxies, same.proxies)
    assert not torch.equal(one.proxies, other.proxies)


@pytest.mark.parametrize(
    "loss_fn",
    [
        MultiSimilarityLoss(),
        MultiSimilarityLoss(epsilon=0.1),
        ContrastiveLoss(),
        ProxyAnchorLoss(8, 16),
        NormalisedSoftmaxLoss(8, 16),
    ],
    ids=lambda loss_fn: type(loss_fn).__name__,
)
def test_no_loss_looks_at_a_value_on_the_host(loss_fn):
    """A CUDA graph refuses whoever waits for a number; tensors without values refuse it here."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        embeddings = torch.randn(16, 16, requires_grad=True)
        loss = loss_fn(embeddings, torch.randint(8, (16,)), None)
        loss.backward()
        assert embeddings.grad.shape == embeddings.shape
