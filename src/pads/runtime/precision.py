"""How numbers are rounded and how many threads compute them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pads.errors import UserError

PRECISIONS = ("float32", "tf32", "bfloat16")


@contextmanager
def float32_rounding(precision: str) -> Iterator[None]:
    """Compute in float32 as it is, or with TF32 inside matrix products and convolutions on GPUs that have it."""
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision!r}: choose one of {', '.join(map(repr, PRECISIONS))}.")
    before, rounds = torch.get_float32_matmul_precision(), precision != "float32"
    torch.set_float32_matmul_precision("high" if rounds else "highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=rounds):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def use_threads(threads: int | None) -> Iterator[None]:
    """Compute with this many threads, or with as many as there are."""
    before = torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
