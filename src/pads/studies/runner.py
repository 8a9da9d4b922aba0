"""Runs a study: every arm with every seed, what is done is skipped, what was cut goes on, and a table at the end.

A study's folder holds
study.json            which study it is, on what
seeds.csv             one row per finished run
ARM.json              the config of an arm, without the paths of a machine
runs/ARM-SEED/        the run folders
tuned.json            what --tune picked
errors/ARM-SEED.txt   the traceback of a run that failed
table.md .csv .tex    what came out (report.py)
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pads.check import check
from pads.config import Config, from_dict, lookup, to_dict, to_json, with_settings
from pads.data.prepare import read_data
from pads.display import print_notes
from pads.errors import UserError
from pads.reports.groups import flat
from pads.runs import RunFolder
from pads.runtime.files import (
    hold_lock,
    make_folder,
    make_inner_folder,
    remove_file,
    remove_folder,
    write_atomically,
)
from pads.runtime.reading import read_json
from pads.studies.arms import Arm, Change, Study, fix_settings, list_candidates
from pads.studies.engines import ENGINES, Job, Outcome, Tell, run_all
from pads.studies.plan import DEFAULT_SEEDS, Key, Plan, Result
from pads.studies.progress import Display, show_progress
from pads.studies.report import write_report
from pads.studies.seeds import append_row, read_finished, read_rows, row_of
from pads.studies.tables import STUDIES

PRETRAINED = ("cub200", "cars196", "sop")
TUNING_SEED = 1000
"""Of the runs that --tune compares: none of those that are reported."""


# -- the runs -----------------------------------------------------------------------------------------------------------


class Runs:
    """The schedule of a study: a run may start when the run that it needs is done."""

    def __init__(self, plan: Plan, tell: Tell, commit: str) -> None:
        self.plan, self.tell, self.commit = plan, tell, commit
        rows = read_finished(plan.out / "seeds.csv")
        self.done = {key for key in plan.runs() if key in rows}
        self.left = [key for key in plan.runs() if key not in self.done]
        self.total = len(self.left)
        self.failures: dict[Key, str] = {}

    def next(self) -> Job | None:
        for key in list(self.left):
            needed = self.plan.find_needed(key)
            if needed in self.failures:
                self.left.remove(key)
                self.fail(key, f"it needs {needed[0]}-{needed[1]}, which failed.")
            elif needed is None or needed in self.done:
                self.left.remove(key)
                try:
                    return self.plan.job(key)
                except UserError as error:
                    self.fail(key, str(error))
        return None

    def finish(self, job: Job, outcome: Outcome) -> None:
        key = (job.arm, job.seed)
        if outcome.error:
            self.fail(key, outcome.error, outcome.traceback)
            return
        row = row_of(job.config, RunFolder.open(job.path), outcome.seconds, self.commit)
        append_row(self.plan.out / "seeds.csv", row)
        remove_file(self.trace_path(key))
        self.done.add(key)
        self.tell(job, "done", 0, row)

    def fail(self, key: Key, error: str, trace: str = "") -> None:
        if trace:
            make_inner_folder(self.trace_path(key).parent)
            write_atomically(self.trace_path(key), trace)
            error = f"{error} (see {self.trace_path(key)})"
        self.failures[key] = error
        self.tell(Job(*key, Config(), self.plan.path(key)), "failed", 0, {"error": error})

    def trace_path(self, key: Key) -> Path:
        return self.plan.out / "errors" / f"{key[0]}-{key[1]}.txt"


def run_study(
    study: Study | str,
    *,
    out: Path | str | None = None,
    base: str | None = None,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    arms: Sequence[str] = (),
    epochs: int | None = None,
    data: str | None = None,
    weights: str | None = None,
    settings: Sequence[str] = (),
    tune: bool = False,
    engine: str = "local",
    jobs: int | None = None,
    gpus_per_run: float | None = None,
    drop_checkpoints: bool = False,
    commit: str | None = None,
    plain: bool = True,
) -> Result:
    """Runs what is not done yet, and writes the tables; `pads study` is this function.

    A study of one's own is a `Study`; a name is one of `STUDIES`.
    """
    study = lookup(STUDIES, study, "study") if isinstance(study, str) else study
    base = base or study.bases[0]
    plan = Plan(
        study,
        Path(out) if out is not None else Path("studies") / f"{study.name}-{base}",
        base,
        tuple(dict.fromkeys(seeds)),
        tuple(arms),
        epochs,
        data,
        weights,
        tuple(settings),
    )
    check_engine(engine, jobs, gpus_per_run)
    engine_options = {"engine": engine, "jobs": jobs, "gpus_per_run": gpus_per_run}
    commit = source_commit() if commit is None else commit
    check_plan(plan, tune)
    with lock(plan.out), say_how_to_go_on(), show_progress(plain=plain) as show:
        if tune:
            pick_settings(plan, show, commit, engine_options)
        plan = replace(plan, tuned=read_tuned(plan.out))
        write_settings(plan)
        runs = Runs(plan, show, commit)
        show.begin(study.name, runs.total, len(runs.done))
        if runs.left and plan.example.data.name in PRETRAINED and plan.example.network.weights is None:
            note = "every run starts from random weights; the paper's start from ImageNet: --weights FILE."
            print_notes([note], show.console)
        run_all(runs, show, **engine_options)  # type: ignore[arg-type]
    if drop_checkpoints:
        drop_unneeded(plan, runs.done)
    result = read_result(plan, runs.failures)
    write_report(result)
    return result


def write_settings(plan: Plan) -> None:
    """Write down what the study is and the config of each arm; refuse a folder that holds others."""
    check_same(plan)
    about = {"study": plan.study.name, "base": plan.base, "data": plan.example.data.name}
    write_atomically(plan.out / "study.json", json.dumps(about, indent=2) + "\n")


def read_result(plan: Plan, failures: Mapping[Key, str]) -> Result:
    """Read what has come of a study so far."""
    asked = {(arm.name, seed) for arm in plan.asked for seed in plan.seeds}
    rows = [row for row in read_rows(plan.out / "seeds.csv") if (row["recipe"], int(row["seed"])) in asked]
    return Result(plan, tuple(rows), failures)


# -- the door -----------------------------------------------------------------------------------------------------------


def check_engine(engine: str, jobs: int | None, gpus_per_run: float | None) -> None:
    lookup(dict.fromkeys(ENGINES), engine, "engine")
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs is {jobs}: at least one run at a time is needed.")
    if jobs is not None and engine == "ray":
        raise UserError("--jobs is for --engine local: Ray runs as many at once as its resources allow.")
    if gpus_per_run is not None and (engine != "ray" or gpus_per_run < 0):
        raise UserError("--gpus-per-run is the share of a GPU that a run asks of --engine ray: a number from 0 on.")


def check_plan(plan: Plan, tune: bool) -> None:
    """Settings that cannot work, or that make two arms the same, are refused before anything is written."""
    if not plan.seeds or min(plan.seeds) < 0:
        raise UserError("a study needs seeds of 0 or more, such as --seeds 0 1 2 3 4.")
    if plan.epochs is not None and plan.epochs < 1:
        raise UserError(f"epochs is {plan.epochs}: it must be at least 1.")
    first: dict[str, str] = {}
    for arm in plan.asked:
        config = plan.config(arm, plan.seeds[0])
        check(config)
        if tune and (not config.data.selection_share or config.data.paper_protocol):
            raise UserError("--tune picks on the selection split, which is empty: set data.selection_share above 0.")
        same = first.setdefault(to_json(replace(config, recipe="")) + repr(arm.needs), arm.name)
        if same != arm.name:
            raise UserError(
                f"these settings make the arms {same} and {arm.name} the same: leave out the --set of what they differ in."
            )
    if set(plan.runs()) - read_finished(plan.out / "seeds.csv"):
        read_data(plan.example.data)  # images that are not there would fail every run


def check_same(plan: Plan) -> None:
    """An arm's config is written down once; other settings would mix two studies in one table."""
    for name in dict.fromkeys(name for name, _ in plan.runs()):
        path, config = plan.out / f"{name}.json", public_config(plan, plan.study.arm(name))
        before = read_config(path) if path.exists() else None
        if before is not None and before != config and has_runs(plan, name):
            raise UserError(
                f"{plan.out} holds {name} with other settings ({list_differences(before, config)}): "
                "give the same ones, or another --out."
            )
        write_atomically(path, to_json(config))


