"""What was asked of a study, and the runs that follow from it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pads.config import AutoConfig, Config, with_settings
from pads.networks import backbone_of, find_weights
from pads.networks.weights import DOWNLOADED
from pads.studies.arms import FROM_WEIGHTS, Arm, Study, fix_settings, study_base
from pads.studies.engines import Job

DEFAULT_SEEDS = (0, 1, 2, 3, 4)
Key = tuple[str, int]
"""A run: its arm and its seed."""


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    study: Study
    out: Path
    base: str
    seeds: tuple[int, ...] = DEFAULT_SEEDS
    arms: tuple[str, ...] = ()
    """All, if none is named."""
    epochs: int | None = None
    data: str | None = None
    weights: str | None = None
    settings: tuple[str, ...] = ()
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What tuned.json holds: the settings that --tune picked for an arm."""

    @property
    def asked(self) -> list[Arm]:
        return [self.study.arm(name) for name in dict.fromkeys(self.arms)] if self.arms else list(self.study.arms)

    def config(self, arm: Arm, seed: int) -> Config:
        """The run's config but for what it takes from another run."""
        has_weights = self.weights is not None
        config = arm.change(study_base(self.study, self.base, epochs=self.epochs, has_weights=has_weights))
        data = replace(config.data, root=config.data.root if self.data is None else self.data)
        network = config.network if self.weights is None else replace(config.network, weights=self.weights)
        config = replace(config, recipe=arm.name, seed=seed, data=data, network=network)
        owner = arm.needs.arm if arm.needs else arm.name  # what takes something from a run shares its tuned settings
        settings = [*self.tuned.get(owner, {}).get("settings", ()), *self.settings]
        if self.weights is None or self.base not in FROM_WEIGHTS:
            return fix_settings(with_settings(config, settings))
        given = with_settings(AutoConfig(config, frozenset({"network.backbone"})), settings)
        if isinstance(given, AutoConfig) and "network.backbone" in given.auto:
            given = with_settings(given, [f"network.backbone={find_backbone(self.weights)}"])
        return fix_settings(given)

    @property
    def example(self) -> Config:
        """The config of the first arm, for what all of them share."""
        return self.config(self.asked[0], self.seeds[0])

    def path(self, key: Key) -> Path:
        return self.out / "runs" / f"{key[0]}-{key[1]}"

    def find_needed(self, key: Key) -> Key | None:
        """Find the run that this one takes something from."""
        needs = self.study.arm(key[0]).needs
        if needs is None:
            return None
        return (needs.arm, key[1] if needs.seed == "same" else self.another(key[1]))

    def another(self, seed: int) -> int:
        """The next of the study's seeds; of one alone, the one after it, which is then run for this alone."""
        if len(self.seeds) == 1 or seed not in self.seeds:
            return seed + 1
        return self.seeds[(self.seeds.index(seed) + 1) % len(self.seeds)]

    def job(self, key: Key) -> Job:
        arm = self.study.arm(key[0])
        config, needed = self.config(arm, key[1]), self.find_needed(key)
        if arm.needs is not None and needed is not None:
            config = arm.needs.use(config, self.path(needed).resolve())
        return Job(*key, config, self.path(key))

    def runs(self) -> list[Key]:
        """All runs, those that others need before them; a seed with all its arms before the next."""
        keys: dict[Key, None] = {}

        def add(key: Key) -> None:
            needed = self.find_needed(key)
            if needed is not None:
                add(needed)
            keys[key] = None

        for seed in self.seeds:
            for arm in self.asked:
                add((arm.name, seed))
        return list(keys)


@functools.cache
def find_backbone(weights: str) -> str:
    """Find the backbone of a file of weights; a download is ResNet-50's."""
    return "resnet50" if weights in DOWNLOADED else backbone_of(find_weights(weights, "resnet50"))


@dataclass(frozen=True)
class Result:
    """A study as far as it has come."""

    plan: Plan
    rows: tuple[Mapping[str, str], ...]
    """Of seeds.csv, for the arms and seeds that were asked for."""
    failures: Mapping[Key, str]
