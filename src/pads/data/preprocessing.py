"""From stored pixels to what the network sees: cropped, resampled and normalised on their device.

Dimensions: B batch, b the own part of it, C channels, H height, W width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pads.config import Data, Network, lookup
from pads.data.augment import AUGMENTATIONS, centre_crops, normalise, resample
from pads.data.store import are_turned, compute_kept_sizes


@dataclass(frozen=True)
class Preprocessing:
    """From stored pixels to the network's input; a trained model carries its own."""

    image_size: int
    resize: int
    store_size: int
    store_ratio: float
    augmentation: str
    flip: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    compiled: bool = False
    """On a GPU: by compiled kernels."""

    @classmethod
    def of(cls, data: Data, network: Network, compiled: bool = False) -> Preprocessing:
        lookup(AUGMENTATIONS, data.augmentation, "augmentation")
        return cls(
            data.image_size,
            data.resize,
            data.store_size,
            data.store_ratio,
            data.augmentation,
            data.flip,
            network.mean,
            network.std,
            compiled,
        )

    def for_training(
        self, pixels_bCHW: Tensor, sizes_B2: Tensor, generator: torch.Generator, own: slice = slice(None)
    ) -> Tensor:
        """Cut out a random crop and flip it at random, in one resampling; drawn for the whole batch, of which the pixels are
        the own part."""
        boxes_B4 = AUGMENTATIONS[self.augmentation](
            sizes_B2, resize=self.resize, crop=self.image_size, generator=generator
        )
        flips_B = None
        if self.flip:
            flips_B = torch.rand(len(sizes_B2), device=sizes_B2.device, generator=generator) < 0.5
        turned_b = are_turned(sizes_B2[own], pixels_bCHW.shape)
        kept_b2 = compute_kept_sizes(sizes_B2[own], pixels_bCHW.shape)
        flips_b = None if flips_B is None else flips_B[own]
        cut_out = compile_once(cut_out_boxes) if self.compiled and pixels_bCHW.is_cuda else cut_out_boxes
        return cut_out(pixels_bCHW, boxes_B4[own], kept_b2, turned_b, flips_b, self.image_size, self.mean, self.std)

    def for_evaluation(self, pixels_BCHW: Tensor, sizes_B2: Tensor) -> Tensor:
        """Cut out the centre of each picture."""
        return self.scale(self.cut_centres(pixels_BCHW, sizes_B2))

    def cut_centres(self, pixels_BCHW: Tensor, sizes_B2: Tensor) -> Tensor:
        """Cut out the centres of the pictures, in bytes."""
        turned_B, kept_B2 = are_turned(sizes_B2, pixels_BCHW.shape), compute_kept_sizes(sizes_B2, pixels_BCHW.shape)
        return centre_crops(
            pixels_BCHW, sizes_B2, resize=self.resize, crop=self.image_size, kept_B2=kept_B2, turned_B=turned_B
        )

    def scale(self, crops_BCHW: Tensor) -> Tensor:
        """Turn bytes into what the network takes."""
        function = compile_once(scale_bytes) if self.compiled and crops_BCHW.is_cuda else scale_bytes
        return function(crops_BCHW, self.mean, self.std)


def cut_out_boxes(
    pixels_BCHW: Tensor,
    boxes_B4: Tensor,
    kept_B2: Tensor,
    turned_B: Tensor | None,
    flips_B: Tensor | None,
    size: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Tensor:
    crops_BCSS = resample(pixels_BCHW, boxes_B4, size, kept_B2=kept_B2, turned_B=turned_B, flips_B=flips_B)
    return normalise(crops_BCSS, mean, std)


def scale_bytes(crops_BCHW: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    return normalise(crops_BCHW.float() / 255, mean, std)


@functools.cache
def compile_once(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compile a function: what surrounds the two matrix products is one kernel each, and so is what makes numbers of bytes."""
    return torch.compile(function, dynamic=False)
