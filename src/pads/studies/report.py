"""What a study came to: the table in the terminal, as Markdown, CSV and LaTeX, and the figures."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from pads.data.benchmark import count
from pads.data.manifest import read_changed
from pads.display import clock, make_console, print_notes, say
from pads.runs import RunFolder
from pads.runtime.files import make_inner_folder, write_atomically
from pads.studies.arms import Figures
from pads.studies.plan import Result
from pads.studies.statistics import Estimate, difference, estimate, interval, mean_and_sd, paired_difference

WHEN = {"selected": "selected epoch", "last": "last epoch", "best_test": "best test epoch (test-selected)"}
CSV_COLUMNS = (
    *("arm", "when", "test_selected", "metric", "n", "mean", "sd", "low", "high"),
    *("difference", "difference_low", "difference_high", "paper", "seconds"),
)
HEADS = {"map@r": "MAP@R", "r-precision": "RP", "nmi": "NMI"}


@dataclass(frozen=True)
class Line:
    """An arm: its runs by seed, what the paper has for it, how long a run took, and who picked its epoch."""

    arm: str
    rows: Mapping[int, Mapping[str, str]]
    paper: Figures
    seconds: float | None
    selects_on_test: bool

    def is_test_selected(self, when: str) -> bool:
        """Return whether a look at the test split picked this kind of epoch."""
        return when == "best_test" or (when == "selected" and self.selects_on_test)

    def words(self, when: str) -> str:
        """Return the name of the arm, marked where the test split picked the epoch."""
        return self.arm + (" (test-selected)" if self.is_test_selected(when) else "")

    def values(self, when: str, metric: str) -> dict[int, float]:
        """Percentages by seed."""
        cells = {seed: row.get(f"{when}_{metric}", "") for seed, row in self.rows.items()}
        return {seed: 100 * float(cell) for seed, cell in cells.items() if cell != ""}


def data_of(result: Result) -> str:
    return result.plan.example.data.name


def paper_data(result: Result) -> str:
    """The data set whose published figures stand beside: this one, or, for their order, the first that the paper has."""
    bases = result.plan.study.bases
    return data_of(result) if data_of(result) in bases else bases[0]


def lines_of(result: Result) -> list[Line]:
    """The arms that were asked for, with the runs that are there."""
    data = paper_data(result)
    lines = []
    for arm in result.plan.asked:
        rows = {int(row["seed"]): row for row in result.rows if row["recipe"] == arm.name}
        timed = [float(row["seconds"]) for row in rows.values() if row["seconds"]]
        lines.append(
            Line(
                arm.name,
                dict(sorted(rows.items())),
                arm.paper.get(data, {}),
                statistics.fmean(timed) if timed else None,
                result.plan.config(arm, result.plan.seeds[0]).data.paper_protocol,
            )
        )
    return lines


def list_published(result: Result) -> Mapping[str, Figures]:
    """List the rows of the paper's table that are not trained here."""
    return result.plan.study.published.get(data_of(result), {})


def metrics_of(result: Result) -> list[str]:
    """The columns: R@k, MAP@R and NMI."""
    return [*(f"recall@{k}" for k in result.plan.example.recall_at), "map@r", "nmi"]


def head(metric: str) -> str:
    return HEADS.get(metric, "R@" + metric.partition("@")[2])


def to_reference(line: Line, lines: Sequence[Line], result: Result, when: str, metric: str = "recall@1") -> Estimate:
    """The difference to the reference arm, paired by seed; of the reference itself and without it, nothing."""
    reference = next((other for other in lines if other.arm == result.plan.study.reference), None)
    if reference is None or reference is line:
        return estimate([])
    return paired_difference(line.values(when, metric), reference.values(when, metric))


def list_kinds(lines: Sequence[Line]) -> list[str]:
    """List the kinds of epochs that there are figures of."""
    return [when for when in WHEN if any(line.values(when, "recall@1") for line in lines)]


