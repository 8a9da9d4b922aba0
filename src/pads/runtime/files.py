"""Every change that pads makes on a disk: files, folders, locks and links. Nothing else in the package writes.

A file is written under a temporary name beside its place, brought to the disk, and renamed, and then its folder is brought
to the disk too. Whoever looks, even after a power cut, sees the old file or the new one, never half of one. A folder may
come from a stranger: nothing is written through a link in it, and a lock is opened without emptying it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pads.errors import UserError

PARTIAL = ".partial"
"""What the temporary name of a file ends in."""
AGAIN = "then run the same command again"
RESUME = "then go on with --resume"
NO_LINKS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Not blocking: to open a FIFO would wait for whoever reads it."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NotWritten(UserError):
    """A change that the system refused, and what to do about it."""

    def __init__(self, path: Path, error: OSError, again: str = AGAIN) -> None:
        self.reason = (error.strerror or str(error)).lower()
        intact = "what was saved before is intact"
        if is_full(error):
            words = f"the disk is full: {path} could not be written. Free some room, {again}: {intact}."
        elif error.errno == errno.ELOOP:
            words = f"{path} could not be written: it is a link or no plain file, so delete it, {again}: {intact}."
        elif error.errno == errno.EMLINK:
            words = f"{path} has a second name (a hard link), which would change too: put a copy in its place, {again}."
        else:
            words = f"{path} could not be written ({self.reason}). W{intact[1:]}."
        super().__init__(words)


def is_full(error: OSError) -> bool:
    """Also by numpy's own words, which come without a number."""
    return error.errno in FULL or (error.errno is None and "requested and" in str(error))


# -- whole files -------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, content: bytes | str, *, again: str = AGAIN, sync: bool = True) -> None:
    """Writes a file that is there as a whole or not at all."""
    with writing(path, again=again, sync=sync) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def writing(path: Path, *, again: str = AGAIN, sync: bool = True) -> Iterator[BinaryIO]:
    """Opens a file that takes its place when the block ends, and never if the block fails.

    sync=False: for what is checked before it is used and can be made again.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        partial.unlink(missing_ok=True)  # what a killed process left; of a link the link itself
        with os.fdopen(open_plain(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
            check_still_ours(partial, file)
        os.replace(partial, path)
        if sync:
            sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise NotWritten(path, error, again) from error
        raise


def check_still_ours(partial: Path, file: BinaryIO) -> None:
    """Refuses to rename a file that another process has begun meanwhile under the same temporary name."""
    if not os.path.samestat(os.lstat(partial), os.fstat(file.fileno())):
        raise FileExistsError(errno.EEXIST, "another process writes it at the same time", str(partial))


def put_in_place(partial: Path, path: Path) -> None:
    """Renames a file that was written whole under another name."""
    try:
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise NotWritten(path, error) from error


def write_array(path: Path, array: np.ndarray, *, sync: bool = True) -> None:
    """Writes what `np.load` reads, with the bytes of `np.save`, but notices a full disk as such."""
    array = np.ascontiguousarray(array)
    with writing(path, sync=sync) as file:
        write_array_header(file, array.shape, array.dtype)
        file.write(array.data)


def make_array(path: Path, shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    """Makes an array of zeros to be filled in place; it takes no room before that."""
    with writing(path) as file:
        write_array_header(file, shape, np.dtype(dtype))
        file.truncate(file.tell() + int(np.prod(shape)) * np.dtype(dtype).itemsize)


def write_array_header(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


# -- files that change -------------------------------------------------------------------------------------------------


def open_to_append(path: Path, *, again: str = AGAIN) -> FileIO:
    """Opens a file to which lines are added; a new one is in its folder for good."""
    try:
        is_new = not path.exists()
        # without a buffer: what could not be written would be tried again at the end, and fail without a word of ours
        file = os.fdopen(open_to_change(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab", buffering=0)
        if is_new:
            sync_folder(path.parent)
        return file
    except OSError as error:
        raise NotWritten(path, error, again) from error


def append_line(path: Path, file: FileIO, line: str, *, again: str = AGAIN) -> None:
    """Adds a line to a file that `open_to_append` has opened."""
    rest = line.encode() + b"\n"
    try:
        while rest:  # the system may take less than all of it
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise NotWritten(path, error, again) from error


def sync_lines(path: Path, file: FileIO, *, again: str = AGAIN) -> None:
    """Bring to the disk the lines that were added to a file."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        raise NotWritten(path, error, again) from error


def overwrite(path: Path, at: int, content: bytes | memoryview) -> None:
    """Replaces bytes of a file in its place: a full disk is an error here, and would end the process in a memory map."""
    try:
        with os.fdopen(open_to_change(path, os.O_RDWR), "r+b") as file:
            file.seek(at)
            file.write(content)
    except OSError as error:
        raise NotWritten(path, error) from error


def cut(path: Path, length: int) -> None:
    """Shortens a file."""
    try:
        with os.fdopen(open_to_change(path, os.O_RDWR), "r+b") as file:
            file.truncate(length)
            os.fsync(file.fileno())
    except OSError as error:
        raise NotWritten(path, error, RESUME) from error


def sync_file(path: Path) -> None:
    """Bring to the disk what was written into a file."""
    try:
        with os.fdopen(open_plain(path, os.O_RDWR), "r+b") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise NotWritten(path, error) from error


def hold_lock(path: Path, refusal: str) -> BinaryIO:
    """Takes a lock that the system releases with the process, however it ends; `refusal` is said if another holds it."""
    try:
        file = os.fdopen(open_plain(path, os.O_RDWR | os.O_CREAT), "r+b")
    except OSError as error:
        raise NotWritten(path, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UserError(refusal) from error
    return file


# -- folders and names -------------------------------------------------------------------------------------------------


def make_folder(path: Path) -> None:
    """Makes a folder that the user named, with those above it."""
    try:
        missing = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for each in missing:
            sync_folder(each.parent)
    except OSError as error:
        raise NotWritten(path, error) from error


def make_inner_folder(path: Path) -> None:
    """Makes a folder inside of one of ours, where a link would lead out of it."""
    if path.is_symlink():
        raise NotWritten(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))
    make_folder(path)


def make_link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target)
    except OSError as error:
        raise NotWritten(path, error) from error


def remove_file(path: Path) -> None:
    """Takes away a file, or a link but not what it leads to; one that is gone already is no error."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise NotWritten(path, error) from error


def remove_folder(path: Path) -> None:
    """Takes away a folder with all that is in it, as far as the system allows; of a link, the link alone."""
    if path.is_symlink():
        remove_file(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def remove_empty_folder(path: Path) -> None:
    """Takes away a folder that nothing is in."""
    with contextlib.suppress(OSError):
        path.rmdir()


# -- the system --------------------------------------------------------------------------------------------------------


def open_plain(path: Path, flags: int) -> int:
    """Opens a regular file for writing, and neither what a link leads to nor a device."""
    handle = os.open(path, flags | NO_LINKS, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ELOOP, "not a plain file", str(path))
    return handle


def open_to_change(path: Path, flags: int) -> int:
    """Open a file that is changed in its place, and none that is somebody's file by another name."""
    handle = open_plain(path, flags)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise OSError(errno.EMLINK, "it has a second name", str(path))
    return handle


def sync_folder(path: Path) -> None:
    """Brings the names in a folder to the disk, where the file system can."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some file systems have no such thing
            os.fsync(handle)
    finally:
        os.close(handle)
