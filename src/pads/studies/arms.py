"""What a study is made of: arms, each a change of one base recipe, so that the same study runs on any data set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pads.autoconfig import apply_choices, choose_model_input
from pads.config import AutoConfig, Config, Data, Network, Optimiser, Part, Sampling, lookup
from pads.curricula import is_adaptive
from pads.data import OWN_IMAGES
from pads.errors import UserError
from pads.recipes import (
    CODE_BINS,
    PAPER_BINS,
    RECIPES,
    cars196_margin_udist,
    cub200_margin_udist,
    emoji_udist,
    sop_margin_udist,
    with_pads,
)
from pads.reports.series import of_kind
from pads.runs.events import read_records

Change = Callable[[Config], Config]
Figures = Mapping[str, float]
"""Percentages by the name of the metric."""


@dataclass(frozen=True)
class Needs:
    """A finished run of another arm, and what is taken from it."""

    arm: str
    use: Callable[[Config, Path], Config]
    seed: str = "same"
    """`same` as this run's, or `another`: the next of the study's seeds."""


@dataclass(frozen=True)
class Arm:
    name: str
    change: Change
    """From the base to this arm: loss, curriculum, sampling, whatever the study compares."""
    paper: Mapping[str, Figures] = field(default_factory=dict)
    """What the paper has for it, by data set."""
    needs: Needs | None = None
    tune: Callable[[Config], Sequence[Sequence[str]]] | None = None
    """The settings that --tune tries, the same number for every arm of a study; by default for the arm's curriculum."""


@dataclass(frozen=True)
class Study:
    name: str
    title: str
    """One line: what is compared, and where the paper has it."""
    arms: tuple[Arm, ...]
    reference: str
    """The arm that the others are compared with."""
    scheduled: bool = False
    """With the learning-rate schedule of the base (Tables 1, 2 and 4); without, CUB200-2011 and CARS196 have 150 epochs."""
    published: Mapping[str, Mapping[str, Figures]] = field(default_factory=dict)
    """Rows of the paper's table that are not trained here, by data set."""
    bases: tuple[str, ...] = ("cub200",)
    """The data sets that the paper has it for; the first is the default."""
    notes: tuple[str, ...] = ()
    prepare: Change = lambda base: base
    """What all arms share beyond the base, such as its length; `--epochs` stretches it."""

    def arm(self, name: str) -> Arm:
        return lookup({arm.name: arm for arm in self.arms}, name, f"arm in the study {self.name},")


# -- bases --------------------------------------------------------------------------------------------------------------


def short_emoji() -> Config:
    """emoji in 16 pixels, 10 epochs, M = 10: a run in half a minute on one thread of a CPU, 31 adjustments"""
    config = emoji_udist()
    data = replace(config.data, image_size=16, resize=18, store_size=18)
    return replace(with_epochs(config, 10), data=data, adapt_every=10, log_every=10, test_curve_every=5)


def with_test_curve(recipe: Callable[[], Config]) -> Callable[[], Config]:
    return lambda: replace(recipe(), test_curve_every=20)


def own_images(name: str) -> Callable[[], Config]:
    """A user's own images, in settings that are fixed beforehand: a run that chose by itself might choose for each arm."""
    return lambda: Config(
        data=Data(name=name, image_size=64, resize=72, store_size=80, classes_per_batch=8, samples_per_class=4),
        network=Network("small", frozen_batch_norm=False),
        loss=margin(1.2),
        curriculum=Part("distance-weighted"),
        optimiser=Optimiser(learning_rate=1e-3),
        num_epochs=50,
        test_curve_every=10,
    )


def own_images_from_weights(name: str) -> Callable[[], Config]:
    """The same from pretrained weights: larger images, small steps. The backbone is to be the one that they were made for."""

    def config() -> Config:
        scratch = own_images(name)()
        return replace(
            scratch,
            data=replace(scratch.data, image_size=128, resize=144, store_size=160),
            network=Network(frozen_batch_norm=True),
            optimiser=replace(scratch.optimiser, learning_rate=3e-5),
            num_epochs=20,
            test_curve_every=5,
        )

    return config


