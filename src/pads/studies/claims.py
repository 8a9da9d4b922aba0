"""Every sentence of the paper that states a number or an order, beside what the studies that were run say of it."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pads.display import make_console, say
from pads.errors import UserError
from pads.runs.events import read_records
from pads.runtime.files import make_folder, write_atomically
from pads.runtime.reading import read_json
from pads.studies.seeds import read_rows, selects_on_test
from pads.studies.statistics import Estimate, difference, estimate, judge, paired_difference
from pads.studies.tables import STUDIES


class Found(NamedTuple):
    """What came out, and what that says of the sentence."""

    words: str
    verdict: str


class Claim(NamedTuple):
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
            about = read_json(path, STUDY, "run the study again.")
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

    def recalls(self, study: str, arm: str) -> dict[int, float]:
        """Return R@1 of the selected epoch in percent, by seed."""
        return {int(row["seed"]): 100 * float(row["selected_recall@1"]) for row in self.rows(study, arm)}

    def rows(self, study: str, arm: str) -> list[dict[str, str]]:
        """Return the rows of seeds.csv that are of this arm."""
        place = self.find_arm(study, arm)
        if place is None:
            return []
        return [row for row in read_rows(place[0] / "seeds.csv") if row["recipe"] == place[1]]

    def runs(self, study: str, arm: str) -> list[Path]:
        """The folders of finished runs that are still there."""
        place = self.find_arm(study, arm)
        if place is None:
            return []
        paths = [place[0] / "runs" / f"{place[1]}-{seed}" for seed in self.recalls(study, arm)]
        return [path for path in paths if (path / "events.jsonl").exists()]

    def step_seconds(self, study: str, arm: str) -> list[float]:
        """Return the seconds of a step of each run whose folder is still there."""
        return [step_seconds(run) for run in self.runs(study, arm)]

    def run_seconds(self, study: str, arm: str) -> list[float]:
        """Return the seconds of each whole run, where they were kept."""
        return [float(row["seconds"]) for row in self.rows(study, arm) if row.get("seconds")]

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

Place = tuple[str, str]
"""A study and one of its arms."""
NOT_IN_PAPER = "(not in the paper)"
NAMES = {"cub200": "CUB", "cars196": "CARS", "sop": "SOP"}
VERDICTS = ("does not hold", "one seed", "not resolved", "level", "holds")
"""A sentence about several arms gets the first of these that one of them has: it is level only if all are resolved."""


def judge_above(found: Estimate, least: float = 0.0) -> str:
    """Say what an interval means for `more than so many points`."""
    said = judge(found._replace(low=found.low - least, high=found.high - least))
    if said == "level" and least:
        return f"not resolved by {found.n} seeds"
    return {"above": "holds", "below": "does not hold", "one seed": "one seed: no verdict"}.get(said, said)


def judge_not_above(found: Estimate) -> str:
    """Say what an interval means for `below, or level with it`."""
    said = {"below": "holds", "level": "holds", "above": "does not hold", "one seed": "one seed: no verdict"}
    return said.get(judge(found), judge(found))


def claim_order(
    where: str,
    says: str,
    pairs: Mapping[str, tuple[Place, Place]],
    text: str = "",
    judge_pair: Callable[[Estimate], str] = judge_above,
) -> Claim:
    """Claim that in each of some pairs, which may have a name, the first arm has the higher R@1."""

    def find(evidence: Evidence) -> Found | None:
        every = {name: paired_difference(*(evidence.recalls(*arm) for arm in pair)) for name, pair in pairs.items()}
        found = {name: each for name, each in every.items() if each.n}
        if not found:
            return None
        words = "; ".join(
            f"{name} {difference(each)}, n = {each.n}{evidence.mark(*pairs[name])}".lstrip()
            for name, each in found.items()
        )
        said = min(map(judge_pair, found.values()), key=rank_verdict)
        if missing := len(pairs) - len(found):
            return Found(f"{words}; {missing} not run", "not all arms run" if said == "holds" else said)
        return Found(words, said)

    paper = "" if where == NOT_IN_PAPER else format_published(pairs.values())
    return Claim(where, says, f"{paper} {text}".strip(), find)


def rank_verdict(said: str) -> int:
    return next(place for place, word in enumerate(VERDICTS) if said.startswith(word))


def format_published(pairs: Iterable[tuple[Place, Place]]) -> str:
    """Format the differences of R@1 in the paper's own tables, by data set; of several, the least and the largest."""
    found: dict[str, list[float]] = {}
    for places in pairs:
        ours, theirs = (STUDIES[study].arm(arm).paper for study, arm in places)
        for data in (name for name in ours if name in theirs):
            found.setdefault(data, []).append(ours[data]["recall@1"] - theirs[data]["recall@1"])
    words = {data: " to ".join(f"{each:+.1f}" for each in sorted({min(x), max(x)})) for data, x in found.items()}
    return ", ".join(f"{NAMES[data]} {each}" for data, each in words.items())


