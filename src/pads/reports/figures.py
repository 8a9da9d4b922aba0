"""The pictures of a report for a paper, PNG and SVG, by matplotlib; and the paper's Figures 2 and 5.

Dimensions: T steps, K bins, M images shown.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pads.errors import UserError, missing_extra
from pads.reports.curves import Chart, charts_of
from pads.reports.gallery import SHOWN
from pads.reports.groups import Group, curve_names, group_runs
from pads.reports.heatmap import LOG_FLOOR, Progression, mean_progression
from pads.reports.look import Look
from pads.runs import RunFolder
from pads.runtime.files import make_folder, writing
from pads.sampling import bin_distribution

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555b63")
"""Okabe and Ito's, which colour-blind people tell apart."""
DASHES = ("-", "--", ":")
QUERY, RIGHT, WRONG = "#e08300", "#00795a", "#c0392b"
STYLE: Any = {
    "font.size": 8,
    "text.parse_math": False,  # a dollar sign in the name of a class begins no formula
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "pads",
    "svg.fonttype": "none",
}


def has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def draw_figures(folder: Path, groups: Sequence[Group], look: Look | None) -> list[Path]:
    """Every picture there is something for."""
    rows = {group.label: (group.progression("distribution"), group.progression("drawn")) for group in groups}
    written = []
    if any(p or drawn for p, drawn in rows.values()):
        written += draw_progressions(rows, folder)
    written += draw_curves(groups, folder)
    if look is not None:
        written += draw_gallery(look, folder)
        if look.xy_M2 is not None:
            written += draw_map(look, folder)
    return written


def draw_curricula(rows: Mapping[str, Sequence[RunFolder]], folder: Path) -> list[Path]:
    """The paper's Figure 5: a row for each curriculum, p(I_n|I_a) averaged over its runs, on linear and log scale."""
    means = {label: mean_of_runs(label, runs) for label, runs in rows.items()}
    with new_figure(7, 0.5 + 2.1 * len(means)) as (figure, save):
        panels = figure.subplots(len(means), 2, squeeze=False)
        for (label, mean), axes in zip(means.items(), panels, strict=True):
            heat(figure, axes[0], mean, f"{label}, linear scale")
            heat(figure, axes[1], mean, f"{label}, log scale", is_log=True)
        return save(folder, "curricula")


def mean_of_runs(label: str, runs: Sequence[RunFolder]) -> Progression:
    series = [each for group in group_runs(runs) for each in group.series]
    made = [progression for each in series if (progression := Progression.of(each, "distribution")) is not None]
    if not made:
        raise UserError(f"no run of {label} samples by bins: name runs of a learned or a scheduled curriculum.")
    return mean_progression(made)


def draw_initial(folder: Path) -> list[Path]:
    """The paper's Figure 2: the interval [lambda_min, lambda_max] in K equal bins u_k, each with its probability p_k."""
    bins = bin_distribution()
    edges, p_K = bins.edges.numpy(), bins.probabilities_K.numpy()
    with new_figure(5, 2.7) as (figure, save):
        axes = figure.subplots()
        axes.bar(edges[:-1], p_K, np.diff(edges), align="edge", color=COLOURS[4], edgecolor="white", linewidth=0.6)
        marked = 9
        axes.bar(edges[marked], p_K[marked], np.diff(edges)[marked], align="edge", color=COLOURS[1], edgecolor="white")
        axes.annotate(
            f"$p_k$ = {100 * p_K[marked]:.1f} %",
            (edges[marked : marked + 2].mean(), p_K[marked]),
            (0.78, p_K.max() * 1.12),
            arrowprops={"arrowstyle": "-", "color": COLOURS[1]},
            va="center",
            parse_math=True,
        )
        axes.text(
            edges[marked : marked + 2].mean(), -0.006, "$u_k$", ha="center", va="top", color=COLOURS[1], parse_math=True
        )
        for edge, name in ((edges[0], r"$\lambda_{\min}$"), (edges[-1], r"$\lambda_{\max}$")):
            axes.axvline(edge, color="#555b63", linestyle="--", linewidth=1)
            axes.text(edge, p_K.max() * 1.3, f"{name} = {edge:.1f}", ha="center", va="bottom", parse_math=True)
        axes.set(xlim=(0, 1.55), ylim=(0, p_K.max() * 1.28), xlabel="distance between anchor and negative")
        axes.set_ylabel("probability of the bin")
        axes.yaxis.set_major_formatter(percent)
        axes.tick_params(axis="x", pad=12)
        return save(folder, "initial-distribution")


# -- the pictures of a report --------------------------------------------------------------------------------------------