BASES: dict[str, Callable[[], Config]] = {
    "emoji": short_emoji,
    "cub200": with_test_curve(cub200_margin_udist),
    "cars196": with_test_curve(cars196_margin_udist),
    "sop": with_test_curve(sop_margin_udist),
    **{name: own_images(name) for name in OWN_IMAGES},
}
"""A data set by name, in the settings of its static baseline; any recipe is a base too."""
FROM_WEIGHTS = {name: own_images_from_weights(name) for name in OWN_IMAGES}
"""What bases become where weights are given: those of the benchmarks expect them anyway."""
ABLATION_EPOCHS = {"cub200": 150, "cars196": 150}


def base_config(name: str, *, scheduled: bool, epochs: int | None = None, has_weights: bool = False) -> Config:
    """The base of that name, with its schedule stretched to the epochs, or without one as in the paper's ablations."""
    config = lookup({**RECIPES, **BASES, **(FROM_WEIGHTS if has_weights else {})}, name, "base")()
    if isinstance(config, AutoConfig):
        raise UserError(
            f"all arms of a study need the same settings, and {name} chooses them for each run: name another base."
        )
    if not scheduled:
        usual = ABLATION_EPOCHS.get(name, config.num_epochs)
        config = replace(config, num_epochs=usual, optimiser=replace(config.optimiser, milestones=()))
    config = replace(config, data=replace(config.data, batches=Data.batches))  # the arm says how its reading draws them
    return with_epochs(config, epochs or config.num_epochs)


def study_base(study: Study, name: str, *, epochs: int | None = None, has_weights: bool = False) -> Config:
    """The base of that name as the arms of a study change it."""
    config = study.prepare(base_config(name, scheduled=study.scheduled, has_weights=has_weights))
    return with_epochs(config, epochs or config.num_epochs)


def fix_settings(config: Config | AutoConfig) -> Config:
    """Refuse settings that every run would choose for itself: the arms would differ in more than what the study compares."""
    if isinstance(config, AutoConfig):
        config = apply_choices(config, choose_model_input(config))
    if isinstance(config, AutoConfig):
        keys = ", ".join(sorted(config.auto))
        raise UserError(f"all arms of a study need the same settings, fixed beforehand: give a value for {keys}.")
    return config


def with_epochs(config: Config, epochs: int) -> Config:
    """As many epochs; the rates fall at the same share of the training."""
    milestones = tuple(round(milestone * epochs / config.num_epochs) for milestone in config.optimiser.milestones)
    return replace(config, num_epochs=epochs, optimiser=replace(config.optimiser, milestones=milestones))


# -- changes ------------------------------------------------------------------------------------------------------------


def static(name: str, loss: Part, **sampling: Any) -> Change:
    """A rule that never changes, under a loss."""
    return lambda base: replace(base, loss=loss, curriculum=Part(name), sampling=Sampling(**sampling))


def margin(beta: float) -> Part:
    return Part("margin", {"beta": beta})


def pads_margin(base: Config) -> Part:
    """The boundary that the authors' commands have for PADS: 0.6, but 1.2 on SOP."""
    return margin(1.2 if base.data.name == "sop" else 0.6)


def udist(base: Config) -> Config:
    return static("distance-weighted", margin(1.2))(base)


def pads(base: Config) -> Config:
    return with_pads(replace(base, loss=pads_margin(base)))


def pads_code(base: Config) -> Config:
    """PADS as the authors' code has it."""
    return with_pads(replace(base, loss=pads_margin(base)), "code")


def bins_code(base: Config) -> Config:
    """Return the same, never adapted."""
    return replace(pads_code(base), curriculum=Part("bins", CODE_BINS))


SINGLE_BIN = [1.0 if number == 8 else CODE_BINS["outside"] for number in range(1, 30)]
"""All mass in bin 8 of 29, distances from 0.414 to 0.459: where the authors' policy ended."""


def single_bin(base: Config) -> Config:
    """Draw from one bin in the authors' reading, never adapted."""
    return replace(pads_code(base), curriculum=Part("bins", {**CODE_BINS, "initial": SINGLE_BIN}))


def udist_rho_code(base: Config) -> Config:
    """Draw distance-weighted with a flip probability ρ of 0.4 from the authors' batches, on the images of PADS."""
    rule = Part("distance-weighted")
    return replace(pads_code(base), loss=margin(0.6), curriculum=rule, sampling=Sampling(rho=0.4))


