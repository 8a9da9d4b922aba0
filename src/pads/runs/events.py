"""What a run writes line by line, and its figures: the shapes by which they are read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pads.runtime.reading import is_count, is_positive, read_json_lines

EVENT = {
    "event": str,
    "step": is_count,
    "epoch?": is_positive,
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

UNMEASURED = {"steps": is_positive, "test?": lambda value: False}
METRICS = (
    {
        "recipe": str,
        "seed": is_count,
        "steps": is_positive,
        "protocol": str,
        "selection": (None, {"step": is_positive, "epoch": is_positive}),
        "splits": {str: {"images": is_count, "classes": is_count}},
        "test": {
            "raw pixels": {str: float},
            "untrained": {str: float},
            "last": {str: float},
            "trained": {str: float},
        },
        "weights?": (None, dict),
        "data_changed?": str,
    },
    UNMEASURED,
)
"""Of metrics.json."""

REMEDY = "put back the file that the run wrote, or train anew."


def read_records(path: Path, *, strict: bool = True) -> Iterator[dict[str, Any]]:
    """Read the records of events.jsonl, timing.jsonl or test_curve.jsonl of a run; none while there is no such file.

    strict=False: lines that do not fit are passed over.
    """
    return read_json_lines(path, SHAPES[path.name], REMEDY, strict=strict)
