"""Who trains the runs: several processes, which may die one by one, and a real Ray cluster."""

import functools
import os
import signal
import subprocess
import sys
import time

import pytest

from pads.config import Config, Data, Part
from pads.errors import UserError
from pads.runs import RunFolder
from pads.studies import Arm, Study, run_study, udist
from pads.studies.arms import with_fields
from pads.studies.engines import Job, Worker, resume_config, run_in_processes
from pads.studies.plan import Plan

TWO = Study("two", "U-dist twice", (Arm("one", udist), Arm("two", with_fields(udist, num_epochs=1))), reference="one")


class List:
    """A schedule of jobs that need nothing."""

    def __init__(self, jobs):
        self.jobs, self.outcomes = list(jobs), {}

    def next(self):
        return self.jobs.pop(0) if self.jobs else None

    def finish(self, job, outcome):
        self.outcomes[job.arm] = outcome


@pytest.fixture
def jobs(quick):
    plan = Plan(TWO, quick["out"], "folder", (0,), data=quick["data"], epochs=300, settings=tuple(quick["settings"]))
    return [plan.job((arm, 0)) for arm in ("one", "two")]


def test_a_process_that_is_killed_loses_its_run_alone(jobs, monkeypatch):
    schedule, workers, start = List(jobs), [], Worker.__init__

    def remember(self, *arguments):
        start(self, *arguments)
        workers.append(self)

    monkeypatch.setattr(Worker, "__init__", remember)

    def kill_the_first(job, kind, step, values):
        if job.arm == "one" and kind == "start":
            os.kill(workers[0].process.pid, signal.SIGKILL)

    run_in_processes(schedule, kill_the_first, 2)
    assert "killed by signal 9" in schedule.outcomes["one"].error
    assert schedule.outcomes["two"].error == ""
    assert RunFolder.open(jobs[1].path).is_finished
    assert not any(worker.process.is_alive() for worker in workers)


def test_the_runs_of_several_processes_are_those_of_one(quick, tmp_path):
    options = {**quick, "seeds": (0,), "epochs": 1, "arms": ["udist", "pads"]}
    run_study("controls", **options, jobs=2)
    run_study("controls", **{**options, "out": tmp_path / "here"})
    for arm in ("udist", "pads"):
        ours, theirs = (out / "runs" / f"{arm}-0" / "events.jsonl" for out in (quick["out"], tmp_path / "here"))
        assert ours.read_bytes() == theirs.read_bytes()


def test_a_stopped_study_saves_its_runs_and_says_that_the_same_command_goes_on(quick, study_command):
    line = study_command("--jobs", 2, "--epochs", 500)
    # a shell's background job, such as a CI, ignores Ctrl-C and hands that down; a person's terminal does not
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    study = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    events = [quick["out"] / "runs" / f"{arm}-0" / "events.jsonl" for arm in ("udist", "pads")]
    deadline = time.monotonic() + 120
    while not all(path.exists() for path in events):
        assert study.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    study.send_signal(signal.SIGINT)
    _, said = study.communicate(timeout=240)
    assert study.returncode == 130
    assert "the same command goes on" in said
    for path in events:
        run = RunFolder.open(path.parent)
        assert not run.is_finished
        with run:  # nobody holds it any more
            assert run.load_checkpoint()["step"] > 0


def test_a_study_on_a_real_ray_cluster(quick):
    """The environment of the cluster is that of the test: nothing is sent home, nothing is left running."""
    program = f"""
import os
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000)
from pads.studies import run_study
result = run_study("controls", base="folder", data={quick["data"]!r}, out={str(quick["out"])!r}, seeds=(0,), epochs=1,
    arms=["pads", "udist-rho"], settings={quick["settings"]!r}, engine="ray", commit="abc")
assert ray.is_initialized()
ray.shutdown()
assert not result.failures, result.failures
print(sorted(row["recipe"] for row in result.rows))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=480)
    assert done.stdout.splitlines()[-1:] == ["['pads', 'udist-rho']"], done.stdout + done.stderr
    assert RunFolder.open(quick["out"] / "runs" / "udist-rho-0").config.sampling.rho > 0


def test_without_ray_the_answer_names_the_extra(quick, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r'pip install "pads-dml\[ray\]"'):
        run_study("controls", **quick, engine="ray")


def test_a_run_goes_on_as_it_was_begun_wherever_the_images_are_by_now(tmp_path):
    """Another list of seeds may name another run to repeat; what was begun keeps its own."""
    begun = Config(curriculum=Part("replayed", {"run": "a"}), data=Data(root="here"))
    RunFolder.create(tmp_path / "run", begun)
    asked = Config(curriculum=Part("replayed", {"run": "b"}), data=Data(root="there"), device="cpu")
    config = resume_config(Job("replayed", 0, asked, tmp_path / "run"))
    assert config.curriculum.options["run"] == "a"
    assert (config.data.root, config.device) == ("there", "cpu")
