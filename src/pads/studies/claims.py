"""Every sentence of the paper that states a number or an order, beside what the studies that were run say of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pads.display import make_console, say
from pads.errors import UserError
from pads.runs.events import read_records
from pads.runtime.files import make_folder, write_atomically
from pads.runtime.reading import read_json
from pads.studies.seeds import read_rows
from pads.studies.statistics import Estimate, difference, estimate, paired_difference
from pads.studies.tables import STUDIES


class Found(NamedTuple):
    """What came out, and what that says of the sentence."""

    words: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    where: str
    """In the paper."""
    says: str
    """In our words."""
    paper: str
    """Its number, by the paper's own table where the two differ; empty for an order alone."""
    find: Callable[[Evidence], Found | None]
    """None where the runs that it needs are not there."""


STUDY = {"study": str, "base": str, "data": str}


class Evidence:
    """The studies of one data set that lie below a folder."""

    def __init__(self, root: Path, base: str) -> None:
        self.folders: dict[str, Path] = {}
        self.data = ""
        for path in sorted(root.glob("*/study.json")):
            about = read_json(path, STUDY, "run the study again.")
            if about["base"] == base:
                self.folders[about["study"]], self.data = path.parent, about["data"]

    def recalls(self, study: str, arm: str, metric: str = "recall@1") -> dict[int, float]:
        """Of the selected epoch, in percent, by seed."""
        if study not in self.folders:
            return {}
        rows = [row for row in read_rows(self.folders[study] / "seeds.csv") if row["recipe"] == arm]
        return {int(row["seed"]): 100 * float(row[f"selected_{metric}"]) for row in rows}

    def runs(self, study: str, arm: str) -> list[Path]:
        """The folders of finished runs that are still there."""
        if study not in self.folders:
            return []
        paths = [self.folders[study] / "runs" / f"{arm}-{seed}" for seed in self.recalls(study, arm)]
        return [path for path in paths if (path / "events.jsonl").exists()]


# -- how a sentence is held against the runs ----------------------------------------------------------------------------


def verdict(found: Estimate, least: float = 0.0) -> str:
    """Whether the interval of a difference lies beyond `least`."""
    if found.n < 2:
        return "one seed: no verdict"
    if found.low > least:
        return "holds"
    return "does not hold" if found.high < least else "cannot be told"


def above(
    study: str, arm: str, other: str, *, other_study: str = "", by: float = 0.0
) -> Callable[[Evidence], Found | None]:
    """R@1 of one arm above another's, by more than so many points."""

    def find(evidence: Evidence) -> Found | None:
        ours, theirs = evidence.recalls(study, arm), evidence.recalls(other_study or study, other)
        found = paired_difference(ours, theirs)
        return Found(f"{difference(found)}, n = {found.n}", verdict(found, by)) if found.n else None

    return find


def all_above(
    study: str, arms: Sequence[str], other: str, *, other_study: str = ""
) -> Callable[[Evidence], Found | None]:
    """Each of some arms above another; as many as the study has so far."""

    def find(evidence: Evidence) -> Found | None:
        theirs = evidence.recalls(other_study or study, other)
        found = {arm: paired_difference(evidence.recalls(study, arm), theirs) for arm in arms}
        there = {arm: each for arm, each in found.items() if each.n}
        if not there:
            return None
        verdicts = {verdict(each) for each in there.values()}
        words = ", ".join(f"{arm} {each.mean:+.2f}" for arm, each in there.items())
        missing = "" if len(there) == len(arms) else f"; {len(arms) - len(there)} not run"
        if len(verdicts) == 1:
            return Found(words + missing, verdicts.pop())
        return Found(words + missing, "does not hold" if "does not hold" in verdicts else "cannot be told")

    return find


def best(study: str, arm: str, *others: str) -> Callable[[Evidence], Found | None]:
    """One arm above each of the others."""

    def find(evidence: Evidence) -> Found | None:
        ours = evidence.recalls(study, arm)
        found = {other: paired_difference(ours, evidence.recalls(study, other)) for other in others}
        if not ours or not all(each.n for each in found.values()):
            return None
        closest = min(found, key=lambda other: found[other].mean)
        return Found(f"{difference(found[closest])} to {closest}, n = {found[closest].n}", verdict(found[closest]))

    return find


