"""Who may see what: the training images of a data set are shared out among three roles, never mixed.

train: what the network learns from. reward: what the policy sees (the paper's validation set). selection: whole classes
that pick the epoch, for every arm alike. The test images are a list of their own and never come here.

Dimensions: N images, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pads.data.benchmark import count
from pads.errors import UserError

REWARD_SPLITS = ("per class", "by class")
REWARD_PICKS = ("random", "evenly spaced")
MIN_CLASSES = 2
"""Of each role that has any: with one class, everything is a positive."""
STREAM = {"selection": 1, "reward": 2}
"""Each choice has its own random numbers, so that arms with and without a reward split select on the same classes."""


@dataclass(frozen=True, eq=False)
class Roles:
    """Indices into the training images, ascending; disjoint, and together all of them."""

    train: np.ndarray
    reward: np.ndarray
    selection: np.ndarray
    notes: tuple[str, ...] = ()


def split_roles(
    labels_N: np.ndarray,
    *,
    selection_share: float = 0.1,
    reward_share: float = 0.15,
    reward_split: str = "per class",
    reward_pick: str = "random",
    seed: int = 0,
    draw: int = 0,
) -> Roles:
    """Hold out classes for selection, then images or classes of the rest for the reward; a share of 0 gives no role.

    draw: the how-manieth reward split of this seed; selection is the same for all of them.
    """
    labels_N = np.asarray(labels_N)
    check_options(selection_share, reward_share, reward_split, reward_pick)
    classes_C = np.unique(labels_N)
    check_num_classes(len(classes_C), selection_share, reward_share if reward_split == "by class" else 0.0)

    selection_rng = np.random.default_rng([STREAM["selection"], seed])
    # Four classes stay for the other two roles if there are that many, whatever the reward split will be.
    num_left = min(2 * MIN_CLASSES, len(classes_C) - MIN_CLASSES)
    selected = pick_classes(classes_C, selection_share, num_left, "random", selection_rng)
    is_selection_N = np.isin(labels_N, selected)
    classes_C = np.unique(labels_N[~is_selection_N])

    rng = np.random.default_rng([STREAM["reward"], seed, *([draw] if draw else [])])
    notes: tuple[str, ...] = ()
    if reward_share and reward_split == "per class":
        num_small = num_too_small(labels_N[~is_selection_N], reward_share)
        if num_small:
            check_num_classes(len(np.unique(labels_N)), selection_share, reward_share)
            reward_split = "by class"
            notes += (
                f"The reward split holds out whole classes: {reward_share:.0%} of the images per class would leave "
                f"{count(num_small, 'class', 'classes')} with fewer than two images on one side.",
            )
    if reward_split == "by class":
        is_reward_N = np.isin(labels_N, pick_classes(classes_C, reward_share, MIN_CLASSES, reward_pick, rng))
    else:
        is_reward_N = np.zeros(len(labels_N), dtype=bool)
        for label in classes_C:
            indices = np.flatnonzero(labels_N == label)
            is_reward_N[indices[pick(len(indices), num_kept(len(indices), reward_share), reward_pick, rng)]] = True
    return Roles(
        train=np.flatnonzero(~is_selection_N & ~is_reward_N),
        reward=np.flatnonzero(is_reward_N),
        selection=np.flatnonzero(is_selection_N),
        notes=notes,
    )


def pick(num: int, num_kept: int, how: str, rng: np.random.Generator) -> np.ndarray:
    """Which of 0..num-1 are held out."""
    if how == "random":  # noqa: SIM108
        kept = rng.permutation(num)[:num_kept]
    else:  # the authors' rule: what is kept is evenly spaced, and begins and ends with the first and the last
        kept = np.round(np.linspace(0, num - 1, num_kept)).astype(np.int64)
    return np.setdiff1d(np.arange(num), kept)


def pick_classes(classes_C: np.ndarray, share: float, num_left: int, how: str, rng: np.random.Generator) -> np.ndarray:
    """The share of the classes that is held out: at least two, and leaving at least num_left."""
    if not share:
        return classes_C[:0]
    num = len(classes_C)
    return classes_C[pick(num, min(max(num_kept(num, share), num_left), num - MIN_CLASSES), how, rng)]


def num_kept(num: int, share: float) -> int:
    """Rounded down, as in the authors' code; the tiny number undoes what binary fractions lose."""
    return int((1 - share) * num + 1e-9)


def num_too_small(labels_N: np.ndarray, share: float) -> int:
    """Classes that a split per class would leave with fewer than two images on either side."""
    sizes = np.unique(labels_N, return_counts=True)[1]
    return sum(min(num_kept(size, share), size - num_kept(size, share)) < 2 for size in sizes.tolist())


def check_options(selection_share: float, reward_share: float, reward_split: str, reward_pick: str) -> None:
    for name, share in (("selection_share", selection_share), ("reward_share", reward_share)):
        if not 0 <= share < 1:
            raise UserError(f"data.{name} must be at least 0 and below 1, not {share}.")
    choices = (("reward_split", reward_split, REWARD_SPLITS), ("reward_pick", reward_pick, REWARD_PICKS))
    for name, value, right in choices:
        if value not in right:
            raise UserError(f"data.{name} must be {' or '.join(map(repr, right))}, not {value!r}.")


def check_num_classes(num_classes: int, selection_share: float, reward_share: float) -> None:
    roles = ["training"] + ["selection"] * (selection_share > 0) + ["the reward split"] * (reward_share > 0)
    if num_classes < MIN_CLASSES * len(roles):
        raise UserError(
            f"there {'is' if num_classes == 1 else 'are'} {count(num_classes, 'class', 'classes')} to train on, but "
            f"{' and '.join(roles)} need two each: add classes, or set data.selection_share or data.reward_share to 0."
        )