def has_runs(plan: Plan, arm: str) -> bool:
    """Whether there is anything of an arm that other settings would not fit."""
    begun = [path.parent.name for path in plan.out.glob("runs/*/config.json")]
    rows = [row["recipe"] for row in read_rows(plan.out / "seeds.csv")]
    return arm in rows or any(re.fullmatch(re.escape(arm) + r"-\d+", name) for name in begun)


def public_config(plan: Plan, arm: Arm) -> Config:
    """An arm's config as the evidence has it: without the paths of this machine, and for all seeds."""
    config = plan.config(arm, 0)
    weights = config.network.weights and Path(config.network.weights).name
    if arm.needs is not None:
        config = arm.needs.use(config, Path(f"RUN of {arm.needs.arm}, {arm.needs.seed} seed"))
    return replace(
        config, data=replace(config.data, root=None), network=replace(config.network, weights=weights), device="auto"
    )


def list_differences(before: Config, now: Config) -> str:
    old, new = dict(flat(to_dict(before))), dict(flat(to_dict(now)))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    words = [f"{key} was {json.dumps(old.get(key))}, now {json.dumps(new.get(key))}" for key in keys[:2]]
    return ", ".join(words) + (f", and {len(keys) - 2} more" if len(keys) > 2 else "")


@contextmanager
def lock(out: Path) -> Iterator[None]:
    """Let one process at a time write into a study's folder."""
    make_folder(out)
    with hold_lock(out / "lock", f"another process runs a study in {out}: wait for it, or give another --out."):
        yield


