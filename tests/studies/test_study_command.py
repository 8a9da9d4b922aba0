"""`pads study` as a person types it."""

import io

import pytest
from rich.console import Console

from pads.cli import main
from pads.config import Config
from pads.losses import LOSSES, MarginLoss
from pads.studies import STUDIES
from pads.studies.engines import Job
from pads.studies.progress import LiveDisplay, show_progress


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["study", *map(str, arguments)])
    said = capsys.readouterr()
    return exit_.value.code, said.out, said.err


def options(quick, *more):
    settings = [word for setting in quick["settings"] for word in ("--set", setting)]
    return ["--recipe-base", "folder", "--data", quick["data"], "--out", quick["out"], "--seeds", 0, *settings, *more]


def test_a_study_ends_in_a_table_and_says_where_the_files_are(quick, capsys):
    code, out, err = run(capsys, "controls", *options(quick, "--epochs", 1, "--arms", "udist", "pads"))
    assert (code, err) == (0, "")
    assert "[2/2] pads, seed 0: R@1" in out
    assert "controls, folder: test split, in percent" in out
    assert f"The tables are in {quick['out']}" in out
    for name in ("table.md", "table.csv", "table.tex", "seeds.csv", "udist.json", "pads.json", "study.json"):
        assert (quick["out"] / name).stat().st_size
    code, out, _ = run(capsys, "controls", *options(quick, "--epochs", 1, "--arms", "udist", "pads"))
    assert code == 0
    assert "2 runs done before, 0 to go" in out
    code, out, _ = run(capsys, "claims", "--recipe-base", "folder", "--out", quick["out"].parent / "claims")
    assert code == 0
    assert "not run" in out
    assert (quick["out"].parent / "claims" / "claims.md").exists()


def test_a_study_with_a_run_that_failed_leaves_with_1(quick, capsys, monkeypatch):
    class Broken(MarginLoss):
        def value_and_share(self, *arguments):
            raise RuntimeError("broken")

    monkeypatch.setitem(LOSSES, "margin", Broken)
    code, out, _ = run(capsys, "controls", *options(quick, "--epochs", 1, "--arms", "udist"))
    assert code == 1
    assert "[1/1] udist, seed 0: FAILED, RuntimeError: broken" in out
    assert "udist, seed 0 failed: RuntimeError: broken" in out
    assert "1 run missing" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a study, for example"),
        (["contrls"], "there is no study 'contrls'; did you mean controls"),
        (["claims", "--recipe-base", "emoji"], "there is no study of emoji in studies"),
        (["controls", "--recipe-base", "folder"], "--data"),
    ],
)
def test_wrong_input_is_one_sentence(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments, *(["--seeds", "0", "--arms", "udist"] if len(arguments) > 2 else []))
    said = str(code) + out + err
    assert message in said
    assert "Traceback" not in said


def test_the_list_names_every_study_and_says_where_its_costs_are_from(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "--list", "--seeds", 0, 1)
    assert code == 0
    assert all(name in out for name in [*STUDIES, "claims"])
    assert "With 2 seeds" in out
    assert "benchmarks/h200.json" in out
    assert "time unknown" in run(capsys, "--list", "--recipe-base", "folder")[1]
    assert max(map(len, out.splitlines()[:-1])) <= 80  # the last line is a sentence, which a terminal wraps


def test_the_live_display_has_a_bar_for_the_study_and_for_each_run_under_way():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, force_interactive=True, highlight=False)
    job, other = (Job("pads", seed, Config(), None) for seed in (0, 1))
    with show_progress(console=console) as show:
        assert isinstance(show, LiveDisplay)
        show.begin("controls", 4, 0)
        show(job, "decoding", 5, {"what": "training images", "total": 10})
        show(job, "start", 0, {"num_steps": 50})
        show(other, "waiting", 0, {})
        show(job, "step", 25, {})
        show(job, "selection", 30, {"epoch": 3, "recall@1": 0.5})
        words = [(task.description.strip(), task.completed, task.fields["words"]) for task in show.bars.tasks]
        assert words[0][:2] == ("controls", 0.5)
        assert words[1] == ("pads, seed 0", 30, "epoch 3, validation R@1 50.0 %")
        assert words[2] == ("pads, seed 1", 0, "starting")
        row = {"selected_recall@1": 0.6, "last_recall@1": 0.5, "selected_epoch": 3, "seconds": "65.0"}
        show(job, "done", 0, row)
        show(other, "failed", 0, {"error": "no luck."})
        show(other, "note", 0, {"notes": ("once",)})
        show(job, "note", 0, {"notes": ("once",)})
        assert [task.completed for task in show.bars.tasks] == [2]
    said = console.file.getvalue()
    assert "[1/4] pads, seed 0: R@1 60.0 (epoch 3), 50.0 at the end, 1:05" in said
    assert "[2/4] pads, seed 1: FAILED, no luck." in said
    assert said.count("note: once") == 1
