from __future__ import annotations

import numpy as np
import pytest

from pads.data.splits import Roles, split_roles
from pads.errors import UserError

CUB_LIKE = np.repeat(np.arange(20), np.arange(41, 61))
EMOJI_LIKE = np.repeat(np.arange(30), [7] * 25 + [4] * 5)


def classes(labels_N: np.ndarray, indices: np.ndarray) -> set[int]:
    return set(labels_N[indices].tolist())


def shared_out(roles: Roles) -> np.ndarray:
    return np.sort(np.concatenate([roles.train, roles.reward, roles.selection]))


@pytest.mark.parametrize("labels_N", [CUB_LIKE, EMOJI_LIKE, np.random.default_rng(0).permutation(CUB_LIKE)])
@pytest.mark.parametrize("reward_split", ["per class", "by class"])
@pytest.mark.parametrize("reward_pick", ["random", "evenly spaced"])
@pytest.mark.parametrize("shares", [(0.1, 0.15), (0.0, 0.15), (0.1, 0.0), (0.0, 0.0), (0.3, 0.5)])
def test_roles_are_disjoint_ascending_and_cover_everything(
    labels_N: np.ndarray, reward_split: str, reward_pick: str, shares: tuple[float, float]
) -> None:
    roles = split_roles(
        labels_N,
        selection_share=shares[0],
        reward_share=shares[1],
        reward_split=reward_split,
        reward_pick=reward_pick,
        seed=1,
    )
    assert shared_out(roles).tolist() == list(range(len(labels_N)))
    for indices in (roles.train, roles.reward, roles.selection):
        assert (np.diff(indices) > 0).all()
    assert (len(roles.selection) > 0) == (shares[0] > 0)
    assert (len(roles.reward) > 0) == (shares[1] > 0)
    assert not classes(labels_N, roles.selection) & classes(labels_N, np.concatenate([roles.train, roles.reward]))


def test_selection_takes_a_tenth_of_the_classes_whole() -> None:
    roles = split_roles(CUB_LIKE)
    selected = classes(CUB_LIKE, roles.selection)
    assert len(selected) == 2
    assert len(roles.selection) == np.isin(CUB_LIKE, list(selected)).sum()


def test_per_class_gives_every_class_its_share() -> None:
    roles = split_roles(CUB_LIKE, reward_share=0.15)
    assert roles.notes == ()
    for label in classes(CUB_LIKE, roles.train):
        num = np.bincount(CUB_LIKE)[label]
        assert (CUB_LIKE[roles.train] == label).sum() == int(0.85 * num)
        assert (CUB_LIKE[roles.reward] == label).sum() == num - int(0.85 * num)


def test_evenly_spaced_is_the_authors_rule() -> None:
    """60 images: 51 train at the rounded steps of 59 / 50, and the nine gaps are the reward split."""
    labels_N = np.repeat(np.arange(2), 60)
    roles = split_roles(labels_N, selection_share=0, reward_pick="evenly spaced")
    train = {round(step * 59 / 50) for step in range(51)}
    gaps = [index for index in range(60) if index not in train]
    assert len(gaps) == 9
    assert 0 in train
    assert 59 in train
    assert roles.reward.tolist() == gaps + [60 + gap for gap in gaps]


def test_evenly_spaced_does_not_depend_on_the_seed_and_random_does() -> None:
    def reward(pick: str, seed: int) -> list[int]:
        return split_roles(CUB_LIKE, selection_share=0, reward_pick=pick, seed=seed).reward.tolist()

    assert reward("evenly spaced", 0) == reward("evenly spaced", 1)
    assert reward("random", 0) == reward("random", 0) != reward("random", 1)


def test_arms_with_and_without_a_reward_split_select_on_the_same_classes() -> None:
    options = [{"reward_share": 0.0}, {}, {"reward_split": "by class"}, {"reward_pick": "evenly spaced"}]
    selections = [split_roles(CUB_LIKE, seed=3, **option).selection.tolist() for option in options]  # type: ignore[arg-type]
    assert all(selection == selections[0] for selection in selections)
    assert split_roles(CUB_LIKE, seed=4).selection.tolist() != selections[0]


def test_by_class_holds_out_whole_classes() -> None:
    roles = split_roles(CUB_LIKE, reward_split="by class", reward_share=0.15)
    assert not classes(CUB_LIKE, roles.reward) & classes(CUB_LIKE, roles.train)
    assert len(classes(CUB_LIKE, roles.reward)) == 3  # 15 % of 18, rounded up as train is rounded down


def test_small_classes_make_the_reward_split_by_class_and_it_says_so() -> None:
    roles = split_roles(EMOJI_LIKE, selection_share=0)
    assert not classes(EMOJI_LIKE, roles.reward) & classes(EMOJI_LIKE, roles.train)
    assert roles.notes == (
        "The reward split holds out whole classes: 15% of the images per class would leave 5 classes with fewer than "
        "two images on one side.",
    )


@pytest.mark.parametrize(("num_images", "falls_back"), [(6, True), (7, False), (13, False)])
def test_two_images_on_each_side_are_enough(num_images: int, falls_back: bool) -> None:
    """15 % of 6 leaves 5 and 1, of 7 leaves 5 and 2."""
    roles = split_roles(np.repeat(np.arange(8), num_images), reward_share=0.15)
    assert bool(roles.notes) == falls_back


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_each_role_has_two_classes_however_small_or_large_the_shares(share: float) -> None:
    labels_N = np.repeat(np.arange(6), 3)
    roles = split_roles(labels_N, selection_share=share, reward_share=share, reward_split="by class")
    assert [len(classes(labels_N, x)) for x in (roles.train, roles.reward, roles.selection)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("num_classes", "options"),
    [(1, {"selection_share": 0.0, "reward_share": 0.0}), (3, {}), (5, {"reward_split": "by class"})],
)
def test_too_few_classes_are_refused(num_classes: int, options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=rf"{num_classes} class.* need two each: .*data.selection_share"):
        split_roles(np.repeat(np.arange(num_classes), 50), **options)  # type: ignore[arg-type]


def test_too_few_classes_are_refused_when_small_classes_force_the_split_by_class() -> None:
    with pytest.raises(UserError, match=r"5 classes .* the reward split need two each"):
        split_roles(np.repeat(np.arange(5), 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selection_share": 1.0}, "data.selection_share must be at least 0 and below 1, not 1.0"),
        ({"reward_share": -0.1}, "data.reward_share"),
        ({"reward_split": "class"}, "data.reward_split must be 'per class' or 'by class', not 'class'"),
        ({"reward_pick": "even"}, "data.reward_pick must be"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        split_roles(CUB_LIKE, **options)  # type: ignore[arg-type]
