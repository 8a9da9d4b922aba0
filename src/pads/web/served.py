"""What is being served: an index, or a run, with the index over its test images as soon as it is trained."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from pads.errors import UserError
from pads.retrieval.index import Index, build_index
from pads.runs import RunFolder
from pads.web.live import LiveRun
from pads.web.searcher import Searcher, printable

SECONDS_BETWEEN_LOOKS = 1.0
"""At a run that is not finished."""


class Served:
    """`state` is ready when there is something to search in; before: training, building, or failed."""

    def __init__(self, path: Path | str, *, follow_links: bool = False) -> None:
        self.path, self.follow_links = Path(path), follow_links
        self.run: LiveRun | None = None
        self.searcher: Searcher | None = None
        self.state, self.reason, self.done, self.total = "building", "", 0, 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="run", daemon=True)
        if (self.path / "config.json").is_file():
            self.run = LiveRun(RunFolder.open(self.path))
            self.state = "building" if self.run.run.is_finished else "training"
            self._thread.start()
        else:
            self._search_in(Index.open(self.path))

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
            "done": self.done,
            "total": self.total,
        }

    def ready(self) -> Searcher:
        """The searcher, or why there is none yet."""
        if self.searcher is not None:
            return self.searcher
        sentences = {
            "training": "the run is still training; its test images can be searched when it has finished.",
            "building": f"the index over the test images is being built: {self.done:,} of {self.total:,} images.",
            "failed": f"the index over the test images could not be built: {self.reason}",
        }
        raise HTTPException(503, sentences[self.state])

    def _search_in(self, index: Index) -> None:
        self.searcher = Searcher(index, follow_links=self.follow_links)
        self.state = "ready"

    def _follow(self) -> None:
        """Waits for the end of the training, then builds the index, unless it is there."""
        assert self.run is not None
        while not self.run.run.is_finished:
            if self._closed.wait(SECONDS_BETWEEN_LOOKS):
                return
        self.state = "building"
        try:
            self._search_in(self._test_index(self.run.run))
        except UserError as error:
            self.reason, self.state = str(error), "failed"
        except Exception as error:
            self.reason, self.state = f"{type(error).__name__}: {error}", "failed"
            raise

    def _test_index(self, run: RunFolder) -> Index:
        folder = run.path / "index"
        raise NotImplementedError(folder, build_index)

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