def above(where: str, says: str, study: str, arm: str, other: str, by: float = 0.0, text: str = "") -> Claim:
    """Claim that one arm is above another, by more than so many points."""
    pairs = {"": ((study, arm), (study, other))}
    return claim_order(where, says, pairs, text, functools.partial(judge_above, least=by))


def not_above(where: str, says: str, study: str, arm: str, other: str) -> Claim:
    """Claim that one arm is below another, or level with it."""
    return claim_order(where, says, {"": ((study, arm), (study, other))}, judge_pair=judge_not_above)


def all_above(where: str, says: str, study: str, arms: Iterable[str], other: Place) -> Claim:
    """Claim that each of some arms is above another."""
    return claim_order(where, says, {arm: ((study, arm), other) for arm in arms})


def best(where: str, says: str, study: str, arm: str, *others: str) -> Claim:
    """Claim that one arm is above each of the others."""
    return claim_order(where, says, {f"to {other}": ((study, arm), (study, other)) for other in others})


def beat_published(evidence: Evidence) -> Found | None:
    """Compare PADS with the best number that others had published for CUB."""
    if evidence.data != "cub200":
        return Found("no number to compare with: the sentence is about CUB alone", "")
    found, value = estimate(list(evidence.recalls("baselines", "margin-pads").values())), 66.3
    if not found.n:
        return None
    shifted = Estimate(found.n, found.mean - value, found.sd, found.low - value, found.high - value)
    mark = evidence.mark(("baselines", "margin-pads"))
    return Found(f"{difference(shifted)}, n = {found.n}{mark}", judge_above(shifted))


