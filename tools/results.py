"""Writes RESULTS.md, docs/reproduction.md, the README.md of every folder in results/ and the list in docs/studies.md.

    python tools/results.py

A folder of evidence holds seeds.csv (tools/gather.py makes it) and claim.json:

title, claim      what was asked, and what came out in words
data, setting     where its rows stand in RESULTS.md, and the words that they begin with
command           what makes the runs
needs             a sentence where the command needs an older commit, since what it runs has been removed
baseline          the arm that the tables of the README compare the others with
borrowed          arms of another folder with the same setting and seeds: {name: "FOLDER/RECIPE"}
shown             the rows of RESULTS.md: [arm, the arm that it is compared with or "", kind of epoch ("selected")]
paper             {recipe: the paper's R@1}
notes, files      what else there is to say, and what the files hold that only this folder has
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from reproduction import make_page

from pads.studies import STUDIES
from pads.studies.costs import readable, study_seconds
from pads.studies.seeds import read_rows, selects_on_test
from pads.studies.statistics import difference, estimate, interval, judge, mean_and_sd, paired_difference

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
COLUMNS = {"recall@1": "R@1", "recall@2": "R@2", "recall@4": "R@4", "recall@8": "R@8", "map@r": "MAP@R", "nmi": "NMI"}
WHEN = {"selected": "Selected epoch", "last": "Last epoch", "best_test": "Best test epoch (test-selected)"}
FILES = {
    "seeds.csv": "one row per run",
    "adaptations.csv": "reward, perplexity and policy entropy at every adjustment",
    "distributions.csv": "the probability of each bin over training",
    "training.csv": "of the triplets drawn: the share that costs something, the share with a negative of the anchor's "
    "class, the mean distance of the negatives, and the mean boundary where it rises",
    "selection_curves.csv": "the selection split over training",
    "test_curves.csv": "the test split over training, which nothing in training reads",
    "study.json": "which study the rows belong to, for `pads study claims --results results`",
}
MOST_EPOCHS = 12
"""Columns of the table over training."""
STUDIES_BEGIN, STUDIES_END = "<!-- studies: python tools/results.py -->\n", "<!-- end of studies -->"


def main() -> None:
    for path, text in make_pages().items():
        path.write_text(text)


def make_pages() -> dict[Path, str]:
    """Make all that is generated, by its path."""
    folders = [read_folder(path.parent) for path in sorted(RESULTS.glob("*/claim.json"))]
    pages = {ROOT / "RESULTS.md": make_results(folders)}
    pages |= {folder.path / "README.md": make_readme(folder) for folder in folders}
    pages[ROOT / "docs" / "reproduction.md"] = make_page()
    return pages | {ROOT / "docs" / "studies.md": list_studies((ROOT / "docs" / "studies.md").read_text())}


# -- a folder of evidence ------------------------------------------------------------------------------------------------


class Folder(NamedTuple):
    path: Path
    claim: Mapping[str, Any]
    rows: Sequence[Mapping[str, str]]

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(row["recipe"] for row in self.rows))

    def find(self, arm: str) -> tuple[Path, str]:
        """Return the folder and the recipe of an arm, its own or a borrowed one."""
        folder, _, recipe = self.claim.get("borrowed", {}).get(arm, arm).rpartition("/")
        return (RESULTS / folder if folder else self.path), recipe

    def figures(self, arm: str, when: str, metric: str = "recall@1") -> dict[int, float]:
        """Return the percentages of an arm by seed; of a borrowed one, of the seeds that this folder has too."""
        folder, recipe = self.find(arm)
        rows = self.rows if folder == self.path else read_rows(folder / "seeds.csv")
        found = {row["seed"]: row.get(f"{when}_{metric}", "") for row in rows if row["recipe"] == recipe}
        seeds = {row["seed"] for row in self.rows}
        return {int(seed): 100 * float(value) for seed, value in found.items() if value and seed in seeds}

    def picked_by(self, arm: str, when: str) -> str:
        """Say how the epoch was picked."""
        path, recipe = self.find(arm)
        if when == "best_test" or (when == "selected" and selects_on_test(path, recipe)):
            return "test-selected"
        if when == "last":
            return "last"
        config = json.loads((path / f"{recipe}.json").read_text())
        return COLUMNS[config.get("select_by", "recall@1")]  # the rule before there was a choice


def read_folder(path: Path) -> Folder:
    return Folder(path, json.loads((path / "claim.json").read_text()), read_rows(path / "seeds.csv"))


# -- RESULTS.md ----------------------------------------------------------------------------------------------------------

HEAD = """# Results