# -- one table, as cells ------------------------------------------------------------------------------------------------


def table_heads(result: Result, metrics: Sequence[str]) -> list[str]:
    paper = [f"{paper_head(result)} {head(metric)}" for metric in metrics if metric != "map@r"]
    to = f"difference to {result.plan.study.reference}"
    return ["arm", "n", *map(head, metrics), "R@1, 95 % interval", to, *paper, "seconds"]


def paper_head(result: Result) -> str:
    return "paper" if data_of(result) == paper_data(result) else f"paper ({paper_data(result)})"


def table_rows(result: Result, when: str, metrics: Sequence[str]) -> list[list[str]]:
    lines = lines_of(result)
    rows = []
    for line in lines:
        figures = [mean_and_sd(list(line.values(when, metric).values())) for metric in metrics]
        recall = estimate(list(line.values(when, "recall@1").values()))
        compared = difference(to_reference(line, lines, result, when))
        seconds = "" if line.seconds is None else f"{line.seconds:.0f}"
        rows.append(
            [
                *(line.words(when), str(recall.n), *figures, interval(recall), compared),
                *(*paper_cells(line.paper, metrics), seconds),
            ]
        )
    for name, paper in list_published(result).items():
        rows.append([f"{name} (published)", "", *[""] * (len(metrics) + 2), *paper_cells(paper, metrics), ""])
    return rows


def paper_cells(paper: Figures, metrics: Sequence[str]) -> list[str]:
    return [f"{paper[metric]:.1f}" if metric in paper else "" for metric in metrics if metric != "map@r"]


def find_used_columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Find the columns with anything in them."""
    return [column for column, _ in enumerate(heads) if any(row[column] for row in rows)]


def make_tables(result: Result) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the title and the cells, heads first, of the table of each kind of epoch, without empty columns."""
    metrics = metrics_of(result)
    for when in list_kinds(lines_of(result)):
        heads, rows = table_heads(result, metrics), table_rows(result, when, metrics)
        used = find_used_columns(heads, rows)
        yield WHEN[when], [[row[column] for column in used] for row in (heads, *rows)]


def find_changed_data(result: Result) -> dict[tuple[str, int], str]:
    """Find the runs that were resumed with other images, and how these differed."""
    keys = [(arm.name, seed) for arm in result.plan.asked for seed in result.plan.seeds]
    changed = {key: read_changed(RunFolder(result.plan.path(key)).manifest_path) for key in keys}
    return {key: sentence for key, sentence in changed.items() if sentence}


def notes_of(result: Result) -> list[str]:
    plan = result.plan
    notes = list(plan.study.notes)
    numbers = {len(line.rows) for line in lines_of(result)}
    if min(numbers) < 5:
        seeds = count(min(numbers), "seed", "seeds")
        notes.append(f"{seeds} where the protocol asks for five: a demonstration, not a claim.")
    notes.append(
        "Percentages, mean ± standard deviation over seeds; intervals are Student's t at 95 %; differences are of R@1, "
        f"paired by seed. The selected epoch is {describe_selection(result)}; the best test epoch is what a choice on "
        "the test split would have given, as the authors' code makes it."
    )
    if any(line.paper for line in lines_of(result)) or list_published(result):
        notes.append("The paper's figures come without a number of seeds or a spread.")
    if plan.study.name != "controls" and any("pads" in arm.name or arm.paper for arm in plan.asked):
        notes.append("The control arms of PADS are a study of their own: `pads study controls`.")
    rhos = {
        seed: rho_of(plan.path((arm.name, seed)))
        for arm in plan.asked
        if arm.name == "udist-rho"
        for seed in plan.seeds
    }
    if any(rho is not None for rho in rhos.values()):
        notes.append("rho of udist-rho by seed: " + ", ".join(f"{seed}: {rho}" for seed, rho in rhos.items()) + ".")
    for arm, picked in plan.tuned.items():
        if arm in {asked.needs.arm if asked.needs else asked.name for asked in plan.asked}:
            notes.append(f"{arm} was tuned on the selection split: {' '.join(picked['settings'])}.")
    notes += [f"{arm}-{seed}: {sentence}" for (arm, seed), sentence in find_changed_data(result).items()]
    notes += [f"{arm}-{seed} FAILED: {error}" for (arm, seed), error in result.failures.items()]
    return notes


