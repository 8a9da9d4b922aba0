"""Features that are computed once, stages that follow each other, and the floor that training has to beat."""

import importlib
import json
import os
import sys
from dataclasses import replace

import pytest
import torch
from killing import run_until_killed

from pads.autoconfig import resolve_auto
from pads.build import start_network
from pads.check import check
from pads.config import Config, Part, with_settings
from pads.data.loading import load_views
from pads.data.preprocessing import Preprocessing
from pads.errors import UserError
from pads.features import FeatureChoice, freeze_views
from pads.model import evaluate_run, load
from pads.networks import PooledFeatures
from pads.recipes import RECIPES
from pads.runs import RunFolder
from pads.runs.checkpoint import load_state
from pads.runs.watch import nobody
from pads.stages import plan_stages
from pads.train import resume, train

loop = sys.modules["pads.train"]  # `pads.train` is the function

SETTINGS = [
    "network.weights=none",
    "network.backbone=small",
    "network.embedding_dim=24",
    "network.head=discriminant",
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=18",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.reward_share=0.2",
    "data.selection_share=0.2",
    "loss.name=margin",
    "optimiser.learning_rate=1e-3",
    "optimiser.milestones=[1]",
    "num_epochs=2",
    "adapt_every=3",
    "log_every=2",
    "threads=1",
]
HEAD_FIRST = {
    "network": {"freeze": "backbone"},
    "num_epochs": 3,
    "optimiser": {"learning_rate": 0.01, "milestones": []},
}


@pytest.fixture(scope="module")
def photos(noisy_photos):
    return noisy_photos(14, sizes=[(20, 24)])


def make_config(photos, *settings, recipe="folder-pads") -> Config:
    config = with_settings(RECIPES[recipe](), [f"data.root={photos}", *SETTINGS, *settings])
    return resolve_auto(config, torch.device("cpu"), nobody)


@pytest.fixture(scope="module")
def frozen(photos, tmp_path_factory) -> RunFolder:
    return train(make_config(photos, "network.freeze=backbone"), tmp_path_factory.mktemp("runs") / "frozen")


@pytest.fixture(scope="module")
def staged(photos, tmp_path_factory) -> RunFolder:
    config = replace(make_config(photos, "network.head=plain"), before=HEAD_FIRST)
    return train(config, tmp_path_factory.mktemp("runs") / "staged")


def read_events(run: RunFolder) -> list[dict]:
    return [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]


def assert_same(run: RunFolder, reference: RunFolder) -> None:
    for name in ("events.jsonl", "metrics.json", "config.json"):
        assert (run.path / name).read_bytes() == (reference.path / name).read_bytes(), name
    assert [path.name for path in run.checkpoints()] == [path.name for path in reference.checkpoints()]
    pairs = [
        *zip(run.checkpoints(), reference.checkpoints(), strict=True),
        (run.selected_path, reference.selected_path),
    ]
    for ours, theirs in pairs:
        mine, other = load_state(ours)["network"], load_state(theirs)["network"]
        assert all(torch.equal(mine[name], other[name]) for name in other)


# -- frozen features ---------------------------------------------------------------------------------------------------


def test_the_features_of_every_role_are_those_of_its_images(photos, tmp_path):
    config = make_config(photos, "network.freeze=backbone", "network.crops=2")
    views, network = load_views(config, torch.device("cpu"), nobody), start_network(config)
    run = RunFolder.create(tmp_path / "run", config)
    shown = freeze_views(config, run, network, views)
    pool = PooledFeatures(network).eval()
    for role in ("train", "reward", "selection", "test"):
        view, seen = getattr(views, role), getattr(shown, role)
        assert torch.equal(seen.labels_N, view.labels_N) and len(seen) == len(view)
        with torch.no_grad():
            plain = torch.cat([pool(images)[: len(labels)] for images, labels in view])
        assert torch.equal(torch.cat([features for features, _ in seen]), plain)
        assert seen.store.features_NKF.shape[1] == (3 if role == "train" else 1)
    ((batch, _, labels),) = shown.train.read_batches(torch.tensor([[5, 0, 9]]))
    assert torch.equal(batch, shown.train.store.features_NKF[[5, 0, 9]])
    assert torch.equal(labels, views.train.labels_N[[5, 0, 9]])
    crops = shown.train.store.features_NKF
    assert (crops[:, 1] - crops[:, 2]).norm() > 0.01 * crops.norm()  # other crops, of the same images
    again = freeze_views(config, run, network.requires_grad_(False), views)
    assert all(torch.equal(a.store.features_NKF, b.store.features_NKF) for a, b in ((shown.train, again.train),))


