"""What every rule must do: it gives weights to candidates, and whatever they are, the triplets drawn are valid."""

import pytest
import torch

from pads.config import Part, build
from pads.errors import UserError
from pads.sampling import NEGATIVE_RULES, bin_distribution, draw_triplets
from pads.sampling.distances import pairwise_distances
from pads.sampling.triplets import NEGATIVES_FROM, triplet_statistics

every_rule = pytest.mark.parametrize("name", NEGATIVE_RULES)
every_choice = pytest.mark.parametrize("negatives_from", NEGATIVES_FROM)


def make(name, **options):
    return build(NEGATIVE_RULES, Part(name, options), "rule", dim=16)


def candidates_of(labels_B, negatives_from):
    """By loops: who may be the negative of whom."""

    def allowed(a, n):
        return {"other classes": labels_B[a] != labels_B[n], "all but the anchor": a != n, "all": True}[negatives_from]

    size = len(labels_B)
    return torch.tensor([[bool(allowed(a, n)) for n in range(size)] for a in range(size)])


def first_positives(labels_B):
    """The first other image of the class, the anchor itself where there is none."""
    return torch.tensor(
        [next((j for j, m in enumerate(labels_B) if m == label and j != i), i) for i, label in enumerate(labels_B)]
    )


def check_triplets(triplets, labels_B, negatives_from):
    candidates_BB = candidates_of(labels_B, negatives_from)
    anchors, positives, negatives = triplets
    assert anchors.tolist() == list(range(len(labels_B)))
    for a, p, n in zip(anchors.tolist(), positives.tolist(), negatives.tolist(), strict=True):
        assert labels_B[a] == labels_B[p]
        assert a != p or (labels_B == labels_B[a]).sum() == 1, (
            "an anchor with another image of its class must not be its own positive"
        )
        assert candidates_BB[a, n]


@every_rule
@every_choice
def test_every_rule_draws_valid_triplets_also_where_no_candidate_is_suitable(
    name, negatives_from, batch, awkward_batches, generator
):
    for embeddings, labels in [batch, *awkward_batches.values()]:
        for _ in range(5):
            triplets = draw_triplets(embeddings, labels, make(name), negatives_from=negatives_from, generator=generator)
            check_triplets(triplets, labels, negatives_from)


@every_rule
@every_choice
def test_the_weights_of_every_rule_are_finite_and_none_is_outside_the_candidates(
    name, negatives_from, batch, awkward_batches
):
    for embeddings, labels in [batch, *awkward_batches.values()]:
        distances_BB, candidates_BB = pairwise_distances(embeddings), candidates_of(labels, negatives_from)
        weights_BB = make(name)(distances_BB, candidates_BB, first_positives(labels))
        assert weights_BB.shape == distances_BB.shape
        assert weights_BB.is_floating_point()
        assert weights_BB.isfinite().all()
        assert (weights_BB >= 0).all()
        assert (weights_BB[~candidates_BB] == 0).all()


@every_rule
def test_every_rule_has_an_opinion_on_a_batch_as_training_meets_it(name, generator):
    embeddings, labels = torch.randn(32, 16, generator=generator), torch.arange(8).repeat_interleave(4)
    weights_BB = make(name)(
        pairwise_distances(embeddings), candidates_of(labels, "other classes"), first_positives(labels)
    )
    assert (weights_BB.amax(1) > 0).float().mean() > 0.8


@every_rule
def test_every_rule_is_a_pure_function(name, batch):
    embeddings, labels = batch
    given = (pairwise_distances(embeddings), candidates_of(labels, "other classes"), first_positives(labels))
    copies = [tensor.clone() for tensor in given]
    rule, before = make(name), torch.get_rng_state()
    assert torch.equal(rule(*given), rule(*given))
    assert all(map(torch.equal, given, copies))
    assert torch.equal(torch.get_rng_state(), before)


@every_rule
def test_the_order_of_the_batch_means_nothing_to_any_rule(name, batch, generator):
    embeddings, labels = batch
    order = torch.randperm(len(labels), generator=generator)
    place = order.argsort()  # where each image has gone
    distances_BB, candidates_BB, positives_B = (
        pairwise_distances(embeddings),
        candidates_of(labels, "other classes"),
        first_positives(labels),
    )
    weights_BB = make(name)(distances_BB, candidates_BB, positives_B)
    shuffled_BB = make(name)(distances_BB[order][:, order], candidates_BB[order][:, order], place[positives_B[order]])
    torch.testing.assert_close(shuffled_BB, weights_BB[order][:, order])


@every_rule
def test_no_gradient_runs_through_the_draw_of_any_rule(name, batch, generator):
    embeddings, labels = batch
    learned = embeddings.clone().requires_grad_()
    triplets = draw_triplets(learned, labels, make(name), generator=generator)
    assert not any(indices.requires_grad for indices in triplets)
    assert all(indices.dtype == torch.int64 for indices in triplets)
    same = draw_triplets(embeddings, labels, make(name), generator=torch.Generator().manual_seed(1))
    again = draw_triplets(learned, labels, make(name), generator=torch.Generator().manual_seed(1))
    assert all(map(torch.equal, same, again))


@every_rule
@every_choice
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_embeddings_that_are_no_numbers_do_not_stop_any_draw(name, negatives_from, broken, batch, generator):
    """The loss shows them and the run says so in a sentence; an index out of bounds would end it with a traceback."""
    embeddings, labels = batch
    for rows in (slice(None), slice(3)):
        spoilt = embeddings.clone()
        spoilt[rows] = broken
        triplets = draw_triplets(spoilt, labels, make(name), negatives_from=negatives_from, generator=generator)
        assert all(0 <= indices.min() <= indices.max() < len(labels) for indices in triplets)
        statistics = triplet_statistics(spoilt, labels, triplets, bin_distribution(initial="uniform"))
        assert statistics.counts[0] == len(labels)


@every_rule
def test_every_rule_refuses_an_option_that_it_does_not_have(name):
    with pytest.raises(UserError, match=r"there is no option 'rule\.options\.colour'"):
        make(name, colour="red")
