"""The contract of every study: valid configs on every base, the paper's numbers, the same budget for every arm."""

import json
import re
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import pytest

from pads.check import check
from pads.config import Config, Sampling, from_json, to_json, with_settings
from pads.curricula import make_curriculum
from pads.errors import UserError
from pads.recipes import RECIPES
from pads.studies import BASES, STUDIES
from pads.studies.arms import base_config, fix_settings, list_candidates, study_base, with_epochs
from pads.studies.tables import COLUMNS

every_study = pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
every_base = pytest.mark.parametrize("base", BASES)
RESULTS = Path(__file__).parents[2] / "results"


@every_study
@every_base
def test_every_arm_is_a_valid_config_on_every_base_and_survives_a_file(study, base):
    for arm in study.arms:
        config = arm.change(base_config(base, scheduled=study.scheduled))
        check(config)
        assert from_json(to_json(config)) == config
        for settings in list_candidates(arm, config):
            check(with_settings(config, settings))


@every_study
def test_the_arms_of_a_study_differ_from_each_other(study):
    base = base_config("cub200", scheduled=study.scheduled)
    configs = [to_json(arm.change(base)) + repr(arm.needs) for arm in study.arms]
    assert len(set(configs)) == len(configs)


@every_study
def test_names_are_unique_and_can_be_names_of_files(study):
    names = [arm.name for arm in study.arms]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", name) for name in names)
    assert study.reference in names
    assert {arm.needs.arm for arm in study.arms if arm.needs} <= set(names)
    assert STUDIES[study.name] is study


@every_study
def test_every_arm_has_the_same_budget_of_tuning(study):
    base = base_config("cub200", scheduled=study.scheduled)
    for arm in study.arms:
        candidates = [tuple(settings) for settings in list_candidates(arm, arm.change(base))]
        assert len(set(candidates)) == 4


@every_study
def test_the_published_figures_are_percentages_of_metrics_of_that_data_set(study):
    assert set(study.bases) <= set(BASES)
    for arm in study.arms:
        assert set(arm.paper) <= set(study.bases)
        for data, figures in arm.paper.items():
            assert set(figures) <= set(COLUMNS[data])
            assert all(40 < value < 100 for value in figures.values())


@pytest.mark.parametrize(
    ("study", "arm", "data", "figures"),
    [
        # typed from the paper, not from the code, in the order of its columns
        ("baselines", "margin-udist", "cub200", [63.5, 74.9, 84.4, 68.1]),
        ("baselines", "margin-udist-0.6", "cars196", [79.7, 87.0, 91.8, 67.1]),
        ("baselines", "margin-pads", "sop", [76.5, 89.0, 95.4, 89.9]),
        ("baselines", "triplet-semihard", "cub200", [60.6, 72.3, 82.1, 65.5]),
        ("baselines", "triplet-udist", "sop", [73.9, 87.7, 94.5, 89.3]),
        ("baselines", "triplet-pads", "cars196", [79.9, 87.5, 92.3, 67.1]),
        ("state-of-the-art", "margin-pads", "cub200", [67.3, 78.0, 85.9, 69.9]),
        ("transfer", "reference", "cub200", [65.4]),
        ("transfer", "policy-other-init", "cub200", [64.3]),
        ("transfer", "last-p-other-init", "cub200", [59.0]),
        ("transfer", "policy-same-init", "cub200", [65.8]),
        ("transfer", "last-p-same-init", "cub200", [57.6]),
        ("curricula", "linear", "cars196", [72.2, 64.0]),
        ("curricula", "non-linear", "cub200", [63.6, 68.4]),
        ("interval", "interval-0-2", "cub200", [64.7, 67.5]),
        ("interval", "interval-0.5-1.4", "cub200", [63.7, 67.5]),
        ("bins", "bins-10", "cub200", [63.8, 67.8]),
        ("bins", "bins-100", "cub200", [64.9, 68.6]),
        ("initial", "initial-uniform", "cub200", [63.9, 67.0]),
        ("initial", "initial-normal", "cub200", [65.0, 68.6]),
        ("inception-bn", "margin-udist", "cub200", [63.8, 75.3, 84.7, 67.9]),
        ("inception-bn", "margin-pads", "cars196", [81.7, 88.3, 93.0, 68.2]),
        ("validation", "by-class", "cub200", [62.6, 67.7]),
        ("validation", "per-class-resampled", "cub200", [65.8, 69.6]),
        ("state-reward", "recall+dist--r1", "cub200", [65.7, 69.2]),
        ("state-reward", "recall+dist--r1+nmi", "cub200", [64.4, 69.4]),
        ("state-reward", "dist+nmi--nmi", "cub200", [65.3, 68.8]),
        ("state-reward", "nmi--r1", "cub200", [64.8, 69.2]),
        ("state-reward", "recall--nmi", "cub200", [64.2, 67.8]),
        ("frequency", "M-10", "cub200", [64.4, 68.3]),
        ("frequency", "M-infinity", "cub200", [61.9, 67.0]),
        ("frequency", "static", "cub200", [63.5, 68.1]),
        ("averages", "R-2", "cub200", [64.5, 68.6]),
        ("averages", "R-2-8-16-32-64", "cub200", [65.6, 69.3]),
        ("agents", "reinforce", "cub200", [64.2, 68.5]),
        ("agents", "ppo-ema", "cub200", [65.4, 69.0]),
        ("agents", "q-learning", "cub200", [63.2, 67.9]),
        ("agents", "rainbow", "cub200", [64.9, 68.5]),
    ],
)
def test_the_published_numbers_are_the_papers(study, arm, data, figures):
    printed = STUDIES[study].arm(arm).paper[data]
    names = COLUMNS[data] if len(figures) == 4 else ("recall@1", "nmi")[: len(figures)]
    assert printed == dict(zip(names, figures, strict=True))