def draw_progressions(rows: Mapping[str, tuple[Progression | None, Progression | None]], folder: Path) -> list[Path]:
    """A row for each group: p(I_n|I_a) on linear and log scale beside what was really drawn (paper, Fig. 1 and 4)."""
    with new_figure(10, 0.5 + 2.3 * len(rows)) as (figure, save):
        panels = figure.subplots(len(rows), 3, squeeze=False)
        for (label, (p, drawn)), axes in zip(rows.items(), panels, strict=True):
            heat(figure, axes[0], p, f"{label}: p, linear scale")
            heat(figure, axes[1], p, f"{label}: p, log scale", is_log=True)
            heat(figure, axes[2], drawn, f"{label}: negatives drawn")
        return save(folder, "distribution")


def heat(figure: Any, axes: Any, progression: Progression | None, title: str, *, is_log: bool = False) -> None:
    from matplotlib.colors import LogNorm, Normalize

    axes.set_title(title)
    if progression is None or not len(progression.steps_T):
        axes.set_axis_off()
        axes.text(0.5, 0.5, "this curriculum has no bins", ha="center", va="center", transform=axes.transAxes)
        return
    shares_TK = progression.shares_TK
    most = max(float(shares_TK.max()), 2 * LOG_FLOOR)
    norm = LogNorm(LOG_FLOOR, most, clip=True) if is_log else Normalize(0, most)
    mesh = axes.pcolormesh(
        progression.limits, progression.edges, shares_TK.T.clip(LOG_FLOOR if is_log else 0), norm=norm, cmap="viridis"
    )
    mesh.set_rasterized(True)
    bar = figure.colorbar(mesh, ax=axes, format=percent)
    bar.outline.set_visible(False)
    axes.set(xlabel="training step", ylabel="distance")


def draw_curves(groups: Sequence[Group], folder: Path) -> list[Path]:
    """All curves, the groups overlaid; a band is one standard deviation over the runs of a group."""
    charts = charts_of(curve_names(groups))
    if not charts:
        return []
    columns = min(3, len(charts))
    num_rows = math.ceil(len(charts) / columns)
    with new_figure(3.3 * columns, 0.6 + 2.1 * num_rows) as (figure, save):
        panels = figure.subplots(num_rows, columns, squeeze=False).ravel()
        for axes in panels[len(charts) :]:
            axes.set_axis_off()
        for axes, chart in zip(panels, charts, strict=False):
            draw_chart(axes, chart, groups)
        if len(groups) > 1:
            handles = [sample(group.label, COLOURS[at % len(COLOURS)]) for at, group in enumerate(groups)]
            figure.legend(handles=handles, loc="outside upper center", ncols=min(3, len(groups)), frameon=False)
        return save(folder, "curves")


def draw_chart(axes: Any, chart: Chart, groups: Sequence[Group]) -> None:
    factor = 100 if chart.is_percent else 1
    for number, group in enumerate(groups):
        tint = COLOURS[number % len(COLOURS)]
        for line in chart.lines:
            band = group.band(line.name)
            if band is None:
                continue
            mean = factor * np.array(band.mean)
            look = {"color": tint, "linestyle": DASHES[line.style], "marker": "o" if len(mean) == 1 else None}
            axes.plot(
                band.steps, mean, drawstyle="steps-post" if chart.is_stepped else "default", linewidth=1.3, **look
            )
            if band.sd is not None:
                sd = factor * np.array(band.sd)
                axes.fill_between(band.steps, mean - sd, mean + sd, color=tint, alpha=0.2, linewidth=0)
    axes.set_title(chart.title)
    axes.set(xlabel="training step", ylabel=chart.unit)
    handles = [sample(line.label, "#555b63", DASHES[line.style]) for line in chart.lines if line.label]
    if handles:
        axes.legend(handles=handles, frameon=False, fontsize=7)


def sample(label: str, tint: str, dash: Any = "-") -> Any:
    """A line of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=tint, linestyle=dash, linewidth=1.3, label=label)


def draw_map(look: Look, folder: Path) -> list[Path]:
    """The test images as points, coloured by class, with pictures where there is room for one (paper, Fig. 6)."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    assert look.xy_M2 is not None
    width, height = np.ptp(look.xy_M2, axis=0)
    with new_figure(7, 0.4 + 6.6 * min(max(height / max(width, 1e-12), 0.4), 1.4)) as (figure, save):
        axes = figure.subplots()
        labels_M = look.labels_N[look.shown_M]
        hues_M = (labels_M * 0.381966) % 1
        axes.scatter(*look.xy_M2.T, c=hues_M, cmap="hsv", vmin=0, vmax=1, s=5, alpha=0.6, linewidths=0, rasterized=True)
        for image in spread_out(look.xy_M2, cells=27):
            picture = OffsetImage(look.thumbnails_MSS3[image], zoom=16 / look.thumbnails_MSS3.shape[1])
            axes.add_artist(AnnotationBbox(picture, look.xy_M2[image], frameon=False, pad=0))
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_title(f"{look.method.upper()} of {len(look.shown_M):,} test images; a colour is a class")
        return save(folder, "map")


