"""Schedules: the distribution at each progress against the formulas of docs/curricula.md, worked out here."""

import itertools
import math

import pytest
import torch

from pads.config import Part
from pads.curricula import ScheduledCurriculum, build_curriculum
from pads.curricula.scheduled import density_of_draws, linear, non_linear, overlap
from pads.errors import UserError
from pads.sampling import bin_distribution, draw_triplets
from pads.sampling.distances import pairwise_distances
from pads.sampling.rules import DistanceWeighted

SCHEDULES = {"linear": linear, "non-linear": non_linear}
every_schedule = pytest.mark.parametrize("name", SCHEDULES)
PROGRESS = torch.linspace(0, 1, 101, dtype=torch.float64).tolist()


def mean_distance(distribution):
    return (distribution.probabilities_K * distribution.centres).sum().item()


@every_schedule
def test_p_is_a_distribution_at_every_progress_and_no_bin_is_without_hope(name):
    curriculum = SCHEDULES[name]()
    for progress in PROGRESS:
        p_K = curriculum.distribution_at(progress).probabilities_K
        assert p_K.sum().item() == pytest.approx(1)
        assert p_K.min() >= 0.005 * p_K.max()  # a logarithm can be drawn


@every_schedule
def test_negatives_become_harder_at_every_moment_of_training(name):
    curriculum = SCHEDULES[name]()
    means = [mean_distance(curriculum.distribution_at(progress)) for progress in PROGRESS]
    assert all(later < earlier for earlier, later in itertools.pairwise(means))
    assert means[-1] < means[0] - 0.3


@every_schedule
def test_a_schedule_begins_at_progress_0_and_draws_by_where_it_is(name, batch):
    embeddings, labels = batch
    curriculum = SCHEDULES[name]()
    assert torch.equal(curriculum.distribution.weights_K, curriculum.distribution_at(0.0).weights_K)
    pairs = (pairwise_distances(embeddings), labels[:, None] != labels[None, :], torch.zeros(32, dtype=torch.int64))
    curriculum.rule(*pairs)  # its tensor on the device exists from now on, and must follow
    for progress in (0.3, 1.0):
        log = curriculum.advance({}, progress)
        expected = curriculum.distribution_at(progress)
        assert log == {"distribution": expected.probabilities_K.tolist(), "perplexity": expected.perplexity}
        assert torch.equal(curriculum.rule(*pairs), ScheduledCurriculum(lambda _, e=expected: e).rule(*pairs))


@every_schedule
def test_a_rule_that_changes_keeps_its_tensor_because_a_cuda_graph_reads_it(name):
    curriculum = SCHEDULES[name]()
    log_p_K = curriculum.rule.log_p_K(torch.device("cpu"))
    before = log_p_K.clone()
    curriculum.advance({}, 0.7)
    assert curriculum.rule.log_p_K(torch.device("cpu")) is log_p_K
    assert not torch.equal(log_p_K, before)


@every_schedule
def test_until_is_when_the_schedule_arrives(name):
    whole, half = SCHEDULES[name](), SCHEDULES[name](until=0.5)
    for progress in (0.0, 0.25, 0.5, 0.75, 1.0):
        expected = whole.distribution_at(min(1.0, 2 * progress))
        assert torch.equal(half.distribution_at(progress).weights_K, expected.weights_K)


@every_schedule
def test_the_past_does_not_matter_and_no_validation_is_asked_for(name):
    straight, winding = SCHEDULES[name](), SCHEDULES[name]()
    for progress in (0.9, 0.1, 0.4):
        winding.advance({"recall@1": 0.5}, progress)
    assert straight.advance({}, 0.4) == winding.advance({}, 0.4)
    assert straight.metrics == ()


# -- linear ------------------------------------------------------------------------------------------------------------


def test_the_share_of_a_bin_within_an_interval_in_numbers():
    edges = torch.tensor([0.0, 0.5, 1.0, 1.5], dtype=torch.float64)
    assert overlap(edges, 0.25, 1.1).tolist() == pytest.approx([0.5, 1.0, 0.2])
    assert overlap(edges, 0.6, 0.7).tolist() == pytest.approx([0, 0.2, 0])
    assert overlap(edges, 0.0, 1.5).tolist() == [1, 1, 1]


def test_the_linear_schedule_in_numbers():
    # bins of 0.2 over [0, 1]; [0.6, 1] is on its way to [0, 0.4], and half-way at [0.3, 0.7]
    curriculum = linear(start=[0.6, 1.0], end=[0.0, 0.4], num_bins=5, interval=[0.0, 1.0], outside=0.1)
    weights = {0.0: [0.1, 0.1, 0.1, 1, 1], 0.5: [0.1, 0.55, 1, 0.55, 0.1], 1.0: [1, 1, 0.1, 0.1, 0.1]}
    for progress, expected in weights.items():
        p_K = curriculum.distribution_at(progress).probabilities_K
        assert p_K.tolist() == pytest.approx([weight / 2.3 for weight in expected])


def test_the_linear_schedule_moves_the_middle_of_its_interval_evenly():
    curriculum = linear(start=[0.7, 1.1], end=[0.1, 0.5], outside=1e-12, num_bins=130)
    for progress in PROGRESS:
        distribution = curriculum.distribution_at(progress)
        assert mean_distance(distribution) == pytest.approx(0.9 - 0.6 * progress, abs=1e-4)
        assert distribution.perplexity == pytest.approx(40, rel=0.02)  # 0.4 wide, in bins of 0.01


