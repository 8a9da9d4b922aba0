"""Every image decoded once, into one array of one shape.

An image is kept with its original width and height beside it, so that a crop in the original proportions is a rectangle of
what is kept (`augment.py`), and a batch is an index into one tensor: no data loader. A side that is too long is squeezed to
the shape; one that is not stays as it is, from the upper left corner on, and the rest is black. Where the shape is not a
square, upright pictures are laid on their side, so that both sides keep about the same detail.

Dimensions: N images, S pixels of the shorter side, L of the longer.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from pads.data.benchmark import ImageList, LeftOut
from pads.data.budget import DECODING, LARGE, bytes_to_decode, check_alone
from pads.data.formats import FORMATS_IN_WORDS, open_image
from pads.data.look import Looks, check_bad_images, sample_file
from pads.errors import UserError
from pads.runtime.files import NotWritten, write_array
from pads.runtime.team import Team

Source = str | Path | BinaryIO | Image.Image | np.ndarray
"""What can be decoded: a path, an open file, a Pillow image, or an array (height, width[, 3 or 4]) of uint8."""

Box = Sequence[float] | np.ndarray
"""Left, top, right, bottom in pixels of the upright picture; NaN for the whole."""

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture upright, by its EXIF orientation."""
STRIP = 2**22
"""Pixels of a huge picture that are converted at a time."""

