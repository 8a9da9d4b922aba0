"""rho that follows the gap between training pairs and unseen ones."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from pads.adapters import AdaptiveController, TripletSampler
from pads.config import Part, with_settings
from pads.curricula import build_curriculum
from pads.curricula.gap import GapCurriculum, positive_distance
from pads.errors import UserError
from pads.recipes import RECIPES
from pads.train import resume, train


def test_the_distance_is_the_mean_over_pairs_of_a_class(batch):
    embeddings, labels = batch
    found = [
        math.dist(embeddings[i].tolist(), embeddings[j].tolist())
        for i in range(len(labels))
        for j in range(len(labels))
        if i != j and labels[i] == labels[j]
    ]
    assert positive_distance(embeddings, labels).item() == pytest.approx(sum(found) / len(found), abs=1e-5)


def test_the_length_of_embeddings_does_not_matter_and_a_split_without_pairs_has_no_distance(batch):
    embeddings, labels = batch
    assert positive_distance(3 * embeddings, labels).item() == pytest.approx(
        positive_distance(embeddings, labels).item()
    )
    assert positive_distance(embeddings, torch.arange(len(labels))).item() == 0


@pytest.mark.parametrize(("trained", "rho"), [(1.0, 0.0), (1.3, 0.0), (0.96, 0.2), (0.1, 0.45)])
def test_the_more_flips_the_closer_training_pairs_are_than_unseen_ones(trained, rho):
    curriculum = GapCurriculum(average=1.0)
    assert curriculum.advance({"trained_distance": 1.0, "unseen_distance": 1.0}, 0.1)["rho"] == 0
    assert curriculum.advance({"trained_distance": trained, "unseen_distance": 1.0}, 0.2)["rho"] == pytest.approx(rho)


def test_what_the_two_sets_differ_by_before_the_training_is_no_gap():
    curriculum = GapCurriculum(average=1.0)
    for trained, unseen in ((0.9, 1.0), (0.45, 0.5), (1.0, 1.0)):
        assert curriculum.advance({"trained_distance": trained, "unseen_distance": unseen}, 0.1)[
            "gap"
        ] == pytest.approx(0)
    assert curriculum.advance({"trained_distance": 0.81, "unseen_distance": 1.0}, 0.1)["gap"] == pytest.approx(0.1)


def test_the_gap_is_a_running_mean():
    curriculum = GapCurriculum(average=0.5, gain=1.0)
    for trained in (1.0, 0.8, 0.6):
        log = curriculum.advance({"trained_distance": trained, "unseen_distance": 1.0}, 0.1)
    assert log["gap"] == pytest.approx(0.25) and curriculum.distribution.rho == pytest.approx(0.25)


def test_the_bins_stay_as_they_are():
    curriculum = GapCurriculum(bins={"initial": "N(0.5, 0.1)"})
    before = curriculum.distribution.probabilities_K
    for trained in (1.0, 0.5):
        curriculum.advance({"trained_distance": trained, "unseen_distance": 1.0}, 0.1)
    assert torch.equal(curriculum.distribution.probabilities_K, before)


@pytest.mark.parametrize("options", [{"gain": 0.0}, {"average": 0.0}, {"limit": 1.5}])
def test_wrong_options_are_refused(options):
    with pytest.raises(UserError, match="above 0"):
        build_curriculum(Part("gap", options))


def test_it_flips_in_someone_elses_loop(batch, generator):
    embeddings, labels = batch
    sampler = TripletSampler("gap", {"bins": {"initial": "uniform", "tails": "merge"}})
    controller = AdaptiveController(sampler, every=1)
    sampler(embeddings, labels)
    unseen = F.normalize(torch.randn(embeddings.shape, generator=generator), dim=1)
    assert controller.step(torch.nn.Identity(), [(unseen, labels)], seen=[(unseen, labels)])["rho"] == 0
    log = controller.step(torch.nn.Identity(), [(unseen, labels)])  # the last batch stands in for what is seen
    assert log["trained_distance"] < log["unseen_distance"] and 0 < log["rho"] <= 0.45
    drawn = [sampler(embeddings, labels) for _ in range(100)]
    share = torch.stack([(triplets.anchors == triplets.positives).float().mean() for triplets in drawn]).mean().item()
    assert share == pytest.approx(log["rho"], abs=0.03)


def test_a_run_that_was_stopped_goes_on_to_the_bit(noisy_photos, tmp_path):
    settings = [
        *("data.image_size=16", "data.resize=18", "data.store_size=18", "data.store_ratio=1", "threads=1"),
        *("data.classes_per_batch=4", "data.samples_per_class=2", "data.reward_share=0.3", "data.selection_share=0.2"),
        *("num_epochs=4", "adapt_every=3", "curriculum.name=gap", "sampling.negatives_from=other classes"),
    ]
    recipe = RECIPES["folder-pads"]()
    config = with_settings(
        replace(recipe, recipe="folder", data=replace(recipe.data, root=str(noisy_photos(10)))), settings
    )
    whole = train(config, tmp_path / "whole")
    events = [json.loads(line) for line in (whole.path / "events.jsonl").read_text().splitlines()]
    adaptations = [event for event in events if event["event"] == "adaptation"]
    assert len(adaptations) >= 4 and all(0 <= event["rho"] <= 0.45 for event in adaptations)

    def stop(kind, step, values):
        if kind == "step" and step == adaptations[1]["step"] + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "stopped", watch=stop)
    again = resume(tmp_path / "stopped")
    assert (again.path / "events.jsonl").read_bytes() == (whole.path / "events.jsonl").read_bytes()
