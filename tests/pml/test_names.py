"""Losses and miners of pytorch-metric-learning by name in a run: what they are given, and what is refused at the door."""

import json
import sys

import pytest
import torch
from pytorch_metric_learning import distances, losses, miners

from pads.autoconfig import resolve_auto
from pads.check import check
from pads.config import Config, Part, with_settings
from pads.curricula import CURRICULA, build_curriculum
from pads.errors import UserError
from pads.losses import LOSSES, TripletLoss, build_loss, value_and_share
from pads.pml.miners import mine_tuples
from pads.pml.tuples import Pairs, as_triplets
from pads.recipes import RECIPES
from pads.runs.checkpoint import load_state
from pads.runs.watch import nobody
from pads.sampling import DrawnTriplets, Triplets, bin_distribution, draw_triplets
from pads.sampling.rules import Random
from pads.sampling.triplets import triplet_statistics
from pads.train import resume, train

GIVEN = {"num_classes": 8, "embedding_size": 16, "seed": 0}


def make(name, **options):
    return build_loss(Part("pml:" + name, options), **GIVEN)


@pytest.fixture
def triplets(batch, generator):
    return draw_triplets(*batch, Random(), generator=generator)


def test_drawn_triplets_go_in_as_indices_and_all_means_their_own_pairs(batch, triplets):
    embeddings, labels = batch
    theirs = losses.MultiSimilarityLoss(alpha=3)
    assert torch.equal(
        make("MultiSimilarityLoss", alpha=3)(embeddings, labels, triplets), theirs(embeddings, labels, tuple(triplets))
    )
    assert torch.equal(
        make("MultiSimilarityLoss", alpha=3, triplets="all")(embeddings, labels, triplets), theirs(embeddings, labels)
    )


def test_a_distance_of_theirs_is_given_by_name(batch, triplets):
    embeddings, labels = batch
    squared = {"name": "LpDistance", "options": {"power": 2}}
    by_name = make("TripletMarginLoss", margin=0.2, distance=squared, reducer="MeanReducer")
    assert by_name.loss.distance.power == 2
    ours = TripletLoss(margin=0.2)(embeddings, labels, triplets)  # the paper's Eq. 1
    assert by_name(embeddings, labels, triplets).item() == pytest.approx(ours.item(), rel=1e-5)


def test_their_sampled_triplets_come_from_the_seed_and_differ_from_step_to_step(batch, triplets):
    embeddings, labels = batch
    first, second = (make("TripletMarginLoss", triplets="all", triplets_per_anchor=2, margin=1) for _ in range(2))
    values = [[loss(embeddings, labels, triplets).item() for _ in range(3)] for loss in (first, second)]
    assert values[0] == values[1]
    assert len(set(values[0])) == 3


def test_a_negative_that_is_the_positive_is_left_out_for_losses_over_a_matrix_and_only_there(batch):
    """Self-regularisation draws them; a loss over a matrix of pairs refuses a pair that is both."""
    embeddings, labels = batch
    triplets = Triplets(torch.tensor([0, 4, 8]), torch.tensor([1, 5, 9]), torch.tensor([1, 9, 13]))
    kept = tuple(index[1:] for index in triplets)
    with pytest.raises(AssertionError, match="either be positive or negative"):
        losses.CircleLoss()(embeddings, labels, tuple(triplets))
    assert torch.equal(make("CircleLoss")(embeddings, labels, triplets), losses.CircleLoss()(embeddings, labels, kept))
    assert torch.equal(
        make("TripletMarginLoss")(embeddings, labels, triplets),
        losses.TripletMarginLoss()(embeddings, labels, tuple(triplets)),
    )


def test_the_size_of_the_embedding_and_the_classes_are_filled_in():
    assert make("ProxyAnchorLoss").loss.proxies.shape == (8, 16)
    assert make("SubCenterArcFaceLoss", sub_centers=2).loss.W.shape == (16, 16)
    assert make("P2SGradLoss").loss.weight.shape == (16, 8)
    assert make("MarginLoss", learn_beta=True).loss.beta.shape == (8,)
    assert make("MarginLoss", learn_beta=True, num_classes=None).loss.beta.numel() == 1


def test_a_miner_gives_what_it_gives_by_itself(batch):
    embeddings, labels = batch
    for miner in (miners.TripletMarginMiner(margin=0.1, type_of_triplets="semihard"), miners.PairMarginMiner()):
        options = {"margin": 0.1, "type_of_triplets": "semihard"} if hasattr(miner, "margin") else {}
        curriculum = build_curriculum(Part(f"pml:{type(miner).__name__}", options))
        tuples = mine_tuples(embeddings, labels, curriculum.rule)
        expected = miner(embeddings, labels)
        assert type(tuples) is (Triplets if len(expected) == 3 else Pairs)
        assert all(torch.equal(a, b) for a, b in zip(tuples, expected, strict=True))


