"""Who watches a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Watch = Callable[[str, int, Mapping[str, Any]], None]
"""Called with (kind of event, step, values) as the run goes on; it looks, and nothing depends on it."""


def nobody(kind: str, step: int, values: Mapping[str, Any]) -> None:
    """Watch a run that nobody looks at."""