LOOK_SIZE, LOOK_RATIO = 64, 4 / 3
"""What is decoded where the pixels are not kept: small, which is quick."""
PLACES = ("auto", "gpu", "memory", "disk")
"""Where the pixels of a store may be kept."""
PLACES_IN_WORDS = {"gpu": "on the GPU", "memory": "in memory", "disk": "on disk"}

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class ImageStore:
    """Decoded images, ready to be indexed on any device."""

    pixels: Tensor
    """(N, 3, S, L) uint8; more than N, if rows_N picks them."""
    sizes_N2: Tensor
    """Width and height of each original, int64."""
    labels_N: Tensor
    images: ImageList
    """The images that are in the store."""
    kept: np.ndarray
    """Where these were in the list that was loaded: all of it, but for bad images."""
    bad_images: tuple[LeftOut, ...] = ()
    """The images that were left out, each with its reason."""
    is_on_disk: bool = False
    """The pixels are a file's, mapped into memory."""
    rows_N: Tensor | None = None
    """Where each image is in the pixels, if they hold others too."""

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def device(self) -> torch.device:
        """Where batches are given out; the pixels may stay behind in memory or on disk (`place_store`)."""
        return self.labels_N.device

    def take(self, indices_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return pixels and sizes of these images, on the device; without waiting for it if the pixels are there."""
        rows_B = self.rows(indices_B)
        if self.pixels.device == self.device:
            return self.pixels[rows_B], self.sizes_N2[indices_B]
        return self.gather(rows_B.cpu()).to(self.device, non_blocking=True), self.sizes_N2[indices_B]

    def rows(self, indices_B: Tensor) -> Tensor:
        return indices_B if self.rows_N is None else self.rows_N[indices_B]

    def batches(self, indices: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield take() of each; pixels that are not on the device are gathered in a thread, one batch ahead."""
        if self.pixels.device == self.device:
            yield from map(self.take, indices)
            return
        indices = list(indices)
        rows = [
            self.rows(indices_B).cpu() for indices_B in indices
        ]  # all at once, since the first waits for the device
        for indices_B, pixels in zip(indices, one_ahead(self.gather, rows), strict=True):
            yield pixels.to(self.device, non_blocking=True), self.sizes_N2[indices_B]

    def gather(self, rows_B: Tensor) -> Tensor:
        """Copy these pixels into pinned memory, from which a copy to the GPU goes on while the host does."""
        shape = (len(rows_B), *self.pixels.shape[1:])
        pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        return torch.index_select(self.pixels, 0, rows_B, out=pixels)

    def to(self, device: torch.device | str) -> ImageStore:
        return replace(
            self,
            pixels=self.pixels.to(device),
            sizes_N2=self.sizes_N2.to(device),
            labels_N=self.labels_N.to(device),
            rows_N=None if self.rows_N is None else self.rows_N.to(device),
        )


def map_pixels(pixels: np.ndarray) -> Tensor:
    """A file that is mapped for reading as a tensor, at which torch would warn; nothing here writes to pixels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(pixels)


def one_ahead(load: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """load(item) for each, in order; while one is used, the next is loaded in a thread."""
    with ThreadPoolExecutor(1) as thread:
        coming = None
        for item in items:
            ready, coming = coming, thread.submit(load, item)
            if ready is not None:
                yield ready.result()
        if coming is not None:
            yield coming.result()


def load_store(
    images: ImageList,
    size: int,
    ratio: float = 1.0,
    *,
    strict: bool = False,
    num_workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    looks: Looks | None = None,
) -> ImageStore:
    """Decode all images with threads (Pillow works outside Python's lock); progress is told (done, all).

    strict: refuses images that cannot be read, which are left out else. looks: is filled in with what is seen of each.
    """
    shape = compute_stored_shape(size, ratio)
    check_memory(len(images) * math.prod(shape))
    pixels_N3SL = np.empty((len(images), *shape), dtype=np.uint8)
    sizes_N2 = np.zeros((len(images), 2), dtype=np.int64)

    def load(index: int) -> LeftOut | None:
        """Fill in one image, or return why it cannot be read."""
        try:
            pixels_N3SL[index], sizes_N2[index] = read_listed(images, index, size, ratio, looks)
        except BadImage as error:
            return LeftOut(images.paths[index], error.reason, is_bad=True)
        return None

    reasons = []
    with ThreadPoolExecutor(num_workers or os.cpu_count()) as pool:
        for done, reason in enumerate(pool.map(load, range(len(images))), start=1):
            reasons.append(reason)
            if progress is not None:
                progress(done, len(images))

    bad_images = tuple(reason for reason in reasons if reason is not None)
    kept = np.array([index for index, reason in enumerate(reasons) if reason is None], dtype=np.int64)
    check_bad_images(bad_images, len(kept), strict)
    if bad_images:
        move_rows(pixels_N3SL, kept)
        images = images.subset(kept)
    return ImageStore(
        pixels=torch.from_numpy(pixels_N3SL[: len(kept)]),
        sizes_N2=torch.from_numpy(sizes_N2[kept]),
        labels_N=torch.from_numpy(images.labels.copy()),
        images=images,
        kept=kept,
        bad_images=bad_images,
    )


def look_at(
    images: ImageList,
    looks: Looks,
    *,
    num_workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[LeftOut, ...]:
    """Decode all images, keep nothing but what is seen of them, and return those that cannot be read."""

    def read(index: int) -> LeftOut | None:
        try:
            read_listed(images, index, LOOK_SIZE, LOOK_RATIO, looks)
        except BadImage as error:
            return LeftOut(images.paths[index], error.reason, is_bad=True)
        return None

    bad = []
    with ThreadPoolExecutor(num_workers or os.cpu_count()) as pool:
        for done, reason in enumerate(pool.map(read, range(len(images))), start=1):
            bad += [reason] if reason is not None else []
            if progress is not None:
                progress(done, len(images))
    return tuple(bad)


def read_listed(
    images: ImageList, index: int, size: int, ratio: float, looks: Looks | None
) -> tuple[np.ndarray, tuple[int, int]]:
    """Read one image of a list as the store keeps it, and put down what is seen of it."""
    path, box = images.paths[index], None if images.boxes is None else images.boxes[index]
    if looks is not None:
        looks.samples[index] = sample_file(path)
    pixels, original = read_stored(path, size, ratio, box)
    if looks is not None:
        looks.signatures.fill_in(index, cut_kept(pixels, original))
    return pixels, original


def move_rows(array: np.ndarray, rows: np.ndarray) -> None:
    """Put these rows, each of them once, to the beginning in their order; in place: a second array might not fit into memory."""
    comes_from = np.concatenate([rows, np.setdiff1d(np.arange(len(array)), rows)])
    is_done = comes_from == np.arange(len(array))
    for start in np.flatnonzero(~is_done):
        if is_done[start]:
            continue
        held, at = array[start].copy(), start
        while comes_from[at] != start:
            array[at] = array[comes_from[at]]
            is_done[at] = True
            at = comes_from[at]
        array[at], is_done[at] = held, True


def cut_kept(pixels_3SL: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return the part of the stored pixels that a picture of this width and height takes, as `compute_kept_sizes` has it."""
    width, height = size
    rows, columns = pixels_3SL.shape[1:]
    is_turned = rows != columns and height > width
    return pixels_3SL[:, : min(rows, width if is_turned else height), : min(columns, height if is_turned else width)]


def decode_once(load: Callable[[], ImageStore], team: Team) -> ImageStore:
    """Call load(), of several processes in the first of each machine; the others map what it has decoded."""
    if team.size == 1:
        return load()
    with tempfile.TemporaryDirectory(prefix="pads-") as folder:
        store, path = team.once_per_machine(lambda: write_pixels(load(), Path(folder) / "pixels.npy"))
        store = replace(store, pixels=map_pixels(np.load(path, mmap_mode="r")), is_on_disk=True)
        team.any(False)  # when all have come here, all have mapped it, and the file may lose its name
    return store


def write_pixels(store: ImageStore, path: Path) -> tuple[ImageStore, Path]:
    """Write the pixels of the store to that file, and return it without them."""
    try:
        write_array(path, store.pixels.numpy(), sync=False)
    except NotWritten as error:
        raise UserError(
            f"the decoded images cannot be written to {path} for the other processes ({error.reason}): decode them once "
            "for all with `pads prepare`, or set TMPDIR to a folder with room."
        ) from error
    return replace(store, pixels=torch.empty(0)), path  # a part of the pixels would be sent with all of them


def place_store(
    store: ImageStore,
    device: torch.device | str,
    where: str = "auto",
    *,
    free_bytes: Mapping[str, int] | None = None,
    what: str = "images",
) -> tuple[ImageStore, str]:
    """The store with batches for the device and its pixels in a place of PLACES, and a sentence that says which.

    `auto`: on the GPU if they take at most half of what is free there (the network needs room too), else in memory by
    the same rule, else on disk. What was decoded is in memory already, and for a CPU the file is as good as memory.
    """
    device = torch.device(device)
    if where not in PLACES:
        raise UserError(f"data.store_on must be {', '.join(PLACES[:-1])} or {PLACES[-1]}, not {where!r}.")
    free = free_bytes or {"gpu": free_on(device), "memory": free_memory()}
    num_bytes = len(store) * store.pixels[:1].nbytes
    if where == "auto":
        where = best_place(num_bytes, free, is_cpu=device.type == "cpu", is_on_disk=store.is_on_disk)
    else:
        check_place(where, num_bytes, free, is_cpu=device.type == "cpu", is_on_disk=store.is_on_disk)
    pixels, rows_N = store.pixels, store.rows_N
    if where != "disk" and rows_N is not None:
        pixels, rows_N = pixels[rows_N], None
    elif where == "memory" and store.is_on_disk:
        pixels = pixels.clone()
    if where == "gpu":
        pixels = pixels.to(device)
    placed = replace(
        store,
        pixels=pixels,
        sizes_N2=store.sizes_N2.to(device),
        labels_N=store.labels_N.to(device),
        rows_N=None if rows_N is None else rows_N.to(device),
        is_on_disk=where == "disk",
    )
    sent = "" if placed.pixels.device == placed.device else ", and sent to the GPU batch by batch"
    return placed, f"{len(store):,} {what} ({num_bytes / 1e9:.1f} GB) are kept {PLACES_IN_WORDS[where]}{sent}."


def best_place(num_bytes: int, free: Mapping[str, int], *, is_cpu: bool, is_on_disk: bool) -> str:
    if not is_cpu and num_bytes <= free["gpu"] / 2:
        return "gpu"
    if not is_on_disk or (not is_cpu and num_bytes <= free["memory"] / 2):
        return "memory"
    return "disk"


def check_place(where: str, num_bytes: int, free: Mapping[str, int], *, is_cpu: bool, is_on_disk: bool) -> None:
    if where == "gpu" and is_cpu:
        raise UserError("data.store_on=gpu needs a GPU, and the device is the CPU; leave it at auto.")
    if where == "disk" and not is_on_disk:
        raise UserError("data.store_on=disk needs a prepared store; make one with `pads prepare`.")
    needs_room = where == "gpu" or (where == "memory" and is_on_disk)
    if needs_room and num_bytes > free[where]:
        need, have = num_bytes / 1e9, free[where] / 1e9
        raise UserError(f"data.store_on={where} needs {need:.1f} GB, and {have:.1f} GB are free; leave it at auto.")


def free_on(device: torch.device) -> int:
    """Bytes; a GPU other than NVIDIA's or AMD's shares the memory of the host."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()


def free_memory() -> int:
    """Bytes that can be had without swapping; half of all where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def check_memory(num_bytes: int) -> None:
    """Images that are decoded into memory fit there."""
    if num_bytes > free_memory():
        need, have = num_bytes / 1e9, free_memory() / 1e9
        raise UserError(
            f"the decoded images take {need:.1f} GB of memory, and {have:.1f} GB are free: decode them to disk with "
            "`pads prepare`, from where training reads them batch by batch, or lower data.store_size."
        )


class BadImage(UserError):
    """An image that cannot be read, and why."""

    def __init__(self, source: Source, error: Exception) -> None:
        self.name = str(source) if isinstance(source, str | Path) else "the given image"
        self.reason = reason(error)
        super().__init__(f"{self.name} cannot be used as an image: {self.reason}.")


def reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):  # its own words repeat the path
        return f"not an image, or none of {FORMATS_IN_WORDS}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")