def test_a_random_miner_follows_the_generator(batch):
    rule = build_curriculum(Part("pml:DistanceWeightedMiner")).rule
    one, same, other = (
        torch.cat(mine_tuples(*batch, rule, generator=torch.Generator().manual_seed(seed))) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_pairs_become_every_triplet_with_the_same_anchor():
    pairs = Pairs(*map(torch.tensor, ([0, 0, 1], [2, 3, 4], [0, 5, 1, 0], [7, 8, 9, 6])))
    found = set(zip(*(index.tolist() for index in as_triplets(pairs)), strict=True))
    naive = {(a, p, n) for a, p in ((0, 2), (0, 3), (1, 4)) for b, n in ((0, 7), (5, 8), (1, 9), (0, 6)) if a == b}
    assert found == naive


def test_what_is_logged_of_pairs_is_that_of_the_negative_ones(batch):
    embeddings, labels = batch
    pairs = Pairs(*map(torch.tensor, ([0, 4], [1, 4], [0, 8, 12], [5, 9, 2])))
    drawn, counts = triplet_statistics(embeddings, labels, pairs, bin_distribution(5, interval=(0.0, 2.0)))
    distances = [(embeddings[a] - embeddings[n]).norm().item() for a, n in ((0, 5), (8, 9), (12, 2))]
    assert drawn.tolist() == [sum(int(distance / 0.4) == number for distance in distances) for number in range(5)]
    assert counts.tolist() == pytest.approx([3, 0, 0, 1, 1, sum(distances)])


@pytest.mark.parametrize(
    "name", [name for name, kind in LOSSES.items() if getattr(kind, "triplets", "drawn") == "drawn"]
)
def test_a_batch_without_a_triplet_costs_nothing_and_breaks_nothing(name, batch):
    embeddings, labels = batch
    embeddings = embeddings.clone().requires_grad_()
    none = Triplets(*(torch.empty(0, dtype=torch.long) for _ in range(3)))
    loss_fn = build_loss(Part(name), **GIVEN)
    loss, share = value_and_share(loss_fn, embeddings, labels, none)
    loss.backward()
    assert loss == 0
    assert torch.equal(embeddings.grad, torch.zeros_like(embeddings))
    drawn = DrawnTriplets(Random(), torch.device("cpu"))
    drawn.add(loss.detach(), share, embeddings.detach(), labels, none)
    summary = drawn.summary(1)
    assert summary["loss"] == summary["violation_share"] == summary["negative_distance"] == 0
    json.dumps(summary, allow_nan=False)


# -- the door -----------------------------------------------------------------------------------------------------------


def refused(*settings, config=None):
    with pytest.raises(UserError) as error:
        check(with_settings(config or Config(), settings))
    return str(error.value)


LOSS = "loss.name=pml:"


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ([LOSS + "MultisimilarityLoss"], "no loss 'pml:MultisimilarityLoss'; did you mean pml:MultiSimilarityLoss"),
        (["loss.name=TripletMarginLoss"], "no loss 'TripletMarginLoss'; did you mean pml:TripletMarginLoss"),
        (["loss.name=Margin"], "no loss 'Margin'; did you mean margin or pml:MarginLoss"),
        ([LOSS + "CrossBatchMemory"], "use it in your own loop, with pads' AdaptiveMiner"),
        ([LOSS + "VICRegLoss"], "it learns without labels"),
        ([LOSS + "RankedListLoss"], "needs loss.options.margin: give it with --set loss.options.margin=..."),
        (
            [LOSS + "CircleLoss", "loss.options.gama=2"],
            "no option 'loss.options.gama'; did you mean loss.options.gamma",
        ),
        ([LOSS + "CircleLoss", "loss.options.gamma=hot"], "loss.options.gamma must be a number, not 'hot'"),
        ([LOSS + "CircleLoss", "loss.options.triplet=all"], "did you mean loss.options.triplets"),
        ([LOSS + "CircleLoss", "loss.options.triplets=some"], "choose 'drawn' or 'all'"),
        ([LOSS + "ArcFaceLoss", "loss.options.triplets=drawn"], "takes no triplets: leave loss.options.triplets out"),
        ([LOSS + "CircleLoss", "loss.options.distance=Lp"], "no distance 'Lp'"),
        (
            [LOSS + "CircleLoss", "loss.options.distance=LpDistance"],
            "CircleLoss cannot be made with these loss.options",
        ),
        ([LOSS + "CircleLoss", "loss.options.distance=7"], "such as loss.options.distance.name"),
        (["curriculum.name=pml:BatchHardMinr"], "no curriculum 'pml:BatchHardMinr'; did you mean pml:BatchHardMiner"),
        (["curriculum.name=BatchHardMiner"], "no curriculum 'BatchHardMiner'; did you mean pml:BatchHardMiner"),
        (
            ["curriculum.name=pml:DistanceWeightedMiner", "curriculum.options.cutof=1"],
            "no option 'curriculum.options.cutof'; did you mean curriculum.options.cutoff",
        ),
        (
            ["curriculum.name=pml:DistanceWeightedMiner", "compiled=true"],
            "which no CUDA graph can hold: add --set compiled=false",
        ),
        ([LOSS + "CircleLoss", "compiled=true"], "which no CUDA graph can hold: add --set compiled=false"),
        (
            ["curriculum.name=pml:BatchHardMiner", "sampling.rho=0.1"],
            "what this run says of sampling cannot hold: add --set sampling.rho=0.0.",
        ),
        ([LOSS + "ArcFaceLoss", "curriculum.name=learned"], "add --set curriculum.name=random"),
        (
            [LOSS + "CircleLoss", "loss.options.triplets=all", "curriculum.name=linear"],
            "add --set curriculum.name=random",
        ),
        ([LOSS + "ArcFaceLoss", "curriculum.name=pml:BatchHardMiner"], "add --set curriculum.name=random"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(settings, answer):
    assert answer in refused(*settings)


def test_a_loss_of_ones_own_may_have_capitals(monkeypatch):
    monkeypatch.setitem(LOSSES, "Mine", TripletLoss)
    monkeypatch.setitem(CURRICULA, "Mine", CURRICULA["random"])
    check(Config(loss=Part("Mine"), curriculum=Part("Mine")))


def test_without_pytorch_metric_learning_its_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytorch_metric_learning"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NotThere(), *sys.meta_path])
    for part in ("loss.name=pml:CircleLoss", "curriculum.name=pml:BatchHardMiner"):
        assert 'pip install "pads-dml[pml]"' in refused(part)
    assert "there is no loss 'Margin'; did you mean margin?" in refused("loss.name=Margin")


class NotThere:
    """Answers as if pytorch-metric-learning were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pytorch_metric_learning":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


# -- whole runs ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config(noisy_photos):
    settings = ["recipe=folder", f"data.root={noisy_photos(10, 5, sizes=[(16, 16)])}"]
    settings += [
        "network.weights=none",
        "data.image_size=16",
        "data.resize=16",
        "data.store_size=16",
        "data.classes_per_batch=4",
    ]
    settings += ["data.samples_per_class=2", "data.reward_share=0.2"]
    settings += ["num_epochs=4", "adapt_every=2", "log_every=1", "threads=1"]
    config = with_settings(RECIPES["folder"](), settings)
    return resolve_auto(config, torch.device("cpu"), nobody)


@pytest.mark.parametrize(
    "settings",
    [
        ["loss.name=pml:ProxyAnchorLoss"],
        ["loss.name=pml:SubCenterArcFaceLoss"],
        ["loss.name=pml:DynamicSoftMarginLoss"],
        ["loss.name=pml:TripletMarginLoss", "loss.options.triplets=all", "loss.options.triplets_per_anchor=2"],
        [
            "loss.name=pml:MultiSimilarityLoss",
            "curriculum.name=learned",
            'sampling.negatives_from="all but the anchor"',
        ],
        ["loss.name=pml:ContrastiveLoss", "curriculum.name=pml:UniformHistogramMiner"],
        ["curriculum.name=pml:DistanceWeightedMiner"],
    ],
)
def test_a_run_that_is_stopped_and_resumed_is_the_same_to_the_bit(config, settings, tmp_path):
    config = with_settings(config, settings)
    whole = train(config, tmp_path / "whole")

    def stop(kind, step, values):
        if kind == "step" and step == 5:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(config, tmp_path / "cut", watch=stop)
    cut = resume(tmp_path / "cut")
    for name in ("events.jsonl", "metrics.json"):
        assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes()
    states = [load_state(run.checkpoints()[-1])["loss"] for run in (cut, whole)]
    assert str(states[0]) == str(states[1])
    if "Proxy" in settings[0]:
        assert states[0]["loss.proxies"].shape[1] == config.network.embedding_dim


def test_learned_weights_of_a_loss_move_at_the_rate_of_the_loss(config, tmp_path):
    """With a rate of 0 they stay; the network moves."""
    still = with_settings(config, ["loss.name=pml:ProxyAnchorLoss", "optimiser.loss_learning_rate=0", "num_epochs=1"])
    run = train(still, tmp_path / "still")
    fresh = build_loss(
        still.loss,
        num_classes=len(load_state(run.checkpoints()[-1])["loss"]["loss.proxies"]),
        embedding_size=still.network.embedding_dim,
        seed=still.seed,
    )
    assert torch.equal(load_state(run.checkpoints()[-1])["loss"]["loss.proxies"], fresh.loss.proxies.detach())


def test_the_distances_module_of_theirs_is_what_names_come_from():
    assert type(make("ContrastiveLoss", distance="CosineSimilarity").loss.distance) is distances.CosineSimilarity
