"""Runs that have a name. A recipe is a function that returns a Config; a variant calls another and replaces some fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pads.config import Config, Data, Network, Optimiser, Part, Sampling

PAPER_BINS = {"num_bins": 30, "interval": [0.1, 1.4], "initial": "U[0.3, 0.7]"}
CODE_BINS = {
    **PAPER_BINS,
    "num_bins": 29,
    "outside": 1e-15,
    "evaluated_at": "shifted",
    "tails": "merge",
    "clip": [1e-25, 1e25],
    "drawing": "weight per image",
}


def with_pads(config: Config, semantics: str = "paper") -> Config:
    """The adaptive sampler, as the paper words it or as the authors' code does it."""
    if semantics == "paper":
        learned = Part("learned", {"bins": PAPER_BINS, "agent": "ppo", "reward": "recall@1+nmi"})
        return replace(config, curriculum=learned, sampling=Sampling("all but the anchor"))
    agent = {"critic_target": "metric"}
    learned = Part("learned", {"bins": CODE_BINS, "agent": "ppo", "agent_options": agent, "reward": "recall@1+nmi"})
    return replace(config, curriculum=learned, sampling=Sampling("all", anchor_as_positive=True))


def emoji_udist() -> Config:
    """emoji, margin loss, distance-weighted sampling (U-dist): the static baseline"""
    return Config(
        data=Data(
            name="emoji",
            image_size=32,
            resize=36,
            store_size=36,
            flip=False,  # a mirrored arrow is another emoji
            classes_per_batch=56,
            samples_per_class=2,
        ),
        network=Network("small", frozen_batch_norm=False, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
        loss=Part("margin", {"beta": 1.2}),
        curriculum=Part("distance-weighted"),
        optimiser=Optimiser(learning_rate=1e-3, loss_learning_rate=1e-3, milestones=(18, 26)),
        num_epochs=30,
        threads=1,
    )


def emoji_pads() -> Config:
    """emoji, margin loss, the adaptive sampler as the paper words it: what `make demo` runs"""
    return with_pads(replace(emoji_udist(), loss=Part("margin", {"beta": 0.6})))


def emoji_pads_code() -> Config:
    """emoji, margin loss, the adaptive sampler as the authors' code does it"""
    return with_pads(replace(emoji_udist(), loss=Part("margin", {"beta": 0.6})), "code")


def emoji_semihard() -> Config:
    """emoji, triplet loss, the nearest semi-hard negative"""
    return replace(emoji_udist(), loss=Part("triplet"), curriculum=Part("semihard"))


def emoji_random() -> Config:
    """emoji, margin loss, random negatives"""
    return replace(emoji_udist(), curriculum=Part("random"))


def folder() -> Config:
    """your own images, a folder per class: --data DIR"""
    return with_pads(
        Config(
            data=Data(name="folder", image_size=64, resize=72, store_size=80, classes_per_batch=8, samples_per_class=4),
            network=Network("small", frozen_batch_norm=False),
            loss=Part("margin", {"beta": 0.6}),
            optimiser=Optimiser(learning_rate=1e-3),
            num_epochs=50,
        )
    )


def csv() -> Config:
    """your own images, listed in a CSV with open-metric-learning's columns: --data FILE.csv"""
    config = folder()
    return replace(config, data=replace(config.data, name="csv"))


RECIPES: dict[str, Callable[[], Config]] = {
    "emoji-pads": emoji_pads,
    "emoji-pads-code": emoji_pads_code,
    "emoji-udist": emoji_udist,
    "emoji-semihard": emoji_semihard,
    "emoji-random": emoji_random,
    "folder": folder,
    "csv": csv,
}