def describe_selection(result: Result) -> str:
    """Return what picked the selected epochs, with the arms that are an exception."""
    lines = lines_of(result)
    data = result.plan.example.data
    if not data.selection_share and not any(line.selects_on_test for line in lines):
        return "the last one, as no classes are held out"
    on_test = [line.arm for line in lines if line.selects_on_test]
    if len(on_test) == len(lines):
        return "picked on the test split itself (test-selected)"
    exception = f", that of {', '.join(on_test)} on the test split itself (test-selected)" if on_test else ""
    return "picked on held-out training classes" + exception


def rho_of(run: Path) -> float | None:
    return RunFolder.open(run).config.sampling.rho if (run / "config.json").exists() else None


# -- files --------------------------------------------------------------------------------------------------------------


def write_report(result: Result) -> list[Path]:
    """table.md, table.csv and table.tex in the study's folder, and the figures."""
    texts = {"table.md": markdown(result), "table.csv": as_csv(result), "table.tex": latex(result)}
    for name, text in texts.items():
        write_atomically(result.plan.out / name, text)
    return [*(result.plan.out / name for name in texts), *draw_figures(result)]


def markdown(result: Result) -> str:
    plan = result.plan
    text = f"# {plan.study.name}: {plan.study.title}\n\nBase: `{plan.base}`"
    text += f", {count(plan.example.num_epochs, 'epoch', 'epochs')}, seeds {', '.join(map(str, plan.seeds))}"
    text += (f", with {', '.join(f'`{setting}`' for setting in plan.settings)}" if plan.settings else "") + ".\n"
    for title, (heads, *rows) in make_tables(result):
        text += f"\n**{title}**\n\n| {' | '.join(heads)} |\n" + "|---" * len(heads) + "|\n"
        text += "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return text + "\n" + "".join(f"- {note}\n" for note in notes_of(result))


def as_csv(result: Result) -> str:
    """One line for each arm, kind of epoch and metric, in percent; nothing is rounded."""
    lines, text = lines_of(result), io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    for line in lines:
        for when in list_kinds(lines):
            for metric in [*metrics_of(result), "r-precision"]:
                found = estimate(list(line.values(when, metric).values()))
                to = to_reference(line, lines, result, when, metric)
                cells = [*found[1:], to.mean, to.low, to.high, line.paper.get(metric), line.seconds]
                numbers = ["" if cell is None or cell != cell else repr(cell) for cell in cells]
                mark = "yes" if line.is_test_selected(when) else "no"
                writer.writerow([line.arm, when, mark, metric, found.n, *numbers])
    return text.getvalue()


def latex(result: Result) -> str:
    """A tabular for each kind of epoch; needs the package booktabs."""
    text = f"% {result.plan.study.name}: {result.plan.study.title}\n"
    for title, cells in make_tables(result):
        heads, *rows = (" & ".join(map(latex_text, row)) + " \\\\\n" for row in cells)
        text += f"% {title}\n\\begin{{tabular}}{{l{'r' * (len(cells[0]) - 1)}}}\n\\toprule\n{heads}\\midrule\n"
        text += "".join(rows) + "\\bottomrule\n\\end{tabular}\n"
    return text


def latex_text(text: str) -> str:
    text = re.sub(r"([&%$#_{}])", r"\\\1", text)
    return re.sub(r"(?<![\w.-])-(?=\d)", r"$-$", text).replace("±", r"$\pm$")


