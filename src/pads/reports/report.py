"""`pads report RUN ...`: the page, the pictures and the numbers of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pads.config import lookup
from pads.errors import UserError
from pads.reports.figures import draw_figures, has_matplotlib
from pads.reports.groups import Group, group_runs
from pads.reports.headline import headline_of
from pads.reports.html import page_of
from pads.reports.look import Look, look_at
from pads.reports.projection import METHODS
from pads.reports.tables import write_tables
from pads.runs import RunFolder
from pads.runtime.files import make_inner_folder, write_atomically

MAPS = (*METHODS, "none")
PAGE = "report.html"


@dataclass(frozen=True)
class Report:
    page: Path
    folder: Path
    """Beside the page, with its name: pictures and numbers."""
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    """What is missing, and why."""


def write_report(
    runs: Sequence[RunFolder | Path | str],
    out: Path | str | None = None,
    *,
    map_method: str = "auto",
    classes: Sequence[str] = (),
) -> Report:
    """Draws the runs. `out` is a folder, or a page's name that ends in .html; unless told, it is the first run's folder.

    The map and the gallery are those of the first run. `classes` are opened in the page from the start.
    """
    assert runs, "name at least one run"
    lookup(dict.fromkeys(MAPS), map_method, "map")
    groups = group_runs(run if isinstance(run, RunFolder) else RunFolder.open(run) for run in runs)
    page = place_of(groups[0].runs[0] if out is None else out)
    look, look_missing = try_to_look(groups[0].runs[0], map_method, classes)
    folder = page.with_suffix("")
    make_inner_folder(folder)
    files = write_tables(folder, groups, look)
    notes = [note for note in (look_missing, look.note if look else "") if note]
    if has_matplotlib():
        files += draw_figures(folder, groups, look)
    else:
        notes.append('no PNG and SVG: matplotlib is not installed; install it with: pip install "pads-dml[plots]"')
    text = page_of(
        groups, headlines(groups, look), look, look_missing, sorted(f"{folder.name}/{f.name}" for f in files)
    )
    write_atomically(page, text.encode("utf-8", errors="backslashreplace"))
    return Report(page, folder, tuple(files), tuple(notes))


def place_of(out: RunFolder | Path | str) -> Path:
    path = out.path if isinstance(out, RunFolder) else Path(out)
    return path if path.suffix == ".html" and not path.is_dir() else path / PAGE


def try_to_look(run: RunFolder, map_method: str, classes: Sequence[str]) -> tuple[Look | None, str]:
    """The look at the test images, or a sentence that says why there is none."""
    try:
        return look_at(run, map_method=map_method, classes=classes), ""
    except (UserError, OSError) as error:
        if classes or map_method == "umap":  # what was asked for by name is not passed over
            raise
        return None, f"The test images of {run.path} cannot be shown: {error}"


def headlines(groups: Sequence[Group], look: Look | None) -> list[dict[str, object]]:
    so_far = look.figures(groups[0].config.recall_at) if look else None
    return [headline_of(group, so_far if number == 0 else None) for number, group in enumerate(groups)]