Recall@1 on the test split, in percent, of the comparisons that matter. A row links to its folder: the command, the last and
the best test epoch, the other metrics, notes. [docs/findings.md](docs/findings.md) says what it means.
`python tools/results.py` makes this page.

- **R@1**: of the first arm over the n seeds that both have, mean ± standard deviation. **Difference**: first less second,
  paired by seed, with its 95 % interval.
- **Reads**: *level* where the interval holds zero and is at most ± 1 point wide, *not resolved* where it holds zero and is
  wider ([protocol](docs/protocol.md)).
- *Table N* (of the paper) and *controls* on emoji: 16 px, 10 epochs.
- **Epoch**: picked by MAP@R or R@1 of held-out training classes, on the test split (*test-selected*), or the last.
  **Paper**: its R@1 of the first arm, test-selected.
- `udist`: distance-weighted sampling, β 1.2 (`static` in some studies); `udist-beta`: β 0.6; `udist-rho`: β 0.6, ρ 0.4;
  `udist-pace`: a self-paced boundary; `pads`: the paper's wording; `pads-code`: the authors' code; `fixed-bins`: PADS
  never adapted. The folders describe the others.
"""
DATA = ("CUB200-2011", "CARS196", "Product photos", "Emoji")


def make_results(folders: Sequence[Folder]) -> str:
    """Make the page: a table for each data set, the folders with the most seeds first."""
    text = HEAD
    for data in DATA:
        text += f"\n## {data}\n\n| setting | arms | n | R@1 | difference | reads | epoch | paper |\n"
        text += "|---|---|--:|--:|--:|---|---|--:|\n"
        own = [make_rows(folder) for folder in folders if folder.claim["data"] == data]
        for rows in sorted(filter(None, own), key=lambda rows: -int(rows[0][2])):
            text += "".join(f"| {' | '.join(row)} |\n" for row in rows)
    others = [folder.path.name for folder in folders if not folder.claim.get("shown")]
    links = [f"[{name}](results/{name}/)" for name in (*others, "claims", "own-photos", "torture")]
    return text + f"\nBeside them: {', '.join(links)}.\n"


def make_rows(folder: Folder) -> list[list[str]]:
    rows = []
    for arm, other, *kind in folder.claim.get("shown", ()):
        when = kind[0] if kind else "selected"
        ours, theirs = folder.figures(arm, when), folder.figures(other, when)
        found = paired_difference(ours, theirs)
        values = [ours[seed] for seed in ours if not other or seed in theirs]
        rows.append(
            [
                f"[{folder.claim['setting']}](results/{folder.path.name}/)",
                short(arm) + (f" less {short(other)}" if other else ""),
                *(str(len(values)), mean_and_sd(values), difference(found)),
                re.sub(" by .*", "", judge(found)) if other else "",
                folder.picked_by(arm, when),
                "" if when == "last" else str(folder.claim.get("paper", {}).get(folder.find(arm)[1], "")),
            ]
        )
    return rows


def short(arm: str) -> str:
    """Return the name of an arm without that of its data."""
    return re.sub("^(cub200-margin-|cars196-margin-|emoji-)(pads-(?=random|fixed))?", "", arm)


# -- README.md of a folder -----------------------------------------------------------------------------------------------


def make_readme(folder: Folder) -> str:
    claim = folder.claim
    lines = [f"# {claim['title']}", "", claim["claim"], "", "## The command", ""]
    if "needs" in claim:
        lines += [claim["needs"], ""]
    lines += ["```bash", claim["command"], "```", ""]
    for when, words in WHEN.items():
        if any(folder.figures(arm, when) for arm in folder.arms):
            lines += [f"## {words}", "", *make_table(folder, when), ""]
    if curves := read_rows(folder.path / "test_curves.csv"):
        lines += ["## Over training", "", *make_curve_table(curves), ""]
    if claim.get("notes"):
        lines += ["## Notes", "", *(f"- {note}" for note in claim["notes"]), ""]
    lines += ["## Files", "", *(f"- {line}" for line in list_files(folder)), ""]
    return "\n".join(lines)


def make_table(folder: Folder, when: str) -> list[str]:
    """One row for each arm; those of another folder where the epoch was selected, since the lengths may differ."""
    baseline, paper = folder.claim["baseline"], folder.claim.get("paper", {})
    recall, *others = COLUMNS.values()
    head = ["arm", "n", recall, "its 95 % interval", f"less `{short(baseline)}`", *others, "paper R@1", "seconds"]
    rows = []
    for arm in [*folder.arms, *(folder.claim.get("borrowed", {}) if when == "selected" else ())]:
        values = {metric: folder.figures(arm, when, metric) for metric in COLUMNS}
        recalls = values["recall@1"]
        compared = "" if arm == baseline else difference(paired_difference(recalls, folder.figures(baseline, when)))
        first, *means = (mean_and_sd(list(each.values())) for each in values.values())
        timed = [float(row["seconds"]) for row in folder.rows if row["recipe"] == arm and row["seconds"]]
        rows.append(
            [
                *(name_in_table(folder, arm, when), str(len(recalls)), first),
                *(interval(estimate(list(recalls.values()))), compared, *means),
                *(str(paper.get(folder.find(arm)[1], "")), f"{fmean(timed):.0f}" if timed else ""),
            ]
        )
    filled = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    first, *rest = [f"| {' | '.join(row)} |" for row in zip(*filled, strict=True)]
    return [first, "|---" + "|--:" * (len(filled) - 1) + "|", *map(keep_together, rest)]


def name_in_table(folder: Folder, arm: str, when: str) -> str:
    """Return the name of an arm with its mark, if the test split picked the epoch, and with its folder, if another."""
    path, _ = folder.find(arm)
    mark = " (test-selected)" if folder.picked_by(arm, when) == "test-selected" else ""
    return f"`{arm}`{mark}" + (f" of [{path.name}](../{path.name}/README.md)" if path != folder.path else "")


def keep_together(line: str) -> str:
    """Allow no line break within a mean with its deviation, or within an interval: the tables are wide."""
    return re.sub(r"\[([^],]+), ([^]]+)\]", "[\\1,\u00a0\\2]", line).replace(" ± ", "\u00a0±\u00a0")


def make_curve_table(curves: Iterable[Mapping[str, str]]) -> list[str]:
    """The mean test R@1 of every arm at the epochs that were measured, or at some of them, the last included."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in curves:
        found.setdefault(row["recipe"], {}).setdefault(int(row["epoch"]), []).append(100 * float(row["recall@1"]))
    every = sorted({epoch for values in found.values() for epoch in values}, reverse=True)
    epochs = every[:: -(-len(every) // MOST_EPOCHS)][::-1]
    lines = ["| test R@1 at epoch | " + " | ".join(map(str, epochs)) + " |", "|---" + "|--:" * len(epochs) + "|"]
    for arm, values in found.items():
        cells = [f"{fmean(values[epoch]):.1f}" if epoch in values else "" for epoch in epochs]
        lines.append(f"| `{arm}` | " + " | ".join(cells) + " |")
    return lines


def list_files(folder: Folder) -> list[str]:
    known = {**FILES, **folder.claim.get("files", {})}
    others = sorted(path.name for path in folder.path.iterdir() if path.suffix != ".json" or path.name == "study.json")
    lines = [f"`{name}`: {known[name]}" for name in others if name != "README.md"]
    configs = (
        ["`ARM.json`: the config of each arm"] if any((folder.path / f"{a}.json").exists() for a in folder.arms) else []
    )
    return [*lines, *configs, "`claim.json`: the words of this page"]


# -- docs/studies.md -----------------------------------------------------------------------------------------------------


def list_studies(page: str) -> str:
    """Put what `pads study --list` says into the page, so that nothing there is stale."""
    before, _, rest = page.partition(STUDIES_BEGIN)
    lines = ["| study | what it compares | arms | compared with | device time |", "|---|---|--:|---|--:|"]
    for name, study in STUDIES.items():
        seconds, _ = study_seconds(study, study.bases[0], 5)
        cost = "unknown" if seconds is None else readable(seconds)
        lines.append(f"| `{name}` | {study.title} | {len(study.arms)} | `{study.reference}` | {cost} |")
    lines.append("| `claims` | every number and order in the text, held against the runs of the others | | | none |")
    return before + STUDIES_BEGIN + "\n" + "\n".join(lines) + "\n\n" + STUDIES_END + rest.partition(STUDIES_END)[2]


if __name__ == "__main__":
    main()