def udist_authors(base: Config) -> Config:
    """Draw distance-weighted as the authors ran it: 4 images per class, β at a rate of 5e-4, no reward split."""
    num_classes = max(2, base.data.batch_size // 4)
    data = replace(
        base.data, classes_per_batch=num_classes, samples_per_class=4, batches="with replacement", reward_share=0.0
    )
    return replace(udist(base), data=data, optimiser=replace(base.optimiser, loss_learning_rate=5e-4))


def with_fields(change: Change, **fields: Any) -> Change:
    """Add these fields of the config to a change."""
    return lambda base: replace(change(base), **fields)


def with_options(**options: Any) -> Change:
    """PADS with these options of its curriculum."""
    return lambda base: with_curriculum_options(pads(base), **options)


def with_curriculum_options(config: Config, **options: Any) -> Config:
    return replace(config, curriculum=replace(config.curriculum, options={**config.curriculum.options, **options}))


def with_bins(**options: Any) -> Change:
    return with_options(bins={**PAPER_BINS, **options})


def with_part(change: Change, part: str, **fields: Any) -> Change:
    """Add these fields of one part of the config, such as its data, to a change."""

    def replace_part(base: Config) -> Config:
        config = change(base)
        return replace(config, **{part: replace(getattr(config, part), **fields)})

    return replace_part


def control(name: str) -> Change:
    """PADS under one of its controls, which takes the same options."""
    return with_part(pads, "curriculum", name=name)


# -- what is taken from another run -------------------------------------------------------------------------------------


def freeze_policy(config: Config, run: Path) -> Config:
    """Take the trained policy of a run, which learns no more."""
    return with_curriculum_options(config, policy=str(run), freeze=True)


def of_run(name: str) -> Callable[[Config, Path], Config]:
    """A curriculum that repeats it."""
    return lambda config, run: replace(config, curriculum=Part(name, {"run": str(run)}))


def same_positives(config: Config, run: Path) -> Config:
    """Its share of negatives that are of the anchor's class, as rho."""
    events = of_kind(list(read_records(run / "events.jsonl")), "training")
    shares = [event["negative_of_class_share"] for event in events if "negative_of_class_share" in event]
    rho = round(statistics.fmean(shares), 4) if shares else 0.0
    return replace(config, sampling=replace(config.sampling, rho=rho))


# -- what --tune tries: four settings for every arm ---------------------------------------------------------------------


def list_candidates(arm: Arm, config: Config) -> Sequence[Sequence[str]]:
    """List the settings that --tune tries for an arm."""
    usual = tune_frequency if is_adaptive(config) else tune_rate
    return (arm.tune or TUNING.get(config.curriculum.name, usual))(config)


def tune_frequency(config: Config) -> Sequence[Sequence[str]]:
    """M: with the 30 of the real benchmarks, 30 to 150 as in the paper."""
    return [[f"adapt_every={round((config.adapt_every or 30) * factor)}"] for factor in (1, 5 / 3, 7 / 3, 5)]


def tune_agent(config: Config) -> Sequence[Sequence[str]]:
    """The learning rate of the policy."""
    usual = 0.001 if config.curriculum.options["agent"] in ("q-learning", "rainbow") else 0.01
    key = "curriculum.options.agent_options.learning_rate"
    return [[f"{key}={usual * factor:.3g}"] for factor in (0.1, 0.3, 1, 3)]


def tune_cutoff(config: Config) -> Sequence[Sequence[str]]:
    """lambda of U-dist."""
    return [[f"curriculum.options.cutoff={cutoff}"] for cutoff in (0.4, 0.5, 0.6, 0.7)]


def tune_schedule(config: Config) -> Sequence[Sequence[str]]:
    """When a fixed curriculum has arrived."""
    return [[f"curriculum.options.until={until}"] for until in (0.4, 0.6, 0.8, 1.0)]


def tune_rate(config: Config) -> Sequence[Sequence[str]]:
    """The learning rate of the network."""
    return [[f"optimiser.learning_rate={config.optimiser.learning_rate * factor:.3g}"] for factor in (0.3, 1, 3, 10)]


TUNING: dict[str, Callable[[Config], Sequence[Sequence[str]]]] = {
    "distance-weighted": tune_cutoff,
    "linear": tune_schedule,
    "non-linear": tune_schedule,
}
"""By curriculum; of the others, those that adapt are tuned by M, the rest by the learning rate of the network."""
