"""A budget for decoding: however many threads and however large the images, no more memory than this is taken at a time."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator

from PIL import Image

MOST_BYTES = 800_000_000
"""Of all images that are being decoded. One that needs more is decoded alone."""
LARGE = 64_000_000
"""Pixels from which on an image is shrunk while it is converted."""
MOST_ALONE = 1_150_000_000
"""Of one image: what needs more is refused."""
KEPT = {"WEBP": 16, "AVIF": 12, "HEIF": 16}
"""Bytes of each pixel, of formats whose libraries keep a picture several times over."""
ROWS_PER_STRIP = 278
"""The tag of a TIFF: so many rows are unpacked at a time."""
GIVEN_BACK_FROM = 32_000_000
"""Bytes: what small images took is soon used again."""


class Budget:
    """Bytes that threads take and give back, in the order in which they asked."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.used = most_bytes, 0
        self.is_owed = False
        """Whether there was a large image since memory was last given back."""
        self._turn, self._changed = threading.Lock(), threading.Condition()

    @contextlib.contextmanager
    def take(self, num_bytes: int) -> Iterator[None]:
        """Wait until there is room; more than there is at all waits until nobody else has any."""
        with self._turn, self._changed:  # whoever waits keeps the others from passing by
            self._changed.wait_for(lambda: not self.used or self.used + num_bytes <= self.most_bytes)
            self.used += num_bytes
        try:
            yield
        finally:
            with self._changed:
                self.used -= num_bytes
                self.is_owed = self.is_owed or num_bytes >= GIVEN_BACK_FROM
                self._changed.notify_all()

    def give_back(self) -> None:
        """Hand the memory of large images back to the system; for whoever has just let go of one."""
        if self.is_owed:
            self.is_owed = False
            trim_memory()


DECODING = Budget(MOST_BYTES)
"""Of this process."""


def bytes_to_decode(image: Image.Image, num_pixels: int) -> int:
    """Return about how much it takes to decode an image that was opened, and to make it upright RGB.

    num_pixels: of the file, of which a draft has fewer.
    """
    own, num_bands = image.width * image.height, len(image.getbands())
    if image.info.get("progressive"):  # all coefficients are kept, however small the draft
        return 2 * num_bands * num_pixels + 12 * own
    if image.format in KEPT:
        return KEPT[image.format] * own
    unpacked = 0
    if image.format == "TIFF":
        rows = getattr(image, "tag_v2", {}).get(ROWS_PER_STRIP, image.height)
        unpacked = num_bands * image.width * min(int(rows), image.height)
    return (4 if own > LARGE else 12) * own + unpacked


def check_alone(num_bytes: int) -> None:
    """Refuse what takes more than one image may."""
    if num_bytes > MOST_ALONE:
        most = f"{MOST_ALONE / 1e9:g} GB are allowed: make it smaller, or save it in another format"
        raise ValueError(f"to decode it takes {num_bytes / 1e9:.1f} GB, and {most}")


def trim_memory() -> None:
    """Hand memory that was freed back to the system, which the C library would keep."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
