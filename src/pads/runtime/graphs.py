"""The whole training step as one CUDA graph.

A step of batch 112 launches so many small kernels that this costs more than running them; a graph launches them at once.
None of this changes what is computed, and none of it is needed: on a CPU and on older GPUs the same step runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

WARM_UP_STEPS = 4


class CapturedStep:
    """A step `function(*tensors)` that, after a few calls, is replayed as one CUDA graph.

    The function must have fixed shapes, wait for nothing on the host, and leave its results in tensors that stay where they
    are. The first calls run as they are: they are real training steps, in which kernels are compiled and chosen.
    """

    def __init__(self, function: Callable[..., Any], generator: torch.Generator | None = None) -> None:
        self.function, self.generator = function, generator
        self.num_calls = 0
        self.stream = torch.cuda.Stream()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: tuple[Tensor, ...] = ()
        self.output: Any = None

    def __call__(self, *inputs: Tensor) -> Any:
        """What the function returned is overwritten by the next call."""
        self.num_calls += 1
        if self.num_calls <= WARM_UP_STEPS:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.output = self.function(*inputs)
            torch.cuda.current_stream().wait_stream(self.stream)
            return self.output
        if self.graph is None:
            self.graph = self.capture(inputs)
        for static, given in zip(self.inputs, inputs, strict=True):
            static.copy_(given)
        self.graph.replay()
        return self.output

    def capture(self, inputs: tuple[Tensor, ...]) -> torch.cuda.CUDAGraph:
        self.inputs = tuple(tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=self.stream):
            self.output = self.function(*self.inputs)
        return graph


class Replayed:
    """A pure function of CUDA tensors, for each set of shapes and options a graph: what launches a thousand small kernels.

    Elsewhere, inside another graph, and where a shape comes only once or twice, the function runs as it is.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self.steps: dict[Any, CapturedStep] = {}

    def __call__(self, *tensors: Tensor, **options: Any) -> Tensor:
        if not tensors[0].is_cuda or torch.cuda.is_current_stream_capturing():
            return self.function(*tensors, **options)
        key = (*((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors), *sorted(options.items()))
        if key not in self.steps:
            self.steps[key] = CapturedStep(partial(self.function, **options))
        return self.steps[key](*tensors).clone()
