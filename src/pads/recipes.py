"""Runs that have a name. A recipe is a function that returns a Config; a variant calls another and replaces some fields.

A recipe for a user's own images returns an AutoConfig: what depends on the images is chosen when the run begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pads.config import CHOSEN, PACED, AutoConfig, Config, Data, Network, Optimiser, Part, Sampling

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
    """The adaptive sampler, as the paper words it or as the authors' code does it, with their command for the data set."""
    if semantics == "paper":
        learned = Part("learned", {"bins": PAPER_BINS, "agent": "ppo", "reward": "recall@1+nmi"})
        return replace(config, curriculum=learned, sampling=Sampling("all but the anchor"))
    is_cub = config.data.name == "cub200"
    reward, pick = ("recall@1", "evenly spaced") if is_cub else ("recall@1+nmi", config.data.reward_pick)
    agent = {"critic_target": "metric"}
    learned = Part("learned", {"bins": CODE_BINS, "agent": "ppo", "agent_options": agent, "reward": reward})
    return replace(
        config,
        curriculum=learned,
        sampling=Sampling("all", anchor_as_positive=True),
        data=replace(config.data, batches="with replacement", reward_pick=pick),
    )


def emoji_udist() -> Config:
    """emoji, margin loss, distance-weighted sampling (U-dist): the static baseline"""
    return Config(
        data=Data(
            name="emoji",
            image_size=32,
            resize=36,
            store_size=36,
            store_ratio=1.0,
            flip=False,  # a mirrored arrow is another emoji
            classes_per_batch=56,
            samples_per_class=2,
        ),
        network=Network("small", frozen_batch_norm=False, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
        loss=Part("margin", {"beta": 1.2}),
        curriculum=Part("distance-weighted"),
        optimiser=Optimiser(learning_rate=1e-3, loss_learning_rate=1e-3, milestones=(16, 23)),
        num_epochs=27,
        threads=1,
    )


def emoji_pads() -> Config:
    """emoji, margin loss, the adaptive sampler as the paper words it: what `make demo` runs"""
    return with_pads(replace(emoji_udist(), loss=Part("margin", {"beta": 0.6})))


def emoji_pads_code() -> Config:
    """emoji, margin loss, the adaptive sampler as the authors' code does it"""
    return with_pads(replace(emoji_udist(), loss=Part("margin", {"beta": 0.6})), "code")


def emoji_udist_pace() -> Config:
    """emoji, distance-weighted sampling, margin loss with a self-paced boundary"""
    return replace(emoji_udist(), loss=PACED)


def emoji_semihard() -> Config:
    """emoji, triplet loss, the nearest semi-hard negative"""
    return replace(emoji_udist(), loss=Part("triplet"), curriculum=Part("semihard"))


def emoji_random() -> Config:
    """emoji, margin loss, random negatives"""
    return replace(emoji_udist(), curriculum=Part("random"))


def own_images(name: str) -> Config:
    """Return the settings for a user's own images that do not follow from them."""
    return Config(data=Data(name=name), network=Network(shrinkage=0.8), curriculum=Part("distance-weighted"))


def own_images_pads(name: str) -> Config:
    """Return the same with the paper's adaptive sampler."""
    return with_pads(replace(own_images(name), loss=Part("margin", {"beta": 0.6})))


def folder() -> AutoConfig:
    """your own images, a folder per class: --data DIR; what is auto follows from the images"""
    return AutoConfig(own_images("folder"), CHOSEN)


def folder_pads() -> AutoConfig:
    """your own images, a folder per class, with the paper's adaptive sampler"""
    return AutoConfig(own_images_pads("folder"), CHOSEN - {"loss"})


def csv() -> AutoConfig:
    """your own images, listed in a CSV with open-metric-learning's columns: --data FILE.csv"""
    return AutoConfig(own_images("csv"), CHOSEN)


def csv_pads() -> AutoConfig:
    """the same with the paper's adaptive sampler"""
    return AutoConfig(own_images_pads("csv"), CHOSEN - {"loss"})


def hf() -> AutoConfig:
    """images of a Hugging Face data set, local or from the Hub: --data DIR or --data USER/NAME"""
    return AutoConfig(own_images("hf"), CHOSEN)


def hf_pads() -> AutoConfig:
    """the same with the paper's adaptive sampler"""
    return AutoConfig(own_images_pads("hf"), CHOSEN - {"loss"})


# -- the real benchmarks, in the settings of docs/studies.md ------------------------------------------------------------


def cub200_margin_udist() -> Config:
    """CUB200-2011, ResNet-50, margin loss (beta 1.2), distance-weighted sampling"""
    return Config(
        data=Data(
            name="cub200", store_size=384, augmentation="random resized crop", classes_per_batch=56, samples_per_class=2
        ),
        network=Network("resnet50", embedding_dim=128, frozen_batch_norm=True),
        loss=Part("margin", {"beta": 1.2}),
        curriculum=Part("distance-weighted"),
        optimiser=Optimiser(
            learning_rate=1e-5, weight_decay=4e-4, loss_learning_rate=1e-3, milestones=(150,), factor=0.3
        ),
        num_epochs=300,
        select_every=5,
        checkpoint_every=25,  # a third of a gigabyte each
        precision="bfloat16",
        compiled=True,
    )


def cub200_margin_pads() -> Config:
    """CUB200-2011, ResNet-50, margin loss (beta 0.6), the adaptive sampler: the paper's main experiment"""
    return with_pads(replace(cub200_margin_udist(), loss=Part("margin", {"beta": 0.6})))


def cub200_margin_pads_code() -> Config:
    """CUB200-2011, the same as the authors' code does it, reward Recall@1"""
    return with_pads(replace(cub200_margin_udist(), loss=Part("margin", {"beta": 0.6})), "code")


def cub200_best() -> Config:
    """CUB200-2011, ResNet-50, multi-similarity loss with S2SD: the best embedding so far"""
    config = cub200_margin_udist()
    return replace(
        config,
        data=replace(config.data, classes_per_batch=28, samples_per_class=4, reward_share=0.0),
        loss=Part("multi-similarity", {"beta": 40.0, "epsilon": 0.1}),
        distillation=Part("s2sd"),
        optimiser=replace(config.optimiser, milestones=()),
        num_epochs=80,
    )


def on_cars196(config: Config) -> Config:
    data = replace(config.data, name="cars196", classes_per_batch=28, samples_per_class=4, reward_share=0.10)
    optimiser = replace(config.optimiser, loss_learning_rate=5e-4, milestones=(140,))
    return replace(config, data=data, optimiser=optimiser)


def cars196_margin_udist() -> Config:
    """CARS196, ResNet-50, margin loss (beta 1.2), distance-weighted sampling"""
    return on_cars196(cub200_margin_udist())


def cars196_margin_pads() -> Config:
    """CARS196, ResNet-50, margin loss (beta 0.6), the adaptive sampler"""
    return on_cars196(cub200_margin_pads())


def cars196_margin_pads_code() -> Config:
    """CARS196, the same as the authors' code does it"""
    return with_pads(on_cars196(replace(cub200_margin_udist(), loss=Part("margin", {"beta": 0.6}))), "code")


def on_sop(config: Config) -> Config:
    data = replace(config.data, name="sop", store_size=Data.store_size, reward_share=0.10, reward_split="by class")
    optimiser = replace(config.optimiser, milestones=(80,))
    loss = Part("margin", {"beta": 1.2}) if config.loss.name == "margin" else config.loss
    return replace(
        config, data=data, optimiser=optimiser, loss=loss, num_epochs=120, adapt_every=60, recall_at=(1, 10, 100, 1000)
    )


def sop_margin_udist() -> Config:
    """Stanford Online Products, ResNet-50, margin loss (beta 1.2), distance-weighted sampling"""
    return on_sop(cub200_margin_udist())


def sop_margin_pads() -> Config:
    """Stanford Online Products, ResNet-50, margin loss (beta 1.2), the adaptive sampler"""
    return on_sop(cub200_margin_pads())


RECIPES: dict[str, Callable[[], Config | AutoConfig]] = {
    "emoji-pads": emoji_pads,
    "emoji-pads-code": emoji_pads_code,
    "emoji-udist": emoji_udist,
    "emoji-udist-pace": emoji_udist_pace,
    "emoji-semihard": emoji_semihard,
    "emoji-random": emoji_random,
    "folder": folder,
    "folder-pads": folder_pads,
    "csv": csv,
    "csv-pads": csv_pads,
    "hf": hf,
    "hf-pads": hf_pads,
    "cub200-best": cub200_best,
    "cub200-margin-udist": cub200_margin_udist,
    "cub200-margin-pads": cub200_margin_pads,
    "cub200-margin-pads-code": cub200_margin_pads_code,
    "cars196-margin-udist": cars196_margin_udist,
    "cars196-margin-pads": cars196_margin_pads,
    "cars196-margin-pads-code": cars196_margin_pads_code,
    "sop-margin-udist": sop_margin_udist,
    "sop-margin-pads": sop_margin_pads,
}
"""Look up a recipe by name: a function that returns a Config. `pads train NAME` trains it."""
