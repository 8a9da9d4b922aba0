"""Runs that differ in nothing but their seed are one group: one line with a band, one mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pads.config import Config, to_dict
from pads.data import OWN_IMAGES
from pads.reports.curves import Band, band, running_mean
from pads.reports.heatmap import Progression, mean_progression
from pads.reports.series import series_of
from pads.runs import RunFolder


@dataclass(frozen=True)
class Group:
    label: str
    runs: tuple[RunFolder, ...]
    series: tuple[dict[str, Any], ...]
    """Of each run, see `series_of`."""

    @property
    def config(self) -> Config:
        return self.runs[0].config

    def band(self, name: str) -> Band | None:
        """Of the curve of that name over the runs; None where none has it."""
        curves = [series["curves"][name] for series in self.series if name in series["curves"]]
        if name == "reward":
            curves = list(map(running_mean, curves))
        made = band(curves) if curves else None
        return made if made and made.steps else None

    def progression(self, kind: str) -> Progression | None:
        """`distribution` or `drawn`, the mean over the runs; None where none has it."""
        made = [each for series in self.series if (each := Progression.of(series, kind)) is not None]
        return mean_progression(made) if made else None


def curve_names(groups: Iterable[Group]) -> set[str]:
    """Of the curves that one of the runs has something to say by: only some samplers draw a negative of the class."""
    curves = [item for group in groups for series in group.series for item in series["curves"].items()]
    return {name for name, curve in curves if name != "negative_of_class_share" or any(curve["values"])}


def group_runs(runs: Iterable[RunFolder]) -> list[Group]:
    """Return the groups in the order of their first runs; a folder that is named twice counts once."""
    folders = {run.path.resolve(): run for run in runs}
    together: dict[str, list[RunFolder]] = {}
    for run in folders.values():
        together.setdefault(repr(alike(run.config)), []).append(run)
    members = list(together.values())
    labels = labels_of([alike(each[0].config) for each in members])
    return [Group(label, tuple(runs), tuple(map(series_of, runs))) for label, runs in zip(labels, members, strict=True)]


def alike(config: Config) -> Config:
    """The config without what may differ between runs that are to be averaged."""
    root = config.data.root if config.data.name in OWN_IMAGES else None
    return replace(config, seed=0, device="auto", threads=None, data=replace(config.data, root=root))


def labels_of(configs: Sequence[Config]) -> list[str]:
    """The recipes; where two groups share one, the settings by which these differ are named too."""
    settings = [dict(flat(to_dict(config))) for config in configs]
    names = [config.recipe or config.curriculum.name for config in configs]
    labels = []
    for name, own in zip(names, settings, strict=True):
        same = [other for other_name, other in zip(names, settings, strict=True) if other_name == name]
        keys = sorted({key for other in same for key in own.keys() | other.keys() if own.get(key) != other.get(key)})
        differing = ", ".join(f"{key}={own.get(key)}" for key in keys if key != "recipe")
        labels.append(f"{name} ({differing})" if differing else name)
    return labels


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
