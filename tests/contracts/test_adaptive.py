"""Whatever treats adaptive curricula apart asks the curriculum itself, so that no new one can be forgotten anywhere."""

from dataclasses import replace

import pytest
import torch

from pads.autoconfig import Facts, choose_settings
from pads.config import CHOSEN, AutoConfig, Config, Part
from pads.curricula import CURRICULA, build_curriculum, is_adaptive, make_curriculum
from pads.errors import UserError
from pads.recipes import RECIPES
from pads.sampling import bin_distribution
from pads.sampling.rules import BinRule
from pads.studies.arms import Arm, base_config, list_candidates
from pads.studies.costs import Rates, run_seconds

PHOTOS = Facts((10,) * 80, "product", num_stored=1000, short_side=70)


class Mine:
    """A stranger's: it asks for one metric, and must be told the dimension."""

    metrics = ("recall@1",)

    def __init__(self, *, dim):
        assert dim > 0
        self.rule = BinRule(bin_distribution(7, initial="N(0.5, 0.1)"))

    def advance(self, metrics, progress):
        self.rule.adjust(self.rule.distribution.scale(torch.arange(7) + metrics["recall@1"]))
        return {"distribution": self.rule.distribution.probabilities_K.tolist()}


@pytest.fixture(params=[*CURRICULA, "mine"])
def part(request, monkeypatch, finished_run):
    monkeypatch.setitem(CURRICULA, "mine", Mine)
    if request.param not in ("replayed", "last distribution"):
        return Part(request.param)
    return Part(request.param, {"run": str(finished_run("another", steps=[3], num_steps=9).path)})


@pytest.fixture
def asks(part):
    """Whether the curriculum asks for metrics."""
    return bool(make_curriculum(Config(curriculum=part)).metrics)


def test_the_dict_holds_some_that_adapt_and_some_that_do_not(monkeypatch):
    monkeypatch.setitem(CURRICULA, "mine", Mine)
    assert all(is_adaptive(Config(curriculum=Part(name))) for name in ("learned", "random actions", "mine"))
    assert not any(is_adaptive(Config(curriculum=Part(name))) for name in ("random", "bins", "linear"))


def test_a_run_on_own_photos_keeps_images_to_reward_it_on(part, asks):
    config = replace(RECIPES["folder"]().config, curriculum=part)
    chosen = {choice.key: choice.value for choice in choose_settings(AutoConfig(config, CHOSEN), PHOTOS)}
    assert chosen["data.reward_share"] == (0.15 if asks else 0)
    assert "curriculum.name" not in chosen


def test_its_validations_are_counted_in_what_a_study_costs(part, asks):
    config = replace(base_config("cub200", scheduled=False), curriculum=part)
    seconds, static = (run_seconds(config, Rates(1000, rate, "")) for rate in (500, 1000))
    assert (seconds > static) == asks
    assert run_seconds(replace(config, adapt_every=None), Rates(1000, 500, "")) == static


def test_a_study_tunes_how_often_it_adapts(part, asks):
    config = replace(base_config("cub200", scheduled=False), curriculum=part)
    tried = [setting for settings in list_candidates(Arm("mine", lambda base: base), config) for setting in settings]
    assert len(tried) == 4
    assert all(setting.startswith("adapt_every=") == asks for setting in tried)


def test_its_run_can_be_repeated_from_the_distribution_that_it_began_with(part, asks, finished_run):
    run = finished_run("source", steps=[2, 4], num_steps=10, curriculum=part.name, **part.options)
    repeats = [Part(name, {"run": str(run.path)}) for name in ("replayed", "last distribution")]
    if not asks:
        for repeat in repeats:
            with pytest.raises(
                UserError, match=f"was trained with the curriculum '{part.name}': name a run of an adap"
            ):
                build_curriculum(repeat)
        return
    replayed, last = (build_curriculum(repeat, seed=3) for repeat in repeats)
    began = make_curriculum(run.config).rule.distribution
    assert torch.equal(replayed.distribution.weights_K, began.weights_K)
    replayed.advance({}, 0.4)
    assert torch.equal(replayed.distribution.weights_K, last.rule.distribution.weights_K)
