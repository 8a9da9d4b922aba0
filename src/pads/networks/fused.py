"""Convolution, batch norm, shortcut and ReLU as one kernel, where the statistics of the batch norm stand still.

A batch norm with fixed statistics is a scale and a shift of each channel. The scale can be multiplied into the weights of
the convolution before it, and the shift becomes its bias, which cuDNN adds, with the shortcut, before it writes the map for
the first time. Weights, scales and shifts learn as before: their gradients go through the product. A step of ResNet-50
spends most of its time on reading and writing maps, so this is worth a sixth of it.

It is done in a compiled bfloat16 network on an NVIDIA GPU; everywhere else the layers run one after the other, as written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ALIGNED = 8
"""cuDNN fuses convolutions of whole groups of eight channels: not that of the three colours."""


def convolve_norm_relu(maps: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """Return ReLU(norm(convolution(maps)))."""
    if not folds(maps, norm):
        return F.relu(norm(convolution(maps)))
    weight, bias = fold_norm(convolution, norm)
    return run_folded(maps, weight, bias, None, convolution)


def convolve_norm_add_relu(
    hidden: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d, maps: Tensor, downsample: nn.Sequential | None
) -> Tensor:
    """End a residual block: ReLU(norm(convolution(hidden)) + its maps, projected where the shape changes)."""
    if not folds(hidden, norm):
        return F.relu(norm(convolution(hidden)) + (maps if downsample is None else downsample(maps)))
    weight, bias = fold_norm(convolution, norm)
    if downsample is not None:
        projection: Any = downsample[0]
        weight_of_projection, bias_of_projection = fold_norm(*downsample)
        maps = F.conv2d(maps, weight_of_projection.to(maps.dtype), None, projection.stride)
        bias = bias + bias_of_projection
    return run_folded(hidden, weight, bias, maps, convolution)


def convolve_and_normalise(maps: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """norm(convolution(maps)), for what cuDNN has no kernel of the whole for: depthwise, or with no ReLU after it.

    Folded, the maps between the two need not be kept for the gradients of scale and shift; and a CPU that only looks at
    images passes over them once less.
    """
    if not folds(maps, norm) and not is_looked_at(maps, norm.training):
        return norm(convolution(maps))
    weight, bias = fold_norm(convolution, norm)
    return F.conv2d(maps, weight, bias, convolution.stride, convolution.padding, groups=convolution.groups)


def is_looked_at(maps: Tensor, is_training: bool) -> bool:
    """Tell whether a CPU embeds images and nothing is to be learned from them, nor traced."""
    return not (is_training or torch.is_grad_enabled() or maps.is_cuda or torch.compiler.is_compiling())


def folds(maps: Tensor, norm: nn.BatchNorm2d) -> bool:
    """Whether it can be done, and is worth its small products: a graph launches them for nothing."""
    return (
        torch.compiler.is_dynamo_compiling()
        and not norm.training
        and maps.is_cuda
        and torch.version.hip is None
        and torch.is_autocast_enabled("cuda")
    )


def fold_norm(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the one convolution that does what the two do."""
    assert norm.running_mean is not None and norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    centre = norm.running_mean if convolution.bias is None else norm.running_mean - convolution.bias
    return convolution.weight * scale[:, None, None, None], norm.bias - centre * scale


def run_folded(maps: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, convolution: nn.Conv2d) -> Tensor:
    """Return ReLU(maps * weight + bias + shortcut)."""
    stride, padding = int(convolution.stride[0]), int(convolution.padding[0])
    if convolution.in_channels % ALIGNED:
        assert shortcut is None
        return F.relu(F.conv2d(maps, weight, bias, stride, padding))
    weight = weight.to(maps.dtype).contiguous(memory_format=torch.channels_last)
    return convolve_add_relu(maps, weight, bias, shortcut, stride, padding)


# -- the kernel, its shape and its gradient ----------------------------------------------------------------------------


@torch.library.custom_op(
    "pads::convolve_add_relu",
    mutates_args=(),
    schema="(Tensor maps, Tensor weight, Tensor bias, Tensor? shortcut, int stride, int padding) -> Tensor",
)
def convolve_add_relu(
    maps: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int, padding: int
) -> Tensor:
    return one_after_the_other(maps, weight, bias, shortcut, stride, padding)


def one_after_the_other(
    maps: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int, padding: int
) -> Tensor:
    total = F.conv2d(maps, weight, bias.to(maps.dtype), stride, padding)
    return F.relu(total if shortcut is None else total + shortcut).contiguous(memory_format=torch.channels_last)


@convolve_add_relu.register_kernel("cuda")
def by_cudnn(maps: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int, padding: int) -> Tensor:
    if torch.cuda.get_device_capability(maps.device) < (8, 0):  # older GPUs have no bfloat16 of their own
        return one_after_the_other(maps, weight, bias, shortcut, stride, padding)
    places = (stride, stride), (padding, padding), (1, 1), 1
    if shortcut is None:
        return torch.cudnn_convolution_relu(maps, weight, bias.to(maps.dtype), *places)
    return torch.cudnn_convolution_add_relu(maps, weight, shortcut, 1.0, bias.to(maps.dtype), *places)


@convolve_add_relu.register_fake
def shape_of_result(
    maps: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int, padding: int
) -> Tensor:
    height, width = ((side + 2 * padding - weight.shape[2]) // stride + 1 for side in maps.shape[2:])
    result = maps.new_empty((len(maps), len(weight), height, width))
    return result.contiguous(memory_format=torch.channels_last)


def keep_for_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    maps, weight, bias, shortcut, ctx.stride, ctx.padding = inputs
    ctx.has_shortcut, ctx.bias_dtype = shortcut is not None, bias.dtype
    ctx.save_for_backward(maps, weight, output)


def gradient(ctx: Any, of_output: Tensor) -> tuple[Tensor | None, ...]:
    maps, weight, output = ctx.saved_tensors
    of_sum = torch.where(output > 0, of_output, 0)
    places = (ctx.stride, ctx.stride), (ctx.padding, ctx.padding), (1, 1), False, (0, 0), 1
    wanted = (ctx.needs_input_grad[0], ctx.needs_input_grad[1], False)
    of_maps, of_weight, _ = torch.ops.aten.convolution_backward(of_sum, maps, weight, None, *places, wanted)
    of_bias = of_sum.sum((0, 2, 3), dtype=ctx.bias_dtype)
    return of_maps, of_weight, of_bias, of_sum if ctx.has_shortcut else None, None, None


convolve_add_relu.register_autograd(gradient, setup_context=keep_for_gradient)