def compute_stored_shape(size: int, ratio: float = 1.0) -> tuple[int, int, int]:
    """Return channels, shorter and longer side of what is kept of an image."""
    return (3, size, round(size * ratio))


def are_turned(sizes_N2: Tensor, shape: Sequence[int]) -> Tensor | None:
    """Which pictures of these widths and heights lie on their side in a store of this shape; None in a square one."""
    return None if shape[-1] == shape[-2] else sizes_N2[:, 1] > sizes_N2[:, 0]


def compute_kept_sizes(sizes_N2: Tensor, shape: Sequence[int]) -> Tensor:
    """Return rows and columns that pictures of these widths and heights take of a store of this shape."""
    turned_N = are_turned(sizes_N2, shape)
    lying_N2 = sizes_N2.flip(1) if turned_N is None else torch.where(turned_N[:, None], sizes_N2, sizes_N2.flip(1))
    return torch.stack([lying_N2[:, 0].clamp(max=shape[-2]), lying_N2[:, 1].clamp(max=shape[-1])], dim=1)


def read_stored(
    source: Source, size: int, ratio: float = 1.0, box: Box | None = None
) -> tuple[np.ndarray, tuple[int, int]]:
    """One image exactly as the store keeps it, with the width and height of the original."""
    with hold_picture(source, box, min_side=2 * compute_stored_shape(size, ratio)[2]) as (image, original):
        pixels = squeeze(image, size, ratio, original)
        let_go(image)
    DECODING.give_back()
    return pixels, original


