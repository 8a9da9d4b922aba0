"""The reward split drawn anew during training (paper, Tab. 7): train and reward change, selection and test do not."""

import pytest
import torch

from pads.autoconfig import resolve_auto
from pads.check import check
from pads.config import with_settings
from pads.data.loading import load_views
from pads.data.splits import split_roles
from pads.errors import UserError
from pads.recipes import RECIPES
from pads.train import nobody, resume, train


@pytest.fixture
def config(photos, quick_settings):
    settings = [*quick_settings, "num_epochs=6", "adapt_every=3", "data.reward_resample_every=2"]
    config = with_settings(RECIPES["folder-pads"](), ["recipe=folder", f"data.root={photos}", *settings])
    return resolve_auto(config, torch.device("cpu"), nobody)


def views_of(config):
    return load_views(config, torch.device("cpu"), nobody)


def indices(view):
    return set(view.indices_N.tolist())


@pytest.mark.parametrize("split", ["per class", "by class"])
def test_every_draw_deals_the_same_pool_out_anew(config, split):
    views = views_of(with_settings(config, [f"data.reward_split={split}"]))
    draws = [views.at(epoch) for epoch in range(6)]
    pool = indices(views.train) | indices(views.reward)
    for at in draws:
        assert indices(at.train) | indices(at.reward) == pool
        assert not indices(at.train) & indices(at.reward)
        assert indices(at.selection) == indices(views.selection)
        assert indices(at.test) == indices(views.test)
    assert draws[0] is views
    assert [draw.draw for draw in draws] == [0, 0, 1, 1, 2, 2]
    assert len({frozenset(indices(draw.reward)) for draw in draws}) == 3


def test_a_class_keeps_its_label_from_draw_to_draw(config):
    """Else the learned boundaries of the margin loss would be attached to other classes."""
    views = views_of(with_settings(config, ["data.reward_split=by class"]))
    label_of: dict[int, int] = {}
    for epoch in (0, 2, 4):
        view = views.at(epoch).train
        for image, label in zip(view.indices_N.tolist(), view.labels_N.tolist(), strict=True):
            of_class = int(view.store.labels_N[image])
            assert label_of.setdefault(of_class, label) == label
    assert len(set(label_of.values())) == len(label_of) == views.train.num_labels
    assert views.train.num_classes < views.train.num_labels


def test_a_draw_is_a_function_of_the_seed_and_its_number_alone():
    labels = torch.arange(60).div(6, rounding_mode="floor").numpy()
    first, again, other, later = (
        split_roles(labels, seed=seed, draw=draw) for seed, draw in ((3, 1), (3, 1), (4, 1), (3, 2))
    )
    assert (first.reward == again.reward).all()
    assert (first.reward != other.reward).any()
    assert (first.reward != later.reward).any()
    assert (first.selection == later.selection).all()
    assert (split_roles(labels, seed=3).reward == split_roles(labels, seed=3, draw=0).reward).all()


def test_without_it_the_roles_stay_as_they_are(config):
    views = views_of(with_settings(config, ["data.reward_resample_every=null"]))
    assert all(views.at(epoch) is views for epoch in range(100))
    assert views.train.num_labels == views.train.num_classes


@pytest.mark.parametrize("split", ["per class", "by class"])
def test_a_run_that_is_stopped_between_draws_goes_on_with_the_same_bits(config, tmp_path, split):
    config = with_settings(config, [f"data.reward_split={split}"])
    whole = train(config, tmp_path / "whole")

    class Cut(Exception):
        pass

    def cut(kind, step, values):
        if kind == "selection" and values["epoch"] == 3:
            raise Cut

    with pytest.raises(Cut):
        train(config, tmp_path / "cut", watch=cut)
    resumed = resume(tmp_path / "cut")
    for name in ("events.jsonl", "metrics.json"):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_drawing_anew_changes_what_is_trained_on_and_nothing_before_it(config, tmp_path):
    fixed = train(with_settings(config, ["data.reward_resample_every=null"]), tmp_path / "fixed")
    drawn = train(config, tmp_path / "drawn")
    ours, theirs = ((run.path / "events.jsonl").read_text().splitlines() for run in (drawn, fixed))
    assert len(ours) == len(theirs)  # the steps of an epoch stay the same
    same = next(number for number, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    assert same > 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.reward_resample_every=0", "data.reward_resample_every is 0: it must be at least 1, or null for never"),
        ("data.reward_pick=evenly spaced", "draws images at random"),
    ],
)
def test_what_cannot_work_is_refused_at_the_door(config, setting, message):
    with pytest.raises(UserError, match=message):
        check(with_settings(config, [setting]))
