"""Searching an index with image files: what `pads search` prints, writes as JSON, and shows as a contact sheet."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from PIL import Image, ImageDraw, ImageFont, ImageOps

from pads.data.store import BadImage, open_picture
from pads.errors import UserError, one_line
from pads.model import BATCH
from pads.runtime.files import writing
from pads.search.calibration import Calibration, check_precision
from pads.search.files import existing_images_folder
from pads.search.index import Index, Marks

TILE, GAP, CAPTION = 160, 12, 40
MOST_ON_A_SHEET = 40
"""Queries."""
FONTS = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf", "Helvetica.ttc")
DOTS = "..."
INK, PAPER, FAINT, SAME = "#1f2328", "#ffffff", "#6e7781", "#1a7f37"


Font: TypeAlias = ImageFont.ImageFont | ImageFont.FreeTypeFont


@dataclass(frozen=True)
class Neighbour:
    path: str
    """Below the root of the index."""
    file: str
    label: str | None
    distance: float
    same: bool | None
    """Whether it shows the query's item; None where that cannot be promised."""
    mark: str | None
    """The same in a word: same, unsure or other; None where nothing could be calibrated."""


@dataclass(frozen=True)
class Answer:
    query: str
    neighbours: tuple[Neighbour, ...]

    def as_json(self) -> dict[str, Any]:
        return {"query": self.query, "neighbours": [vars(neighbour) for neighbour in self.neighbours]}


def search_files(
    index: Index,
    queries: Sequence[str],
    k: int = 10,
    *,
    label: str | None = None,
    precision: float = 0.95,
    bad_query: Callable[[BadImage], None] | None = None,
) -> Iterator[Answer]:
    """The answer for each query, in order; one that cannot be read ends the search, unless `bad_query` is told of it."""
    marks = index.marks(precision)
    for at in range(0, len(queries), BATCH):
        readable, pictures = [], []
        for query in queries[at : at + BATCH]:
            try:
                pictures.append(index.model.read(query))
                readable.append(query)
            except BadImage as error:
                if bad_query is None:
                    raise
                bad_query(error)
        if readable:
            stored, sizes = zip(*pictures, strict=True)
            found = index.search(index.model.embed_stored(stored, sizes), k, label=label)
            for query, distances_K, rows_K in zip(readable, *found, strict=True):
                yield Answer(query, tuple(neighbours_of(index, distances_K.tolist(), rows_K.tolist(), marks)))


def neighbours_of(index: Index, distances: Sequence[float], rows: Sequence[int], marks: Marks) -> Iterator[Neighbour]:
    for distance, row in zip(distances, rows, strict=True):
        path, mark = index.paths[row], marks.call(distance)
        same = {"same": True, "other": False}.get(mark or "")
        yield Neighbour(path, str(index.root / path), index.labels[row], distance, same, mark)


def queries_of(given: Sequence[str], list_file: str | None) -> list[str]:
    """The paths that were given, then those of the file, one a line; `-` reads them from standard input."""
    listed: list[str] = []
    if list_file is not None:
        try:
            text = sys.stdin.read() if list_file == "-" else Path(list_file).read_text(errors="surrogateescape")
        except OSError as error:
            raise UserError(
                f"{list_file} could not be read ({error.strerror}): --from takes a list of paths."
            ) from error
        listed = [line for line in text.split("\n") if line.strip()]
    queries = [*given, *listed]
    if not queries:
        raise UserError("there is nothing to search for: name an image, or a file that lists some with --from FILE.")
    return queries


