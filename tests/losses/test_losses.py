"""Losses against loops over triplets and against numbers worked out here."""

import math

import pytest
import torch
from pytorch_metric_learning import distances, losses

from pads.errors import UserError
from pads.losses import MarginLoss, TripletLoss
from pads.sampling import draw_triplets
from pads.sampling.rules import Random


@pytest.fixture
def triplets(batch, generator):
    return draw_triplets(*batch, Random(), generator=generator)


def test_triplet_loss_by_hand():
    # d_ap^2 = 0.25, d_an^2 = 0.36: 0.25 - 0.36 + 0.2 = 0.09; with the negative at 1.0: 0.25 - 1 + 0.2 < 0
    embeddings = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 0.6], [1.0, 0.0]])
    index = (torch.tensor([0, 0]), torch.tensor([1, 1]), torch.tensor([2, 3]))
    assert TripletLoss()(embeddings, torch.zeros(4), index).item() == pytest.approx(0.09 / 2)
    assert TripletLoss(reduction="sum")(embeddings, torch.zeros(4), index).item() == pytest.approx(0.09)
    assert TripletLoss().value_and_share(embeddings, torch.zeros(4), index)[1].item() == 0.5


def test_margin_loss_by_hand_counts_active_pairs_not_triplets():
    # beta 0.6, margin 0.2: positive at 0.5 -> 0.1, negative at 0.7 -> 0.1; positive at 0.3 -> 0, negative at 1.0 -> 0
    embeddings = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 0.7], [0.3, 0.0], [0.0, 1.0]])
    labels = torch.zeros(5, dtype=torch.long)
    both = (torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))
    one = (torch.tensor([0, 0]), torch.tensor([1, 3]), torch.tensor([2, 4]))
    loss = MarginLoss(beta=0.6)
    assert loss(embeddings, labels, both).item() == pytest.approx((0.1 + 0.1) / 2, abs=1e-6)
    assert loss(embeddings, labels, one).item() == pytest.approx((0.1 + 0.1 + 0 + 0) / 2, abs=1e-6)
    none = (torch.tensor([0]), torch.tensor([3]), torch.tensor([4]))
    assert loss(embeddings, labels, none).item() == 0


def test_margin_loss_agrees_with_a_loop_over_triplets(batch, triplets):
    embeddings, labels = batch
    loss = MarginLoss(num_classes=8, beta=0.6)
    with torch.no_grad():
        loss.beta += torch.linspace(-0.2, 0.4, 8)
    terms = []
    for a, p, n in zip(*triplets, strict=True):
        beta = loss.beta[labels[a]].item()
        terms.append(max(0.0, math.dist(embeddings[a].tolist(), embeddings[p].tolist()) - beta + 0.2))
        terms.append(max(0.0, beta - math.dist(embeddings[a].tolist(), embeddings[n].tolist()) + 0.2))
    active = [term for term in terms if term > 0]
    assert loss(embeddings, labels, triplets).item() == pytest.approx(sum(active) / len(active), rel=1e-5)


def test_margin_loss_and_its_gradient_agree_with_pytorch_metric_learning(batch, triplets):
    embeddings, labels = batch
    ours, theirs = (embeddings.clone().requires_grad_() for _ in range(2))
    MarginLoss(beta=1.1)(ours, labels, triplets).backward()
    losses.MarginLoss(margin=0.2, beta=1.1)(theirs, labels, tuple(triplets)).backward()
    assert (project(ours.grad, embeddings) - theirs.grad).abs().max() < 1e-5


def project(gradient, embeddings):
    """Their embeddings are normalised inside the loss, which takes the radial part out of the gradient."""
    return gradient - (gradient * embeddings).sum(1, keepdim=True) * embeddings


def test_triplet_loss_agrees_with_pytorch_metric_learning_on_squared_distances(batch, triplets):
    embeddings, labels = batch
    theirs = losses.TripletMarginLoss(margin=0.2, distance=distances.LpDistance(power=2))
    loss, share = TripletLoss().value_and_share(embeddings, labels, triplets)
    ours = loss / share  # theirs is the mean over active triplets
    assert ours.item() == pytest.approx(theirs(embeddings, labels, tuple(triplets)).item(), rel=1e-4)


def test_beta_learns_or_stays_constant(batch, triplets):
    embeddings, labels = batch
    learned, constant = MarginLoss(num_classes=8), MarginLoss(num_classes=8, learn_beta=False)
    learned(embeddings, labels, triplets).backward()
    assert learned.beta.grad.abs().sum() > 0
    assert not constant.beta.requires_grad


def test_a_self_paced_boundary_rises_as_triplets_cease_to_cost(batch, triplets):
    embeddings, labels = batch
    embeddings = torch.nn.functional.normalize(
        torch.nn.functional.one_hot(labels, embeddings.shape[1]) + 0.1 * embeddings
    )
    loss = MarginLoss(num_classes=8, beta=0.6, rise=0.5, pace=0.04)
    risen = 0.0
    for _ in range(6):
        _, share = MarginLoss(num_classes=8, beta=0.6 + risen).value_and_share(embeddings, labels, triplets)
        loss(embeddings, labels, triplets)
        risen = min(0.5, risen + 0.04 * (1 - share.item()))
        assert loss.risen.item() == pytest.approx(risen, abs=1e-6)
    assert 0 < risen < 0.5
    with torch.no_grad():  # a look does not change it
        loss(embeddings, labels, triplets)
    loss.eval()(embeddings, labels, triplets)
    assert loss.risen.item() == pytest.approx(risen, abs=1e-6)
    again = MarginLoss(num_classes=8, rise=0.5, pace=0.04)
    again.load_state_dict(loss.state_dict())
    assert again.risen == loss.risen


def test_a_self_paced_boundary_stops_at_its_rise():
    loss = MarginLoss(beta=0.1, margin=0.0, rise=0.2, pace=1.0)
    embeddings, triplets = (
        torch.tensor([[0.0], [0.0], [9.0]]),
        (torch.tensor([0]), torch.tensor([1]), torch.tensor([2])),
    )
    for _ in range(3):
        loss(embeddings, torch.tensor([0, 0, 1]), triplets)
    assert loss.risen.item() == pytest.approx(0.2)


def test_bad_options_are_refused():
    with pytest.raises(UserError, match="mean"):
        TripletLoss(reduction="median")
    with pytest.raises(UserError, match="at least one"):
        MarginLoss(num_classes=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pace": 0.05}, "rise is 0.0 and pace 0.05: a self-paced boundary needs both above 0"),
        ({"rise": 0.6}, "rise is 0.6 and pace null: a self-paced boundary needs both above 0"),
        ({"rise": -0.6, "pace": 0.05}, "needs both above 0"),
        ({"rise": 0.6, "pace": 0.0}, "needs both above 0"),
    ],
)
def test_half_of_a_self_paced_boundary_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        MarginLoss(**options)
