"""What a run folder tells about its training, as plain lists: read from its files alone, also while it is written.

Dimensions: K bins, T records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean
from typing import Any

from pads.config import Config, Optimiser
from pads.curricula import make_initial
from pads.errors import UserError
from pads.runs import RunFolder
from pads.runs.events import read_records
from pads.sampling import BinDistribution, bin_distribution

Curve = dict[str, list[float]]
"""{"steps": [...], "values": [...]}"""

TRAINING = (
    "loss",
    "boundary",
    "violation_share",
    "negative_of_class_share",
    "positive_is_anchor_share",
    "negative_distance",
)
ADAPTATION = ("reward", "perplexity", "clipped_share")


def series_of(run: RunFolder, *, strict: bool = True) -> dict[str, Any]:
    """Curves, the sampling distribution and what was drawn; JSON-ready, as far as the run has got.

    Metrics are named by their split: `reward/nmi`, `selection/recall@1`, `test/map@r`. strict=False: a damaged line of the
    run's files is passed over.
    """
    config = run.config
    events = list(read_records(run.path / "events.jsonl", strict=strict))
    test_curve = list(read_records(run.path / "test_curve.jsonl", strict=strict))
    timing = read_records(run.path / "timing.jsonl", strict=strict)
    curves = {
        **training_curves(events),
        **metric_curves("reward", of_kind(events, "adaptation")),
        **metric_curves("selection", of_kind(events, "selection")),
        **metric_curves("test", test_curve),
        "images_per_second": curve(by_step(timing), "images_per_second"),
        "learning_rate": learning_rates(config, events, test_curve),
    }
    return {
        "recipe": config.recipe,
        "seed": config.seed,
        "finished": run.is_finished,
        "curves": {name: made for name, made in curves.items() if made["steps"]},
        "distribution": distribution_of(config, events),
        "drawn": read_drawn(config, events),
    }


# -- reading -----------------------------------------------------------------------------------------------------------


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def by_step(records: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of steps, each once: a resumed run times some of its steps again."""
    newest = {record["step"]: record for record in records}
    return [newest[step] for step in sorted(newest)]


# -- curves ------------------------------------------------------------------------------------------------------------


def curve(records: list[dict[str, Any]], name: str) -> Curve:
    kept = [(record["step"], record[name]) for record in records if is_number(record.get(name))]
    return {"steps": [step for step, _ in kept], "values": [value for _, value in kept]}


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def training_curves(events: list[dict[str, Any]]) -> dict[str, Curve]:
    training, adaptation = of_kind(events, "training"), of_kind(events, "adaptation")
    entropies = [
        {"step": event["step"], "policy_entropy": mean(event["policy_entropies"])}
        for event in adaptation
        if event.get("policy_entropies")
    ]
    return {
        **{name: curve(training, name) for name in TRAINING},
        **{name: curve(adaptation, name) for name in ADAPTATION},
        "policy_entropy": curve(entropies, "policy_entropy"),
    }


def metric_curves(split: str, records: list[dict[str, Any]]) -> dict[str, Curve]:
    names = dict.fromkeys(name for record in records for name in record if is_metric(name))
    return {f"{split}/{name}": curve(records, name) for name in names}


def is_metric(name: str) -> bool:
    return "@" in name or name in ("nmi", "r-precision", "intra", "inter")


def learning_rates(config: Config, *records: list[dict[str, Any]]) -> Curve:
    """The rate of the network from the start of each epoch; nothing before the first epoch that was measured."""
    every = [record for kind in records for record in kind]
    epochs = [record for record in every if record.get("epoch") and "stage" not in record]
    if not epochs:
        return {"steps": [], "values": []}
    steps_per_epoch = max(1, epochs[-1]["step"] // epochs[-1]["epoch"])
    last = max(record["step"] for record in every)
    steps = [*range(0, last, steps_per_epoch), last]
    return {
        "steps": steps,
        "values": [learning_rate(config.optimiser, min(step, last - 1) // steps_per_epoch) for step in steps],
    }


def learning_rate(options: Optimiser, epoch: int) -> float:
    """As `pads.build.set_learning_rates` sets it."""
    return options.learning_rate * options.factor ** sum(epoch >= milestone for milestone in options.milestones)


# -- the distribution --------------------------------------------------------------------------------------------------


def distribution_of(config: Config, events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """p(I_n | I_a): the initial one at step 0, then each from the step on at which it was set; None without bins."""
    bins = bins_of(config)
    if bins is None:
        return None
    rows = [(0, bins.probabilities_K.tolist())]
    rows += [
        (event["step"], event["distribution"])
        for event in of_kind(events, "adaptation")
        if len(event.get("distribution", ())) == bins.num_bins
    ]
    return {"edges": edges_of(bins), "steps": [step for step, _ in rows], "p": [p_K for _, p_K in rows]}


def read_drawn(config: Config, events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Read the share of negatives really drawn from each bin, in the steps up to each record; None before the first."""
    bins = bins_of(config) or bin_distribution()
    training = [event for event in of_kind(events, "training") if len(event.get("drawn", ())) == bins.num_bins]
    if not training:
        return None
    return {
        "edges": edges_of(bins),
        "steps": [event["step"] for event in training],
        "share": [event["drawn"] for event in training],
    }


def bins_of(config: Config) -> BinDistribution | None:
    """The initial distribution of the run's rule; None where the rule has no bins, or repeats a run that is gone."""
    try:
        return getattr(make_initial(config).rule, "distribution", None)
    except UserError:
        return None


def edges_of(bins: BinDistribution) -> list[float]:
    return [round(edge, 6) for edge in bins.edges.tolist()]
