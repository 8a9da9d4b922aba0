"""What every curriculum must do: own a rule, survive a checkpoint, and go on bit for bit."""

import json

import pytest
import torch

from pads.config import Part, option_names
from pads.curricula import CURRICULA, build_curriculum
from pads.errors import UserError
from pads.metrics import check_metric_names
from pads.sampling import NEGATIVE_RULES, draw_triplets
from pads.sampling.distances import pairwise_distances
from pads.sampling.rules import Random

every_curriculum = pytest.mark.parametrize("name", CURRICULA)
GIVEN = {"dim": 16, "recall_at": (1, 2, 4, 8)}
NEEDED = {"replayed": {"run": ""}, "last distribution": {"run": ""}}
"""Options without which a curriculum cannot be built."""


@pytest.fixture(autouse=True, scope="module")
def another_run(finished_run):
    """The run that some curricula repeat."""
    run = finished_run("another", steps=range(3, 31, 3), num_steps=30)
    for options in NEEDED.values():
        options["run"] = str(run.path)


def make(name, seed=0, **options):
    return build_curriculum(Part(name, {**NEEDED.get(name, {}), **options}), **GIVEN, seed=seed)


@pytest.fixture
def advance(made_up_metrics):
    """Advances with made-up metrics; returns what was logged."""

    def advance_often(curriculum, num_times, seed=0):
        generator = torch.Generator().manual_seed(seed)
        return [
            curriculum.advance(made_up_metrics(curriculum, generator), progress=index / num_times)
            for index in range(num_times)
        ]

    return advance_often


def weights(curriculum, batch):
    embeddings, labels = batch
    positives = torch.arange(len(labels)).unflatten(0, (8, 4)).roll(1, 1).flatten()
    return curriculum.rule(pairwise_distances(embeddings), labels[:, None] != labels[None, :], positives)


@every_curriculum
def test_every_curriculum_goes_on_from_a_file_bit_for_bit(name, batch, advance, round_trip, same):
    curriculum = make(name)
    for num_times in (0, 1, 6):  # before the first adjustment, before the first reward, and later
        advance(curriculum, num_times)
        resumed = make(name, seed=5)
        resumed.load_state_dict(round_trip(curriculum.state_dict()))
        assert same(resumed.state_dict(), round_trip(curriculum.state_dict()))
        assert torch.equal(weights(resumed, batch), weights(curriculum, batch))
        assert advance(resumed, 9, seed=3) == advance(curriculum, 9, seed=3)
        assert same(resumed.state_dict(), round_trip(curriculum.state_dict()))
        assert torch.equal(weights(resumed, batch), weights(curriculum, batch))


@every_curriculum
def test_a_saved_state_is_not_touched_by_what_comes_after(name, advance, round_trip, same):
    curriculum = make(name)
    advance(curriculum, 3)
    state = curriculum.state_dict()
    then = round_trip(state)
    advance(curriculum, 3)
    assert same(round_trip(state), then)


@every_curriculum
def test_the_seed_of_every_curriculum_is_all_the_chance_there_is(name, batch, advance):
    before = torch.get_rng_state()
    first, second = make(name, seed=4), make(name, seed=4)
    assert advance(first, 6) == advance(second, 6)
    assert torch.equal(weights(first, batch), weights(second, batch))
    assert torch.equal(torch.get_rng_state(), before)


@every_curriculum
def test_every_curriculum_draws_valid_triplets_also_after_it_has_advanced(name, batch, advance, generator):
    embeddings, labels = batch
    curriculum = make(name)
    for _ in range(2):
        anchors, positives, negatives = draw_triplets(embeddings, labels, curriculum.rule, generator=generator)
        assert (labels[anchors] == labels[positives]).all()
        assert (anchors != positives).all()
        assert (labels[anchors] != labels[negatives]).all()
        advance(curriculum, 30)


@every_curriculum
def test_what_every_curriculum_logs_fits_into_json_and_what_it_asks_for_can_be_measured(name, advance):
    curriculum = make(name)
    check_metric_names(curriculum.metrics)
    for log in advance(curriculum, 5):
        assert json.loads(json.dumps(log, allow_nan=False)) == log


@every_curriculum
def test_every_curriculum_refuses_a_misspelt_option_by_naming_the_nearest(name):
    own = [option for option in option_names(CURRICULA[name]) if option not in ("seed", *GIVEN)]
    for option in own:
        with pytest.raises(UserError) as refused:
            make(name, **{option + "s": 1})
        assert f"there is no option 'curriculum.options.{option}s'; did you mean " in str(refused.value)
        assert f"curriculum.options.{option}" in str(refused.value).partition("did you mean ")[2]
    if not own:
        with pytest.raises(UserError, match=r"no option 'curriculum\.options\.margin'; there are none"):
            make(name, margin=1)


def test_every_rule_is_a_curriculum_also_one_that_a_stranger_adds(monkeypatch, batch):
    assert set(NEGATIVE_RULES) <= set(CURRICULA)
    monkeypatch.setitem(NEGATIVE_RULES, "mine", Random)
    assert torch.equal(weights(make("mine"), batch), weights(make("random"), batch))


def test_an_unknown_curriculum_is_refused_by_naming_the_nearest():
    with pytest.raises(UserError, match="there is no curriculum 'semihart'; did you mean semihard"):
        make("semihart")
