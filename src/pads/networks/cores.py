"""One core for each part of the work: cores that share every small operation wait for each other most of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def map_on_cores(function: Callable[[Tensor], T], parts: Sequence[Tensor]) -> list[T]:
    """Return function(part) of each, in order, without gradients; as many at a time as torch may use threads.

    Every part is computed by one thread, so that the bits do not depend on how many there are.
    """
    num_threads, in_autocast = torch.get_num_threads(), torch.is_autocast_enabled("cpu")
    kind = torch.get_autocast_dtype("cpu")

    def call(part: Tensor) -> T:
        with torch.no_grad(), torch.autocast("cpu", kind, enabled=in_autocast):  # both are a thread's own
            return function(part)

    if num_threads == 1 or len(parts) == 1:
        return [call(part) for part in parts]
    with ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        results = list(pool.map(call, parts))
    torch.set_num_threads(num_threads)  # what later threads begin with
    return results
