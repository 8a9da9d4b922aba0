"""The training step at the speed of the hardware: precision, compilation, and the whole step as one CUDA graph.

A step of batch 112 launches about a thousand kernels, which costs more than running them; a graph launches them at once.
None of this changes what is computed, and none of it is needed: on a CPU and on older GPUs the same step runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from pads.errors import UserError

PRECISIONS = ("float32", "tf32", "bfloat16")
WARM_UP_STEPS = 4


@contextmanager
def float32_rounding(precision: str) -> Iterator[None]:
    """float32 as it is, or with TF32 inside matrix products and convolutions on GPUs that have it."""
    if precision not in PRECISIONS:
        raise UserError(f"precision is {precision!r}: choose one of {', '.join(map(repr, PRECISIONS))}.")
    before, rounds = torch.get_float32_matmul_precision(), precision != "float32"
    torch.set_float32_matmul_precision("high" if rounds else "highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=rounds):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


class CapturedStep:
    """A step `function(picked_B)` that, after a few calls, is replayed as one CUDA graph.

    The function must have fixed shapes, wait for nothing on the host, and leave its results in tensors that stay where they
    are. The first calls run as they are: they are real training steps, in which kernels are compiled and chosen.
    """

    def __init__(self, function: Callable[[Tensor], None], generator: torch.Generator) -> None:
        self.function, self.generator = function, generator
        self.num_calls = 0
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.picked_B: Tensor | None = None

    def __call__(self, picked_B: Tensor) -> None:
        self.num_calls += 1
        if self.num_calls <= WARM_UP_STEPS:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.function(picked_B)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        if self.graph is None:
            self.capture(picked_B)
        assert self.graph is not None and self.picked_B is not None
        self.picked_B.copy_(picked_B)
        self.graph.replay()

    def capture(self, picked_B: Tensor) -> None:
        self.picked_B = picked_B.clone()
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.function(self.picked_B)
