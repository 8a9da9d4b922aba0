"""An index with all that its page needs: classes, thresholds, pictures, a map, and a thread that embeds uploads.

Dimensions: K neighbours, D embedding.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException

from pads.search.index import Index, Marks
from pads.search.search import promise_less
from pads.search.serve.embedder import Embedder
from pads.search.serve.maps import Map
from pads.search.serve.pictures import file_below, read_indexed, thumbnail

PRECISIONS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Those the page offers for "same item"."""
PROMISED = 0.95
"""Whether this precision can be had is said on the page, and if not, what can."""
KEPT_THUMBNAILS = 4096


class Searcher:
    def __init__(self, index: Index, *, links_to: frozenset[Path] | None = frozenset()) -> None:
        """Images that are links out of the folder of the index are shown if they lead to these files; None for any."""
        self.index, self.links_to = index, links_to
        self.version = version_of(index)
        self.paths = [printable(path) for path in index.paths]
        self.labels = [None if label is None else printable(label) for label in index.labels]
        self.names = {printable(label): label for label in index.labels if label is not None}
        self.counts = Counter(label for label in self.labels if label is not None)
        self.thumbnail = functools.lru_cache(KEPT_THUMBNAILS)(self._thumbnail)
        self.embedder = Embedder(index.model)
        self.map = Map(index.path, index.vectors_ND, self.version)

    def close(self) -> None:
        self.map.close()
        self.embedder.close()

    # -- what is in it -------------------------------------------------------------------------------------------------

    def contents(self) -> dict[str, Any]:
        return {
            "name": printable(self.index.path.resolve().name),
            "version": self.version,
            "images": len(self.paths),
            "dimension": self.index.vectors_ND.shape[1],
            "engine": self.index.engine,
            "labels": [{"label": label, "images": self.counts[label]} for label in sorted(self.counts)],
            "unlabelled": self.labels.count(None),
            "thresholds": [
                {"precision": precision, "distance": marks.same, "other": marks.other}
                for precision in PRECISIONS
                if (marks := self.index.marks(precision)).same is not None
            ],
            "promise": self.promise(),
        }

    def promise(self) -> str:
        """What can be promised where PROMISED cannot; nothing where it can."""
        if self.index.threshold(PROMISED) is not None:
            return ""
        calibration = self.index.calibration
        return self.index.not_calibrated if calibration is None else promise_less(self.index, calibration, PROMISED)

    def layout(self) -> dict[str, Any]:
        """The map as the page draws it; the classes as numbers of the list of labels."""
        answer: dict[str, Any] = {"state": self.map.state, "reason": self.map.reason, "images": len(self.paths)}
        layout = self.map.layout
        if layout is None:
            return answer
        numbers = {label: number for number, label in enumerate(sorted(self.counts))}
        return {
            **answer,
            "method": layout.method,
            "rows": layout.rows_M.tolist(),
            "x": layout.xy_M2[:, 0].astype(float).round(5).tolist(),
            "y": layout.xy_M2[:, 1].astype(float).round(5).tolist(),
            "labels": [numbers.get(self.labels[row], -1) for row in layout.rows_M.tolist()],
        }

    # -- pictures ------------------------------------------------------------------------------------------------------

    def check_row(self, row: int) -> int:
        if not 0 <= row < len(self.paths):
            raise HTTPException(404, f"there is no row {row}: the index has the rows 0 to {len(self.paths) - 1}.")
        return row

    def check_version(self, version: str | None) -> None:
        """Refuse rows of another index: the same numbers would be other images."""
        if version not in (None, self.version):
            raise HTTPException(410, "the index was rebuilt, and its rows are others now: load the page again.")

    def file(self, row: int) -> Path:
        return file_below(self.index.root, self.index.paths[self.check_row(row)], self.links_to)

    def picture(self, row: int) -> BytesIO:
        """The content of an image, as it was indexed."""
        return read_indexed(self.file(row), self.index.checksums[row])

    def _thumbnail(self, row: int) -> bytes:
        return thumbnail(self.picture(row))

    # -- searching -----------------------------------------------------------------------------------------------------

    def check_label(self, label: str | None) -> str | None:
        """The label as the index has it."""
        if label is not None and label not in self.names:
            raise HTTPException(404, f"there is no class {label!r} in this index; /api/index lists them.")
        return None if label is None else self.names[label]

    def marks(self, precision: float | None) -> Marks:
        if precision is None:
            return Marks(None, None)
        marks = self.index.marks(precision)
        if marks.same is None:
            raise HTTPException(
                409, f"this index has no threshold for a precision of {precision:g}: leave precision out."
            )
        return marks

    def near_row(self, row: int, k: int, label: str | None, precision: float | None) -> dict[str, Any]:
        """The neighbours of an image of the index, without itself."""
        vector_D = self.index.vectors_ND[self.check_row(row)]
        return self.near(vector_D, k, label, precision, without=row)

    def near(
        self, vector_D: np.ndarray, k: int, label: str | None, precision: float | None, without: int | None = None
    ) -> dict[str, Any]:
        wanted, marks = self.check_label(label), self.marks(precision)
        extra = 0 if without is None else 1
        most = min(k + extra, len(self.paths) if label is None else self.counts[label])
        distances_1K, rows_1K = self.index.search(vector_D[None], most, label=wanted)
        found = [
            self.neighbour(int(row), float(distance), marks)
            for row, distance in zip(rows_1K[0], distances_1K[0], strict=True)
            if row >= 0 and row != without
        ]
        return {"neighbours": found[:k], "threshold": marks.same, "other_threshold": marks.other}

    def neighbour(self, row: int, distance: float, marks: Marks) -> dict[str, Any]:
        mark = marks.call(distance)
        return {
            "row": row,
            "distance": round(distance, 6),
            "label": self.labels[row],
            "path": self.paths[row],
            "same_item": {"same": True, "other": False}.get(mark or ""),
            "mark": mark,
        }

    def sample(self, k: int, label: str | None, seed: int) -> list[dict[str, Any]]:
        """Images to begin with, at random; the same for the same seed."""
        self.check_label(label)
        rows = [row for row, own in enumerate(self.labels) if label in (None, own)]
        picked = np.random.default_rng(seed).choice(len(rows), min(k, len(rows)), replace=False)
        return [self.about(rows[at]) for at in np.sort(picked)]

    def about(self, row: int) -> dict[str, Any]:
        return {"row": self.check_row(row), "label": self.labels[row], "path": self.paths[row]}


def version_of(index: Index) -> str:
    """Changes with the vectors and the paths: what browsers and the map remember is of this version."""
    digest = hashlib.sha256(np.ascontiguousarray(index.vectors_ND).data)
    digest.update("\0".join(index.paths).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def printable(text: str) -> str:
    """File names need not be Unicode, JSON must be."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
