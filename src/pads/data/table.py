"""A user's own images: a CSV in open-metric-learning's columns.

`label`, `split` and `path` (relative to the CSV) are needed. `is_query` and `is_gallery` (on test rows) make a test of
queries against a gallery; without them every test image asks and all others answer. `x_1`, `x_2`, `y_1`, `y_2` are the
left, right, top and bottom of a box to cut out. Splits: `train`; `val`, which selects the epoch; `test`, for which
open-metric-learning writes `validation`.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from pads.data.benchmark import Benchmark, ImageList, QueryGallery, classes_with_two, counted, listed, overlap_notes
from pads.errors import UserError

REQUIRED = ("label", "split", "path")
TEST_COLUMNS = ("is_query", "is_gallery")
BOX_COLUMNS = ("x_1", "y_1", "x_2", "y_2")
"""In the order left, top, right, bottom."""
SPLITS = ("train", "val", "validation", "test")
BOOLEANS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
NO_BOX = (math.nan,) * 4


@dataclass(frozen=True)
class Row:
    line: int
    values: dict[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values.get(column, "")


def table(root: str | Path | None = None, file: str | None = None, skip_small_classes: bool = True) -> Benchmark:
    """The images that a CSV lists; root is the CSV, or the folder that holds it, as `file` if there are several."""
    path = csv_file(root, file)
    columns, rows = read_rows(path)
    check_rows(path, columns, rows)
    by_split = {split: [row for row in rows if row["split"] == split] for split in SPLITS}
    train, notes = leave_one_out(path, by_split["train"], "the train split", skip_small_classes)
    selection = None
    if by_split["val"]:
        selection, val_notes = leave_one_out(path, by_split["val"], "the val split", skip_small_classes)
        notes += val_notes
    test, test_notes = test_split(path, columns, by_split["test"] or by_split["validation"], skip_small_classes)
    notes += test_notes
    if by_split["validation"]:
        notes += ("The validation rows are the test split, as in the literature; val rows would select the epoch.",)
    return Benchmark("csv", train, test, selection=selection, notes=notes + overlap_notes(train, test, selection))


# -- reading -----------------------------------------------------------------------------------------------------------


def csv_file(root: str | Path | None, file: str | None) -> Path:
    if root is None:
        raise UserError("say where the images are: --data FILE.csv, or --data DIR with the CSV in it.")
    root = Path(root).expanduser()
    if not root.exists():
        raise UserError(f"there is no {root}; --data takes a CSV file, or the folder that holds it.")
    if root.is_file():
        return root
    if file is not None:
        if not (root / file).is_file():
            raise UserError(f"there is no file {root / file}; data.options.file is the CSV's path below {root}.")
        return root / file
    found = sorted(path for path in root.glob("*.csv") if not path.name.startswith("."))
    if not found:
        raise UserError(f"there is no CSV in {root}; give the file itself: --data FILE.csv.")
    if len(found) > 1:
        names = listed(path.name for path in found)
        raise UserError(f"there are {len(found)} CSVs in {root} ({names}); give the file itself: --data FILE.csv.")
    return found[0]


def read_rows(path: Path) -> tuple[list[str], list[Row]]:
    """Columns and rows, with the blanks around each value stripped."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:  # spreadsheets put a byte order mark first
            reader = csv.reader(lines)
            columns = [column.strip() for column in next(reader, [])]
            rows = [Row(reader.line_num, named(columns, values)) for values in reader if any(values)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as a CSV in UTF-8 ({error}); save it as one.") from error
    missing = [column for column in REQUIRED if column not in columns]
    if missing:
        needed = counted(len(missing), "column", "columns")
        raise UserError(f"{path} lacks {needed}: {', '.join(missing)}; it has: {', '.join(columns) or 'none'}.")
    return columns, rows


def named(columns: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """A row by its columns; those that a short row does not reach are empty."""
    return {column: value.strip() for column, value in zip_longest(columns, values, fillvalue="") if column}


def check_rows(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Everything that can be wrong with single rows, and the splits that a run cannot do without."""
    refuse(path, [row for row in rows if not row["label"]], "without a label", "fill in the label column")
    unknown = [row for row in rows if row["split"] not in SPLITS]
    values = listed(sorted({repr(row["split"]) for row in unknown}))
    refuse(path, unknown, f"with an unknown split ({values})", "write train, val, test or validation")
    num_rows = Counter(row["split"] for row in rows)
    if not num_rows["train"]:
        raise UserError(f"{path} has no rows with split train, so there is nothing to train on.")
    if not num_rows["validation"] and not num_rows["test"]:
        raise UserError(f"{path} has no rows with split test (or validation), so there is nothing to test on.")
    if num_rows["validation"] and num_rows["test"]:
        raise UserError(
            f"{path} has {num_rows['validation']:,} validation and {num_rows['test']:,} test rows, and both words mean "
            "the test split; rename validation to val if these rows are to select the epoch."
        )
    lost = [row for row in rows if not row["path"] or not is_there(path.parent / row["path"])]
    files = listed(row["path"] or "(no path)" for row in lost)
    refuse(path, lost, f"whose file is missing ({files})", f"write paths relative to {path.parent}")
    if any(column in columns for column in TEST_COLUMNS):
        bad = [row for row in rows if is_test(row) and any(row[name].lower() not in BOOLEANS for name in TEST_COLUMNS)]
        what = "of the test split whose is_query or is_gallery is neither true nor false"
        refuse(path, bad, what, "write true or false, or leave out both columns to search each image among all others")
    if any(column in columns for column in BOX_COLUMNS):
        bad = [row for row in rows if box(row) is None]
        what = "whose box is not four numbers with 0 <= x_1 < x_2 (left, right) and 0 <= y_1 < y_2 (top, bottom)"
        refuse(path, bad, what, "mend them, or leave all four empty for the whole picture")


def is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long for any file
        return False


def refuse(path: Path, rows: Sequence[Row], what: str, remedy: str) -> None:
    if rows:
        lines = ("line " if len(rows) == 1 else "lines ") + listed(row.line for row in rows)
        raise UserError(f"{path} has {counted(len(rows), 'row', 'rows')} {what}, on {lines}: {remedy}.")


def is_test(row: Row) -> bool:
    return row["split"] in ("validation", "test")


def box(row: Row) -> tuple[float, ...] | None:
    """Left, top, right, bottom; NaN where the row has no box; None where it cannot be one."""
    texts = [row[column] for column in BOX_COLUMNS]
    if not any(texts):
        return NO_BOX
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        return None
    return (left, top, right, bottom) if 0 <= left < right < math.inf and 0 <= top < bottom < math.inf else None


# -- the splits --------------------------------------------------------------------------------------------------------


def leave_one_out(
    path: Path, rows: Sequence[Row], where: str, skip_small_classes: bool
) -> tuple[ImageList, tuple[str, ...]]:
    """The images of classes with at least two of them, of which there must be two."""
    images, notes = classes_with_two(images_of(path, rows), skip_small_classes, f"{where} of {path}")
    if images.num_classes < 2:
        num_classes = counted(images.num_classes, "class", "classes")
        raise UserError(f"{where} of {path} has {num_classes} with at least two images; it needs two such classes.")
    return images, notes


def test_split(
    path: Path, columns: Sequence[str], rows: Sequence[Row], skip_small_classes: bool
) -> tuple[ImageList | QueryGallery, tuple[str, ...]]:
    if not any(column in columns for column in TEST_COLUMNS):
        return leave_one_out(path, rows, "the test split", skip_small_classes)
    used = [row for row in rows if is_true(row, "is_query") or is_true(row, "is_gallery")]
    notes: tuple[str, ...] = ()
    if len(used) < len(rows):
        unused = counted(len(rows) - len(used), "test row", "test rows")
        notes += (f"Left out {unused} marked neither query nor gallery.",)
    if all(is_true(row, "is_query") and is_true(row, "is_gallery") for row in used):
        images, small_notes = leave_one_out(path, used, "the test split", skip_small_classes)
        return images, notes + small_notes
    check_queries(path, used)
    is_query, is_gallery = (np.array([is_true(row, column) for row in used]) for column in TEST_COLUMNS)
    return QueryGallery(images_of(path, used), is_query, is_gallery), notes


def check_queries(path: Path, rows: Sequence[Row]) -> None:
    """Each query needs an image of its label in the gallery, other than itself."""
    if not any(is_true(row, "is_query") for row in rows):
        raise UserError(f"{path} has no test row with is_query true, so nothing would be searched for.")
    in_gallery = Counter(row["label"] for row in rows if is_true(row, "is_gallery"))
    alone = [row for row in rows if is_true(row, "is_query") and in_gallery[row["label"]] <= is_true(row, "is_gallery")]
    labels = listed(dict.fromkeys(row["label"] for row in alone))
    what = f"asking for a label without another image in the gallery (label {labels})"
    refuse(path, alone, what, "add images of these labels with is_gallery true, or set is_query to false")


def is_true(row: Row, column: str) -> bool:
    return BOOLEANS[row[column].lower()]


def images_of(path: Path, rows: Sequence[Row]) -> ImageList:
    class_names = tuple(sorted({row["label"] for row in rows}, key=numbers_first))
    position = {label: index for index, label in enumerate(class_names)}
    boxes_N4 = np.array([box(row) for row in rows], dtype=np.float64)
    return ImageList(
        paths=tuple(path.parent / row["path"] for row in rows),
        labels=np.array([position[row["label"]] for row in rows], dtype=np.int64),
        class_names=class_names,
        boxes=None if np.isnan(boxes_N4).all() else boxes_N4,
    )


def numbers_first(label: str) -> tuple[bool, int, str]:
    """The order of labels: 2 before 10, and numbers before words."""
    is_number = label.isdecimal() and len(label) < 1000  # Python reads no number of thousands of digits
    return not is_number, int(label) if is_number else 0, label