@contextmanager
def say_how_to_go_on() -> Iterator[None]:
    """Add to a Ctrl-C that the same command goes on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        words = str(interrupt) or "each run keeps its last checkpoint"
        raise KeyboardInterrupt(f"{words}; the same command goes on") from interrupt


# -- --tune -------------------------------------------------------------------------------------------------------------


def pick_settings(plan: Plan, show: Display, commit: str, engine_options: Mapping[str, Any]) -> None:
    """Tries every candidate of every arm once, with the same steps, and writes down what the selection split likes best.

    Arms that take something from another run take its settings too.
    """
    tuned = read_tuned(plan.out)
    arms = [plan.study.arm(name) for name in dict.fromkeys(name for name, _ in plan.runs())]
    wanted = {
        arm.name: list_candidates(arm, plan.config(arm, 0)) for arm in arms if not arm.needs and arm.name not in tuned
    }
    candidates = {
        f"{name}@{number}": (name, settings)
        for name, options in wanted.items()
        for number, settings in enumerate(options)
    }
    if not candidates:
        return
    for name in wanted:
        if has_runs(plan, name):
            raise UserError(f"{plan.out} holds runs of {name} that were not tuned: give another --out with --tune.")
    trials = tuple(
        Arm(trial, add_settings(plan.study.arm(name).change, settings))
        for trial, (name, settings) in candidates.items()
    )
    study = replace(plan.study, name=f"{plan.study.name} (tuning)", arms=trials, reference=trials[0].name)
    tuning_plan = replace(plan, study=study, out=plan.out / "tuning", seeds=(TUNING_SEED,), arms=())
    with lock(tuning_plan.out):
        check_same(tuning_plan)
        runs = Runs(tuning_plan, show, commit)
        show.begin(study.name, runs.total, len(runs.done))
        run_all(runs, show, **engine_options)
    if runs.failures:
        (trial, _), error = next(iter(runs.failures.items()))
        raise UserError(f"tuning failed at {trial} ({' '.join(candidates[trial][1])}): {error}")
    for name in wanted:
        scores = {
            " ".join(settings): selection_level(tuning_plan.path((trial, TUNING_SEED)))
            for trial, (owner, settings) in candidates.items()
            if owner == name
        }
        best = max(scores, key=lambda settings: scores[settings])
        tuned[name] = {"settings": best.split(), "selection": scores}
    write_atomically(plan.out / "tuned.json", json.dumps(tuned, indent=2) + "\n")


def add_settings(change: Change, settings: Sequence[str]) -> Change:
    return lambda base: fix_settings(with_settings(change(base), settings))


def selection_level(run: Path) -> float:
    """All that tuning looks at: the best epoch on the selection split, never the test split."""
    folder = RunFolder.open(run)
    figures = folder.metrics
    assert figures is not None
    return float(figures["selection"][folder.config.picked_by])


def read_tuned(out: Path) -> dict[str, Any]:
    path = out / "tuned.json"
    shape = {str: {"settings": [str], "selection": {str: float}}}
    return read_json(path, shape, "delete it, and --tune picks anew.") if path.exists() else {}


def read_config(path: Path) -> Config:
    """The config of an arm, as it was written down."""
    try:
        return from_dict(read_json(path, dict, "give another --out."))
    except UserError as error:
        raise UserError(f"{path} does not fit this version of pads, so give another --out: {error}") from error


# -- small things -----------------------------------------------------------------------------------------------------------


def drop_unneeded(plan: Plan, done: Iterable[Key]) -> None:
    """Without the checkpoints of finished runs that no arm of the study takes anything from."""
    needed = {arm.needs.arm for arm in plan.study.arms if arm.needs is not None}
    for key in done:
        if key[0] not in needed:
            remove_folder(plan.path(key) / "checkpoints")


def source_commit() -> str:
    """The commit of these sources, where they are a checkout."""
    here = Path(__file__).parent
    try:
        tracked = subprocess.run(
            ["git", "ls-files", "--error-unmatch", Path(__file__).name], cwd=here, capture_output=True
        )
        if tracked.returncode:
            return ""
        said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
        return said.stdout.strip()
    except OSError:  # no git
        return ""
