"""Runs the paper's experiment. Arms, seeds and epochs were fixed here, and on docs/reproduction.md, before the first run.

    python tools/reproduce.py 1 --data CUB --weights FILE       # CUB200-2011, the authors' reading, 200 epochs
    python tools/reproduce.py 2 --data CARS --weights FILE      # CARS196, the same
    python tools/reproduce.py 3 --data CUB --weights FILE       # CUB200-2011, the paper's wording
    python tools/reproduce.py 4 --jobs 14                       # the tables of the paper on emoji, on a CPU
    python tools/reproduce.py 5 --data CUB --weights FILE       # other tables on CUB200-2011, 60 epochs
    python tools/reproduce.py 4 --store emoji-store             # the drawings as a store, for a machine without them

A part is one `pads study`; all parts of a run share their processes. The same command goes on where it stopped. With
`--minutes` no run starts later than that. `--results` copies the rows of each part to PART.csv there with every run that ends,
and makes folders of evidence (tools/gather.py) at the end.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from gather import gather

from pads.data.emoji import package_folder
from pads.data.prepare import prepare
from pads.studies.arms import BASES
from pads.studies.engines import Job, Outcome, run_all
from pads.studies.plan import Plan, find_backbone
from pads.studies.progress import show_progress
from pads.studies.report import write_report
from pads.studies.runner import Runs, check_plan, lock, read_result, say_how_to_go_on, source_commit, write_settings
from pads.studies.tables import STUDIES

FIVE, THREE, ONE = (0, 1, 2, 3, 4), (0, 1, 2), (0,)


class Piece(NamedTuple):
    """One `pads study`: its folder, and what is fixed of it."""

    folder: str
    study: str
    base: str
    arms: tuple[str, ...] = ()
    """All, if none is named."""
    seeds: tuple[int, ...] = FIVE
    epochs: int | None = None
    """The base's or the study's, if none is named."""
    settings: tuple[str, ...] = ()
    joins: str = ""
    """The part whose folder of evidence has these rows too: other arms of the same study in the same setting."""
    is_aside: bool = False
    """Whether its setting is another one, so that `pads study claims` does not read it as the study."""

    def command(self) -> str:
        """Return the command that runs this part alone."""
        place = "" if self.base == "emoji" else " --data DIR --weights FILE"
        words = f"pads study {self.study} --recipe-base {self.base}{place}"
        words += f" --seeds {' '.join(map(str, self.seeds))}" * (self.seeds != FIVE)
        words += f" --arms {' '.join(self.arms)}" * bool(self.arms) + f" --epochs {self.epochs}" * bool(self.epochs)
        return words + "".join(f" --set {setting}" for setting in self.settings)


LEARNED = ("pads-code", "fixed-bins-code", "random-reward-code")
ADAPTED = ("pads-code", "fixed-bins-code")
STATIC = ("single-bin-code", "udist-rho-code", "udist-authors")
TRIPLET = ("triplet-semihard", "triplet-udist", "triplet-pads", "triplet-hard")
HELD_OUT, LONG = ("data.selection_share=0.1",), ("num_epochs=300",)
PER_CLASS = ("data.reward_share=0.28",)
"""Two of the seven drawings of an emoji, and two of each class with fewer: with less, no split per class is possible."""

RUNS: dict[str, tuple[Piece, ...]] = {
    "1": (
        Piece("cub200-authors", "authors", "cub200", LEARNED),
        Piece("cub200-authors-static", "authors", "cub200", STATIC, THREE, joins="cub200-authors"),
        Piece("cub200-authors-selected", "authors", "cub200", ADAPTED, THREE, None, HELD_OUT, is_aside=True),
        Piece("cub200-authors-300-epochs", "authors", "cub200", ADAPTED, ONE, None, LONG, is_aside=True),
    ),
    "2": (
        Piece("cars196-authors", "authors", "cars196", LEARNED),
        Piece("cars196-udist", "authors", "cars196", ("udist-authors",), ONE, None, LONG, is_aside=True),
    ),
    "3": (Piece("cub200-controls", "controls", "cub200", ("pads", "fixed-bins", "random-actions"), FIVE, 120),),
    "4": (
        Piece("emoji-transfer", "transfer", "emoji"),
        Piece("emoji-interval", "interval", "emoji"),
        Piece("emoji-bins", "bins", "emoji"),
        Piece("emoji-initial", "initial", "emoji"),
        Piece("emoji-validation", "validation", "emoji", (), FIVE, None, PER_CLASS),
        Piece("emoji-averages", "averages", "emoji"),
        Piece("emoji-state-reward", "state-reward", "emoji"),
        Piece("emoji-baselines", "baselines", "emoji"),
        Piece("emoji-frequency", "frequency", "emoji"),
        Piece("emoji-controls", "controls", "emoji"),
        Piece("emoji-agents", "agents", "emoji"),
        Piece("emoji-curricula", "curricula", "emoji"),
    ),
    "5": (
        Piece("cub200-triplet", "baselines", "cub200", TRIPLET, THREE, 60),
        Piece("cub200-agents", "agents", "cub200", (), THREE, 60),
        Piece("cub200-frequency", "frequency", "cub200", (), THREE, 60),
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", choices=RUNS)
    parser.add_argument("--data", help="the images; of emoji, a store that --store made")
    parser.add_argument("--weights", help="a file of weights; the backbone is the one that it was made for")
    parser.add_argument("--out", type=Path, default=Path("studies"), help="the folders of the parts go here")
    parser.add_argument("--results", type=Path, help="make folders of evidence here")
    parser.add_argument("--parts", nargs="+", default=[], metavar="FOLDER", help="these parts alone")
    parser.add_argument("--jobs", type=int, help="as many runs at once")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run later than this")
    parser.add_argument("--store", type=Path, help="write the drawings of emoji into this store, and run nothing")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run, to try it out")
    parser.add_argument("--commit", default=source_commit(), help="written into every row")
    options = parser.parse_args(arguments)
    if options.store:
        data = BASES["emoji"]().data
        prepare("emoji", package_folder()[0], options.store, size=data.store_size, ratio=data.store_ratio)
        return
    pieces = [piece for piece in RUNS[options.run] if not options.parts or piece.folder in options.parts]
    reproduce([plan_of(piece, options) for piece in pieces], options)


def plan_of(piece: Piece, options: argparse.Namespace) -> Plan:
    settings = [*piece.settings, *options.set]
    if options.weights:
        settings.insert(0, f"network.backbone={find_backbone(options.weights)}")
    return Plan(
        STUDIES[piece.study],
        options.out / piece.folder,
        piece.base,
        piece.seeds,
        piece.arms,
        piece.epochs,
        options.data,
        options.weights,
        tuple(settings),
    )


def reproduce(plans: Sequence[Plan], options: argparse.Namespace) -> None:
    """Run what is not done yet of all plans, with one set of processes for all."""
    for plan in plans:
        check_plan(plan, tune=False)
    with ExitStack() as stack, say_how_to_go_on(), show_progress(plain=True) as show:
        for plan in plans:
            stack.enter_context(lock(plan.out))
            write_settings(plan)
        schedule = Together([Runs(plan, show, options.commit) for plan in plans], options)
        show.begin(f"run {options.run}", sum(runs.total for runs in schedule.runs), schedule.num_done())
        run_all(schedule, show, jobs=options.jobs)
    for runs in schedule.runs:
        if runs.done:
            write_report(read_result(runs.plan, runs.failures))
        for key, error in runs.failures.items():
            print(f"{runs.plan.out.name}: {key[0]}-{key[1]} failed: {error}")
    if options.results:
        keep_evidence([runs.plan for runs in schedule.runs if runs.done], RUNS[options.run], options.results)
    print(f"{schedule.num_done()} runs are done, {sum(len(runs.left) for runs in schedule.runs)} are left.")


class Together:
    """The schedules of several studies as one: a worker takes the next run of whichever study has one."""

    def __init__(self, runs: Sequence[Runs], options: argparse.Namespace) -> None:
        self.runs, self.results = runs, options.results
        self.last_start = time.monotonic() + 60 * options.minutes
        self.owners: dict[Path, Runs] = {}

    def num_done(self) -> int:
        return sum(len(runs.done) for runs in self.runs)

    def next(self) -> Job | None:
        if time.monotonic() > self.last_start:
            return None
        for runs in self.runs:
            if (job := runs.next()) is not None:
                self.owners[job.path] = runs
                return job
        return None

    def finish(self, job: Job, outcome: Outcome) -> None:
        runs = self.owners.pop(job.path)
        runs.finish(job, outcome)
        rows = runs.plan.out / "seeds.csv"
        if self.results and rows.exists():  # what is here outlasts a machine that is taken away
            self.results.mkdir(parents=True, exist_ok=True)
            shutil.copy(rows, self.results / f"{runs.plan.out.name}.csv")


def keep_evidence(plans: Sequence[Plan], pieces: Sequence[Piece], results: Path) -> None:
    """Make the folders of evidence of what has been run; parts that belong together make one."""
    for piece in pieces:
        folders = {piece.folder, *(other.folder for other in pieces if other.joins == piece.folder)}
        studies = [plan.out for plan in plans if plan.out.name in folders]
        if piece.joins or not studies:
            continue
        gather(studies, results / piece.folder)
        if piece.is_aside:
            (results / piece.folder / "study.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
