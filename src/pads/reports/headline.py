"""What was trained, on what, and how good it became: against raw pixels, the untrained network and the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from pads.config import AutoConfig, Config, drop_auto, to_dict
from pads.data.benchmark import count
from pads.recipes import RECIPES
from pads.reports.groups import Group, alike, flat
from pads.runs.events import ROWS
from pads.verdict import judge, name_backbone

PAPER: dict[str, tuple[str, dict[str, float]]] = {
    "cub200-margin-udist": ("Tab. 1", {"recall@1": 0.635, "recall@2": 0.749, "recall@4": 0.844, "nmi": 0.681}),
    "cub200-margin-pads": ("Tab. 1", {"recall@1": 0.673, "recall@2": 0.780, "recall@4": 0.859, "nmi": 0.699}),
    "cub200-margin-pads-code": ("Tab. 1", {"recall@1": 0.673, "recall@2": 0.780, "recall@4": 0.859, "nmi": 0.699}),
    "cars196-margin-udist": ("Tab. 1", {"recall@1": 0.801, "recall@2": 0.874, "recall@4": 0.919, "nmi": 0.676}),
    "cars196-margin-pads": ("Tab. 1", {"recall@1": 0.835, "recall@2": 0.897, "recall@4": 0.938, "nmi": 0.688}),
    "cars196-margin-pads-code": ("Tab. 1", {"recall@1": 0.835, "recall@2": 0.897, "recall@4": 0.938, "nmi": 0.688}),
    "sop-margin-udist": ("Tab. 1", {"recall@1": 0.746, "recall@10": 0.875, "recall@100": 0.942, "nmi": 0.907}),
    "sop-margin-pads": ("Tab. 1", {"recall@1": 0.765, "recall@10": 0.890, "recall@100": 0.954, "nmi": 0.899}),
}
"""Where the paper has the number, and the number: of the recipe as it is, from ImageNet weights."""

PROTOCOLS = {
    "selected": "The epoch was picked on the selection split; the test split was measured once, at the end.",
    "last": "The figures are those of the last epoch; nothing was picked.",
    "test-selected": "The epoch was picked on the test split itself, as the authors did: the figures are too good.",
    "unfinished": "The run is not finished: the final figures of the test split come at its end.",
}
Figure = tuple[float, float | None]
"""Mean and standard deviation over the runs; None for a single one."""


def headline_of(group: Group, so_far: Mapping[str, float] | None = None) -> dict[str, Any]:
    """JSON-ready. `so_far` are figures of the test split for a run that is not finished."""
    finished = [metrics for run in group.runs if (metrics := run.metrics) is not None and "test" in metrics]
    protocols = sorted({metrics["protocol"] for metrics in finished}) or ["unfinished"]
    shared = [name for name in ROWS if finished and all(name in metrics["test"] for metrics in finished)]
    rows = {name: mean_figures([metrics["test"][name] for metrics in finished]) for name in shared}
    if finished:  # no seed is in the pixels
        rows["raw pixels"] = mean_figures([finished[0]["test"]["raw pixels"]])
    if protocols == ["last"]:
        rows.pop("last")  # it is what was kept, too
    if so_far and not finished:
        rows["so far"] = {name: (value, None) for name, value in so_far.items()}
    where, paper = PAPER.get(group.config.recipe, ("", {}))
    if paper:
        rows["paper"] = {name: (value, None) for name, value in paper.items()}
    return {
        "label": group.label,
        "runs": [{"path": str(run.path), "seed": run.config.seed, "finished": run.is_finished} for run in group.runs],
        "about": about(group.config, finished[0]["splits"] if finished else None),
        "protocol": ", ".join(protocols),
        "protocol_note": " ".join(PROTOCOLS[protocol] for protocol in protocols),
        "columns": [*(f"recall@{k}" for k in group.config.recall_at), "map@r", "nmi"],
        "rows": rows,
        "judgement": judge_group(group, finished),
        "notes": notes_of(group, finished, where),
    }


def judge_group(group: Group, finished: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the figures of a single run are worth; of several, the standard deviation says it."""
    if len(finished) != 1:
        return []
    return judge(finished[0].get("compared", {}), backbone=name_backbone(group.config.network))


def mean_figures(figures: Sequence[Mapping[str, float]]) -> dict[str, Figure]:
    names = [name for name in figures[0] if all(name in each for each in figures)]
    values = {name: [each[name] for each in figures] for name in names}
    return {name: (fmean(each), stdev(each) if len(each) > 1 else None) for name, each in values.items()}


def about(config: Config, splits: Mapping[str, Mapping[str, int]] | None) -> list[tuple[str, str]]:
    """What it is, as pairs of a word and what it stands for."""
    network = f"{config.network.backbone}, {config.network.embedding_dim} dimensions"
    weights = "random weights" if config.network.weights is None else f"weights {config.network.weights}"
    images = config.data.name
    if splits:
        sizes = [f"{role} {size['images']:,} of {size['classes']:,}" for role, size in splits.items() if size["images"]]
        images += f" (images of classes: {', '.join(sizes)})"
    epochs = count(config.num_epochs, "epoch", "epochs")
    batch = f"{config.data.classes_per_batch} classes × {config.data.samples_per_class} images"
    return [
        ("images", images),
        ("network", f"{network}, from {weights}"),
        ("loss", part(config.loss.name, config.loss.options)),
        (
            "negatives",
            part(config.curriculum.name, config.curriculum.options) + f", from {config.sampling.negatives_from}",
        ),
        ("training", f"{epochs}, batches of {batch}, learning rate {config.optimiser.learning_rate:g}"),
    ]


def changes_of(config: Config) -> list[str]:
    """The settings by which a run differs from its recipe, as far as these can change a figure."""
    if config.recipe not in RECIPES:
        return []
    recipe = RECIPES[config.recipe]()
    chosen = recipe.auto if isinstance(recipe, AutoConfig) else frozenset()
    before, own = (dict(flat(to_dict(alike(each)))) for each in (drop_auto(recipe), config))
    passed_over = ("recipe", "data.root", "data.store_on", "network.weights", "test_curve_every", "checkpoint_every")
    changed = [key for key in own if before.get(key) != own[key]]
    # what the recipe left to the run was not changed
    return [f"{key}={own[key]}" for key in changed if key not in chosen and key not in passed_over]


def part(name: str, options: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in options.items() if not isinstance(value, Mapping)}
    settings = ", ".join(f"{key} {value}" for key, value in plain.items())
    return f"{name} ({settings})" if settings else name


def notes_of(group: Group, finished: Sequence[Mapping[str, Any]], where: str) -> list[str]:
    notes = []
    if len(finished) > 1:
        notes.append(f"Mean ± standard deviation of {len(finished)} runs.")
    if finished and len(finished) < len(group.runs):
        notes.append(
            f"{len(group.runs) - len(finished)} of {len(group.runs)} runs are not finished and not counted here."
        )
    notes += [f"Data changed: {metrics['data_changed']}" for metrics in finished if "data_changed" in metrics]
    changes = changes_of(group.config)
    if changes:
        notes.append(f"Changed from the recipe: {', '.join(changes)}.")
    if where:
        notes.append(
            f"paper: {where} of Roth, Milbich and Ommer (CVPR 2020), selected on the test split by the authors' code."
        )
        if changes:
            notes.append("The paper's number is of the recipe as it stands, and this run changed it.")
        if group.config.network.weights is None:
            notes.append(
                "The paper starts from ImageNet weights and this run from random ones: the two are not comparable."
            )
    return notes