def overhead(evidence: Evidence) -> Found | None:
    """Compare the seconds of PADS with those of U-dist in the same study: by step, or by run where the runs are gone."""
    pairs = (
        ("frequency", "M-30", "static"),
        ("baselines", "margin-pads", "margin-udist"),
        ("controls", "pads", "udist"),
    )
    for study, *arms in pairs:
        for unit, measure in (("step", evidence.step_seconds), ("run", evidence.run_seconds)):
            ours, theirs = (measure(study, arm) for arm in arms)
            if ours and theirs:
                share = statistics.median(ours) / statistics.median(theirs) - 1
                words = f"{share:+.0%} time per {unit}, n = {min(len(ours), len(theirs))}"
                return Found(words, "holds" if share < 0.2 else "does not hold")
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
        runs = [run for run in evidence.perplexities(study, arm) if len(run) > 2]
        if runs:
            as_said = sum(run[len(run) // 2] < run[0] and run[-1] > run[len(run) // 2] for run in runs)
            at = [statistics.fmean(run[place] for run in runs) for place in (0, -1)]
            middle = statistics.fmean(run[len(run) // 2] for run in runs)
            words = f"bins in use {at[0]:.1f}, {middle:.1f}, {at[1]:.1f}; so in {as_said} of {len(runs)} runs"
            return Found(words, "holds" if as_said > len(runs) / 2 else "does not hold")
    return None


def perplexities_of(run: Path) -> list[float]:
    events = read_records(run / "events.jsonl")
    return [event["perplexity"] for event in events if event["event"] == "adaptation" and "perplexity" in event]


# -- the sentences ------------------------------------------------------------------------------------------------------

POLICIES = ("reinforce", "reinforce-ema", "reinforce-a2c", "ppo-ema", "ppo-a2c")
OTHER_AGENTS = (*POLICIES[:-1], "q-learning", "rainbow")
OTHER_INTERVALS = ("interval-0-2", "interval-0.25-1.0", "interval-0.5-1.4")
INTERVALS = ("interval-0.1-1.4", *OTHER_INTERVALS)

CLAIMS = (
    above("Sec. 5.1", "margin loss: PADS above U-dist", "baselines", "margin-pads", "margin-udist"),
    above(
        "Fig. 1", "the gain is close to 4 points on all data sets", "baselines", "margin-pads", "margin-udist", by=3.0
    ),
    above("Sec. 5.1", "triplet loss: PADS above U-dist", "baselines", "triplet-pads", "triplet-udist"),
    above("Sec. 5.1", "triplet loss: PADS above semi-hard", "baselines", "triplet-pads", "triplet-semihard"),
    above(
        "Sec. 3.1",
        "hard negatives may collapse the model: semi-hard above hard",
        *("baselines", "triplet-semihard", "triplet-hard"),
    ),
    Claim("Sec. 5.1", "CUB: above all published methods", "CUB +1.0 (text: at least 1.2)", beat_published),
    Claim("Sec. 4", "at M = 30 an epoch takes less than 20 % more time", "< +20 %", overhead),
    above(
        "Sec. 4",
        "positives among the negatives (self-regularisation) help",
        *("controls", "pads", "pads-other-classes"),
    ),
    Claim("Sec. 5.2", "p first peaks on few bins, then becomes wider", "", progression),
    above(
        "Sec. 5.2",
        "a fixed trained policy, same initialisation, above PADS",
        "transfer",
        "policy-same-init",
        "reference",
    ),
    above(
        "Sec. 5.2",
        "PADS above a fixed trained policy, other initialisation",
        *("transfer", "reference", "policy-other-init"),
        text="(text: 1.5)",
    ),
    above(
        "Sec. 5.2", "PADS far above the last p, fixed, same initialisation", "transfer", "reference", "last-p-same-init"
    ),
    above(
        "Sec. 5.2",
        "PADS far above the last p, fixed, other initialisation",
        "transfer",
        "reference",
        "last-p-other-init",
    ),
    above("Sec. 5.2", "PADS above the linear curriculum", "curricula", "pads", "linear"),
    above(
        "Sec. 5.2", "PADS above the non-linear curriculum", "curricula", "pads", "non-linear", text="(text: CUB 3.6)"
    ),
    all_above("Sec. 5.3", "every interval above static sampling", "interval", INTERVALS, ("frequency", "static")),
    best("Sec. 5.3", "the interval [0.1, 1.4] is the best", "interval", "interval-0.1-1.4", *OTHER_INTERVALS),
    above("Sec. 5.3", "30 bins above 10", "bins", "bins-30", "bins-10"),
    above("Sec. 5.3", "30 bins above 100", "bins", "bins-30", "bins-100"),
    best(
        "Sec. 5.3",
        "the initial U[0.3, 0.7] is the best",
        *("initial", "initial-0.3-0.7", "initial-uniform", "initial-normal"),
    ),
    above("App. A", "Inception-BN: PADS above U-dist", "inception-bn", "margin-pads", "margin-udist"),
    above("App. A", "a reward split per class above one by class", "validation", "per-class", "by-class"),
    not_above(
        "App. A",
        "drawing the reward split anew gains nothing",
        *("validation", "per-class-resampled", "per-class"),
    ),
    above(
        "App. A",
        "distances matter most in the state: alone above NMI alone",
        *("state-reward", "dist--r1", "nmi--r1"),
    ),
    above("App. A", "and alone above the recalls alone", "state-reward", "dist--r1", "recall--r1"),
    above("App. A", "U-dist above M = infinity (p never adapted)", "frequency", "static", "M-infinity"),
    above("App. A", "adapting (M = 30) above never adapting", "frequency", "M-30", "M-infinity"),
    above("App. A", "M = 30 above M = 10", "frequency", "M-30", "M-10"),
    above("App. A", "M = 30 above M = 100", "frequency", "M-30", "M-100"),
    above("App. A", "long averages in the state help: {2, 8, 16, 32} above {2}", "averages", "R-2-8-16-32", "R-2"),
    all_above("App. C", "all policy-gradient agents above static sampling", "agents", POLICIES, ("agents", "static")),
    above("App. C", "Rainbow above static sampling", "agents", "rainbow", "static"),
    not_above("App. C", "plain Q-learning is not above static sampling", "agents", "q-learning", "static"),
    best("App. C", "PPO with a critic is the best agent", "agents", "ppo-a2c", *OTHER_AGENTS),
    above(NOT_IN_PAPER, "the learned policy above random actions", "controls", "pads", "random-actions"),
    above(NOT_IN_PAPER, "above a policy that learns from a coin", "controls", "pads", "random-reward"),
    above(NOT_IN_PAPER, "above an untrained policy", "controls", "pads", "frozen-policy"),
    above(NOT_IN_PAPER, "above the initial distribution, never adapted", "controls", "pads", "fixed-bins"),
    above(NOT_IN_PAPER, "above another run's schedule, replayed", "controls", "pads", "replayed"),
    above(NOT_IN_PAPER, "above U-dist with as many positives as negatives", "controls", "pads", "udist-rho"),
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
    "`does not hold` where the interval is on one side alone. `level`: the interval holds zero and is at most ± 1 point "
    "wide; one that holds zero and is wider is `not resolved`. Of forty such sentences, two would be decided wrongly by "
    "chance.",
    "The paper's numbers are differences in its own tables, at the best test epoch.",
)


def write_claims(held: Sequence[tuple[Claim, Found]], base: str, out: Path, sources: Sequence[str] = ()) -> Path:
    """claims.md in that folder."""
    text = f"# What the paper says, and what came out on `{base}`\n\n| where | what | paper | here | |\n|---|---|---|---|---|\n"
    for claim, found in held:
        text += f"| {claim.where} | {claim.says} | {claim.paper} | {found.words} | {found.verdict} |\n"
    make_folder(out)
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