def decode(source: Source, box: Box | None = None) -> Image.Image:
    """The upright picture in RGB: transparency laid on white, the first frame of an animation, the box cut out."""
    return open_picture(source, box, min_side=None)[0]


def squeeze(image: Image.Image, size: int, ratio: float = 1.0, original: tuple[int, int] | None = None) -> np.ndarray:
    """The whole picture in the shape of the store, whatever its proportions: (3, size, size * ratio) uint8.

    original: its width and height, of which a draft has fewer; `are_turned` and `compute_kept_sizes` judge by them.
    """
    shape, sizes_12 = compute_stored_shape(size, ratio), torch.tensor([original or image.size])
    rows, columns = compute_kept_sizes(sizes_12, shape)[0].tolist()
    turned_1 = are_turned(sizes_12, shape)
    is_turned = turned_1 is not None and bool(turned_1)
    lying = image.transpose(Image.Transpose.TRANSPOSE) if is_turned else image
    # Lanczos keeps the detail that the resampling of a crop needs later.
    kept = lying.resize((columns, rows), Image.Resampling.LANCZOS)
    pixels = np.zeros(shape, np.uint8)
    pixels[:, :rows, :columns] = np.asarray(kept).transpose(2, 0, 1)
    return pixels


def open_picture(source: Source, box: Box | None, min_side: int | None) -> tuple[Image.Image, tuple[int, int]]:
    """Return the picture and its width and height, as `hold_picture` gives them."""
    with hold_picture(source, box, min_side) as picture:
        return picture


