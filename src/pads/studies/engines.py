"""Who trains the runs of a study: this process, several processes side by side, or a Ray cluster.

An engine takes runs from a schedule until there are none left, and tells how they go.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from pads.build import pick_device
from pads.check import check
from pads.config import Config, Data
from pads.data.loading import load_images
from pads.data.manifest import Manifest, find_changes, format_manifest, list_data, read_manifest
from pads.data.prepare import read_data
from pads.data.roles import Images, deal_roles
from pads.errors import UserError, missing_extra
from pads.runs import RunFolder
from pads.runs.watch import Watch
from pads.runtime.files import make_inner_folder, remove_folder
from pads.train import fit_stages, with_full_paths

Tell = Callable[["Job", str, int, Mapping[str, Any]], None]
"""Called with a run and what `pads.runs.watch.Watch` is called with."""
STEP_SECONDS = 0.25
"""Between two words of a process about its steps."""


@dataclass(frozen=True)
class Job:
    """One run of a study: an arm with a seed."""

    arm: str
    seed: int
    config: Config
    path: Path


class Outcome(NamedTuple):
    """How a run ended."""

    seconds: float | None = None
    """Of a whole run; none where it was resumed."""
    error: str = ""
    """One sentence; empty where all went well."""
    traceback: str = ""
    """Of what is no mistake of the user."""


class Schedule(Protocol):
    def next(self) -> Job | None:
        """A run that may start now, if there is one."""
        ...

    def finish(self, job: Job, outcome: Outcome) -> None: ...


# -- one run ------------------------------------------------------------------------------------------------------------


_loaded: dict[Any, Images] = {}


def images_of(data: Data, device: torch.device, watch: Watch) -> Images:
    """The decoded images, once per process for all runs that share them; those of another data set make room."""
    roles = {"selection_share", "reward_share", "reward_split", "reward_pick", "reward_resample_every", "split_seed"}
    views = {"image_size", "resize", "augmentation", "flip", "classes_per_batch", "samples_per_class", "batches"}
    same = replace(data, **{name: getattr(Data(), name) for name in roles | views})
    key = (repr(same), str(device))
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = load_images(data, device, watch)
    return _loaded[key]


def check_same_images(job: Job, now: Manifest) -> None:
    """Refuse images that are not those that the run began with, or another run of the study on the same data set."""
    run = RunFolder(job.path)
    own = read_manifest(run.manifest_path) if run.config_path.exists() else None
    known = [(job.path, own)] if own is not None else find_other(job)
    for path, before in known:
        if before.source != now.source:  # known by their files then, by a prepared store now
            now = list_data(job.config.data, *read_data(job.config.data, before), before)
        if changes := find_changes(before, now):
            raise UserError(
                f"the images are not those that {path} began with: {changes.name()}. Put them back, or give another --out."
            )


def find_other(job: Job) -> list[tuple[Path, Manifest]]:
    """Find which images another run of the study on the same data set began with, if there is one."""
    data = job.config.data
    for path in sorted(job.path.parent.glob("*/")):
        with contextlib.suppress(UserError):  # not begun, or damaged: whoever resumes it is told
            its = RunFolder.open(path).config.data
            manifest = read_manifest(RunFolder(path).manifest_path)
            if manifest is not None and (its.name, dict(its.options)) == (data.name, dict(data.options)):
                return [(path, manifest)]  # the first will do: it was held against the others
    return []


def attempt(job: Job, watch: Watch) -> Outcome:
    """Trains a run to its end; an error of it is told, not raised, so that the others go on."""
    try:
        return Outcome(execute(job, watch))
    except UserError as error:
        return Outcome(error=str(error))
    except Exception as error:
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        return Outcome(error=words, traceback=traceback.format_exc())


def execute(job: Job, watch: Watch) -> float | None:
    """The seconds of a run from its start to its end, None if it was begun before."""
    is_begun = (job.path / "config.json").exists()
    if is_begun and RunFolder.open(job.path).is_finished:
        return None
    config = resume_config(job) if is_begun else with_full_paths(job.config)
    check(config)
    images = images_of(config.data, pick_device(config.device), watch)
    assert images.manifest is not None
    check_same_images(job, images.manifest)
    views = deal_roles(config, images, watch)
    if not is_begun:
        make_inner_folder(job.path.parent)
        remove_folder(job.path)  # what was killed before it had a config has nothing to lose
    started = time.perf_counter()
    create = functools.partial(RunFolder.create, job.path, config, format_manifest(images.manifest))
    with RunFolder.open(job.path) if is_begun else create() as folder:
        try:
            fit_stages(config, folder, views, watch)
        except Exception:
            folder.remove_if_unused()  # a start that failed leaves nothing in the way of the next
            raise
    return None if is_begun else time.perf_counter() - started


def resume_config(job: Job) -> Config:
    """Return the config that a run was begun with; where images and weights are may have changed since."""
    begun = RunFolder.open(job.path).config
    return replace(
        begun,
        data=replace(begun.data, root=job.config.data.root),
        network=replace(begun.network, weights=job.config.network.weights),
        device=job.config.device,
    )


# -- here ---------------------------------------------------------------------------------------------------------------


def run_here(schedule: Schedule, tell: Tell) -> None:
    """One run after the other, in this process."""
    while (job := schedule.next()) is not None:
        schedule.finish(job, attempt(job, functools.partial(tell, job)))


# -- several processes --------------------------------------------------------------------------------------------------


class Worker:
    """A process that trains one run at a time and keeps its images for the next."""

    def __init__(self, number: int, num_workers: int) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, number, num_workers), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        self.job = job
        self.connection.send(job)


def work(parent: Connection, number: int, num_workers: int) -> None:
    """The life of a worker: a run, what came of it, the next."""
    os.setsid()  # a Ctrl-C is for the study, which asks each of its workers to save and stop
    threading.Thread(target=die_with_parent, daemon=True).start()
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // num_workers))
    while True:
        try:
            job: Job = parent.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            outcome = attempt(job, sender(parent))
        except KeyboardInterrupt as interrupt:
            parent.send(("stopped", 0, {"words": str(interrupt)}))
            return
        parent.send(("finished", 0, {"outcome": outcome}))


def die_with_parent() -> None:
    """However the study ended, its runs stop at once, so that the next call finds their folders free."""
    study = parent_process()
    assert study is not None
    study.join()
    os._exit(1)


def sender(parent: Connection) -> Watch:
    """Tells the study what happens, of the steps now and then one."""
    last = 0.0

    def watch(kind: str, step: int, values: Mapping[str, Any]) -> None:
        nonlocal last
        if kind in ("step", "decoding"):
            if time.monotonic() - last < STEP_SECONDS:
                return
            last = time.monotonic()
        parent.send((kind, step, dict(values)))

    return watch


def run_in_processes(schedule: Schedule, tell: Tell, num_workers: int) -> None:
    """As many runs at once. A worker that dies loses its run alone."""
    workers: list[Worker] = []
    try:
        with termination_interrupts():
            while True:
                start_runs(workers, num_workers, schedule, tell)
                busy = {worker.connection: worker for worker in workers if worker.job is not None}
                if not busy:
                    return
                for ready in connection.wait(list(busy)):
                    hear(busy[ready], schedule, tell)  # type: ignore[index]
    except KeyboardInterrupt:
        stop(workers)
        raise
    finally:
        for worker in workers:
            worker.connection.close()
            worker.process.join()


def start_runs(workers: list[Worker], num_workers: int, schedule: Schedule, tell: Tell) -> None:
    """A run for every worker that has none, as long as there are any; a dead worker is replaced."""
    for number in range(num_workers):
        if number < len(workers) and workers[number].job is not None:
            continue
        if (job := schedule.next()) is None:
            return
        if number == len(workers):
            workers.append(Worker(number, num_workers))
        elif not workers[number].process.is_alive():
            workers[number] = Worker(number, num_workers)
        tell(job, "waiting", 0, {})
        workers[number].start(job)


def hear(worker: Worker, schedule: Schedule, tell: Tell) -> None:
    """One word of a worker."""
    job = worker.job
    assert job is not None
    try:
        kind, step, values = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        worker.job = None
        code = worker.process.exitcode or 0
        words = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        error = f"its process {words}: it may have run out of memory; lower --jobs, then try again."
        schedule.finish(job, Outcome(error=error))
        return
    if kind == "stopped":
        raise KeyboardInterrupt(values["words"])
    if kind == "finished":
        worker.job = None
        schedule.finish(job, values["outcome"])
    else:
        tell(job, kind, step, values)


def stop(workers: list[Worker]) -> None:
    """Each run saves and stops; a second Ctrl-C does not wait for that."""
    try:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            while worker.process.is_alive():
                if worker.connection.poll(0.1):  # what it still says must not block it
                    try:
                        worker.connection.recv()
                    except (EOFError, ConnectionResetError):
                        break
            worker.process.join()
    except KeyboardInterrupt:
        for worker in workers:
            worker.process.kill()
        raise


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """SIGTERM stops a study as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# -- a Ray cluster ------------------------------------------------------------------------------------------------------


