"""The page: one HTML file with everything in it, drawn by the scripts beside this file."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import pads
from pads.config import to_json
from pads.data import OWN_IMAGES
from pads.data.benchmark import count
from pads.data.manifest import read_manifest
from pads.errors import UserError, one_line
from pads.reports.curves import Band, charts_of, metric_title
from pads.reports.gallery import SHOWN
from pads.reports.groups import Group, curve_names
from pads.reports.heatmap import LOG_FLOOR, Progression
from pads.reports.look import Look
from pads.reports.thumbnails import COLUMNS, PER_SHEET, sheets
from pads.runs import RunFolder

SCRIPTS = ("page.js", "heatmap.js", "curves.js", "gallery.js", "map.js")
MOST_LISTED = 200
"""Files that were left out; the run's data.jsonl has all."""
MOST_POINTS = 300
"""Of a curve or a progression in the page; the CSV files have all."""


def page_of(
    groups: Sequence[Group],
    headlines: Sequence[Mapping[str, Any]],
    look: Look | None,
    look_missing: str,
    files: Sequence[str],
) -> str:
    """`look_missing` says why there is no look at the test images; `files` are the names of what lies beside the page."""
    data = {
        "groups": [group.label for group in groups],
        "log_floor": LOG_FLOOR,
        "distributions": [made for group in groups for made in distributions_of(group)],
        "charts": charts(groups),
        "charts_caption": charts_caption(groups),
        "look": look_data(look, groups[0]) if look else None,
        "look_missing": look_missing,
    }
    missing = [*list_unfinished(groups), *([look.note] if look and look.note else [])]
    parts = {
        "title": escape(title_of(groups)),
        "css": resource("page.css"),
        "js": "\n".join(map(resource, SCRIPTS)),
        "data": safe_json(data),
        "missing": "".join(f'<p class="missing">{escape(sentence)}</p>' for sentence in missing),
        "headlines": "".join(map(headline_html, headlines)),
        "search": search_html(groups[0].runs[0]),
        "left_out": "".join(map(list_left_out, groups)),
        "files": escape(f"Beside this page: {', '.join(files)}.") if files else "",
        "settings": "".join(map(settings_html, groups)),
        "version": escape(pads.__version__),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], resource("page.html"))


def resource(name: str) -> str:
    return resources.files("pads.reports").joinpath(name).read_text(encoding="utf-8")


def safe_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in, nor begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def short(value: float) -> float:
    """Four digits, which no eye misses."""
    return float(f"{value:.4g}")


# -- result ------------------------------------------------------------------------------------------------------------


def list_unfinished(groups: Sequence[Group]) -> list[str]:
    """Return a sentence for each run that is not finished."""
    return [
        f"{run.path} is not finished: this page shows it as far as it has got."
        for group in groups
        for run in group.runs
        if not run.is_finished
    ]


def title_of(groups: Sequence[Group]) -> str:
    """Return what the page is about: the user's own folder, or the recipes."""
    config = groups[0].config
    if len(groups) == 1 and config.data.name in OWN_IMAGES and config.data.root is not None:
        return Path(config.data.root).name or config.data.root
    return ", ".join(group.label for group in groups)


def search_html(run: RunFolder) -> str:
    """How to search the images of a run whose index was made with it."""
    index = run.path / "images-index"
    if not (index / "index.json").is_file():
        return ""
    return f'<p class="search">Search these images: <code>pads serve {escape(shlex.quote(str(index)))}</code></p>'


def list_left_out(group: Group) -> str:
    """List the files that a run did not use, and why; of very many, the first."""
    run = group.runs[0]
    try:
        manifest = read_manifest(run.manifest_path)
    except UserError:  # the page on a run whose list is damaged is still worth a look
        return ""
    files = manifest.left_out if manifest is not None else ()
    if not files:
        return ""
    rows = "".join(f"<li>{escape(one_line(each.path))}: {escape(each.reason)}</li>" for each in files[:MOST_LISTED])
    more = f"<li>and {len(files) - MOST_LISTED:,} more, in {escape(str(run.manifest_path))}</li>"
    listed = rows + (more if len(files) > MOST_LISTED else "")
    num_bad = sum(each.is_bad for each in files)
    bad = f", of which {count(num_bad, 'image', 'images')} cannot be read" if num_bad else ""
    title = f"{count(len(files), 'file', 'files')} left out{bad}"
    return (
        f'<details class="left-out"{" open" if num_bad else ""}><summary>{title}</summary><ul>{listed}</ul></details>'
    )


