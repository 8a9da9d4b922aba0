"""The map of an index: its vectors laid out in the plane, once, by a process of its own, and kept beside the index.

Dimensions: N images, M of them on the map, D embedding.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from pads.runtime.files import NotWritten, write_array, writing
from pads.runtime.reading import open_regular

MOST_POINTS = 20_000
"""On a map: more would take minutes to lay out, and a person sees no more."""
FILE = "map.npz"


class Layout(NamedTuple):
    """Where the rows of an index lie on its map, from 0 to 1 along the longer side."""

    rows_M: np.ndarray
    xy_M2: np.ndarray
    method: str


class Map:
    """Read from beside the index, or made in the background: `state` is computing, ready or failed."""

    def __init__(self, folder: Path, vectors_ND: np.ndarray, version: str) -> None:
        self.file, self.vectors_ND, self.version = folder / FILE, vectors_ND, version
        self.layout = read_layout(self.file, version)
        self.state = "computing" if self.layout is None else "ready"
        self.reason = ""
        self.process: subprocess.Popen[str] | None = None
        self.is_closed = False
        self.thread = threading.Thread(target=self._make, name="map", daemon=True)
        if self.layout is None:
            self.thread.start()

    def close(self) -> None:
        """Leaves no process behind."""
        self.is_closed = True
        if self.process is not None:
            self.process.terminate()
        if self.thread.is_alive():
            self.thread.join()

    def _make(self) -> None:
        try:
            self.layout = self._project()
            self.state = "ready"
            with contextlib.suppress(NotWritten):  # a folder that may not be written to: the map is made anew next time
                write_layout(self.file, self.layout, self.version)
        except Exception as error:  # the page says why; searching does not need a map
            self.reason, self.state = str(error) or type(error).__name__, "failed"

    def _project(self) -> Layout:
        rows_M = spread(len(self.vectors_ND), MOST_POINTS)
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder, "vectors.npy"), Path(folder, "made.npz")
            write_array(given, self.vectors_ND[rows_M], sync=False)
            command = [sys.executable, "-m", "pads.search.serve.maps", str(given), str(made)]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if self.is_closed:
                self.process.terminate()
            said = self.process.communicate()[1].strip()
            if self.process.returncode:
                raise RuntimeError(said.splitlines()[-1] if said else "it was stopped")
            with np.load(made) as arrays:
                return Layout(rows_M, in_unit_square(arrays["xy"]), str(arrays["method"]))


def spread(num_images: int, most: int) -> np.ndarray:
    """All rows, or as many as may be, evenly spaced: classes lie side by side in an index, and each keeps its share."""
    return np.unique(np.linspace(0, num_images - 1, min(num_images, most)).round().astype(np.int64))


def in_unit_square(xy_M2: np.ndarray) -> np.ndarray:
    """Moved and scaled, with the proportions kept; all in the middle if they are one point."""
    low, high = xy_M2.min(axis=0), xy_M2.max(axis=0)
    extent = float((high - low).max()) or 1.0
    return ((xy_M2 - (low + high) / 2) / extent + 0.5).astype(np.float32)


def read_layout(file: Path, version: str) -> Layout | None:
    """What is kept beside the index; None if there is none, or it is of other vectors."""
    try:
        with open_regular(file) as content, np.load(content) as arrays:
            if str(arrays["version"]) == version:
                return Layout(arrays["rows"], arrays["xy"], str(arrays["method"]))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):  # gone, cut short, or something else: it is made anew
        pass
    return None


def write_layout(file: Path, layout: Layout, version: str) -> None:
    with writing(file) as out:
        np.savez(out, rows=layout.rows_M, xy=layout.xy_M2, method=layout.method, version=version)


def main(given: str, made: str) -> None:
    """In a process of its own, since laying out holds Python's lock for seconds, and the page is to answer meanwhile."""
    os.nice(5)
    vectors_MD = np.load(given)

    from pads.reports.projection import project

    xy_M2, method = project(vectors_MD)
    with writing(Path(made), sync=False) as out:
        np.savez(out, xy=xy_M2, method=method.upper())


if __name__ == "__main__":
    main(*sys.argv[1:])
