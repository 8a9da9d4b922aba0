"""Every sentence of the paper that states a number or an order, beside what the studies that were run say of it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pads.display import make_console, say
from pads.errors import UserError
from pads.runs.checkpoint import write_atomically
from pads.studies.seeds import read_rows, selects_on_test
from pads.studies.statistics import Estimate, difference, estimate, judge, paired_difference
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


class Evidence:
    """The studies of one data set that lie below a folder, as `pads study` or `results/` has them.

    A study.json names the study, its base and its data. In `results/` it may also name the arms that it has, as they stand
    in seeds.csv ("arms": {"pads": "cub200-margin-pads"}, with "FOLDER/" before it if that is another folder), and describe
    the setting, which differs from that of the study ("setting").
    """

    def __init__(self, root: Path, base: str) -> None:
        self.folders: dict[str, Path] = {}
        self.about: dict[str, dict[str, Any]] = {}
        self.data = ""
        for path in sorted(root.glob("*/study.json")):
            about = json.loads(path.read_text())
            if about["base"] == base:
                self.folders[about["study"]], self.about[about["study"]] = path.parent, about
                self.data = about["data"]

    def find_arm(self, study: str, arm: str) -> tuple[Path, str] | None:
        """Return the folder whose seeds.csv may have the arm, and its name there."""
        names = self.about.get(study, {}).get("arms", {arm: arm})
        if study not in self.folders or arm not in names:
            return None
        folder, _, name = names[arm].rpartition("/")
        return (self.folders[study].parent / folder if folder else self.folders[study]), name

    def recalls(self, study: str, arm: str, metric: str = "recall@1") -> dict[int, float]:
        """Of the selected epoch, in percent, by seed."""
        place = self.find_arm(study, arm)
        if place is None:
            return {}
        rows = [row for row in read_rows(place[0] / "seeds.csv") if row["recipe"] == place[1]]
        return {int(row["seed"]): 100 * float(row[f"selected_{metric}"]) for row in rows}

    def runs(self, study: str, arm: str) -> list[Path]:
        """The folders of finished runs that are still there."""
        place = self.find_arm(study, arm)
        if place is None:
            return []
        paths = [place[0] / "runs" / f"{place[1]}-{seed}" for seed in self.recalls(study, arm)]
        return [path for path in paths if (path / "events.jsonl").exists()]

    def perplexities(self, study: str, arm: str) -> list[list[float]]:
        """Of each run the bins in use at every adjustment: from the run folders, or from adaptations.csv."""
        if runs := self.runs(study, arm):
            return [perplexities_of(run) for run in runs]
        place, by_seed = self.find_arm(study, arm), dict[str, list[float]]()
        if place is None:
            return []
        for row in read_rows(place[0] / "adaptations.csv"):
            if row["recipe"] == place[1] and row["perplexity"]:
                by_seed.setdefault(row["seed"], []).append(float(row["perplexity"]))
        return list(by_seed.values())

    def mark(self, *arms: tuple[str, str]) -> str:
        """Return what follows a number if the test split picked the epoch of one of its arms."""
        places = [place for arm in arms if (place := self.find_arm(*arm))]
        return ", test-selected" if any(selects_on_test(*place) for place in places) else ""

    def sources(self) -> list[str]:
        """Return a line for each study: the folder that it was read from, and its setting where that is said."""
        settings = {name: about.get("setting", "") for name, about in self.about.items()}
        return [f"{name}: {path.name}. {settings[name]}".rstrip() for name, path in self.folders.items()]


# -- how a sentence is held against the runs ----------------------------------------------------------------------------

VERDICTS = ("does not hold", "level", "not resolved", "one seed", "holds")
"""From the worst to the best: a sentence about several arms is as good as the worst of them."""


def verdict(found: Estimate, least: float = 0.0) -> str:
    """Say what an interval means for `more than so many points`."""
    said = judge(found._replace(low=found.low - least, high=found.high - least))
    if said == "level" and least:
        return f"not resolved by {found.n} seeds"
    return {"above": "holds", "below": "does not hold", "one seed": "one seed: no verdict"}.get(said, said)


def verdict_of_all(found: Mapping[str, Estimate]) -> str:
    """Say what the intervals mean for `more than zero in each`."""
    verdicts = [verdict(each) for each in found.values()]
    return min(verdicts, key=lambda said: next(place for place, word in enumerate(VERDICTS) if said.startswith(word)))


def above(
    study: str, arm: str, other: str, *, other_study: str = "", by: float = 0.0
) -> Callable[[Evidence], Found | None]:
    """R@1 of one arm above another's, by more than so many points."""

    def find(evidence: Evidence) -> Found | None:
        arms = (study, arm), (other_study or study, other)
        found = paired_difference(*(evidence.recalls(*each) for each in arms))
        words = f"{difference(found)}, n = {found.n}{evidence.mark(*arms)}"
        return Found(words, verdict(found, by)) if found.n else None

    return find


