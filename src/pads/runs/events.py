"""What a run writes line by line, and its figures: the shapes by which they are read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pads.runtime.reading import has_shape, is_count, is_positive, read_json_lines

EVENT = {
    "event": str,
    "step": is_count,
    "stage?": is_count,
    "epoch?": is_count,
    "distribution?": [float],
    "drawn?": [float],
    "policy_entropies?": [float],
    "perplexity?": float,
    "rho?": float,
    "negative_of_class_share?": float,
}
TIMING = {"step": is_positive, "seconds?": float, "images_per_second": float}
TEST_POINT = {"step": is_count, "epoch": is_positive, "recall@1": float}
SHAPES = {"events.jsonl": EVENT, "timing.jsonl": TIMING, "test_curve.jsonl": TEST_POINT}

ROWS = ("raw pixels", "pretrained features", "untrained", "last", "trained")
"""Of the closing table; the second, the pooled features without a head, is there where the backbone came with weights."""
FIGURES = {row + "?" * (row == "pretrained features"): {str: float} for row in ROWS}


def is_estimate(value: Any) -> bool:
    """Tell whether this is a mean with both ends of its interval."""
    return has_shape(value, [float]) and len(value) == 3


ESTIMATES = {"recall@1?": is_estimate, "map@r?": is_estimate}
MEASURED = {
    "recipe": str,
    "seed": is_count,
    "steps": is_count,
    "protocol": lambda value: value in ("selected", "test-selected", "last"),
    "selection": (None, {"step": is_count, "epoch": is_count}),
    "splits": {"test": dict, str: {"images": is_count, "classes": is_count}},
    "test": FIGURES,
    "weights?": (None, dict),
    "data_changed?": str,
    "compared?": {
        "queries": is_positive,
        "classes": is_positive,
        "trained": ESTIMATES,
        "gain_over": {str: ESTIMATES},
    },
}
UNMEASURED = {"steps": is_positive, "test?": lambda value: False}


def is_measured(value: Any) -> bool:
    """Tell whether these are the figures of a whole run: the same of every network, and of a selected epoch if there is one."""
    if not has_shape(value, MEASURED):
        return False
    same = len({tuple(sorted(value["test"][row])) for row in ROWS if row in value["test"]}) == 1
    return same and (value["selection"] is None) == (value["protocol"] == "last")


METRICS = (is_measured, UNMEASURED)
"""Of metrics.json."""

REMEDY = "put back the file that the run wrote, or train anew."


def read_records(path: Path, *, strict: bool = True) -> Iterator[dict[str, Any]]:
    """Read the records of events.jsonl, timing.jsonl or test_curve.jsonl of a run; none while there is no such file.

    strict=False: lines that do not fit are passed over.
    """
    return read_json_lines(path, SHAPES[path.name], REMEDY, strict=strict)