def print_answers(
    path: Path | str,
    given: Sequence[str],
    *,
    list_file: str | None,
    k: int,
    label: str | None,
    precision: float,
    as_json: bool,
    show: bool,
    sheet: str | None,
    images: str | None,
) -> None:
    """`pads search`: everything that can be wrong is refused before the first answer is printed."""
    queries = queries_of(given, list_file)
    check_precision(precision)
    if sheet is not None:
        check_sheet(Path(sheet))
    index = Index.open(path)
    if images is not None:
        index.root = existing_images_folder(images)
    for_sheet: list[Answer] = []
    num_bad = 0

    def bad_query(error: BadImage) -> None:
        nonlocal num_bad
        num_bad += 1
        print(f"pads: {error}", file=sys.stderr)

    alone = len(queries) == 1
    for answer in search_files(
        index, queries, k, label=label, precision=precision, bad_query=None if alone else bad_query
    ):
        print(json.dumps(answer.as_json()) if as_json else "\n".join(lines_of(answer)), flush=True)
        if len(for_sheet) < MOST_ON_A_SHEET:
            for_sheet.append(answer)
    if num_bad == len(queries):
        raise UserError("none of the queries can be read.")
    # with --json, standard output is for programs
    print(same_item_note(index, precision, option="--precision"), file=sys.stderr if as_json else sys.stdout)
    if show or sheet is not None:
        target = temporary_sheet() if sheet is None else Path(sheet)
        contact_sheet(for_sheet, target)
        opened = show and open_with_viewer(target)
        print(f"contact sheet: {target}{' (opened)' if opened else ''}", file=sys.stderr if as_json else sys.stdout)


# -- in words ----------------------------------------------------------------------------------------------------------


def lines_of(answer: Answer) -> list[str]:
    width = 0 if not answer.neighbours or answer.neighbours[0].mark is None else 8
    lines = [one_line(answer.query)]
    for rank, neighbour in enumerate(answer.neighbours, start=1):
        lines.append(f"{rank:>4}  {neighbour.distance:.4f}  {neighbour.mark or '':{width}}{one_line(neighbour.path)}")
    return lines


def same_item_note(index: Index, precision: float, *, option: str = "") -> str:
    """What "same" and "other" mean at this precision; or why they cannot be said, and what can be.

    option: of the command that asks for another precision.
    """
    calibration = index.calibration
    if calibration is None:
        return f"Whether a neighbour is the same item cannot be said. {index.not_calibrated}"
    other = index.other_threshold(precision)
    says_other = "nothing is called other" if other is None else f"other: farther than {other:.4f}"
    point = calibration.point(precision, len(index))
    if point is None:
        return f"{promise_less(index, calibration, precision, option)} Nothing is called same; {says_other}."
    same, strangers = calibration.same_P[point], calibration.strangers_P[point]
    expected = calibration.precisions(len(index))[point]
    return (
        f"same: nearer than {calibration.distances_P[point]:.4f}, {says_other}, for a precision of {100 * precision:g} %. On "
        f"{describe_images(calibration)} {same:,} of {same + strangers:,} neighbours that near were of the query's class, "
        f"which means about {expected:.1%} in an index of {len(index):,} images."
    )


def promise_less(index: Index, calibration: Calibration, precision: float, option: str = "") -> str:
    """Say what can be promised of neighbours where the precision that is wanted cannot."""
    missing = f"No distance promises a precision of {100 * precision:g} % in an index of {len(index):,} images"
    split, precisions_P = describe_images(calibration), calibration.precisions(len(index))
    best = math.floor(100 * precisions_P.max()) if len(precisions_P) else 0
    point = calibration.point(best / 100, len(index)) if best else None
    if point is None:
        return f"{missing}, going by {split}."
    nearer = f"of the neighbours nearer than {calibration.distances_P[point]:.4f}, about {best} % are the same item"
    how = f" ({option} {best / 100:g})" if option else ""
    return f"{missing}. What can be promised, going by {split}: {nearer}{how}."


def describe_images(calibration: Calibration) -> str:
    return f"{calibration.on} ({calibration.num_images:,} images of {calibration.num_classes:,} classes)"


# -- as a picture ------------------------------------------------------------------------------------------------------


def check_sheet(path: Path) -> None:
    """Refuses at the door what could not be written in the end."""
    if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp", ".pdf"):
        raise UserError(f"--sheet {path}: a contact sheet is a picture, so let its name end in .png, .jpg or .pdf.")
    if not path.parent.is_dir():
        raise UserError(f"--sheet {path}: there is no folder {path.parent}.")