def test_the_rows_of_others_are_the_papers():
    cub, cars, sop = (STUDIES["state-of-the-art"].published[data] for data in ("cub200", "cars196", "sop"))
    assert cub["HTG, 512"] == {"recall@1": 59.5, "recall@2": 71.8, "recall@4": 81.3}
    assert cars["DREML (ensemble), 9216"] == {"recall@1": 86.0, "recall@2": 91.7, "recall@4": 95.0, "nmi": 76.4}
    assert sop["SOFT-TRIPLE, 512"] == {"recall@1": 78.3, "recall@10": 90.3, "recall@100": 95.9, "nmi": 92.0}
    assert (len(cub), len(cars), len(sop)) == (13, 13, 10)
    assert "sop" not in STUDIES["inception-bn"].published
    assert STUDIES["baselines"].published["cars196"]["triplet-semihard (orig)"]["recall@1"] == 51.5


def test_the_paper_schedules_tables_1_2_and_4_and_trains_the_others_for_150_epochs():
    scheduled = {name for name, study in STUDIES.items() if study.scheduled}
    assert scheduled == {"baselines", "state-of-the-art", "curricula", "authors"}
    with_rates = base_config("cub200", scheduled=True)
    assert (with_rates.num_epochs, with_rates.optimiser.milestones) == (300, (150,))
    without = base_config("cub200", scheduled=False)
    assert (without.num_epochs, without.optimiser.milestones) == (150, ())
    assert base_config("sop", scheduled=False).num_epochs == 120


def test_fewer_epochs_lower_the_rate_at_the_same_share_of_the_training():
    config = base_config("cars196", scheduled=True, epochs=60)
    assert (config.num_epochs, config.optimiser.milestones) == (60, (28,))
    assert with_epochs(config, 60) == config


def test_arms_on_the_real_data_sets_are_the_recipes_of_the_same_name():
    """A study and a recipe must not drift apart, whichever study has the arm; test curve and length are the study's own."""
    kinds = {"udist": "udist", "margin-udist": "udist", "static": "udist", "pads": "pads", "margin-pads": "pads"}
    kinds |= {"pads-code": "pads-code", "margin-pads-code": "pads-code"}
    compared = set()
    for study in STUDIES.values():
        for arm, data in product(study.arms, ("cub200", "cars196", "sop")):
            recipe = f"{data}-margin-{kinds.get(arm.name)}"
            if recipe in RECIPES and study.name != "inception-bn":  # the same arms, on another network
                config, ours = arm.change(study_base(study, data)), RECIPES[recipe]()
                assert config.curriculum == ours.curriculum
                assert with_length_of(ours, config) == ours, (study.name, arm.name, data)
                compared.add(recipe)
    assert compared == {name for name in RECIPES if re.match("(cub200|cars196|sop)-margin-", name)}
    for recipe in ("emoji-udist", "emoji-pads", "emoji-pads-code"):
        arm = STUDIES["baselines"].arm(f"margin-{recipe.removeprefix('emoji-')}")
        assert arm.change(base_config("emoji-udist", scheduled=True)) == RECIPES[recipe]()