def spread_out(xy_M2: np.ndarray, cells: int) -> list[int]:
    """As many images as have room: none is nearer to another, in x and in y, than a cell of a grid over the map."""
    unit_M2 = xy_M2 / max(float(np.ptp(xy_M2, axis=0).max()), 1e-12) * cells
    picked: list[int] = []
    for image in np.random.default_rng(0).permutation(len(xy_M2)):
        if not picked or np.abs(unit_M2[picked] - unit_M2[image]).max(1).min() >= 1:
            picked.append(int(image))
    return picked


def draw_gallery(look: Look, folder: Path) -> list[Path]:
    """Good and bad queries with their nearest images (paper, Fig. 7): marked by sign and colour."""
    rows = [("good", row) for row in look.good] + [("bad", row) for row in look.bad]
    if not rows:  # no query has anything to find
        return []
    place = {int(position): at for at, position in enumerate(look.shown_M)}
    width = min(SHOWN, look.found.neighbours_QK.shape[1])
    with new_figure(0.68 * (1.3 + 1.08 * width), 0.68 * (1.27 * len(rows) + 0.1)) as (figure, save):
        axes = figure.subplots()
        for line, (kind, row) in enumerate(rows):
            query, top = int(look.found.queries_Q[row]), 1.27 * line
            words = f"{kind}, AP {100 * look.found.precisions_Q[row]:.0f} %: {shorten_name(look.cells(query)[1])}"
            axes.text(0, top - 0.05, words, va="bottom", fontsize=7)
            draw_framed(axes, look.thumbnails_MSS3[place[query]], 0, top, QUERY)
            for column, found in enumerate(look.found.neighbours_QK[row, :width].tolist()):
                is_right = bool(look.found.matches_QK[row, column])
                tint, left = RIGHT if is_right else WRONG, 1.2 + 1.08 * column
                draw_framed(axes, look.thumbnails_MSS3[place[found]], left, top, tint)
                badge = {"boxstyle": "circle,pad=0.12", "facecolor": tint, "edgecolor": "white"}
                at = {"ha": "center", "va": "center", "color": "white", "fontsize": 6}
                axes.text(left + 0.93, top + 0.93, "✓" if is_right else "✗", bbox=badge, **at)
        axes.set(xlim=(-0.05, 1.2 + 1.08 * width), ylim=(1.27 * len(rows) - 0.2, -0.3), aspect="equal")
        axes.set_axis_off()
        return save(folder, "retrieval")


def draw_framed(axes: Any, pixels_SS3: np.ndarray, left: float, top: float, tint: str) -> None:
    """Draw a picture in a frame of this colour."""
    from matplotlib.patches import Rectangle

    axes.imshow(pixels_SS3, extent=(left, left + 1, top + 1, top), interpolation="bilinear")
    axes.add_patch(Rectangle((left, top), 1, 1, fill=False, edgecolor=tint, linewidth=2))


def shorten_name(name: str, most: int = 60) -> str:
    """Cut a long name, and spell what is not text."""
    name = name.encode("utf-8", "backslashreplace").decode()  # a folder's name need not be text
    return name if len(name) <= most else name[: most - 1] + "…"


# -- matplotlib ----------------------------------------------------------------------------------------------------------


def percent(value: float, _: Any = None) -> str:
    return f"{100 * value:.3g} %"


@contextmanager
def new_figure(width: float, height: float) -> Iterator[tuple[Any, Callable[[Path, str], list[Path]]]]:
    """A figure in our style, without pyplot's global state, and a function that saves it as PNG and SVG."""
    if not has_matplotlib():
        raise missing_extra("matplotlib", "plots")
    import matplotlib
    from matplotlib.figure import Figure

    def save(folder: Path, name: str) -> list[Path]:
        make_folder(folder)
        paths = [folder / f"{name}.png", folder / f"{name}.svg"]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # a class name in letters that the font has not
            with writing(paths[0]) as file:
                figure.savefig(file, format="png", dpi=180)
            figure.set_layout_engine("none")  # as it is now: to lay it out again takes as long as to draw it
            with writing(paths[1]) as file:
                figure.savefig(file, format="svg", metadata={"Date": None})
        return paths

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, save
