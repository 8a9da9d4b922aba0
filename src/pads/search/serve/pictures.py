"""Images in and out: what may be decoded, what may be shown, and how."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError
from starlette.exceptions import HTTPException

from pads.data.budget import DECODING
from pads.data.formats import FORMATS_IN_WORDS, open_image, open_regular
from pads.data.store import BadImage, hold_picture, reason

SHOWN_AS = {"JPEG": "image/jpeg", "MPO": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
"""What every browser shows as it is."""
MAX_PIXELS = 64_000_000
THUMBNAIL_SIZE = 256
NUM_DECODERS = 2
"""Images decoded at the same time: each may take some hundred MB."""

DECODERS = threading.Semaphore(NUM_DECODERS)


def read_indexed(path: Path, sha256: str) -> BytesIO:
    """The bytes of an image of the index, if they are those that were indexed.

    An index may come from a stranger and name any file of this machine: it shows only what the stranger has seen.
    """
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise HTTPException(404, f"the image is gone since the index was made ({reason(error)}).") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise HTTPException(404, "the image has changed since the index was made: `pads index` brings it up to date.")
    return BytesIO(content)


def format_of(source: BinaryIO) -> str:
    """The format of an image that may be decoded; only its header is read."""
    try:
        with open_image(source) as image:
            num_pixels, name = image.width * image.height, str(image.format)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        num_pixels, name = MAX_PIXELS + 1, ""
    except UnidentifiedImageError as error:
        raise HTTPException(415, f"this is not an image, or none of {FORMATS_IN_WORDS}.") from error
    except Exception as error:  # Pillow's readers raise whatever they stumble over in a broken file
        raise HTTPException(415, f"the image cannot be read: {reason(error)}.") from error
    if num_pixels > MAX_PIXELS:
        most = MAX_PIXELS // 1_000_000
        raise HTTPException(413, f"the image has more than {most} million pixels: take a smaller one.")
    return name


def decode_upload(
    data: bytes, read: Callable[[BytesIO], tuple[np.ndarray, tuple[int, int]]]
) -> tuple[np.ndarray, tuple[int, int]]:
    """An upload as `Model.read` reads a file, so that it becomes the same vector as the same file in an index."""
    format_of(BytesIO(data))
    with DECODERS:
        try:
            return read(BytesIO(data))
        except BadImage as error:
            raise HTTPException(415, f"the image cannot be read: {error.reason}.") from error


def thumbnail(content: BytesIO) -> bytes:
    """A small JPEG, transparency laid on white as the network sees it."""
    format_of(content)
    with DECODERS:
        try:
            with hold_picture(content, None, THUMBNAIL_SIZE) as (image, _):
                image.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
        except BadImage as error:
            raise HTTPException(415, f"the image cannot be read: {error.reason}.") from error
    out = BytesIO()
    image.save(out, "JPEG", quality=85)
    DECODING.give_back()
    return out.getvalue()


def show_whole(content: BytesIO) -> tuple[bytes, str]:
    """The whole image and its media type: the file itself where browsers show it, else as PNG."""
    name = format_of(content)
    if name in SHOWN_AS:
        return content.getvalue(), SHOWN_AS[name]
    out = BytesIO()
    try:
        with DECODERS, hold_picture(content, None, None) as (image, _):
            image.save(out, "PNG")
        del image
        DECODING.give_back()
    except BadImage as error:
        raise HTTPException(415, f"the image cannot be read: {error.reason}.") from error
    return out.getvalue(), "image/png"


def file_below(root: Path, name: str, links_to: frozenset[Path] | None = frozenset()) -> Path:
    """The file of that name below root; a link out of root must lead to one of these files (None: to any)."""
    path = Path(os.path.normpath(root / name))
    if not path.is_relative_to(root):
        raise HTTPException(403, "the image lies outside the folder of the index, and is not shown.")
    file = path.resolve()
    if links_to is not None and file not in links_to and not file.is_relative_to(root.resolve()):
        advice = "start the server with --follow-links to show such images"
        raise HTTPException(403, f"the image is a link out of the folder of the index, and is not shown: {advice}.")
    return path