def test_the_best_recipe_is_an_arm_of_the_losses_with_four_images_of_a_class():
    best, arm = RECIPES["cub200-best"](), STUDIES["losses"].arm("multi-similarity-s2sd")
    config = arm.change(study_base(STUDIES["losses"], "cub200"))
    assert (config.loss, config.distillation) == (best.loss, best.distillation)
    four = replace(config.data, classes_per_batch=28, samples_per_class=4)
    assert four == best.data and config.network == best.network
    assert replace(config.optimiser, milestones=()) == best.optimiser


def with_length_of(recipe, config):
    """The config with what a study sets for all of its arms: length, schedule, test curve, and whether an epoch is selected."""
    return replace(
        config,
        num_epochs=recipe.num_epochs,
        test_curve_every=recipe.test_curve_every,
        optimiser=replace(config.optimiser, milestones=recipe.optimiser.milestones),
        data=replace(config.data, selection_share=recipe.data.selection_share),
    )


def test_the_authors_study_is_their_length_on_all_classes_and_its_controls_differ_in_one_thing():
    study = STUDIES["authors"]
    configs = {arm.name: arm.change(study_base(study, "cub200")) for arm in study.arms}
    for config in configs.values():
        assert (config.num_epochs, config.optimiser.milestones) == (200, (150,))
        assert (config.data.selection_share, config.test_curve_every) == (0, 5)
        assert config.data.batches == "with replacement"
    ours = configs["pads-code"]
    for name in ("fixed-bins-code", "random-reward-code", "single-bin-code"):
        assert replace(configs[name], curriculum=ours.curriculum) == ours
    assert configs["random-reward-code"].curriculum.options == ours.curriculum.options
    single = make_curriculum(configs["single-bin-code"]).rule.distribution
    assert single.num_bins == 29 and single.perplexity == pytest.approx(1, abs=1e-6)
    assert single.edges[7:9].tolist() == pytest.approx([0.414, 0.459], abs=5e-4)
    assert single.probabilities_K.argmax() == 7
    rho = configs["udist-rho-code"]
    assert (rho.loss.options, rho.sampling, rho.data) == ({"beta": 0.6}, Sampling(rho=0.4), ours.data)
    theirs = configs["udist-authors"]
    assert (theirs.data.classes_per_batch, theirs.data.samples_per_class, theirs.data.reward_share) == (28, 4, 0)
    assert (theirs.loss.options, theirs.optimiser.loss_learning_rate) == ({"beta": 1.2}, 5e-4)
    assert theirs.sampling == Sampling()


@pytest.mark.parametrize(
    ("arm", "evidence"),
    [
        ("udist-beta", "cub200-adaptive/udist-beta"),
        ("udist-rho-0.4", "cub200-adaptive/udist-rho"),
        ("udist-pace", "cub200-adaptive/udist-pace"),
        ("fixed-bins", "cub200-series-a/cub200-margin-pads-fixed-bins"),
        ("random-actions", "cub200-series-a/cub200-margin-pads-random-actions"),
        ("random-reward", "cub200-series-a/cub200-margin-pads-random-reward"),
        ("frozen-policy", "emoji-controls/frozen-policy"),
        ("pads-other-classes", "emoji-controls/pads-other-classes"),
    ],
)
def test_the_controls_are_what_their_evidence_was_made_with(arm, evidence):
    base = RECIPES["cub200-margin-udist"]()
    config = STUDIES["controls"].arm(arm).change(base)
    made_with = json.loads((RESULTS / f"{evidence}.json").read_text())
    parts = ("loss", "curriculum", "sampling")
    assert {part: asdict(config)[part] for part in parts} == {part: made_with[part] for part in parts}
    assert replace(config, **{part: getattr(base, part) for part in parts}) == base


def test_arms_do_not_depend_on_the_sampler_of_the_recipe_that_is_their_base():
    for study in STUDIES.values():
        for arm in study.arms:
            on_static, on_pads = (
                arm.change(base_config(name, scheduled=study.scheduled)) for name in ("emoji-udist", "emoji-pads-code")
            )
            assert on_static == on_pads


def test_a_base_or_a_setting_that_every_run_would_choose_for_itself_is_refused():
    with pytest.raises(UserError, match="folder-pads chooses them for each run"):
        base_config("folder-pads", scheduled=True)
    with pytest.raises(UserError, match=r"give a value for data\.resize, num_epochs"):
        fix_settings(with_settings(Config(), ["num_epochs=auto", "data.resize=auto"]))
    assert fix_settings(Config()) == Config()
