"""Small pictures of what the network sees, many in one image file.

Dimensions: N images, S pixels on a side.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, features
from torch import Tensor
from torch.nn import functional

from pads.data.roles import View

COLUMNS = 32
PER_SHEET = COLUMNS * COLUMNS
SIZES = ((64, 75), (48, 70), (48, 50), (32, 60), (32, 30), (16, 50))
"""Pixels on a side and quality, largest first."""
MOST_BYTES = 6_000_000
"""Of all sheets together, as they stand in the page."""


def thumbnails(view: View, positions: Sequence[int], size: int) -> np.ndarray:
    """(N, S, S, 3) uint8: the crops of evaluation of these images of the view, S at most `size`."""
    positions_N = torch.as_tensor(positions, dtype=torch.int64, device=view.indices_N.device)
    some = View(view.store, view.indices_N[positions_N], view.preprocessing, batch_size=view.batch_size)
    size = min(size, view.preprocessing.image_size)
    made = [shrink_images(images_BCHW[: len(labels_B)], view, size) for images_BCHW, labels_B in some]
    return np.concatenate(made) if made else np.zeros((0, size, size, 3), np.uint8)


def shrink_images(images_BCHW: Tensor, view: View, size: int) -> np.ndarray:
    """Shrink images to pixels of 8 bits."""
    mean, std = (images_BCHW.new_tensor(of).view(3, 1, 1) for of in (view.preprocessing.mean, view.preprocessing.std))
    pixels_BCHW = functional.interpolate(images_BCHW * std + mean, (size, size), mode="bilinear", antialias=True)
    return (pixels_BCHW * 255).round().clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy()


def sheets(thumbnails_NSS3: np.ndarray, most_bytes: int = MOST_BYTES) -> tuple[list[str], int]:
    """Data URLs of square sheets of 32 x 32 pictures, and the pixels on a side of one: the finest that fits."""
    parts = [thumbnails_NSS3[at : at + PER_SHEET] for at in range(0, len(thumbnails_NSS3), PER_SHEET)]
    given = thumbnails_NSS3.shape[1]
    choices = [(min(size, given), quality) for size, quality in SIZES]
    if not parts:
        return [], given
    for size, quality in choices:
        first = encode_sheet(parts[0], size, quality)
        if len(first) * len(thumbnails_NSS3) / len(parts[0]) <= most_bytes:
            break
    return [first, *(encode_sheet(part, size, quality) for part in parts[1:])], size


def encode_sheet(thumbnails_NSS3: np.ndarray, size: int, quality: int) -> str:
    """Encode one sheet, row by row, as a data URL."""
    sheet = sheet_of(thumbnails_NSS3)
    if size != thumbnails_NSS3.shape[1]:
        sheet = sheet.resize((COLUMNS * size, sheet.height * size // thumbnails_NSS3.shape[1]), Image.Resampling.BOX)
    kind = "webp" if features.check("webp") else "jpeg"
    file = io.BytesIO()
    sheet.save(file, kind, quality=quality, **({"method": 2} if kind == "webp" else {}))
    return f"data:image/{kind};base64," + base64.b64encode(file.getvalue()).decode()


def sheet_of(thumbnails_NSS3: np.ndarray) -> Image.Image:
    num, size = thumbnails_NSS3.shape[:2]
    rows = -(-num // COLUMNS)
    pixels = np.full((rows * COLUMNS, size, size, 3), 255, np.uint8)
    pixels[:num] = thumbnails_NSS3
    grid = pixels.reshape(rows, COLUMNS, size, size, 3).transpose(0, 2, 1, 3, 4)
    return Image.fromarray(grid.reshape(rows * size, COLUMNS * size, 3))
