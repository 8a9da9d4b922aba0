"""The images of a folder as an index sees them: what there is, what has changed since, and reading it."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pads.data.formats import is_image, open_regular
from pads.data.store import BadImage, reason
from pads.errors import UserError
from pads.model import Model

MOST_BYTES = 500_000_000
"""Of an image file."""
CHUNK_IMAGES = 128
"""Read together, embedded together and saved together; two chunks are in memory at a time."""


class Row(NamedTuple):
    """One image of an index: its file below the root, and what tells whether that has changed."""

    path: str
    num_bytes: int
    time_ns: int
    sha256: str
    """Of the content: a file that was touched, copied or renamed need not be embedded again."""


@dataclass
class Found:
    """What lies below a folder."""

    images: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes and time of change of each, by its path below the folder."""
    others: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)
    """Images that cannot be read, with the reason."""


class Read(NamedTuple):
    """An image as it was read."""

    row: Row
    picture: tuple[np.ndarray, tuple[int, int]] | None
    """What `Model.read` made of it; None if its content is known already."""


class Bad(NamedTuple):
    """An image that cannot be read, and why."""

    path: str
    reason: str


def existing_images_folder(images: Path | str) -> Path:
    root = Path(images).expanduser()
    if not root.is_dir():
        what = "is a file" if root.is_file() else "does not exist"
        raise UserError(f"{root} {what}: give the folder whose images are to be searched.")
    return root.resolve()


def find_below(root: Path, leave_out: Path) -> Found:
    """Everything below root but hidden files and the folder `leave_out`; links are followed, each folder once."""
    found, links = Found(), deque([root])
    seen = {identity(leave_out)} if leave_out.exists() else set()
    while links:  # after all real folders, so that an image goes by its own name rather than a link's
        for parent, subfolders, names in os.walk(links.popleft(), onerror=refuse):
            if identity(parent) in seen:
                subfolders.clear()
                continue
            seen.add(identity(parent))
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            links.extend(Path(parent, name) for name in subfolders if os.path.islink(Path(parent, name)))
            for name in names:
                if not name.startswith("."):
                    add_file(found, Path(parent, name), root)
    return found


def add_file(found: Found, file: Path, root: Path) -> None:
    path = file.relative_to(root).as_posix()
    if not is_image(file.name):
        found.others.append(path)
        return
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            found.bad[path] = "not a regular file"
            return
        found.images[path] = (status.st_size, status.st_mtime_ns)
    except OSError as error:
        found.bad[path] = reason(error)


def identity(folder: Path | str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def refuse(error: OSError) -> None:
    raise error  # os.walk would pass over a folder that it may not read as if it were empty


def label_of(path: str) -> str | None:
    """The sub-folder directly under the root."""
    folder, slash, _ = path.partition("/")
    return folder if slash else None


# -- reading -----------------------------------------------------------------------------------------------------------


def read_chunks(
    root: Path, paths: Sequence[str], model: Model, is_known: Callable[[str], bool], num_workers: int | None
) -> Iterator[list[Read | Bad]]:
    """The images chunk by chunk, decoded by threads one chunk ahead."""

    def read(path: str) -> Read | Bad:
        return read_image(root, path, model, is_known)

    chunks = [paths[at : at + CHUNK_IMAGES] for at in range(0, len(paths), CHUNK_IMAGES)]
    with ThreadPoolExecutor(num_workers or os.cpu_count()) as pool:
        coming: deque[list[Future[Read | Bad]]] = deque()
        try:
            for chunk in chunks:
                coming.append([pool.submit(read, path) for path in chunk])
                if len(coming) == 2:
                    yield [future.result() for future in coming.popleft()]
            for futures in coming:
                yield [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)  # Ctrl-C need not wait for what nobody will use


def read_image(root: Path, path: str, model: Model, is_known: Callable[[str], bool]) -> Read | Bad:
    try:
        with open_regular(root / path) as file:
            status = os.fstat(file.fileno())
            if status.st_size > MOST_BYTES:
                return Bad(path, f"larger than {MOST_BYTES // 1_000_000} MB")
            content = file.read()
        row = Row(path, status.st_size, status.st_mtime_ns, hashlib.sha256(content).hexdigest())
        if is_known(row.sha256):
            return Read(row, None)
        return Read(row, model.read(io.BytesIO(content)))
    except BadImage as error:
        return Bad(path, error.reason)
    except OSError as error:
        return Bad(path, reason(error))