def no_difference(study: str, arm: str, other: str) -> Callable[[Evidence], Found | None]:
    def find(evidence: Evidence) -> Found | None:
        found = paired_difference(evidence.recalls(study, arm), evidence.recalls(study, other))
        if not found.n:
            return None
        words = "one seed: no verdict" if found.n < 2 else "holds" if found.low <= 0 <= found.high else "does not hold"
        return Found(f"{difference(found)}, n = {found.n}", words)

    return find


def beyond_published(study: str, arm: str, data: str, value: float) -> Callable[[Evidence], Found | None]:
    """R@1 above what others have published for a data set."""

    def find(evidence: Evidence) -> Found | None:
        found = estimate(list(evidence.recalls(study, arm).values()))
        if not found.n or evidence.data != data:
            return None
        shifted = Estimate(found.n, found.mean - value, found.sd, found.low - value, found.high - value)
        return Found(f"{difference(shifted)}, n = {found.n}", verdict(shifted))

    return find


def overhead(evidence: Evidence) -> Found | None:
    """Seconds of training per step, PADS over U-dist of the same study."""
    for study, adaptive, static in (("baselines", "margin-pads", "margin-udist"), ("controls", "pads", "udist")):
        ours = [step_seconds(run) for run in evidence.runs(study, adaptive)]
        theirs = [step_seconds(run) for run in evidence.runs(study, static)]
        if ours and theirs:
            share = statistics.median(ours) / statistics.median(theirs) - 1
            return Found(f"{share:+.0%} time per step", "holds" if share < 0.2 else "does not hold")
    return None


def step_seconds(run: Path) -> float:
    """Over the records of a run, what is measured in between included; the first ones hold the start."""
    records = [record for record in read_records(run / "timing.jsonl") if "seconds" in record]
    steps = [record["step"] for record in records]
    seconds = [record["seconds"] for record in records]
    return sum(seconds[1:]) / (steps[-1] - steps[0]) if len(records) > 1 else seconds[0] / steps[0]


