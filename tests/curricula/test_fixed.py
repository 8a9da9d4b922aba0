"""Curricula that stay as they are: nothing that happens in training changes what they draw."""

import pytest
import torch

from pads.config import Part
from pads.curricula import CURRICULA, FixedCurriculum, build_curriculum
from pads.errors import UserError
from pads.sampling import NEGATIVE_RULES, bin_distribution
from pads.sampling.rules import DistanceWeighted, Random, Semihard

GIVEN = {"dim": 16, "recall_at": (1, 2), "seed": 3}


@pytest.mark.parametrize("name", NEGATIVE_RULES)
def test_nothing_moves_a_fixed_curriculum(name):
    curriculum = build_curriculum(Part(name), **GIVEN)
    rule = curriculum.rule
    assert isinstance(curriculum, FixedCurriculum)
    assert curriculum.metrics == ()  # so no validation is made for it
    assert curriculum.advance({"recall@1": 0.5}, progress=0.5) == {}
    assert curriculum.rule is rule
    assert curriculum.state_dict() == {}


def test_the_options_of_a_fixed_curriculum_are_those_of_its_rule():
    part = Part("semihard", {"form": "in band", "margin": 0.1})
    assert build_curriculum(part, **GIVEN).rule == Semihard("in band", margin=0.1)
    assert build_curriculum(Part("distance-weighted", {"cutoff": 0.7}), **GIVEN).rule == DistanceWeighted(
        16, cutoff=0.7
    )
    rule = build_curriculum(Part("bins", {"num_bins": 4, "initial": [1, 2, 3, 4]}), **GIVEN).rule
    assert torch.equal(rule.distribution.weights_K, bin_distribution(4, initial=[1, 2, 3, 4]).weights_K)


def test_the_dimension_of_the_embedding_reaches_only_the_rules_that_ask_for_it():
    assert build_curriculum(Part("distance-weighted"), **GIVEN).rule.dim == 16
    assert build_curriculum(Part("distance-weighted", {"dim": 64}), **GIVEN).rule.dim == 64
    assert build_curriculum(Part("random"), **GIVEN).rule == Random()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part("semihard", {"form": "closest"}), "form is 'closest': choose one of 'nearest', 'in band'"),
        (Part("semihard", {"margin": "wide"}), "curriculum.options.margin must be a number, not 'wide'"),
        (Part("distance-weighted", {"ignore_above": "far"}), "ignore_above must be a number or null, not 'far'"),
        (Part("bins", {"num_bins": "many"}), "curriculum.options.num_bins must be a whole number, not 'many'"),
        (Part("bins", {"interval": 1.4}), "curriculum.options.interval must be a list, not 1.4"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(part, words):
    with pytest.raises(UserError) as refused:
        build_curriculum(part, **GIVEN)
    assert words in str(refused.value)


def test_a_fixed_curriculum_that_is_given_a_state_is_not_the_one_that_was_saved():
    with pytest.raises(AssertionError):
        CURRICULA["random"]().load_state_dict({"weights": torch.ones(3)})


def test_a_rule_of_ones_own_needs_no_registry():
    def rule(distances_BB, candidates_BB, positives_B):
        return candidates_BB * distances_BB

    assert FixedCurriculum(rule).rule is rule