@contextmanager
def hold_picture(
    source: Source, box: Box | None, min_side: int | None
) -> Iterator[tuple[Image.Image, tuple[int, int]]]:
    """Give the picture and its width and height; a large one may come smaller than that, if both sides keep min_side.

    It counts to the budget of all threads until this is left.
    """
    if box is not None and np.isnan(box).any():
        box = None
    try:
        if isinstance(source, np.ndarray):
            source = from_array(source)
        if isinstance(source, Image.Image):
            yield cut(upright_rgb(source.copy()), box)
            return
        with open_image(source) as image:
            size = image.size
            if box is None and min_side is not None:
                image.draft(None, (min_side, min_side))  # JPEG can be decoded at 1/2, 1/4 or 1/8 of its size
            num_bytes = bytes_to_decode(image, math.prod(size))
            check_alone(num_bytes)
            with DECODING.take(num_bytes):
                if box is None and min_side is not None:
                    picture = upright_draft(image, min_side, size)
                else:
                    picture = cut(upright_rgb(image), box)
                if picture[0] is not image:
                    let_go(image)
                yield picture
    except Exception as error:  # Pillow's readers raise whatever they stumble over in a broken file
        raise BadImage(source, error) from error


def let_go(image: Image.Image) -> None:
    """Free the pixels of a picture while they count to the budget: Python may keep them until the next one is decoded."""
    image.im = Image.core.new("L", (1, 1))


def from_array(pixels: np.ndarray) -> Image.Image:
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (3, 4)):
        raise ValueError(f"an array must be uint8 of (height, width[, 3 or 4]), not {pixels.dtype} of {pixels.shape}")
    return Image.fromarray(pixels)


def upright_draft(image: Image.Image, min_side: int, size: tuple[int, int]) -> tuple[Image.Image, tuple[int, int]]:
    """The picture, which may be a draft of one of this size, and how large it would be upright."""
    is_turned = orientation_of(image) >= 5
    original = (size[1], size[0]) if is_turned else size
    factor = min(image.size) // min_side
    if math.prod(image.size) > LARGE and factor > 1:
        small, turn = shrunk(image, factor), TURNS.get(orientation_of(image))
        return small if turn is None else small.transpose(turn), original
    return upright_rgb(image), original


def shrunk(image: Image.Image, factor: int) -> Image.Image:
    """A huge picture in RGB at a fraction of its size, strip by strip, so that there is never a second one of its size."""
    small = Image.new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    num_rows = factor * max(1, STRIP // (image.width * factor))
    for top in range(0, image.height, num_rows):
        strip = image.crop((0, top, image.width, min(top + num_rows, image.height)))
        small.paste(rgb_of(strip).reduce(factor), (0, top // factor))
    return small


def orientation_of(image: Image.Image) -> int:
    return image.getexif().get(ExifTags.Base.Orientation, 1)


def upright_rgb(image: Image.Image) -> Image.Image:
    """The picture turned as its EXIF orientation says, in RGB; the given one itself, if it is so already."""
    return rgb_of(ImageOps.exif_transpose(image) if orientation_of(image) in TURNS else image)


def rgb_of(image: Image.Image) -> Image.Image:
    """The picture in RGB, transparency laid on white."""
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip to 255 instead of scaling
        image = Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    image.load()
    return image if image.mode == "RGB" else image.convert("RGB")


def cut(image: Image.Image, box: Box | None) -> tuple[Image.Image, tuple[int, int]]:
    """The part of the picture in the box, as far as there is picture."""
    if box is None:
        return image, image.size
    left, top, right, bottom = (round(float(edge)) for edge in box)
    left, top, right, bottom = max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height)
    if left >= right or top >= bottom:
        raise ValueError(f"its box {tuple(map(float, box))} is outside its {image.width} x {image.height} pixels")
    image = image.crop((left, top, right, bottom))
    return image, image.size
