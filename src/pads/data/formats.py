"""Which files are images, and how they are opened: one closed list for training, index and server."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from PIL import Image, _imaging

from pads.runtime.reading import open_regular

try:
    from PIL import AvifImagePlugin

    HAS_AVIF = bool(AvifImagePlugin.SUPPORTED)
except ImportError:  # Pillow before 11.3
    HAS_AVIF = False

SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"})
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", *(("AVIF",) if HAS_AVIF else ()))
"""Nothing else is opened, whatever a file is called: some of Pillow's readers start other programs."""
FORMATS_IN_WORDS = f"JPEG, PNG, WebP, GIF, BMP{', TIFF and AVIF' if HAS_AVIF else ' and TIFF'}"


def is_image(name: str) -> bool:
    """Tell by its name whether a file is meant as an image."""
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


@contextlib.contextmanager
def open_image(source: str | Path | BinaryIO) -> Iterator[Image.Image]:
    """Open an image of one of the formats; of a file, only a regular one."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_regular(source)) if isinstance(source, str | Path) else source
        yield stack.enter_context(Image.open(file, formats=FORMATS))


def silence_libtiff() -> None:
    """Keep libtiff from writing its own words about broken files to the terminal; Pillow raises what matters."""
    with contextlib.suppress(OSError, AttributeError):  # a Pillow without libtiff, or with it inside
        library = ctypes.CDLL(_imaging.__file__)
        library.TIFFSetErrorHandler(None)
        library.TIFFSetWarningHandler(None)


silence_libtiff()
