"""Who trains the runs: several processes, which may die one by one, and a real Ray cluster."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from pads.config import Config, Data, Part
from pads.errors import UserError
from pads.runs import RunFolder
from pads.studies import Arm, Study, engines, run_study, udist
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


# -- the images of a study ------------------------------------------------------------------------------------------------


@pytest.fixture
def own_photos(quick, tmp_path):
    """Photos that a test may change, and a study on them that knows nothing of an earlier one in this process."""
    photos = shutil.copytree(quick["data"], tmp_path / "photos")
    quick.update(data=str(photos), seeds=(0,), arms=("udist",))
    engines._loaded.clear()
    yield photos
    engines._loaded.clear()


def stop_halfway(run):
    """Leaves a run as a killed process would."""
    (run / "metrics.json").unlink()
    (run.parents[1] / "seeds.csv").unlink()
    engines._loaded.clear()


def spoil(photos, how):
    first = sorted(photos.glob("*/*"))[0]
    if how == "removed":
        first.unlink()
    elif how == "renamed":
        first.rename(first.with_name("another" + first.suffix))
    else:
        first.write_bytes(sorted(photos.glob("*/*"))[-1].read_bytes())


@pytest.mark.parametrize("how", ["removed", "renamed", "changed"])
def test_a_study_does_not_go_on_with_changed_images(quick, own_photos, how):
    run = run_study("controls", **quick).plan.out / "runs" / "udist-0"
    assert (run / "data.jsonl").exists()
    stop_halfway(run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    spoil(own_photos, how)
    failures = run_study("controls", **quick).failures
    assert how in failures["udist", 0] and "Put them back" in failures["udist", 0]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_study_goes_on_with_the_same_images_elsewhere(quick, own_photos, tmp_path):
    run = run_study("controls", **quick).plan.out / "runs" / "udist-0"
    figures = (run / "metrics.json").read_bytes()
    stop_halfway(run)
    quick["data"] = str(own_photos.rename(tmp_path / "elsewhere"))
    assert not run_study("controls", **quick).failures
    assert (run / "metrics.json").read_bytes() == figures


def test_a_further_seed_is_not_trained_on_other_images(quick, own_photos):
    run_study("controls", **quick)
    engines._loaded.clear()
    spoil(own_photos, "removed")
    result = run_study("controls", **{**quick, "seeds": (0, 1)})
    assert "udist-0 began with" in result.failures["udist", 1]
    assert not (result.plan.out / "runs" / "udist-1").exists()


def test_a_damaged_manifest_stops_its_run(quick, own_photos):
    run = run_study("controls", **quick).plan.out / "runs" / "udist-0"
    stop_halfway(run)
    (run / "data.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"data\.jsonl is damaged"):
        run_study("controls", **quick)
    assert not (run / "metrics.json").exists()


def test_a_run_of_a_study_knows_the_whole_path_of_its_images(quick, own_photos, monkeypatch):
    monkeypatch.chdir(own_photos.parent)
    run = run_study("controls", **{**quick, "data": "photos"}).plan.out / "runs" / "udist-0"
    assert RunFolder.open(run).config.data.root == str(own_photos)
