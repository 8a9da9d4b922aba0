"""What every recipe must give: a config that survives a file, passes the checks of a run, and can be built."""

import copy

import pytest
import torch

from pads.autoconfig import Facts, apply_choices, choose_settings
from pads.build import build_network, make_curriculum
from pads.check import check
from pads.config import AutoConfig, Config, build, drop_auto, from_json, to_dict, to_json, with_settings
from pads.data.preprocessing import Preprocessing
from pads.data.store import compute_stored_shape
from pads.evaluate import metrics_to_report
from pads.losses import LOSSES
from pads.recipes import CODE_BINS, PAPER_BINS, RECIPES
from pads.sampling import draw_triplets

every_recipe = pytest.mark.parametrize("name", RECIPES)


@every_recipe
def test_every_recipe_is_a_config_and_says_in_one_line_what_it_is(name):
    assert isinstance(RECIPES[name](), Config | AutoConfig)
    assert 10 < len((RECIPES[name].__doc__ or "").strip().splitlines()[0]) < 100


def resolve(recipe):
    """What a run would make of the recipe, on made-up images."""
    if isinstance(recipe, Config):
        return recipe
    facts = Facts((6,) * 40, "class", num_stored=300, short_side=200)
    return apply_choices(recipe, choose_settings(recipe, facts))


@every_recipe
def test_only_recipes_for_own_images_leave_something_to_be_chosen(name):
    assert isinstance(RECIPES[name](), AutoConfig) == name.startswith(("folder", "csv", "hf"))


@every_recipe
def test_every_recipe_survives_a_file(name):
    config = resolve(RECIPES[name]())
    assert from_json(to_json(config)) == config
    assert to_json(from_json(to_json(config))) == to_json(config)


@every_recipe
def test_every_recipe_passes_the_checks_of_a_run_also_after_a_file(name):
    check(RECIPES[name]())
    check(from_json(to_json(resolve(RECIPES[name]()))))


@every_recipe
def test_the_parts_of_every_recipe_can_be_built_and_work_together(name, generator):
    """Made-up pictures through preprocessing and network, made-up embeddings through sampler and loss."""
    config = resolve(RECIPES[name]())
    network, curriculum = build_network(config).eval(), make_curriculum(config)
    loss_fn = build(LOSSES, config.loss, "loss", num_classes=4)
    preprocessing = Preprocessing.of(config.data, config.network)
    shape = compute_stored_shape(config.data.store_size, config.data.store_ratio)
    pixels = torch.randint(256, (2, *shape), dtype=torch.uint8, generator=generator)
    images = preprocessing.for_training(pixels, torch.tensor([[100, 80], [60, 90]]), generator)
    assert images.shape == (2, 3, config.data.image_size, config.data.image_size)
    with torch.no_grad():
        assert network(images).shape == (2, config.network.embedding_dim)

    labels, sampling = torch.arange(4).repeat_interleave(2), config.sampling
    embeddings = torch.randn(8, config.network.embedding_dim, generator=generator).requires_grad_()
    drawn = draw_triplets(
        embeddings,
        labels,
        curriculum.rule,
        negatives_from=sampling.negatives_from,
        anchor_as_positive=sampling.anchor_as_positive,
        rho=sampling.rho,
        generator=generator,
    )
    loss = loss_fn(embeddings, labels, drawn)
    loss.backward()
    assert loss.isfinite()
    assert embeddings.grad.isfinite().all()


@every_recipe
def test_the_metrics_that_every_recipe_adapts_to_are_among_those_that_it_reports(name):
    config = drop_auto(RECIPES[name]())
    assert set(make_curriculum(config).metrics) <= set(metrics_to_report(config))


def test_changing_one_recipe_leaves_the_others_as_they_are():
    before = copy.deepcopy((PAPER_BINS, CODE_BINS)), [to_dict(recipe()) for recipe in RECIPES.values()]
    for recipe in RECIPES.values():
        changed = with_settings(recipe(), ["curriculum.options.bins.num_bins=7", "loss.options.beta=3", "seed=9"])
        assert changed != recipe()
    assert before == ((PAPER_BINS, CODE_BINS), [to_dict(recipe()) for recipe in RECIPES.values()])


def test_the_two_readings_of_the_paper_differ_where_the_design_says_so():
    paper, code = RECIPES["emoji-pads"](), RECIPES["emoji-pads-code"]()
    bins = {name: config.curriculum.options["bins"] for name, config in (("paper", paper), ("code", code))}
    assert (bins["paper"]["num_bins"], bins["code"]["num_bins"]) == (30, 29)
    assert make_curriculum(paper).distribution.drawing == "bin then image"
    assert make_curriculum(code).distribution.drawing == "weight per image"
    assert make_curriculum(paper).distribution.tails == "exclude"
    assert make_curriculum(code).distribution.tails == "merge"
    assert (paper.sampling.negatives_from, code.sampling.negatives_from) == ("all but the anchor", "all")
    assert (paper.sampling.anchor_as_positive, code.sampling.anchor_as_positive) == (False, True)
    assert make_curriculum(paper).agent.critic_target == "return"
    assert make_curriculum(code).agent.critic_target == "metric"