def above_in_each(pairs: Mapping[str, tuple[tuple[str, str], tuple[str, str]]]) -> Callable[[Evidence], Found | None]:
    """In each of some pairs, which have a name, the first arm above the second; as many as were run."""

    def find(evidence: Evidence) -> Found | None:
        every = {
            name: paired_difference(evidence.recalls(*ours), evidence.recalls(*theirs))
            for name, (ours, theirs) in pairs.items()
        }
        found = {name: each for name, each in every.items() if each.n}
        if not found:
            return None
        words = "; ".join(
            f"{name} {difference(each)}, n = {each.n}{evidence.mark(*pairs[name])}" for name, each in found.items()
        )
        missing, said = len(pairs) - len(found), verdict_of_all(found)
        if missing:
            return Found(f"{words}; {missing} not run", "not all arms run" if said == "holds" else said)
        return Found(words, said)

    return find


def all_above(
    study: str, arms: Sequence[str], other: str, *, other_study: str = ""
) -> Callable[[Evidence], Found | None]:
    """Each of some arms above another."""
    return above_in_each({arm: ((study, arm), (other_study or study, other)) for arm in arms})


def best(study: str, arm: str, *others: str) -> Callable[[Evidence], Found | None]:
    """One arm above each of the others."""
    return above_in_each({f"to {other}": ((study, arm), (study, other)) for other in others})


def not_above(study: str, arm: str, other: str) -> Callable[[Evidence], Found | None]:
    """R@1 of one arm below another's, or level with it."""

    def find(evidence: Evidence) -> Found | None:
        found = paired_difference(evidence.recalls(study, arm), evidence.recalls(study, other))
        said = {"below": "holds", "level": "holds", "above": "does not hold", "one seed": "one seed: no verdict"}
        words = f"{difference(found)}, n = {found.n}{evidence.mark((study, arm), (study, other))}"
        return Found(words, said.get(judge(found), judge(found))) if found.n else None

    return find


def beyond_published(study: str, arm: str, data: str, value: float) -> Callable[[Evidence], Found | None]:
    """R@1 above what others have published for a data set."""

    def find(evidence: Evidence) -> Found | None:
        found = estimate(list(evidence.recalls(study, arm).values()))
        if not found.n or evidence.data != data:
            return None
        shifted = Estimate(found.n, found.mean - value, found.sd, found.low - value, found.high - value)
        return Found(f"{difference(shifted)}, n = {found.n}{evidence.mark((study, arm))}", verdict(shifted))

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
    records = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
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
        runs = [run for run in evidence.perplexities(study, arm) if len(run) > 2]
        if runs:
            as_said = sum(run[len(run) // 2] < run[0] and run[-1] > run[len(run) // 2] for run in runs)
            at = [statistics.fmean(run[place] for run in runs) for place in (0, -1)]
            middle = statistics.fmean(run[len(run) // 2] for run in runs)
            words = f"bins in use {at[0]:.1f}, {middle:.1f}, {at[1]:.1f}; so in {as_said} of {len(runs)} runs"
            return Found(words, "holds" if as_said > len(runs) / 2 else "does not hold")
    return None


def perplexities_of(run: Path) -> list[float]:
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
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
        not_above("validation", "per-class-resampled", "per-class"),
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
        "App. C",
        "plain Q-learning is not above static sampling",
        "CUB -0.3",
        not_above("agents", "q-learning", "static"),
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


def read_evidence(root: Path, base: str) -> Evidence:
    """Read the studies of this data set below a folder; without any, say what to run."""
    evidence = Evidence(root, base)
    if not evidence.folders:
        raise UserError(
            f"there is no study of {base} in {root}: run one, such as `pads study controls --recipe-base {base}`."
        )
    return evidence


def hold_claims(evidence: Evidence) -> list[tuple[Claim, Found]]:
    """Hold each claim against the studies."""
    return [(claim, claim.find(evidence) or NOT_RUN) for claim in CLAIMS]


NOTES = (
    "R@1 of the selected epoch, differences paired by seed with Student's t interval at 95 %. A sentence `holds` or "
    "`does not hold` where the interval is on one side alone. `level`: the interval holds zero and reaches at most one "
    "point to each side; one that holds zero and is wider is `not resolved`. Of forty such sentences, two would be "
    "decided wrongly by chance.",
    "The paper's numbers are differences in its own tables, at the best test epoch.",
)


def write_claims(held: Sequence[tuple[Claim, Found]], base: str, out: Path, sources: Sequence[str] = ()) -> Path:
    """claims.md in that folder."""
    text = f"# What the paper says, and what came out on `{base}`\n\n| where | what | paper | here | |\n|---|---|---|---|---|\n"
    for claim, found in held:
        text += f"| {claim.where} | {claim.says} | {claim.paper} | {found.words} | {found.verdict} |\n"
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "claims.md", text + "\n" + "".join(f"- {note}\n" for note in (*NOTES, *sources)))
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
