"""What is being served: an index, or a run, with the index over its test images as soon as it is trained."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from pads.errors import UserError
from pads.runs import RunFolder
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
        self.path, self.images, self.follow_links = Path(path).expanduser(), images, follow_links
        self.run: LiveRun | None = None
        self.searcher: Searcher | None = None
        self.state, self.reason = "building", ""
        self.doing, self.done, self.total = "reading the data set", 0, 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="run", daemon=True)
        if (self.path / MANIFEST).is_file():
            index = Index.open(self.path)
            index.root = index.root if images is None else existing_images_folder(images)
            self._search_in(index, frozenset())
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

    def _search_in(self, index: Index, links_to: frozenset[Path]) -> None:
        self.searcher = Searcher(index, links_to=None if self.follow_links else links_to)
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
            self._search_in(self._test_index(run, data), files_of(run, data))
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
