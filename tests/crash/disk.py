"""A disk that fails on demand: every change below one folder is counted, and the fault comes at the one that was asked for.

It stands between Python and the system (`os.open`, `os.fsync`, `os.replace`, ... and the writes of files opened by them), so
it sees whatever `pads.runtime.files` does, whatever its functions are called. It is installed in a forked child, which ends
with its trial.

For a power cut it keeps a second account: what the system was told to bring to the disk, of files and of folders. What was not
is dropped, in one of three ways: all of it (`dropped`), only the content of files (`names`), or each piece by chance (`mixed`).
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

KILLED = 99
"""The exit code of a process that was ended on purpose."""
CUTS = ("dropped", "names", "mixed")
FAULTS = ("kill", *CUTS, "full", "error", "short")
TAKES_ROOM = frozenset({"create", "write", "truncate", "fsync", "replace", "mkdir", "symlink"})

real = {
    name: getattr(os, name)
    for name in (
        "open",
        "close",
        "fsync",
        "replace",
        "rename",
        "unlink",
        "remove",
        "mkdir",
        "rmdir",
        "symlink",
        "fdopen",
    )
}
real_open = builtins.open


class Disk:
    """Counts the changes below a folder, and does harm at one of them."""

    def __init__(self, root: Path, fault: str = "", at: int = -1, *, seed: int = 0) -> None:
        self.root, self.fault, self.at = str(root), fault, at
        self.log: list[tuple[str, str]] = []
        """Each change: what, and where below the folder."""
        self.around: list[str] = []
        """Files that were opened for writing without `os.open`."""
        self.handles: dict[int, str] = {}
        self.random = random.Random(seed)
        self.account = Account(self.root) if fault in CUTS else None

    def install(self) -> None:
        os.open, os.close, os.fsync, os.fdopen = self.open, self.close, self.fsync, self.fdopen  # type: ignore[assignment]
        os.replace = os.rename = self.replace  # type: ignore[assignment]
        os.unlink = os.remove = self.unlink  # type: ignore[assignment]
        os.mkdir, os.rmdir, os.symlink = self.mkdir, self.rmdir, self.symlink  # type: ignore[assignment]
        builtins.open = self.open_by_name  # type: ignore[assignment]

    # -- the fault -----------------------------------------------------------------------------------------------------

    def change(self, what: str, path: str, act: Callable[[], Any]) -> Any:
        """Does one change, unless it is the one where the fault comes."""
        if not self.is_below(path):
            return act()
        number = len(self.log)
        self.log.append((what, os.path.relpath(path, self.root)))
        if number == self.at and self.fault == "kill":
            os._exit(KILLED)
        if number == self.at and self.account is not None:
            self.account.cut(self.fault, self.random)
            os._exit(KILLED)
        if number == self.at and self.fault == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if number >= self.at >= 0 and self.fault == "full" and what in TAKES_ROOM:  # it stays full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return act()

    def write(self, path: str, content: Any, act: Callable[[Any], int]) -> int:
        """Writes, or half of it before the fault comes."""
        half = memoryview(content).cast("B")[: max(1, len(memoryview(content).cast("B")) // 2)]
        number = len(self.log)
        if self.is_below(path):
            if (number == self.at and self.fault in ("kill", *CUTS)) or (number == self.at and self.fault == "full"):
                act(half)
            elif (
                number >= self.at >= 0 and self.fault == "short"
            ):  # the system may do this; whoever writes has to go on
                self.log.append(("write", os.path.relpath(path, self.root)))
                return act(half)
        return self.change("write", path, lambda: act(content))

    def is_below(self, path: str) -> bool:
        return path.startswith(self.root + os.sep)

    # -- in place of the system's --------------------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = full(path, dir_fd)
        is_new = bool(flags & os.O_CREAT) and not os.path.lexists(name)

        def act() -> int:
            return real["open"](path, flags, mode, dir_fd=dir_fd)

        handle = self.change("create", name, act) if is_new else act()
        self.handles[handle] = name
        if is_new and self.account is not None and self.is_below(name):
            self.account.made_file(name)
        return handle

    def open_by_name(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if set(mode) & set("wax+") and not isinstance(file, int) and self.is_below(full(file)):
            self.around.append(str(file))
        return real_open(file, mode, *arguments, **options)

    def close(self, handle: int) -> None:
        self.handles.pop(handle, None)
        real["close"](handle)

    def fdopen(self, handle: int, mode: str = "r", buffering: int = -1, **options: Any) -> Any:
        path = self.handles.get(handle, "")
        if not self.is_below(path) or "b" not in mode or mode == "rb":
            return real["fdopen"](handle, mode, buffering, **options)
        raw = RawFile(self, handle, mode, path)
        if buffering == 0:
            return raw
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

    def fsync(self, handle: int) -> None:
        path = self.handles.get(handle, "")
        self.change("fsync", path, lambda: real["fsync"](handle))
        if self.account is not None and (self.is_below(path) or path == self.root):
            self.account.synced(path, handle)

    def replace(self, old: Any, new: Any, **options: Any) -> None:
        self.change("replace", full(new), lambda: real["replace"](old, new, **options))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        name = full(path, dir_fd)
        if not os.path.lexists(name):  # changes nothing
            real["unlink"](path, dir_fd=dir_fd)
        self.change("unlink", name, lambda: real["unlink"](path, dir_fd=dir_fd))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        name = full(path, dir_fd)
        if os.path.lexists(name):
            real["mkdir"](path, mode, dir_fd=dir_fd)
        self.change("mkdir", name, lambda: real["mkdir"](path, mode, dir_fd=dir_fd))
        if self.account is not None:
            self.account.entries[name] = {}

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.change("rmdir", full(path, dir_fd), lambda: real["rmdir"](path, dir_fd=dir_fd))

    def symlink(self, target: Any, path: Any, *arguments: Any, dir_fd: int | None = None) -> None:
        self.change("symlink", full(path, dir_fd), lambda: real["symlink"](target, path, *arguments, dir_fd=dir_fd))


class RawFile(io.FileIO):
    """A file whose writes are counted."""

    def __init__(self, disk: Disk, handle: int, mode: str, path: str) -> None:
        super().__init__(handle, mode.replace("b", ""))
        self.disk, self.path = disk, path

    def write(self, content: Any) -> int:
        return self.disk.write(self.path, content, super().write)

    def truncate(self, size: int | None = None) -> int:
        return self.disk.change("truncate", self.path, lambda: super(RawFile, self).truncate(size))


class Account:
    """What is surely on the disk: the content of each file and the names in each folder when they were last synced."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.contents: dict[int, bytes] = {}
        """By a number of our own: the system gives the number of a deleted file to the next."""
        self.numbers: dict[int, int] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    self.made_file(path, Path(path).read_bytes())
        for folder, _, _ in os.walk(root):
            self.entries[folder] = self.listing(folder)

    def made_file(self, path: str, content: bytes = b"") -> None:
        number = len(self.contents)
        self.numbers[os.lstat(path).st_ino] = number
        self.contents[number] = content

    def listing(self, folder: str) -> dict[str, Any]:
        return {name: self.entry(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}

    def entry(self, path: str) -> Any:
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            return "folder"
        return os.readlink(path) if stat.S_ISLNK(status.st_mode) else self.numbers[status.st_ino]

    def synced(self, path: str, handle: int) -> None:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            self.entries[path] = self.listing(path)
        else:
            self.contents[self.numbers[status.st_ino]] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def cut(self, how: str, random: random.Random) -> None:
        """Writes the tree as it is found after the cut, beside the real one."""
        now = {
            self.numbers[os.lstat(path).st_ino]: Path(path).read_bytes()
            for folder, _, names in os.walk(self.root)
            for name in names
            if not os.path.islink(path := os.path.join(folder, name))
        }
        self.build(self.root, self.root + ".cut", how, random, now)

    def build(self, folder: str, target: str, how: str, random: random.Random, now: dict[int, bytes]) -> None:
        real["mkdir"](target)
        kept = self.entries.get(folder, {})
        current = self.listing(folder) if os.path.isdir(folder) else kept
        for name in sorted({**kept, **current}):
            is_lost = how == "dropped" or (how == "mixed" and random.random() < 0.5)
            entry = (kept if is_lost else current).get(name)
            if entry == "folder":
                self.build(os.path.join(folder, name), os.path.join(target, name), how, random, now)
            elif isinstance(entry, str):
                real["symlink"](entry, os.path.join(target, name))
            elif entry is not None:
                with real_open(os.path.join(target, name), "wb") as file:
                    file.write(self.content(entry, how, random, now))

    def content(self, number: int, how: str, random: random.Random, now: dict[int, bytes]) -> bytes:
        """What was synced; by chance what was written since, or its length without its content."""
        synced, written = self.contents[number], now.get(number, self.contents[number])
        chance = random.random() if how == "mixed" else 1.0
        if chance < 0.3:
            return written
        if chance < 0.5 and written[: len(synced)] == synced:
            return synced + bytes(len(written) - len(synced))
        return synced


def full(path: Any, dir_fd: int | None = None) -> str:
    """The whole name of what the system is asked to change."""
    folder = os.getcwd() if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
    return os.path.normpath(os.path.join(folder, os.fsdecode(path)))
