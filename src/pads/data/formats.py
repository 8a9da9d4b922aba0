"""Which files are images, and how they are opened: one closed list for training, index and server."""

from __future__ import annotations

import contextlib
import ctypes
import functools
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

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".heic", ".heif"}
)
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", *(("AVIF",) if HAS_AVIF else ()))
"""Nothing else is opened, whatever a file is called: some of Pillow's readers start other programs."""
HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"})
"""What the photos of phones say that they are, at their beginning."""
NEEDS_HEIF = 'a HEIC photo, which is read after: pip install "pads-dml[heic]"'
FORMATS_IN_WORDS = f"JPEG, PNG, WebP, GIF, BMP{', TIFF and AVIF' if HAS_AVIF else ' and TIFF'}"


def is_image(name: str) -> bool:
    """Tell by its name whether a file is meant as an image."""
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


@contextlib.contextmanager
def open_image(source: str | Path | BinaryIO) -> Iterator[Image.Image]:
    """Open an image of one of the formats; of a file, only a regular one."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_regular(source)) if isinstance(source, str | Path) else source
        yield stack.enter_context(Image.open(file, formats=find_formats(file)))


def find_formats(file: BinaryIO) -> tuple[str, ...]:
    """Find the formats that a file may have: those of the list, or that of phones, with the extra that reads it."""
    at = file.tell()
    head = file.read(64)
    file.seek(at)
    brands = {head[place : place + 4] for place in range(8, min(len(head), int.from_bytes(head[:4])), 4)}
    if head[4:8] != b"ftyp" or not brands & HEIF_BRANDS:
        return FORMATS
    if not register_heif():
        raise ValueError(NEEDS_HEIF)
    return ("HEIF",)


@functools.cache
def register_heif() -> bool:
    """Let Pillow read what phones write, if the extra is there; it is loaded with the first such photo."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def silence_libtiff() -> None:
    """Keep libtiff from writing its own words about broken files to the terminal; Pillow raises what matters."""
    with contextlib.suppress(OSError, AttributeError):  # a Pillow without libtiff, or with it inside
        library = ctypes.CDLL(_imaging.__file__)
        library.TIFFSetErrorHandler(None)
        library.TIFFSetWarningHandler(None)


silence_libtiff()
