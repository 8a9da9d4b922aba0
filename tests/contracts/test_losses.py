"""What every loss must do: one finite number, smooth enough to learn from, that sees triplets and not positions."""

import pytest
import torch

from pads.config import Part, build, option_names
from pads.errors import UserError
from pads.losses import LOSSES, value_and_share
from pads.sampling import Triplets, draw_triplets
from pads.sampling.rules import Random

every_loss = pytest.mark.parametrize("name", LOSSES)
HINGES = ("triplet", "margin")
"""Losses whose law is that they are content: zero once every class is far enough from the others."""


PROXIES = ("proxy-anchor", "normalised-softmax")
"""Losses that learn a vector for each class: an embedding is perfect if it agrees with these, too."""


def make(name, embedding_size=16, **options):
    return build(LOSSES, Part(name, options), "loss", num_classes=8, embedding_size=embedding_size, seed=0)


def own_option(name):
    """An option of the loss that the run does not fill in by itself."""
    return next(option for option in option_names(LOSSES[name]) if option not in ("num_classes", "embedding_size"))


@pytest.fixture
def triplets(batch, generator):
    return draw_triplets(*batch, Random(), generator=generator)


@every_loss
def test_every_loss_is_one_finite_number_with_a_finite_gradient(name, batch, triplets):
    embeddings, labels = batch
    embeddings, loss_fn = embeddings.clone().requires_grad_(), make(name)
    loss = loss_fn(embeddings, labels, triplets)
    loss.backward()
    assert loss.shape == ()
    assert loss.isfinite()
    assert loss > 0
    assert embeddings.grad.isfinite().all()
    assert embeddings.grad.abs().sum() > 0
    for parameter in loss_fn.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@every_loss
def test_the_gradient_of_every_loss_is_that_of_finite_differences(name, generator):
    embeddings = torch.randn(6, 4, generator=generator, dtype=torch.float64).mul(0.4).requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    triplets = Triplets(torch.arange(6), torch.tensor([1, 0, 3, 2, 5, 4]), torch.tensor([2, 4, 5, 0, 1, 3]))
    loss_fn = make(name, embedding_size=4).double()
    assert loss_fn(embeddings, labels, triplets) > 0
    assert torch.autograd.gradcheck(lambda e: loss_fn(e, labels, triplets), embeddings, eps=1e-7, atol=1e-5)


@every_loss
def test_a_step_down_the_gradient_lowers_every_loss(name, batch, triplets):
    embeddings, labels = batch
    embeddings, loss_fn = embeddings.clone().requires_grad_(), make(name)
    before = loss_fn(embeddings, labels, triplets)
    before.backward()
    after = loss_fn(embeddings.detach() - 0.01 * embeddings.grad, labels, triplets)
    assert after < before


@every_loss
def test_every_loss_prefers_a_perfect_embedding_to_a_random_one(name, batch, triplets):
    embeddings, labels = batch
    loss_fn = make(name)
    if name in PROXIES:
        loss_fn.proxies.data.copy_(torch.eye(16)[:8])
    perfect = loss_fn(torch.eye(16)[labels], labels, triplets)
    assert perfect < loss_fn(embeddings, labels, triplets)
    if name in HINGES:
        assert perfect == 0


@every_loss
def test_the_order_of_batch_and_triplets_means_nothing_to_any_loss(name, batch, triplets, generator):
    embeddings, labels = batch
    order, turn = torch.randperm(32, generator=generator), torch.randperm(32, generator=generator)
    place = order.argsort()
    moved = Triplets(*(place[indices][turn] for indices in triplets))
    loss_fn = make(name)
    with torch.no_grad():
        for parameter in loss_fn.parameters():  # what is learned for each class must stay with its class
            parameter.mul_(torch.rand(parameter.shape, generator=generator) + 0.5)
    torch.testing.assert_close(loss_fn(embeddings[order], labels[order], moved), loss_fn(embeddings, labels, triplets))


@every_loss
@pytest.mark.parametrize("embeddings", [torch.ones(4, 3), torch.eye(4)], ids=["collapsed", "perfect"])
def test_every_loss_has_a_finite_gradient_where_images_coincide(name, embeddings):
    """Anchors that are their own positive or their own negative, too: the authors' code draws them."""
    embeddings, labels = torch.nn.functional.normalize(embeddings).requires_grad_(), torch.tensor([0, 0, 1, 1])
    loss = make(name, embedding_size=embeddings.shape[1])(
        embeddings, labels, Triplets(torch.arange(4), torch.tensor([0, 1, 3, 2]), torch.tensor([0, 2, 2, 1]))
    )
    loss.backward()
    assert loss.isfinite()
    assert embeddings.grad.isfinite().all()


@every_loss
def test_every_loss_continues_from_a_saved_state(name, batch, triplets, round_trip):
    embeddings, labels = batch
    loss_fn = make(name)
    with torch.no_grad():
        for parameter in loss_fn.parameters():
            parameter.mul_(0.9)
    fresh = make(name)
    fresh.load_state_dict(round_trip(loss_fn.state_dict()))
    assert torch.equal(fresh(embeddings, labels, triplets), loss_fn(embeddings, labels, triplets))


@every_loss
def test_the_share_beside_every_loss_is_0_of_a_loss_of_0_and_more_of_another(name, batch, triplets):
    """Not every loss says which share of the triplets costs something."""
    embeddings, labels = batch
    loss, share = value_and_share(make(name), embeddings, labels, triplets)
    assert torch.equal(loss, make(name)(embeddings, labels, triplets))
    if name not in HINGES:
        assert share.isnan() or 0 < share <= 1
        return
    assert 0 < share <= 1
    assert value_and_share(make(name), torch.eye(16)[labels], labels, triplets) == (0, 0)


@every_loss
def test_every_loss_refuses_an_option_that_it_does_not_have(name):
    option = own_option(name)
    misspelt = option + option[-1]
    with pytest.raises(
        UserError, match=rf"there is no option 'loss\.options\.{misspelt}'; did you mean loss\.options\.{option}"
    ):
        make(name, **{misspelt: 0.1})