def test_one_of_the_crops_is_drawn_for_each_image(generator):
    features = torch.arange(60.0).view(10, 3, 2)
    sizes = torch.ones(10, 2)
    drawn = FeatureChoice().for_training(features, sizes, generator)
    assert {int(row[0]) % 6 // 2 for row in drawn} == {0, 1, 2}
    assert all(int(row[0]) // 6 == number for number, row in enumerate(drawn))
    state = torch.Generator().manual_seed(3)
    whole = FeatureChoice().for_training(features, sizes, state)
    part = FeatureChoice().for_training(features[4:8], sizes, torch.Generator().manual_seed(3), slice(4, 8))
    assert torch.equal(part, whole[4:8])


def test_a_frozen_backbone_stays_as_it_was_and_the_head_learns(frozen):
    started, ended = start_network(frozen.config).state_dict(), frozen.load_network("last")
    for name, weights in started.items():
        assert torch.equal(weights, ended[name]) == name.startswith("backbone."), name
    assert not torch.equal(ended["embedding.weight"], frozen.load_start()["discriminant"][0])
    assert not frozen.features_path.exists()  # nobody needs them any more


def test_the_figures_of_frozen_features_are_those_of_the_images(frozen):
    assert evaluate_run(frozen) == frozen.metrics["test"]["trained"]
    assert {"training", "adaptation", "selection"} == {event["event"] for event in read_events(frozen)}


def test_it_is_the_training_of_the_head_alone_on_unaugmented_images(photos, tmp_path, monkeypatch):
    """The oracle: the same run on images, with a backbone that gets no gradients."""
    settings, build_parts = ["network.frozen_batch_norm=true", "log_every=1"], loop.build_parts

    def build_frozen(*arguments):
        network, *others = build_parts(*arguments)
        network.backbone.requires_grad_(False)
        return network, *others

    on_features = train(make_config(photos, *settings, "network.freeze=backbone"), tmp_path / "features")
    monkeypatch.setattr(loop, "build_parts", build_frozen)
    centre = lambda self, pixels, sizes, generator, own: self.for_evaluation(pixels, sizes[own])
    monkeypatch.setattr(Preprocessing, "for_training", centre)
    on_images = train(make_config(photos, *settings), tmp_path / "images")
    ours, theirs = (
        [event["loss"] for event in read_events(run) if event["event"] == "training"]
        for run in (on_features, on_images)
    )
    assert len(theirs) == 8
    assert ours == pytest.approx(theirs, rel=2e-3)


# -- stages ------------------------------------------------------------------------------------------------------------


def test_stages_follow_each_other_in_one_folder_and_their_events_say_so(staged):
    config, events = staged.config, read_events(staged)
    stages = plan_stages(config, load_views(config, torch.device("cpu"), nobody))
    assert [stage.config.network.freeze for stage in stages] == ["backbone", "none"]
    assert {event["stage"] for event in events} == {0, 1}
    for event in events:
        inside = stages[event["stage"]]
        assert inside.first_step <= event["step"] <= inside.last_step
    steps = [event["step"] for event in events]
    assert steps == sorted(steps)
    epochs = [(event["stage"], event["epoch"]) for event in events if event["event"] == "selection"]
    assert epochs == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    assert staged.metrics["steps"] == stages[-1].last_step
    assert load_state(staged.checkpoints()[-1])["stage"] == 1


def test_a_stage_starts_from_the_best_network_of_the_one_before(photos, tmp_path):
    config = replace(make_config(photos), before=HEAD_FIRST, num_epochs=0)
    run = train(config, tmp_path / "run")
    ours, best = load_state(run.checkpoints()[-1])["network"], load_state(run.selected_path)["network"]
    assert all(torch.equal(ours[name], best[name]) for name in best)
    assert run.metrics["test"]["last"] == run.metrics["test"]["trained"]


@pytest.mark.parametrize(
    ("owner", "name", "first", "second"),
    [
        (torch.optim.Adam, "step", 4, 9),  # inside the first stage, and soon after the second began
        (torch.optim.Adam, "step", 13, 6),  # at the first step of the second stage, and inside it
        (os, "replace", 5, 6),  # before the first checkpoint, and about the end of the first stage
        (RunFolder, "save_checkpoint", 4, 2),  # between the stages
        (RunFolder, "save_selected", 3, 2),
    ],
)
def test_a_run_killed_between_and_inside_stages_ends_the_same_to_the_bit(staged, tmp_path, owner, name, first, second):
    run = tmp_path / "run"
    run_until_killed(lambda: train(staged.config, run), owner, name, first)
    run_until_killed(lambda: resume(run), owner, name, second)
    assert_same(resume(run), staged)


def test_a_killed_run_on_features_takes_those_that_it_has(frozen, tmp_path, monkeypatch):
    run = tmp_path / "run"
    run_until_killed(lambda: train(frozen.config, run), torch.optim.Adam, "step", 9)
    assert (run / "features.safetensors").exists()
    monkeypatch.setattr("pads.features.pool_roles", None)
    monkeypatch.setattr("pads.start.make_heads", None)
    assert_same(resume(run), frozen)


# -- the floor ---------------------------------------------------------------------------------------------------------


def test_training_that_does_not_help_is_said_and_the_start_is_kept(photos, tmp_path):
    told = []
    config = make_config(photos, "network.freeze=backbone", "network.head=whitening", "optimiser.learning_rate=5.0")
    run = train(config, tmp_path / "run", watch=lambda kind, step, values: told.append((kind, values)))
    assert run.metrics["selection"]["epoch"] == 0 and run.metrics["steps"] > 0
    assert run.metrics["selection"]["head"] in ("plain", "whitening")
    notes = [note for kind, values in told if kind == "note" for note in values["notes"]]
    assert any("Training did not help" in note for note in notes)
    offered = [event for event in read_events(run) if event["event"] == "selection"]
    assert run.metrics["selection"]["map@r"] >= max(event["map@r"] for event in offered) - 0.01
    assert evaluate_run(run) == run.metrics["test"]["trained"] != run.metrics["test"]["last"]


def test_a_start_that_is_not_clearly_better_gives_way(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("pads.train"), "CLEARLY", 1.0)  # no start is ahead by so much
    config = make_config(photos, "network.freeze=backbone", "network.head=whitening", "optimiser.learning_rate=5.0")
    run = train(config, tmp_path / "run")
    trained = [event["map@r"] for event in read_events(run) if event["event"] == "selection" and event["epoch"] > 0]
    assert run.metrics["selection"]["epoch"] > 0 and run.metrics["selection"]["map@r"] == max(trained)


@pytest.mark.parametrize(
    "settings", [[], ["network.freeze=backbone"], ["network.head=random"], ["data.selection_share=0"]]
)
def test_no_epoch_measures_and_trains_nothing(photos, tmp_path, settings):
    config = make_config(photos, "num_epochs=0", *settings)
    run = train(config, tmp_path / "run")
    assert (run.metrics["steps"], run.is_finished) == (0, True)
    if "data.selection_share=0" in settings:
        assert run.metrics["test"]["trained"] == run.metrics["test"]["untrained"]
    (run.path / "metrics.json").unlink()
    assert resume(run.path).metrics["steps"] == 0
    assert load(run).embed(next(photos.rglob("*.png"))).shape == (1, 24)
    assert evaluate_run(run) == run.metrics["test"]["trained"]


def test_what_needs_more_than_features_is_refused(photos):
    config = make_config(photos, "network.freeze=backbone")
    for wrong, words in (
        (replace(config, distillation=Part("s2sd")), "a distillation needs the feature maps"),
        (replace(config, data=replace(config.data, reward_resample_every=2)), "computed once for each role"),
        (replace(config, network=replace(config.network, freeze="backbon")), "did you mean backbone"),
        (replace(config, network=replace(config.network, crops=-1)), "network.crops is -1"),
    ):
        with pytest.raises(UserError, match=words):
            check(wrong)