def draw_figures(result: Result) -> list[Path]:
    """Figures 2 and 5 for the arms whose runs logged a distribution, averaged over seeds; without matplotlib, none."""
    try:
        import matplotlib  # noqa: F401

        from pads.reports.figures import draw_curricula, draw_initial
    except ImportError:
        return []
    runs = {
        line.arm: [RunFolder(result.plan.path((line.arm, seed))) for seed in line.rows]  # which may be deleted by now
        for line in lines_of(result)
    }
    logged = {arm: folders for arm, folders in runs.items() if folders and all(map(has_distribution, folders))}
    if not logged:
        return []
    folder = result.plan.out / "figures"
    make_inner_folder(folder)
    draw_initial(folder)
    draw_curricula(logged, folder)
    return sorted(folder.iterdir())


def has_distribution(folder: RunFolder) -> bool:
    events = folder.path / "events.jsonl"
    return events.exists() and '"distribution": [' in events.read_text()


# -- the terminal -------------------------------------------------------------------------------------------------------


NARROW = ("time", "MAP@R", "95 % interval", "NMI", "R@1 last", "n")
"""What is left out, in this order, where the terminal is too narrow; the files have all."""


def print_report(result: Result, console: Console | None = None) -> None:
    """One line per arm: all three kinds of epochs, the interval, the difference, the paper."""
    console = console or make_console()
    if not console.is_terminal:
        console.width = 200  # a log keeps its lines whole
    plan = result.plan
    left_out: list[str] = []
    while True:
        table = terminal_table(result, left_out)
        unbounded = console.options.update(max_width=1000)
        if console.measure(table, options=unbounded).maximum <= console.width or len(left_out) == len(NARROW):
            break
        left_out.append(NARROW[len(left_out)])
    console.print(table)
    say("* test-selected", console, "dim")
    for (arm, seed), error in result.failures.items():
        say(f"{arm}, seed {seed} failed: {error}", console, "red")
    missing = len(plan.asked) * len(plan.seeds) - len(result.rows)
    if missing:
        say(f"{count(missing, 'run', 'runs')} missing; the same command tries again.", console, "red")
    print_notes(plan.study.notes, console)
    words = f"The tables are in {plan.out}: table.md, table.csv, table.tex; one row per run in seeds.csv."
    say(words, console, whole=True)


def terminal_table(result: Result, left_out: Sequence[str]) -> Table:
    plan, lines = result.plan, lines_of(result)
    title = f"{plan.study.name}, {plan.base}: test split, in percent"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
    heads = ["arm", "n", "R@1", "95 % interval", f"to {plan.study.reference}", "MAP@R", "NMI"]
    heads += ["R@1 last", "R@1 best test*", paper_head(result), "time"]
    rows = []
    for line in lines:
        recall = estimate(list(line.values("selected", "recall@1").values()))
        figures = [mean_and_sd(list(line.values(*key).values())) for key in SHOWN]
        paper = f"{line.paper['recall@1']:.1f}" if "recall@1" in line.paper else ""
        seconds = "" if line.seconds is None else clock(line.seconds)
        compared = difference(to_reference(line, lines, result, "selected"))
        cells = [str(recall.n), figures[0], interval(recall), compared, *figures[1:], paper, seconds]
        rows.append([line.words("selected"), *cells])
    kept = [column for column in find_used_columns(heads, rows) if heads[column] not in left_out]
    for column in kept:
        table.add_column(heads[column], justify="right" if column else "left", no_wrap=True)
    for line, row in zip(lines, rows, strict=True):
        table.add_row(*(row[column] for column in kept), style="bold" if line.arm == plan.study.reference else "")
    return table


SHOWN = (
    ("selected", "recall@1"),
    ("selected", "map@r"),
    ("selected", "nmi"),
    ("last", "recall@1"),
    ("best_test", "recall@1"),
)
