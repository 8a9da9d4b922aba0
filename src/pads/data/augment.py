"""Crops of stored images, on the device: a law draws a box per image, and one bilinear resize cuts it out.

A box is left, top, right, bottom as fractions of the original image, so it means the same on the squeezed one. All
shapes are fixed and nothing waits for the host, so that a training step can be captured in one graph.

Dimensions: B batch, C channels, H height, W width, T attempts, S pixels on a side of the crop, L of a stored line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

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


def whole_boxes(sizes_B2: Tensor) -> Tensor:
    """The whole picture, squeezed."""
    corner_B2 = torch.zeros((len(sizes_B2), 2), device=sizes_B2.device)
    return torch.cat([corner_B2, corner_B2 + 1], dim=1)


def resample(
    pixels_BCHW: Tensor,
    boxes_B4: Tensor,
    size: int,
    *,
    kept_B2: Tensor | None = None,
    turned_B: Tensor | None = None,
    flips_B: Tensor | None = None,
) -> Tensor:
    """The boxes cut out of uint8 pictures as size x size, in 0..1: Pillow's bilinear resize, which smooths what it shrinks.

    kept_B2: rows and columns that the picture takes, all if not given; turned_B: which pictures lie on their side in the
    store; where flips_B is true the crop is mirrored. A resize is linear in each direction, so it is a matrix product from
    the left and one from the right: on a GPU nothing is faster. Pillow rounds after each to whole grey levels, which a random
    crop can do without; `centre_crops` does it.
    """
    columns_B2, rows_B2 = boxes_B4[:, 0::2], boxes_B4[:, 1::2]
    if turned_B is not None:
        swaps_B1 = turned_B[:, None]
        columns_B2, rows_B2 = torch.where(swaps_B1, rows_B2, columns_B2), torch.where(swaps_B1, columns_B2, rows_B2)
    if kept_B2 is None:
        kept_B2 = boxes_B4.new_tensor(pixels_BCHW.shape[2:]).expand(boxes_B4.shape[0], 2)
    # bytes are exact in half precision, and weights round to 1/40 of a grey level
    dtype = torch.float16 if pixels_BCHW.is_cuda else torch.float32
    rows_BSH = triangle_weights(rows_B2, kept_B2[:, :1], pixels_BCHW.shape[2], size).to(dtype)
    columns_BSW = triangle_weights(columns_B2, kept_B2[:, 1:], pixels_BCHW.shape[3], size).to(dtype)
    narrow_BCHS = (pixels_BCHW.to(dtype).flatten(1, 2) @ columns_BSW.mT).unflatten(1, pixels_BCHW.shape[1:3])
    crops_BCSS = rows_BSH[:, None] @ narrow_BCHS
    if turned_B is not None:
        crops_BCSS = torch.where(turned_B[:, None, None, None], crops_BCSS.mT, crops_BCSS)
    if flips_B is not None:
        crops_BCSS = torch.where(flips_B[:, None, None, None], crops_BCSS.flip(3), crops_BCSS)
    return crops_BCSS.float() / 255


def triangle_weights(bounds_B2: Tensor, lengths_B1: Tensor, num: int, size: int) -> Tensor:
    """What each of `size` pixels between these bounds takes from the first `length` of `num` stored ones: (B, size, num).

    A triangle around the pixel's centre, that reaches as far as the pixel is wide, or one stored pixel if that is wider;
    the weights of a pixel have the sum 1.
    """
    low_B1, high_B1 = bounds_B2.split(1, dim=1)
    steps_S = (torch.arange(size, device=bounds_B2.device, dtype=bounds_B2.dtype) + 0.5) / size
    centres_BS1 = (torch.lerp(low_B1, high_B1, steps_S) * lengths_B1)[:, :, None]
    reach_B11 = ((high_B1 - low_B1) * lengths_B1 / size).clamp(min=1.0)[:, :, None]
    stored_L = torch.arange(num, device=bounds_B2.device, dtype=bounds_B2.dtype) + 0.5
    weights_BSL = (1 - (stored_L - centres_BS1).abs() / reach_B11).clamp(min=0) * (stored_L < lengths_B1[:, :, None])
    return weights_BSL / weights_BSL.sum(dim=2, keepdim=True)


def centre_crops(
    pixels_BCHW: Tensor,
    sizes_B2: Tensor,
    *,
    resize: int = 256,
    crop: int = 224,
    kept_B2: Tensor,
    turned_B: Tensor | None = None,
) -> Tensor:
    """The crop of evaluation as Pillow makes it: the shorter side to resize, bilinear, then the centre; (B, C, S, S) uint8.

    Like Pillow it rounds to whole grey levels after the widths and again after the heights, whose order matters then: where
    pictures lie on their side they are turned upright first, in a square that has room for both.
    """
    if turned_B is not None:
        square_BCLL = F.pad(pixels_BCHW, (0, 0, 0, pixels_BCHW.shape[3] - pixels_BCHW.shape[2]))
        pixels_BCHW = torch.where(~turned_B[:, None, None, None], square_BCLL, square_BCLL.mT)
        kept_B2 = torch.where(turned_B[:, None], kept_B2.flip(1), kept_B2)
    resized_B2, corners_B2 = centre_places(sizes_B2, resize=resize, crop=crop)
    (left_B1, top_B1), (width_B1, height_B1) = corners_B2.split(1, dim=1), resized_B2.split(1, dim=1)
    (num_channels, height, width), (rows_B1, columns_B1) = pixels_BCHW.shape[1:], kept_B2.split(1, dim=1)
    across_BSW = whole_weights(left_B1, width_B1, columns_B1, width, crop)
    down_BSH = whole_weights(top_B1, height_B1, rows_B1, height, crop)
    narrow_BCHS = resample_lines(pixels_BCHW.float().flatten(1, 2), across_BSW).unflatten(1, (num_channels, height))
    lying_BCSS = resample_lines(narrow_BCHS.mT.flatten(1, 2), down_BSH).unflatten(1, (num_channels, crop))
    return lying_BCSS.to(torch.uint8).mT.contiguous()


def centre_places(sizes_B2: Tensor, *, resize: int, crop: int) -> tuple[Tensor, Tensor]:
    """Width and height when the shorter side is resize, and there the left and the top of the centre of crop x crop."""
    check_crop(resize, crop)
    resized_B2 = resize * sizes_B2 // sizes_B2.min(dim=1, keepdim=True).values
    return resized_B2, torch.round((resized_B2 - crop) / 2)


WHOLE = 2**16
"""What the weights of `whole_weights` add up to: times a byte, a sum in whole numbers is exact in float32."""


def whole_weights(corners_B1: Tensor, resized_B1: Tensor, lengths_B1: Tensor, num: int, size: int) -> Tensor:
    """`triangle_weights` of pixels corner .. corner + size - 1 of a line of `length` that is resized, in parts of WHOLE.

    Everything is a whole number before the division, so that the weights are the same on every device.
    """
    resized_B11, lengths_B11 = resized_B1[:, :, None].float(), lengths_B1[:, :, None].float()
    centres_BS = 2 * (corners_B1 + torch.arange(size, device=corners_B1.device)) + 1
    stored_L = torch.arange(num, device=corners_B1.device, dtype=torch.float32)
    distances_BSL = ((2 * stored_L + 1) * resized_B11 - centres_BS[:, :, None] * lengths_B11).abs()
    reach_B11 = 2 * torch.maximum(resized_B11, lengths_B11)
    weights_BSL = (reach_B11 - distances_BSL).clamp(min=0) * (stored_L < lengths_B11)
    return torch.round(WHOLE * weights_BSL / weights_BSL.sum(dim=2, keepdim=True))


def resample_lines(lines_BML: Tensor, weights_BSL: Tensor) -> Tensor:
    """Resample lines of whole grey levels by whole weights, and round as Pillow does, a half upwards: (B, M, S).

    The sum is exact, whatever order a device adds in, so no hair's breadth decides between two grey levels. TF32 has 11 bits
    for a number: on a GPU the weights are multiplied in two parts that have fewer.
    """
    if lines_BML.is_cuda:
        high_BSL = torch.floor(weights_BSL / 256)
        parts_BSL = torch.cat([high_BSL, weights_BSL - 256 * high_BSL], dim=1)
        high_BMS, low_BMS = (lines_BML @ parts_BSL.mT).chunk(2, dim=2)
        sums_BMS = 256 * high_BMS + low_BMS
    else:
        sums_BMS = lines_BML @ weights_BSL.mT
    return torch.floor((sums_BMS + WHOLE / 2) / WHOLE).clamp(max=255)


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
