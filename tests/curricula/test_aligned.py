"""Credit per bin: what the gradient of the reward split says about the triplets of each bin."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from pads.adapters import AdaptiveController, TripletSampler
from pads.config import Part, with_settings
from pads.curricula import build_curriculum
from pads.curricula.aligned import AlignedCurriculum, ascent, bin_credits, bounded, improving_rates
from pads.errors import UserError
from pads.losses import MarginLoss
from pads.metrics.soft import soft_recall
from pads.recipes import RECIPES
from pads.sampling import bin_distribution
from pads.sampling.triplets import Triplets
from pads.train import resume, train


@pytest.fixture
def reward(generator):
    labels = torch.arange(6).repeat_interleave(5)
    return F.normalize(torch.randn(6, 8, generator=generator)[labels] + torch.randn(30, 8, generator=generator)), labels


@pytest.fixture
def seen(generator):
    labels = torch.arange(8).repeat_interleave(2)
    return F.normalize(torch.randn(16, 8, generator=generator), dim=1), labels


def test_the_rates_are_those_of_a_linear_map_that_follows_the_gradient_of_soft_recall(reward, seen):
    embeddings, labels = reward
    matrix = torch.eye(8, dtype=torch.float64, requires_grad=True)
    moved = F.normalize(embeddings.double() @ matrix.T, dim=1)
    (gradient,) = torch.autograd.grad(soft_recall(moved, labels), matrix)
    step = 1e-6
    before = F.normalize(seen[0].double(), dim=1)
    after = F.normalize(before @ (matrix.detach() + step * gradient).T, dim=1)
    rates = (after - before) / step
    rates = rates / rates.square().sum(1).mean().sqrt()
    torch.testing.assert_close(improving_rates(*reward, seen[0]).double(), rates, atol=1e-3, rtol=1e-3)


def test_the_images_stay_on_the_sphere(reward, seen):
    rates = improving_rates(*reward, seen[0])
    assert (rates * seen[0]).sum(1).abs().max() < 1e-5
    assert rates.square().sum(1).mean().item() == pytest.approx(1)


def test_a_bins_credit_is_how_fast_the_loss_of_its_triplets_falls(reward, seen):
    embeddings, labels = seen
    rates, bins, loss_fn = improving_rates(*reward, embeddings), bin_distribution(10, initial="uniform"), MarginLoss(8)
    credits = bin_credits(embeddings, labels, rates, bins, loss_fn)
    distances = torch.cdist(embeddings.double(), embeddings.double())
    step = 1e-4
    for number in range(10):
        low, high = bins.edges[number], bins.edges[number + 1]
        pairs = [
            (a, n) for a in range(16) for n in range(16) if labels[a] != labels[n] and low <= distances[a, n] < high
        ]
        if not pairs:
            assert credits[number] == 0
            continue
        anchors, negatives = (torch.tensor(column) for column in zip(*pairs, strict=True))
        triplets = Triplets(anchors, anchors ^ 1, negatives)
        losses = [loss_fn(embeddings.double() + sign * step * rates.double(), labels, triplets) for sign in (1, -1)]
        assert credits[number].item() == pytest.approx((losses[1] - losses[0]).item() / (2 * step), abs=0.02), number
    assert len(credits) == 11


def test_without_a_loss_the_credit_is_how_fast_the_pairs_come_apart(reward, seen):
    embeddings, labels = seen
    rates, bins = improving_rates(*reward, embeddings), bin_distribution(4, initial="uniform")
    credits = bin_credits(embeddings, labels, rates, bins, None)
    step = 1e-3
    before, after = (torch.cdist(x.double(), x.double()) for x in (embeddings, embeddings + step * rates))
    other = labels[:, None] != labels
    inside = other & (before >= bins.edges[2]) & (before < bins.edges[3])
    assert credits[2].item() == pytest.approx(((after - before)[inside].mean() / step).item(), abs=0.02)


def test_the_bin_with_the_most_credit_is_raised_the_most_and_the_least_is_lowered():
    curriculum = AlignedCurriculum(bins={"num_bins": 4, "initial": "uniform"})
    log = curriculum.advance({"credits": [0.1, 0.4, -0.2, 0.1, 0.0]}, 0.1)
    p = log["distribution"]
    assert p[1] == max(p) and p[2] == min(p) and p[0] == pytest.approx(p[3])
    assert sum(p) == pytest.approx(1) and log["perplexity"] == pytest.approx(curriculum.distribution.perplexity)


def test_the_distribution_stays_within_its_bound_however_long_the_credits_say_the_same():
    curriculum = AlignedCurriculum(bins={"num_bins": 4, "initial": "uniform", "rho": 0.2}, bound=1.0)
    for _ in range(200):
        log = curriculum.advance({"credits": [0.0, 1.0, 0.0, 0.0, 5.0]}, 0.5)
    assert max(log["distribution"]) / min(log["distribution"]) <= math.exp(2) * 1.001
    assert log["perplexity"] > 2.5
    assert log["rho"] == pytest.approx(1 / (1 + 4 * math.exp(-1)))


def test_credits_that_are_all_the_same_change_nothing():
    curriculum = AlignedCurriculum(bins={"num_bins": 4})
    before = curriculum.distribution.probabilities_K
    curriculum.advance({"credits": [0.3] * 5}, 0.1)
    torch.testing.assert_close(curriculum.distribution.probabilities_K, before)


def test_the_controls_turn_the_credits_round_or_deal_them_out_anew():
    credits = {"credits": [0.1, 0.4, -0.2, 0.3, 0.7]}
    opposite = AlignedCurriculum(bins={"num_bins": 4, "initial": "uniform"}, credit="opposite")
    assert opposite.advance(credits, 0.1)["running_credits"] == [-value for value in credits["credits"]]
    shuffled = AlignedCurriculum(bins={"num_bins": 4, "initial": "uniform"}, credit="shuffled", seed=3)
    dealt = shuffled.advance(credits, 0.1)["running_credits"]
    assert sorted(dealt[:4]) == sorted(credits["credits"][:4]) and dealt[4] == 0.7


def test_formulas():
    steps, flip = ascent([0.0, 1.0, 9.0], torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert steps.tolist() == [-1, 1] and flip == 2
    initial = torch.tensor([0.5, 0.5]).double().log()
    assert bounded(initial, initial, 1.0).tolist() == pytest.approx(initial.tolist())


@pytest.mark.parametrize(
    ("options", "words"), [({"credit": "none"}, "own"), ({"rate": 0.0}, "above 0"), ({"average": 2.0}, "at most 1")]
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        build_curriculum(Part("aligned", options))


SETTINGS = [
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=18",
    "data.store_ratio=1",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.reward_share=0.3",
    "data.selection_share=0.2",
    "num_epochs=4",
    "adapt_every=3",
    "log_every=3",
    "threads=1",
    "curriculum.name=aligned",
    "curriculum.options.bins.rho=0.2",
    "sampling.negatives_from=other classes",
]


@pytest.fixture(scope="module")
def config(noisy_photos):
    recipe = RECIPES["folder-pads"]()
    data = replace(recipe.data, root=str(noisy_photos(10)))
    return with_settings(replace(recipe, recipe="folder", data=data), SETTINGS)


def test_a_look_is_no_step_for_the_loss(config, tmp_path, monkeypatch):
    modes, forward = [], MarginLoss.forward

    def noted(self, *arguments):
        modes.append(self.training)
        return forward(self, *arguments)

    monkeypatch.setattr(MarginLoss, "forward", noted)
    run = train(config, tmp_path / "run")
    events = map(json.loads, (run.path / "events.jsonl").read_text().splitlines())
    steps = max(event["step"] for event in events)
    assert sum(modes) == steps < len(modes)


def test_a_run_adapts_and_one_that_was_stopped_goes_on_to_the_bit(config, tmp_path):
    whole = train(config, tmp_path / "whole")
    events = map(json.loads, (whole.path / "events.jsonl").read_text().splitlines())
    adaptations = [event for event in events if event["event"] == "adaptation"]
    assert len(adaptations) >= 4 and len(adaptations[0]["credits"]) == 31
    assert adaptations[0]["distribution"] != adaptations[-1]["distribution"]
    assert 0.01 <= adaptations[-1]["rho"] <= 0.6

    def stop(kind, step, values):
        if kind == "step" and step == adaptations[1]["step"] + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "stopped", watch=stop)
    assert (resume(tmp_path / "stopped").path / "events.jsonl").read_bytes() == (
        whole.path / "events.jsonl"
    ).read_bytes()


def test_it_adapts_in_someone_elses_loop(reward, seen):
    sampler = TripletSampler("aligned", {"bins": {"initial": "uniform"}})
    controller = AdaptiveController(sampler, every=1)
    with pytest.raises(UserError, match="train a step"):
        controller.adapt(torch.nn.Identity(), [reward])
    sampler(*seen)
    log = controller.step(torch.nn.Identity(), [reward])
    assert len(log["credits"]) == 31 and log["perplexity"] < 30
    again = TripletSampler("aligned", {"bins": {"initial": "uniform"}})
    again.load_state_dict(sampler.state_dict())
    assert torch.equal(again.bin_probs, sampler.bin_probs)
