"""What is being served: an index, or a run, with the index over its test images as soon as it is trained."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from pads.errors import UserError
from pads.runs import RunFolder
from pads.runs.backbone import is_backbone
from pads.search.files import existing_images_folder
from pads.search.index import MANIFEST, Index, build_index
from pads.search.serve.live import LiveRun
from pads.search.serve.searcher import Searcher, printable
from pads.search.serve.testimages import files_of, link_test_images

SECONDS_BETWEEN_LOOKS = 1.0
"""At a run that is not finished."""


class Served:
    """`state` is ready when there is something to search in; before that: training, building, or failed."""

    def __init__(self, path: Path | str, *, images: Path | str | None = None, follow_links: bool = False) -> None:
        """`images` says where the images of the index, or the data set of the run, are now, if they have moved."""
        if is_backbone(path):
            raise UserError(f"make an index with {path} first, and serve that: `pads index {path} IMAGES --out INDEX`.")
        self.path, self.images, self.follow_links = Path(path).expanduser(), images, follow_links
        self.run: LiveRun | None = None
        self.searcher: Searcher | None = None
        self.state, self.reason = "building", ""
        self.doing, self.done, self.total = "reading the data set", 0, 0
        self._closed = threading.Event()
        self._lock, self._reloading = threading.Lock(), threading.Lock()
        self._lent: Counter[Searcher] = Counter()
        """How many requests use each searcher."""
        self._links_to: frozenset[Path] = frozenset()
        self._seen: tuple[int, ...] | None = None
        """The manifest of the index that was opened last, as `identify` knows it."""
        self._thread = threading.Thread(target=self._follow, name="run", daemon=True)
        if (self.path / MANIFEST).is_file():
            self._seen = identify(self.path / MANIFEST)
            self._search_in(self._open_index(self.path))
        elif (self.path / "config.json").is_file():
            self.run = LiveRun(RunFolder.open(self.path))
            self.state = "building" if self.run.run.is_finished else "training"
            self._thread.start()
        else:
            what = "is neither an index nor a run" if self.path.exists() else "does not exist"
            raise UserError(f"{path} {what}: give what `pads index RUN IMAGES --out INDEX` or `pads train` has made.")

    @property
    def index_path(self) -> Path:
        """Of the test images of a run."""
        return self.path / "index"

    def close(self) -> None:
        self._closed.set()
        if self.searcher is not None:
            self.searcher.close()

    def about(self) -> dict[str, Any]:
        return {
            "name": printable(self.path.resolve().name),
            "run": self.run is not None,
            "state": self.state,
            "reason": self.reason,
            "doing": self.doing,
            "done": self.done,
            "total": self.total,
        }

    # -- one searcher after the other ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lend(self) -> Iterator[Searcher]:
        """Lend the searcher to a request, which keeps it to its end, also when the index is rebuilt meanwhile."""
        with self._lock:
            searcher = self.ready()
            self._lent[searcher] += 1
        try:
            yield searcher
        finally:
            with self._lock:
                self._lent[searcher] -= 1
                is_last = searcher is not self.searcher and not self._lent[searcher]
            if is_last:
                self._retire(searcher)

    def is_rebuilt(self) -> bool:
        """Tell whether the index on the disk is another than the one that was opened; one that is gone is not."""
        if self.searcher is None:
            return False
        now = identify(self.searcher.index.path / MANIFEST)
        return now is not None and now != self._seen

    def reload(self) -> None:
        """Open the index anew if it was rebuilt; one that cannot be opened is told of, and the one before stays."""
        with self._reloading:
            if not self.is_rebuilt():  # another request has waited less
                return
            assert self.searcher is not None
            before, path = self.searcher, self.searcher.index.path
            self._seen = identify(path / MANIFEST)  # before it is opened: what comes later is noticed
            try:
                index = self._open_index(path)
            except UserError as error:
                print(f"pads: {path} was rebuilt, and the index before it is served on: {error}", file=sys.stderr)
                return
            if index.manifest == before.index.manifest:
                return
            self._search_in(index)
            with self._lock:
                is_idle = not self._lent[before]
            if is_idle:
                self._retire(before)

    def _retire(self, searcher: Searcher) -> None:
        """Close a searcher that nobody uses any more, without waiting for its map."""
        self._lent.pop(searcher, None)
        threading.Thread(target=searcher.close, name="retired", daemon=True).start()

    def _open_index(self, path: Path) -> Index:
        index = Index.open(path)
        if self.run is None and self.images is not None:
            index.root = existing_images_folder(self.images)
        return index

    def ready(self) -> Searcher:
        """The searcher, or why there is none yet."""
        if self.searcher is not None:
            return self.searcher
        sentences = {
            "training": "the run is still training; its test images can be searched when it has finished.",
            "building": f"the index over the test images is being built ({self.doing}: {self.done:,} of {self.total:,}).",
            "failed": f"the index over the test images could not be built: {self.reason}",
        }
        raise HTTPException(503, sentences[self.state])

    def _search_in(self, index: Index) -> None:
        searcher = Searcher(index, links_to=None if self.follow_links else self._links_to)
        with self._lock:
            self.searcher = searcher
        self.state = "ready"
        if self._closed.is_set():  # meanwhile
            self.searcher.close()

    def _follow(self) -> None:
        """Waits for the end of the training, then builds the index, unless it is there."""
        assert self.run is not None
        run = self.run.run
        while not run.is_finished:
            if self._closed.wait(SECONDS_BETWEEN_LOOKS):
                return
        self.state = "building"
        try:
            data = None if self.images is None else str(self.images)
            index, self._links_to = self._test_index(run, data), files_of(run, data)
            self._seen = identify(self.index_path / MANIFEST)
            self._search_in(index)
        except UserError as error:
            self.reason, self.state = str(error), "failed"
        except Exception as error:
            self.reason, self.state = f"{type(error).__name__}: {error}", "failed"
            raise

    def _test_index(self, run: RunFolder, data: str | None) -> Index:
        if (self.index_path / MANIFEST).is_file():
            return Index.open(self.index_path)
        return build_index(run, link_test_images(run, data), self.index_path, data=data, progress=self._progress)

    def _progress(self, doing: str, done: int, total: int) -> None:
        self.doing, self.done, self.total = doing, done, total


def identify(file: Path) -> tuple[int, ...] | None:
    """Return what differs when a file has been replaced by another; None if there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
