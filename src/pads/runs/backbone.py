"""A pretrained network in the place of a run: `backbone:NAME`."""

from __future__ import annotations

from typing import Any

BACKBONE = "backbone:"


def is_backbone(run: Any) -> bool:
    """Tell whether this names a network that was pretrained elsewhere, and no run folder."""
    return isinstance(run, str) and run.startswith(BACKBONE)
