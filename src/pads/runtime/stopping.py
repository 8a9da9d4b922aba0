"""Stopping a run from outside: between two steps, so that it can be saved."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM ask the loop to stop between two steps; a second Ctrl-C stops at once.

    Not below torchrun: it passes on the Ctrl-C that its processes have heard themselves, and ends who does not stop.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set  # only the main thread may catch signals
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set() and "TORCHELASTIC_RUN_ID" not in os.environ:
            raise KeyboardInterrupt
        asked.set()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
