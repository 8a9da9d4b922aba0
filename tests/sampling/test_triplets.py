import pytest
import torch

from pads.errors import UserError
from pads.sampling import bin_distribution, draw_triplets
from pads.sampling.rules import BinRule, Random, Semihard
from pads.sampling.triplets import draw, triplet_statistics


def test_a_draw_follows_its_weights(generator):
    weights = torch.tensor([[3.0, 1.0, 0.0]]).repeat(40_000, 1)
    drawn = draw(weights, torch.ones(40_000, 3), generator)
    shares = drawn.bincount(minlength=3) / 40_000
    assert shares[2] == 0
    assert shares[0].item() == pytest.approx(0.75, abs=0.01)


def test_a_row_without_weight_is_drawn_from_the_fallback(generator):
    fallback = torch.tensor([[False, True, True]]).repeat(2000, 1)
    drawn = draw(torch.zeros(2000, 3), fallback, generator)
    assert drawn.bincount(minlength=3)[0] == 0
    assert drawn.bincount(minlength=3)[1].item() == pytest.approx(1000, abs=120)


def two_bins(ratio, drawing):
    """One anchor; three negatives at distance 0.5 (near bin) and one at 1.0 (far bin), ten anchors' worth of draws."""
    angle = {0.5: 2 * torch.asin(torch.tensor(0.25)), 1.0: 2 * torch.asin(torch.tensor(0.5))}
    directions = [0.0, 0.0, angle[0.5], angle[0.5], angle[0.5], -angle[1.0]]
    embeddings = torch.stack(
        [torch.tensor([torch.cos(torch.as_tensor(a)), torch.sin(torch.as_tensor(a))]) for a in directions]
    )
    labels = torch.tensor([0, 0, 1, 2, 3, 4])
    rule = BinRule(bin_distribution(2, interval=(0.25, 1.25), initial=ratio, drawing=drawing))
    return embeddings, labels, rule


@pytest.mark.parametrize(("drawing", "expected"), [("bin then image", 0.75), ("weight per image", 0.9)])
def test_bins_drawn_three_to_one_come_out_three_to_one(generator, drawing, expected):
    """By image, the near bin with its three images weighs 3 x 3 against 1 x 1."""
    embeddings, labels, rule = two_bins([3, 1], drawing)
    negatives = torch.stack(
        [draw_triplets(embeddings, labels, rule, generator=generator).negatives[0] for _ in range(6000)]
    )
    near = ((negatives >= 2) & (negatives <= 4)).float().mean().item()
    assert near == pytest.approx(expected, abs=0.02)


def test_outside_the_interval_nothing_is_drawn_while_there_is_a_candidate_inside(batch, generator):
    embeddings, labels = batch
    bins = bin_distribution(initial="uniform", interval=(1.0, 1.3))
    inside = (torch.cdist(embeddings, embeddings) - 1.15).abs() < 0.15
    has_one = (inside & (labels[:, None] != labels[None, :])).any(1)
    assert has_one.sum() > 25
    for _ in range(20):
        triplets = draw_triplets(embeddings, labels, BinRule(bins), generator=generator)
        distances = (embeddings[triplets.anchors] - embeddings[triplets.negatives]).norm(dim=1)
        assert ((distances >= 1.0 - 1e-5) & (distances <= 1.3 + 1e-5))[has_one].all()


def test_without_a_candidate_inside_the_draw_is_uniform_and_counted(batch, generator):
    embeddings, labels = batch
    bins = bin_distribution(5, initial="uniform", interval=(0.0, 0.001))
    counts = torch.zeros(32, 32)
    for _ in range(300):
        triplets = draw_triplets(embeddings, labels, BinRule(bins), generator=generator)
        counts[triplets.anchors, triplets.negatives] += 1
    assert (counts[labels[:, None] == labels[None, :]] == 0).all()
    assert counts[labels[:, None] != labels[None, :]].std() < 2 * (300 / 28) ** 0.5
    statistics = triplet_statistics(embeddings, labels, triplets, bins)
    assert statistics.counts[2] == 32  # all above the bins


def test_self_regularisation_lets_positives_be_negatives_but_not_the_anchor(batch, generator):
    embeddings, labels = batch
    seen_positive = False
    for _ in range(20):
        a, _, n = draw_triplets(embeddings, labels, Random(), negatives_from="all but the anchor", generator=generator)
        assert (a != n).all()
        seen_positive |= bool((labels[a] == labels[n]).any())
    assert seen_positive


def test_all_lets_the_anchor_be_its_own_negative(batch, generator):
    embeddings, labels = batch
    draws = [draw_triplets(embeddings, labels, Random(), negatives_from="all", generator=generator) for _ in range(50)]
    assert any((a == n).any() for a, _, n in draws)


def test_the_anchor_is_its_own_positive_only_if_allowed(batch, generator):
    embeddings, labels = batch
    own = torch.stack(
        [
            (t.positives == t.anchors)
            for t in (
                draw_triplets(embeddings, labels, Random(), anchor_as_positive=True, generator=generator)
                for _ in range(200)
            )
        ]
    )
    assert own.float().mean().item() == pytest.approx(0.25, abs=0.02)  # four images a class


def test_rho_flips_that_share_of_triplets(batch, generator):
    embeddings, labels = batch
    draws = [draw_triplets(embeddings, labels, Random(), rho=0.4, generator=generator) for _ in range(200)]
    flipped = torch.stack([t.positives == t.anchors for t in draws])
    assert flipped.float().mean().item() == pytest.approx(0.4, abs=0.02)
    for t in draws:
        same = labels[t.negatives] == labels[t.anchors]
        assert torch.equal(same, t.positives == t.anchors)
        assert (t.negatives != t.anchors).all()


def test_statistics_agree_with_a_loop(batch, generator):
    embeddings, labels = batch
    bins = bin_distribution(10, interval=(0.6, 1.3), initial="uniform", tails="merge")
    triplets = draw_triplets(
        embeddings, labels, Semihard(), negatives_from="all", anchor_as_positive=True, generator=generator
    )
    drawn, counts = triplet_statistics(embeddings, labels, triplets, bins)
    expected, below, above, own, of_class, total = [0] * 10, 0, 0, 0, 0, 0.0
    for a, p, n in zip(*(index.tolist() for index in triplets), strict=True):
        d = (embeddings[a] - embeddings[n]).norm().item()
        total += d
        below += d < 0.6
        above += d > 1.3
        own += a == p
        of_class += labels[a].item() == labels[n].item()
        if 0.6 <= d <= 1.3:
            expected[int((d - 0.6) / 0.07)] += 1
    assert drawn.tolist() == expected
    assert counts.tolist() == pytest.approx([32, below, above, own, of_class, total], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"negatives_from": "anywhere"}, "choose one of"), ({"rho": 1.5}, "between 0 and 1")],
)
def test_bad_options_are_refused(batch, options, words):
    with pytest.raises(UserError, match=words):
        draw_triplets(*batch, Random(), **options)


def test_a_batch_of_one_class_and_wrong_shapes_are_refused(batch):
    embeddings, labels = batch
    with pytest.raises(UserError, match="several classes"):
        draw_triplets(embeddings, torch.zeros_like(labels), Random())
    with pytest.raises(UserError, match=r"embeddings \(B, D\)"):
        draw_triplets(embeddings, labels[:3], Random())