def contact_sheet(answers: Sequence[Answer], path: Path) -> None:
    """A row for each query: itself, then its neighbours, framed where they are the same item."""
    num_columns = 1 + max(len(answer.neighbours) for answer in answers)
    size = (GAP + num_columns * (TILE + GAP), GAP + len(answers) * (TILE + CAPTION + GAP))
    sheet = Image.new("RGB", size, PAPER)
    for row, answer in enumerate(answers):
        top = GAP + row * (TILE + CAPTION + GAP)
        add_tile(sheet, GAP, top, answer.query, ("query", Path(answer.query).name), None)
        for column, neighbour in enumerate(answer.neighbours, start=1):
            words = (f"{neighbour.distance:.3f} {neighbour.mark or ''}".rstrip(), neighbour.path)
            add_tile(sheet, GAP + column * (TILE + GAP), top, neighbour.file, words, SAME if neighbour.same else None)
        left = GAP + TILE + GAP // 2
        ImageDraw.Draw(sheet).line((left, top, left, top + TILE + CAPTION - GAP), FAINT, 1)
    with writing(path) as file:
        sheet.save(file, Image.registered_extensions()[path.suffix.lower()])


def add_tile(sheet: Image.Image, left: int, top: int, file: str, words: tuple[str, str], frame: str | None) -> None:
    draw = ImageDraw.Draw(sheet)
    try:
        picture = ImageOps.contain(open_picture(file, None, min_side=TILE)[0], (TILE, TILE), Image.Resampling.LANCZOS)
    except BadImage:
        picture = Image.new("RGB", (TILE, TILE), "#eaeef2")
        ImageDraw.Draw(picture).text((10, TILE // 2 - 8), "not there any more", FAINT, find_font(13))
    corner = (left + (TILE - picture.width) // 2, top + (TILE - picture.height) // 2)
    sheet.paste(picture, corner)
    if frame is not None:
        edges = (corner[0] - 4, corner[1] - 4, corner[0] + picture.width + 3, corner[1] + picture.height + 3)
        draw.rectangle(edges, outline=frame, width=4)
    draw.text((left, top + TILE + 5), words[0], frame or INK, find_font(13))
    draw.text((left, top + TILE + 21), fit_text(words[1], draw), FAINT, find_font(11))


def fit_text(text: str, draw: ImageDraw.ImageDraw) -> str:
    """The end of a path that fits below a tile: that is where the name is."""
    font = find_font(11)
    text = make_legible(one_line(text), font)
    if draw.textlength(text, font) <= TILE:
        return text
    while draw.textlength(DOTS + text, font) > TILE:
        text = text[1:]
    return DOTS + text


@functools.cache
def find_font(size: int) -> Font:
    """A font with the letters of many languages, if the system or matplotlib has one, else Pillow's own."""
    places = [*FONTS]
    matplotlib = importlib.util.find_spec("matplotlib")
    if matplotlib is not None and matplotlib.origin is not None:
        places.append(str(Path(matplotlib.origin).parent / "mpl-data" / "fonts" / "ttf" / FONTS[0]))
    for place in places:
        with contextlib.suppress(OSError):
            return ImageFont.truetype(place, size)
    return ImageFont.load_default(size)


def make_legible(text: str, font: Font) -> str:
    """The text without boxes: a letter that the font does not have loses its accent, or becomes a question mark."""
    box = bytes(font.getmask("\uffff"))

    def has(letter: str) -> bool:
        return letter.isascii() or bytes(font.getmask(letter)) != box

    letters = []
    for letter in unicodedata.normalize("NFC", text):
        base = unicodedata.normalize("NFKD", letter)[0]
        letters.append(letter if has(letter) else base if has(base) else "?")
    return "".join(letters)


def temporary_sheet() -> Path:
    handle, name = tempfile.mkstemp(prefix="pads-search-", suffix=".png")
    os.close(handle)
    return Path(name)


def open_with_viewer(path: Path) -> bool:
    """Whether there is a display and something that opens files on it."""
    has_display = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    viewer = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if not has_display or viewer is None:
        return False
    nowhere = subprocess.DEVNULL
    subprocess.Popen([viewer, str(path)], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    return True