def headline_html(headline: Mapping[str, Any]) -> str:
    runs = headline["runs"]
    seeds = f"{'seed' if len(runs) == 1 else 'seeds'} {', '.join(str(run['seed']) for run in runs)}"
    pairs = [*headline["about"], ("run" if len(runs) == 1 else "runs", ", ".join(run["path"] for run in runs))]
    return (
        f'<div class="run"><h3>{escape(headline["label"])}, {escape(seeds)} '
        f'<span class="stamp {escape(headline["protocol"])}">{escape(headline["protocol"])}</span></h3>'
        f'<p class="caption">{escape(headline["protocol_note"])}</p>'
        + bars_html(headline["rows"])
        + table_html(headline["rows"], headline["columns"])
        + "".join(f'<p class="judgement">{escape(sentence)}</p>' for sentence in headline["judgement"])
        + "".join(f'<p class="caption">{escape(note)}</p>' for note in headline["notes"])
        + f'<dl class="about">{"".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in pairs)}</dl></div>'
    )


def bars_html(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Recall@1 as bars."""
    made = []
    for name, figures in rows.items():
        if name == "last" or "recall@1" not in figures:
            continue
        percent = 100 * figures["recall@1"][0]
        kind = {"so far": "trained"}.get(name, name.replace(" ", "-"))
        value = percentage(figures["recall@1"]) + " %"
        fill = f'<span class="fill {kind}" style="width:calc((100% - 8rem) * {percent / 100:.4f})"></span>'
        made.append(f'<span>{escape(name)}</span><span class="bar">{fill}<b>{value}</b></span>')
    title = "<h4>Recall@1: how often the nearest image is of the same class</h4>"
    return f'{title}<div class="bars">{"".join(made)}</div>' if made else ""


def table_html(rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str]) -> str:
    if not rows:
        return ""
    titles = "".join(f"<th scope='col'>{escape(metric_title(name).replace('Recall', 'R'))}</th>" for name in columns)
    lines = []
    for name, figures in rows.items():
        cells = "".join(f"<td>{percentage(figures[column]) if column in figures else '–'}</td>" for column in columns)
        lines.append(f'<tr class="{escape(name.replace(" ", "-"))}"><th scope="row">{escape(name)}</th>{cells}</tr>')
    head = f'<thead><tr><th scope="col">in percent</th>{titles}</tr></thead>'
    return f'<div class="scroll"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'


def percentage(figure: tuple[float, float | None]) -> str:
    mean, sd = figure
    return f"{100 * mean:.1f}" if sd is None else f"{100 * mean:.1f} ± {100 * sd:.1f}"


def settings_html(group: Group) -> str:
    text = escape(to_json(group.config))
    return f"<details><summary>All settings of {escape(group.label)}</summary><pre>{text}</pre></details>"


# -- sampling and curves -----------------------------------------------------------------------------------------------


def distributions_of(group: Group) -> list[dict[str, Any]]:
    """The mean of the group, if there is more than one run, then each run."""
    made = []
    if len(group.runs) > 1:
        caption = f"Mean of {len(group.runs)} runs of {group.label}, at the steps that all of them reached."
        p, drawn = group.progression("distribution"), group.progression("drawn")
        made.append(distribution(f"{group.label}: mean of {len(group.runs)} runs", group, p, drawn, caption))
    for run, series in zip(group.runs, group.series, strict=True):
        p, drawn = Progression.of(series, "distribution"), Progression.of(series, "drawn")
        label = f"{group.label}, seed {series['seed']}"
        made.append(distribution(label, group, p, drawn, f"The run {run.path}."))
    return made


def distribution(
    label: str, group: Group, p: Progression | None, drawn: Progression | None, caption: str
) -> dict[str, Any]:
    missing = ""
    if p is None:
        caption += f" The curriculum “{group.config.curriculum.name}” does not sample by bins: there is no p(Iₙ|Iₐ)."
    elif len(p.steps_T) == 1:
        caption += " p stayed as it was at the start."
    if drawn is None:
        missing = "What was drawn has not been recorded yet: that comes with the first training record."
    values = {
        "p": None if p is None else progression_data(p),
        "drawn": None if drawn is None else progression_data(drawn),
    }
    return {"label": label, "caption": caption, "missing": missing, **values}


def progression_data(progression: Progression) -> dict[str, Any]:
    few = progression.thin(MOST_POINTS)
    rows = [[short(share) for share in row] for row in few.shares_TK.tolist()]
    return {"edges": few.edges.tolist(), "steps": few.steps_T.tolist(), "limits": few.limits.tolist(), "rows": rows}


def charts(groups: Sequence[Group]) -> list[dict[str, Any]]:
    made = []
    for chart in charts_of(curve_names(groups)):
        lines = [
            {"group": number, "style": line.style, "label": line.label, **band_data(band)}
            for line in chart.lines
            for number, group in enumerate(groups)
            if (band := group.band(line.name)) is not None
        ]
        values = {"title": chart.title, "unit": chart.unit, "percent": chart.is_percent, "stepped": chart.is_stepped}
        if lines:
            made.append({**values, "lines": lines})
    return made


def band_data(band: Band) -> dict[str, Any]:
    kept = np.unique(np.linspace(0, len(band.steps) - 1, min(len(band.steps), MOST_POINTS)).round().astype(int))
    return {
        "steps": [band.steps[at] for at in kept],
        "mean": [short(band.mean[at]) for at in kept],
        "sd": None if band.sd is None else [short(band.sd[at]) for at in kept],
    }


def charts_caption(groups: Sequence[Group]) -> str:
    names = curve_names(groups)
    if not names:
        return "Nothing has been recorded yet: the curves begin with the first training record."
    is_rewarded = any(name.startswith("reward/") for name in names)
    sentences = [
        ("The policy sees the reward split and the" if is_rewarded else "The")
        + " selection split picks the epoch; the test split has a curve only if test_curve_every was set."
    ]
    if "boundary" in names:
        sentences.append("A boundary that rises asks for more: the loss may grow while the network becomes better.")
    if any(len(group.runs) > 1 for group in groups):
        sentences.append("A band is one standard deviation over the seeds of a line.")
    return " ".join(sentences)


# -- test images -------------------------------------------------------------------------------------------------------


def look_data(look: Look, group: Group) -> dict[str, Any]:
    """Images are counted as they stand in the sheets; one without a thumbnail is told by its class, as -1 - label."""
    labels_N, found = look.labels_N, look.found
    place_N = np.full(len(labels_N), -1)
    place_N[look.shown_M] = np.arange(len(look.shown_M))
    urls, tile = sheets(look.thumbnails_MSS3)
    neighbours: list[list[int]] = [[] for _ in look.shown_M]
    precisions: list[float | None] = [None] * len(look.shown_M)
    for row, query in enumerate(found.queries_Q):
        place = place_N[query]
        if place < 0:
            continue
        answers_K = found.neighbours_QK[row, :SHOWN]
        places_K = place_N[answers_K]
        neighbours[place] = np.where(places_K >= 0, places_K, -1 - labels_N[answers_K]).tolist()
        precisions[place] = None if np.isnan(found.precisions_Q[row]) else short(float(found.precisions_Q[row]))
    return {
        "classes": look.class_names,
        "labels": labels_N[look.shown_M].tolist(),
        "names": [look.short_name(int(position)) for position in look.shown_M],
        "neighbours": neighbours,
        "precisions": precisions,
        "good": place_N[found.queries_Q[look.good]].tolist(),
        "bad": place_N[found.queries_Q[look.bad]].tolist(),
        "confused": [
            {**pair._asdict(), "query": int(place_N[pair.query]), "found": int(place_N[pair.found])}
            for pair in look.confused
        ],
        "pinned": look.pinned,
        **coordinates(look.xy_M2),
        "map_caption": map_caption(look, group),
        "sheets": urls,
        "tile": tile,
        "columns": COLUMNS,
        "per_sheet": PER_SHEET,
    }


def coordinates(xy_M2: np.ndarray | None) -> dict[str, list[float] | None]:
    """Within the unit square, in true proportions, y downward."""
    if xy_M2 is None:
        return {"x": None, "y": None}
    low_2, high_2 = xy_M2.min(0), xy_M2.max(0)
    unit_M2 = (xy_M2 - (low_2 + high_2) / 2) / max(float((high_2 - low_2).max()), 1e-12)
    return {"x": np.round(0.5 + unit_M2[:, 0], 4).tolist(), "y": np.round(0.5 - unit_M2[:, 1], 4).tolist()}


def map_caption(look: Look, group: Group) -> str:
    if look.method == "none":
        return "There is no map: it was left out by --map none."
    shown, every = len(look.shown_M), len(look.labels_N)
    which = f"{shown:,} test images" if shown == every else f"{shown:,} of {every:,} test images"
    how = {
        "umap": "UMAP (the paper's Figure 6)",
        "pca": "The two main axes (PCA; `--map umap` draws UMAP, and needs pads-dml[umap])",
    }[look.method]
    return (
        f"{how} of the embeddings of {which}, by the network of {group.runs[0].path}. A colour is a class; with many "
        "classes colours come again, so point at an image to read its class. Near enough, points become pictures. Drag "
        "moves; the wheel zooms after a click into the map; a double click opens the class."
    )
