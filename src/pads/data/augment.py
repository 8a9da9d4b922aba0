"""Crops of stored squares, on the device: a law draws a box per image, and one bilinear step cuts it out.

A box is left, top, right, bottom as fractions of the original image, so it means the same on the squeezed square. All
shapes are fixed and nothing waits for the host, so that a training step can be captured in one graph.

Dimensions: B batch, C channels, H height, W width, T attempts, S pixels on a side of the crop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from pads.errors import UserError

NUM_ATTEMPTS = 10


def random_resized_crop_boxes(
    sizes_B2: Tensor,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Inception's crop (Szegedy et al. 2015) by torchvision's law: area uniform in scale, log(width / height) in ratio.

    The first of ten attempts that fits into the image counts; failing that, the largest centre crop of allowed ratio.
    """
    width_B, height_B = sizes_B2.float().unbind(1)
    uniform_4BT = torch.rand((4, len(sizes_B2), NUM_ATTEMPTS), device=sizes_B2.device, generator=generator)
    area_BT = (width_B * height_B)[:, None] * between(uniform_4BT[0], *scale)
    ratio_BT = torch.exp(between(uniform_4BT[1], math.log(ratio[0]), math.log(ratio[1])))
    crop_width_BT = torch.round(torch.sqrt(area_BT * ratio_BT))
    crop_height_BT = torch.round(torch.sqrt(area_BT / ratio_BT))
    free_width_BT = width_B[:, None] - crop_width_BT
    free_height_BT = height_B[:, None] - crop_height_BT
    left_BT = whole_below(uniform_4BT[2], free_width_BT + 1)
    top_BT = whole_below(uniform_4BT[3], free_height_BT + 1)
    fits_BT = (crop_width_BT > 0) & (crop_height_BT > 0) & (free_width_BT >= 0) & (free_height_BT >= 0)

    first_B1 = fits_BT.int().argmax(dim=1, keepdim=True)
    drawn_4B = [x_BT.gather(1, first_B1).squeeze(1) for x_BT in (left_BT, top_BT, crop_width_BT, crop_height_BT)]
    fallback_4B = largest_centre_crop(width_B, height_B, ratio)
    any_fits_B = fits_BT.any(dim=1)
    left_B, top_B, crop_width_B, crop_height_B = (
        torch.where(any_fits_B, drawn_B, fallback_B) for drawn_B, fallback_B in zip(drawn_4B, fallback_4B, strict=True)
    )
    right_B, bottom_B = left_B + crop_width_B, top_B + crop_height_B
    return torch.stack([left_B / width_B, top_B / height_B, right_B / width_B, bottom_B / height_B], dim=1)


def largest_centre_crop(width_B: Tensor, height_B: Tensor, ratio: tuple[float, float]) -> tuple[Tensor, ...]:
    """Left, top, width and height of the largest crop whose width / height is within ratio."""
    crop_width_B = torch.minimum(width_B, torch.round(height_B * ratio[1]))
    crop_height_B = torch.minimum(height_B, torch.round(width_B / ratio[0]))
    left_B = torch.floor((width_B - crop_width_B) / 2)
    top_B = torch.floor((height_B - crop_height_B) / 2)
    return left_B, top_B, crop_width_B, crop_height_B


def resize_and_crop_boxes(
    sizes_B2: Tensor, *, resize: int = 256, crop: int = 224, generator: torch.Generator | None = None
) -> Tensor:
    """The paper's words (Sec. 5): squeeze to resize x resize, then cut out crop x crop at random."""
    check_crop(resize, crop)
    uniform_B2 = torch.rand((len(sizes_B2), 2), device=sizes_B2.device, generator=generator)
    corner_B2 = whole_below(uniform_B2, resize - crop + 1)
    return torch.cat([corner_B2, corner_B2 + crop], dim=1) / resize


def centre_boxes(sizes_B2: Tensor, *, resize: int = 256, crop: int = 224) -> Tensor:
    """The crop of evaluation: the shorter side to resize, then the centre of crop x crop."""
    check_crop(resize, crop)
    shorter_B1 = sizes_B2.min(dim=1, keepdim=True).values
    resized_B2 = resize * sizes_B2 // shorter_B1
    corner_B2 = torch.round((resized_B2 - crop) / 2)
    return torch.cat([corner_B2 / resized_B2, (corner_B2 + crop) / resized_B2], dim=1)


def whole_boxes(sizes_B2: Tensor) -> Tensor:
    """The whole picture, squeezed."""
    corner_B2 = torch.zeros((len(sizes_B2), 2), device=sizes_B2.device)
    return torch.cat([corner_B2, corner_B2 + 1], dim=1)


def resample(pixels_BCHW: Tensor, boxes_B4: Tensor, size: int, *, flips_B: Tensor | None = None) -> Tensor:
    """The boxes cut out of uint8 pictures as size x size, bilinear, in 0..1; mirrored where flips_B is true."""
    # A pixel's value is that of its centre, so pixel i of the crop looks at (i + 1/2) / size of the box.
    centres_S = (torch.arange(size, device=boxes_B4.device, dtype=boxes_B4.dtype) + 0.5) / size
    left_B1, top_B1, right_B1, bottom_B1 = boxes_B4.split(1, dim=1)
    x_BS = torch.lerp(left_B1, right_B1, centres_S)
    y_BS = torch.lerp(top_B1, bottom_B1, centres_S)
    if flips_B is not None:
        x_BS = torch.where(flips_B[:, None], x_BS.flip(1), x_BS)
    shape = (boxes_B4.shape[0], size, size)  # len() would tie an exported graph to one size of batch
    grid_BSS2 = torch.stack([x_BS[:, None, :].expand(shape), y_BS[:, :, None].expand(shape)], dim=3) * 2 - 1
    return functional.grid_sample(pixels_BCHW.float(), grid_BSS2, padding_mode="border", align_corners=False) / 255


def normalise(images_BCHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(image - mean) / std, channel by channel: plain numbers need no copy to the device."""
    channels = zip(images_BCHW.unbind(1), mean, std, strict=True)
    return torch.stack([(channel_BHW - m) / s for channel_BHW, m, s in channels], dim=1)


AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "random resized crop": lambda sizes_B2, *, resize, crop, generator: random_resized_crop_boxes(
        sizes_B2, generator=generator
    ),
    "resize and crop": resize_and_crop_boxes,
    "none": lambda sizes_B2, *, resize, crop, generator: whole_boxes(sizes_B2),
}
"""The laws of crops in training: law(sizes_B2, resize=..., crop=..., generator=...) -> boxes_B4."""


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * uniform


def whole_below(uniform: Tensor, end: Tensor | float) -> Tensor:
    """A whole number in 0..end-1; without the clamp, rounding could reach the end itself."""
    return torch.floor(uniform * end).clamp(max=end - 1)


def check_crop(resize: int, crop: int) -> None:
    if crop > resize:
        raise UserError(f"data.image_size ({crop}) must not exceed data.resize ({resize}), of which it is cut out.")
