"""Read pictures as the exported network wants them: `pixels, sizes = read(["a.jpg", "b.jpg"])`.

This file stands beside an export and needs numpy and Pillow alone.
"""

from collections.abc import Iterable
from os import PathLike

import numpy as np
from PIL import Image, ImageOps

SHORTER, LONGER = 320, 427
ORIENTATION = 0x0112


def read(paths: Iterable[str | PathLike[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the two inputs of the graph: the pixels of the pictures, and their widths and heights."""
    pixels, sizes = zip(*map(read_one, paths), strict=True)
    return np.stack(pixels), np.array(sizes, dtype=np.int64)


def read_one(path: str | PathLike[str]) -> tuple[np.ndarray, tuple[int, int]]:
    """Return one picture, squeezed to SHORTER x LONGER and on its side if it is upright, and its width and height."""
    with Image.open(path) as image:
        width, height = image.size
        if image.getexif().get(ORIENTATION, 1) >= 5:
            width, height = height, width
        image.draft(None, (2 * LONGER, 2 * LONGER))  # a large JPEG is decoded at a fraction of its size
        factor = min(image.size) // (2 * LONGER)
        if image.width * image.height > 64_000_000 and factor > 1:
            picture = to_rgb(image).reduce(factor)
            picture.getexif()[ORIENTATION] = image.getexif().get(ORIENTATION, 1)
            picture = ImageOps.exif_transpose(picture)
        else:
            picture = to_rgb(ImageOps.exif_transpose(image))
    columns, rows = width, height
    if SHORTER < LONGER and height > width:
        picture, columns, rows = picture.transpose(Image.Transpose.TRANSPOSE), height, width
    kept = picture.resize((min(columns, LONGER), min(rows, SHORTER)), Image.Resampling.LANCZOS)
    pixels = np.zeros((SHORTER, LONGER, 3), np.uint8)
    pixels[: kept.height, : kept.width] = np.asarray(kept)
    return pixels, (width, height)


def to_rgb(image: Image.Image) -> Image.Image:
    """Return a picture with 8 bits in RGB, transparency laid on white."""
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert("RGB")