def progression(evidence: Evidence) -> Found | None:
    """The perplexity of p at the start, half way and at the end of each run: it should fall, then rise."""
    for study, arm in (
        ("baselines", "margin-pads"),
        ("controls", "pads"),
        ("frequency", "M-30"),
        ("agents", "ppo-a2c"),
    ):
        runs = [found for run in evidence.runs(study, arm) if len(found := perplexities(run)) > 2]
        if runs:
            as_said = sum(run[len(run) // 2] < run[0] and run[-1] > run[len(run) // 2] for run in runs)
            at = [statistics.fmean(run[place] for run in runs) for place in (0, -1)]
            middle = statistics.fmean(run[len(run) // 2] for run in runs)
            words = f"bins in use {at[0]:.1f}, {middle:.1f}, {at[1]:.1f}; so in {as_said} of {len(runs)} runs"
            return Found(words, "holds" if as_said > len(runs) / 2 else "does not hold")
    return None


def perplexities(run: Path) -> list[float]:
    events = read_records(run / "events.jsonl")
    return [event["perplexity"] for event in events if event["event"] == "adaptation" and "perplexity" in event]


# -- the sentences ------------------------------------------------------------------------------------------------------

POLICIES = ("reinforce", "reinforce-ema", "reinforce-a2c", "ppo-ema", "ppo-a2c")

CLAIMS = (
    Claim(
        "Sec. 5.1",
        "margin loss: PADS above U-dist",
        "CUB +3.8, CARS +3.4, SOP +1.9",
        above("baselines", "margin-pads", "margin-udist"),
    ),
    Claim(
        "Fig. 1",
        "the gain is close to 4 points on all data sets",
        "3.8, 3.4, 1.9",
        above("baselines", "margin-pads", "margin-udist", by=3.0),
    ),
    Claim(
        "Sec. 5.1",
        "triplet loss: PADS above U-dist",
        "CUB +1.8, CARS +1.9, SOP +0.9",
        above("baselines", "triplet-pads", "triplet-udist"),
    ),
    Claim(
        "Sec. 5.1",
        "triplet loss: PADS above semi-hard",
        "CUB +3.4, CARS +8.0, SOP +1.3",
        above("baselines", "triplet-pads", "triplet-semihard"),
    ),
    Claim(
        "Sec. 3.1",
        "hard negatives may collapse the model: semi-hard above hard",
        "",
        above("baselines", "triplet-semihard", "triplet-hard"),
    ),
    Claim(
        "Sec. 5.1",
        "CUB: above all published methods",
        "CUB +1.0 (text: at least 1.2)",
        beyond_published("baselines", "margin-pads", "cub200", 66.3),
    ),
    Claim("Sec. 4", "at M = 30 an epoch takes less than 20 % more time", "< +20 %", overhead),
    Claim(
        "Sec. 4",
        "positives among the negatives (self-regularisation) help",
        "",
        above("controls", "pads", "pads-other-classes"),
    ),
    Claim("Sec. 5.2", "p first peaks on few bins, then becomes wider", "", progression),
    Claim(
        "Sec. 5.2",
        "a fixed trained policy, same initialisation: better",
        "CUB +0.4",
        above("transfer", "policy-same-init", "reference"),
    ),
    Claim(
        "Sec. 5.2",
        "a fixed trained policy, other initialisation: worse",
        "CUB -1.1 (text: -1.5)",
        above("transfer", "reference", "policy-other-init"),
    ),
    Claim(
        "Sec. 5.2",
        "the last p, fixed, same initialisation: much worse",
        "CUB -7.8",
        above("transfer", "reference", "last-p-same-init"),
    ),
    Claim(
        "Sec. 5.2",
        "the last p, fixed, other initialisation: much worse",
        "CUB -6.4",
        above("transfer", "reference", "last-p-other-init"),
    ),
    Claim("Sec. 5.2", "PADS above the linear curriculum", "CUB +8.2, CARS +11.3", above("curricula", "pads", "linear")),
    Claim(
        "Sec. 5.2",
        "PADS above the non-linear curriculum",
        "CUB +3.7 (text: 3.6), CARS +5.4",
        above("curricula", "pads", "non-linear"),
    ),
    Claim(
        "Sec. 5.3",
        "every interval above static sampling",
        "CUB +0.2 to +2.2",
        all_above("interval", [arm.name for arm in STUDIES["interval"].arms], "static", other_study="frequency"),
    ),
    Claim(
        "Sec. 5.3",
        "the interval [0.1, 1.4] is the best",
        "CUB +0.9",
        best("interval", "interval-0.1-1.4", "interval-0-2", "interval-0.25-1.0", "interval-0.5-1.4"),
    ),
    Claim("Sec. 5.3", "30 bins above 10", "CUB +1.9", above("bins", "bins-30", "bins-10")),
    Claim("Sec. 5.3", "30 bins above 100", "CUB +0.8", above("bins", "bins-30", "bins-100")),
    Claim(
        "Sec. 5.3",
        "the initial U[0.3, 0.7] is the best",
        "CUB +0.7",
        best("initial", "initial-0.3-0.7", "initial-uniform", "initial-normal"),
    ),
    Claim(
        "App. A",
        "Inception-BN: PADS above U-dist",
        "CUB +2.8, CARS +2.0",
        above("inception-bn", "margin-pads", "margin-udist"),
    ),
    Claim(
        "App. A",
        "a reward split per class above one by class",
        "CUB +3.1",
        above("validation", "per-class", "by-class"),
    ),
    Claim(
        "App. A",
        "drawing the reward split anew gains nothing",
        "CUB +0.1",
        no_difference("validation", "per-class-resampled", "per-class"),
    ),
    Claim(
        "App. A",
        "distances matter most in the state: alone above NMI alone",
        "CUB +0.7",
        above("state-reward", "dist--r1", "nmi--r1"),
    ),
    Claim("App. A", "and alone above the recalls alone", "CUB +0.4", above("state-reward", "dist--r1", "recall--r1")),
    Claim(
        "App. A", "M = infinity (p never adapted) below U-dist", "CUB -1.6", above("frequency", "static", "M-infinity")
    ),
    Claim("App. A", "adapting (M = 30) above never adapting", "CUB +3.8", above("frequency", "M-30", "M-infinity")),
    Claim("App. A", "M = 30 above M = 10", "CUB +1.3", above("frequency", "M-30", "M-10")),
    Claim("App. A", "M = 30 above M = 100", "CUB +0.6", above("frequency", "M-30", "M-100")),
    Claim(
        "App. A",
        "long averages in the state help: {2, 8, 16, 32} above {2}",
        "CUB +1.2",
        above("averages", "R-2-8-16-32", "R-2"),
    ),
    Claim(
        "App. C",
        "all policy-gradient agents above static sampling",
        "CUB +0.7 to +2.2",
        all_above("agents", POLICIES, "static"),
    ),
    Claim("App. C", "Rainbow above static sampling", "CUB +1.4", above("agents", "rainbow", "static")),
    Claim(
        "App. C", "plain Q-learning is not above static sampling", "CUB -0.3", above("agents", "static", "q-learning")
    ),
    Claim(
        "App. C",
        "PPO with a critic is the best agent",
        "CUB +0.3",
        best("agents", "ppo-a2c", *POLICIES[:-1], "q-learning", "rainbow"),
    ),
    Claim(
        "(not in the paper)", "the learned policy above random actions", "", above("controls", "pads", "random-actions")
    ),
    Claim(
        "(not in the paper)", "above a policy that learns from a coin", "", above("controls", "pads", "random-reward")
    ),
    Claim("(not in the paper)", "above an untrained policy", "", above("controls", "pads", "frozen-policy")),
    Claim(
        "(not in the paper)",
        "above the initial distribution, never adapted",
        "",
        above("controls", "pads", "fixed-bins"),
    ),
    Claim("(not in the paper)", "above another run's schedule, replayed", "", above("controls", "pads", "replayed")),
    Claim(
        "(not in the paper)",
        "above U-dist with as many positives as negatives",
        "",
        above("controls", "pads", "udist-rho"),
    ),
)
NOT_RUN = Found("not run", "")


def hold_claims(root: Path, base: str) -> list[tuple[Claim, Found]]:
    """Each claim with what the studies below this folder say."""
    evidence = Evidence(root, base)
    if not evidence.folders:
        raise UserError(
            f"there is no study of {base} in {root}: run one, such as `pads study controls --recipe-base {base}`."
        )
    return [(claim, claim.find(evidence) or NOT_RUN) for claim in CLAIMS]


NOTES = (
    "R@1 of the selected epoch, differences paired by seed with Student's t interval at 95 %; `holds` and `does not hold` "
    "where it is on one side alone. Of forty such sentences, two would be decided wrongly by chance.",
    "The paper's numbers are differences in its own tables, at the best test epoch.",
)


def write_claims(held: Sequence[tuple[Claim, Found]], base: str, out: Path) -> Path:
    """claims.md in that folder."""
    text = f"# What the paper says, and what came out on `{base}`\n\n| where | what | paper | here | |\n|---|---|---|---|---|\n"
    for claim, found in held:
        text += f"| {claim.where} | {claim.says} | {claim.paper} | {found.words} | {found.verdict} |\n"
    make_folder(out)
    write_atomically(out / "claims.md", text + "\n" + "".join(f"- {note}\n" for note in NOTES))
    return out / "claims.md"


COLOURS = {"holds": "green", "does not hold": "red"}


def print_claims(held: Sequence[tuple[Claim, Found]], base: str, console: Console | None = None) -> None:
    console = console or make_console()
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title=f"claims, {base}", title_justify="left", title_style="bold"
    )
    for column in ("where", "what", "paper", "here", "verdict"):
        table.add_column(column)
    for claim, found in held:
        colour = "dim" if found is NOT_RUN else ""
        cells = (claim.where, claim.says, claim.paper, found.words)
        table.add_row(*cells, Text(found.verdict, style=COLOURS.get(found.verdict, "")), style=colour)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
    for note in NOTES:
        say(note, console, "dim")