def run_on_ray(schedule: Schedule, tell: Tell, gpus_per_run: float) -> None:
    """One task per run on the cluster of RAY_ADDRESS, or one of its own on this machine. Needs a disk that all can see."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent home
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "ray") from error
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    # max_calls 0: the process of a run with a GPU stays, and keeps its images
    train_run = ray.remote(num_cpus=1, num_gpus=gpus_per_run, max_calls=0, max_retries=0)(attempt_quietly)
    running: dict[Any, Job] = {}
    try:
        while True:
            while (job := schedule.next()) is not None:
                tell(job, "waiting", 0, {})
                running[train_run.remote(job)] = job
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            job = running.pop(done[0])
            try:
                outcome = ray.get(done[0])
            except ray.exceptions.RayError as error:
                outcome = Outcome(error=f"its Ray task was lost ({type(error).__name__}).", traceback=str(error))
            schedule.finish(job, outcome)
    finally:
        for task in running:
            ray.cancel(task, force=True)
        if is_ours:
            ray.shutdown()


def attempt_quietly(job: Job) -> Outcome:
    return attempt(job, lambda kind, step, values: None)


# -- by name ------------------------------------------------------------------------------------------------------------

ENGINES = ("local", "ray")


def run_all(
    schedule: Schedule, tell: Tell, *, engine: str = "local", jobs: int | None = None, gpus_per_run: float | None = None
) -> None:
    """All runs of a schedule; by default one at a time, or one on each GPU."""
    num_gpus = torch.cuda.device_count()
    if engine == "ray":
        run_on_ray(schedule, tell, float(num_gpus > 0) if gpus_per_run is None else gpus_per_run)
    elif (jobs or max(1, num_gpus)) > 1:
        run_in_processes(schedule, tell, jobs or num_gpus)
    else:
        run_here(schedule, tell)