def test_what_is_drawn_lies_in_the_interval_where_there_are_negatives_in_it(generator):
    angles = torch.linspace(0, 2 * math.pi, 201)[:-1]  # each image has others at all distances
    embeddings, labels = torch.stack([angles.cos(), angles.sin()], 1), torch.arange(200) % 100
    curriculum = linear(outside=1e-9)
    for progress, low, high in ((0.0, 0.7, 1.1), (0.5, 0.4, 0.8), (1.0, 0.1, 0.5)):
        curriculum.advance({}, progress)
        anchors, _, negatives = draw_triplets(embeddings, labels, curriculum.rule, generator=generator)
        drawn = (embeddings[anchors] - embeddings[negatives]).norm(dim=1)
        bin_width = 1.3 / 30
        assert low - bin_width < drawn.min() < low + 0.05
        assert high - 0.05 < drawn.max() < high + bin_width


# -- non-linear --------------------------------------------------------------------------------------------------------


def test_the_non_linear_schedule_begins_with_what_distance_weighted_sampling_draws():
    """One million distances that follow q, weighted by U-dist, counted in the bins."""
    dim, bins = 16, bin_distribution(initial="uniform")
    generator = torch.Generator().manual_seed(0)
    units = torch.nn.functional.normalize(torch.randn(1_000_000, dim, generator=generator), dim=1)
    distances = (2 - 2 * units[:, 0]).sqrt()  # to the first axis
    inside = distances[bins.covers(distances)][None]
    weights = DistanceWeighted(dim, cutoff=0.8)(
        inside, torch.ones_like(inside, dtype=torch.bool), torch.zeros(1).long()
    )
    counted_K = torch.zeros(30).scatter_add_(0, bins.bin_of(inside)[0], weights[0])
    ours_K = non_linear(dim=dim, cutoff=0.8, outside=1e-9).distribution_at(0.0).probabilities_K
    assert (counted_K / counted_K.sum()).tolist() == pytest.approx(ours_K.tolist(), abs=3e-3)


def test_what_distance_weighted_sampling_draws_in_numbers():
    # D = 4: q(d) = d^2 sqrt(1 - d^2 / 4)
    q = [d**2 * math.sqrt(1 - d**2 / 4) for d in (0.3, 0.5)]
    drawn = density_of_draws(torch.tensor([0.3, 0.5, 0.9, 1.4], dtype=torch.float64), dim=4, cutoff=0.5)
    assert drawn.tolist() == pytest.approx([q[0] / q[1], 1, 1, 1])


def test_the_non_linear_schedule_moves_by_the_power_of_progress():
    curriculum = non_linear(shift=0.4, power=2, num_bins=130, outside=1e-9)
    for progress, moved in ((0.0, 0.0), (0.5, 0.1), (1.0, 0.4)):
        p_K = curriculum.distribution_at(progress).probabilities_K
        emphasised = curriculum.distribution.centres[p_K > 0.5 * p_K.max()]
        assert emphasised[0].item() == pytest.approx(0.5 - moved, abs=0.011)
        assert emphasised[-1].item() == pytest.approx(1.4 - moved, abs=0.011)
    even = non_linear(shift=0.4, power=1, num_bins=130, outside=1e-9)
    assert torch.allclose(even.distribution_at(0.25).weights_K, curriculum.distribution_at(0.5).weights_K)


def test_a_non_linear_schedule_that_does_not_shift_stays_as_it_is():
    curriculum = non_linear(shift=0)
    assert torch.equal(curriculum.distribution_at(0.0).weights_K, curriculum.distribution_at(1.0).weights_K)


def test_the_dimension_of_the_embedding_reaches_the_schedule_and_the_whole_sphere_can_be_covered():
    curriculum = build_curriculum(Part("non-linear", {"interval": [0, 2]}), dim=3, recall_at=(1,), seed=0)
    expected = non_linear(dim=3, interval=[0, 2])
    assert torch.equal(curriculum.distribution.weights_K, expected.distribution.weights_K)
    assert torch.isfinite(expected.distribution_at(1.0).weights_K).all()


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part("linear", {"start": [1.1, 0.7]}), "start is [1.1, 0.7]: write two growing distances"),
        (Part("linear", {"end": [0.0, 0.4]}), "within the interval of the bins, [0.1, 1.4]"),
        (Part("linear", {"end": [0.3]}), "end is [0.3]: write two growing distances"),
        (Part("linear", {"start": 0.7}), "curriculum.options.start must be a list, not 0.7"),
        (Part("linear", {"until": 0}), "until is 0: it is the progress at which the schedule ends"),
        (Part("linear", {"until": 1.5}), "above 0 and at most 1"),
        (Part("linear", {"outside": 0.0}), "outside is 0.0"),
        (Part("linear", {"num_bins": 0}), "num_bins is 0"),
        (Part("non-linear", {"shift": -0.1}), "shift is -0.1: it must be at least 0 and below the length"),
        (Part("non-linear", {"shift": 1.3}), "below the length of the interval, 1.3"),
        (Part("non-linear", {"power": 0}), "power is 0: it must be above 0"),
        (Part("non-linear", {"until": 2}), "until is 2"),
        (Part("non-linear", {"cutoff": 3.0}), "cutoff is 3.0: it is a distance on the unit sphere"),
        (Part("non-linear", {"dim": 2}), "dim is 2"),
        (Part("nonlinear"), "did you mean non-linear"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(part, words):
    with pytest.raises(UserError) as refused:
        build_curriculum(part, dim=16, recall_at=(1,), seed=0)
    assert words in str(refused.value)
