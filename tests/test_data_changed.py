"""A run whose images are no longer those that it began with: refused, or gone on with knowingly, and marked as such."""

import csv
import json
import shutil

import pytest

import pads
from pads.cli import main
from pads.config import with_settings
from pads.data.manifest import read_manifest
from pads.errors import UserError
from pads.model import evaluate_run
from pads.publish.card import model_card
from pads.recipes import RECIPES
from pads.reports.report import write_report
from pads.runs import RunFolder
from pads.train import resume, train

SETTINGS = [
    *(
        "network.weights=none",
        "data.image_size=16",
        "data.resize=18",
        "data.store_size=18",
        "data.classes_per_batch=4",
        "device=cpu",
    ),
    *("data.samples_per_class=2", "data.reward_share=0.2", "data.selection_share=0.2", "num_epochs=3", "adapt_every=3"),
    *("network.embedding_dim=8", "log_every=2", "threads=1"),
]


class Stop(Exception):
    """The end of a process, as far as a test goes."""


@pytest.fixture(scope="module")
def made(noisy_photos):
    return noisy_photos(14, sizes=[(20, 24)])


@pytest.fixture
def photos(made, tmp_path):
    shutil.copytree(made, tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture
def config(photos):
    return with_settings(RECIPES["folder-pads"](), ["recipe=folder-pads", f"data.root={photos}", *SETTINGS])


def stop_after(kind, number):
    """Watches a run and ends it at an event, as a kill would."""
    seen = []

    def watch(event, step, values):
        seen.append(event)
        if seen.count(kind) == number:
            raise Stop

    return watch


@pytest.fixture
def stopped(config, tmp_path):
    """A run with the checkpoint of its first epoch."""
    with pytest.raises(Stop):
        train(config, tmp_path / "run", watch=stop_after("selection", 2))
    run = RunFolder.open(tmp_path / "run")
    assert run.checkpoints()
    assert not run.is_finished
    return run


@pytest.fixture
def finished(config, tmp_path):
    return train(config, tmp_path / "run")


def read_table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


CHANGES = {
    "removed": lambda root: (root / "class-03/0.png").unlink(),
    "added": lambda root: shutil.copyfile(root / "class-03/0.png", root / "class-03/9.png"),
    "renamed": lambda root: (root / "class-03/0.png").rename(root / "class-03/00.png"),
    "changed": lambda root: shutil.copyfile(root / "class-05/1.png", root / "class-03/0.png"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_changed_images_are_refused_and_named_and_nothing_is_written(stopped, photos, kind):
    CHANGES[kind](photos)
    before = {path: path.read_bytes() for path in stopped.path.rglob("*") if path.is_file()}
    for act in (resume, evaluate_run):
        with pytest.raises(UserError, match=f"1 {kind} .class-03/") as refused:
            act(stopped.path)
        assert "--data-changed" in str(refused.value)
    assert {path: path.read_bytes() for path in stopped.path.rglob("*") if path.is_file()} == before


def test_a_whole_class_less_is_refused(stopped, photos):
    shutil.rmtree(photos / "class-00")
    with pytest.raises(UserError, match="6 removed"):
        resume(stopped.path)


def test_images_that_were_put_back_are_the_same_to_the_bit(stopped, config, photos, tmp_path):
    whole = train(config, tmp_path / "whole")
    content = (photos / "class-03/0.png").read_bytes()
    (photos / "class-03/0.png").unlink()
    with pytest.raises(UserError):
        resume(stopped.path)
    (photos / "class-03/0.png").write_bytes(content)
    run = resume(stopped.path)
    for name in ("events.jsonl", "metrics.json", "data.jsonl"):
        assert (run.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert "data_changed" not in run.metrics


def test_what_is_known_goes_on_and_is_in_every_figure(stopped, photos, capsys):
    CHANGES["changed"](photos)
    CHANGES["renamed"](photos)
    step = int(stopped.checkpoints()[-1].stem[5:])
    run = resume(stopped.path, data_changed=True)
    sentence = run.metrics["data_changed"]
    assert sentence == f"From step {step} on, the images were not those before: 1 removed, 1 added."
    assert "class-03" not in (run.path / "metrics.json").read_text()  # names of files stay with whoever has them

    assert (
        evaluate_run(run)["recall@1"] == run.metrics["test"]["trained"]["recall@1"]
    )  # the images are the new ones now
    with pytest.raises(SystemExit):
        main(["evaluate", str(run.path), "--json"])
    assert json.loads(capsys.readouterr().out)["data_changed"] == sentence
    with pytest.raises(SystemExit):
        main(["train", "--resume", str(run.path)])
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert sentence in model_card(run)
    report = write_report([run], map_method="none")
    assert sentence in report.page.read_text()
    rows = read_table(report.folder / "figures.csv")
    assert {row["protocol"] for row in rows} == {run.metrics["protocol"] + ", data changed"}


def test_the_old_images_are_then_the_changed_ones_and_the_mark_stays(stopped, photos):
    content = (photos / "class-03/0.png").read_bytes()
    CHANGES["changed"](photos)
    with pytest.raises(Stop):
        resume(stopped.path, data_changed=True, watch=stop_after("selection", 1))
    (photos / "class-03/0.png").write_bytes(content)
    with pytest.raises(UserError, match="1 changed"):
        resume(stopped.path)
    run = resume(stopped.path, data_changed=True)
    assert run.metrics["data_changed"].count("1 changed") == 2


def test_images_that_do_not_fit_what_was_saved_leave_the_run_as_it_was(stopped, photos):
    content = (photos / "class-03/0.png").read_bytes()
    (photos / "class-03/0.png").unlink()
    for label in range(8, 14):
        (photos / f"class-{label:02d}").rename(photos.parent / f"{label}")
    with pytest.raises(UserError, match="does not fit"):
        resume(stopped.path, data_changed=True)
    (photos / "class-03/0.png").write_bytes(content)
    for label in range(8, 14):
        (photos.parent / f"{label}").rename(photos / f"class-{label:02d}")
    assert "data_changed" not in resume(stopped.path).metrics


def test_evaluate_goes_on_knowingly_and_writes_nothing(finished, photos, capsys):
    CHANGES["removed"](photos)
    before = {path: path.read_bytes() for path in finished.path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as left:
        main(["evaluate", str(finished.path)])
    assert "1 removed (class-03/0.png)" in str(left.value.code)
    with pytest.raises(SystemExit) as left:
        main(["evaluate", str(finished.path), "--data-changed"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert "data changed" in said
    assert "not those of the training: 1 removed" in said
    assert {path: path.read_bytes() for path in finished.path.rglob("*") if path.is_file()} == before


def test_a_new_run_has_no_use_for_the_word(capsys):
    with pytest.raises(SystemExit) as left:
        main(["train", "folder-pads", "--data-changed"])
    assert "--resume" in str(left.value.code)


def test_runs_of_earlier_versions_go_on_as_before(stopped, photos):
    stopped.manifest_path.unlink()
    CHANGES["changed"](photos)
    assert "data_changed" not in resume(stopped.path).metrics
    evaluate_run(stopped.path)


def test_a_finished_run_is_left_alone_and_models_need_no_images(finished, photos):
    shutil.rmtree(photos / "class-00")
    resume(finished.path)
    shutil.rmtree(photos)
    assert pads.load(finished.path).network is not None


def test_a_report_is_drawn_without_the_pictures_that_are_gone_and_says_so(finished, photos):
    test = json.loads(finished.manifest_path.read_text().splitlines()[-1])[0]  # test images are listed last
    all_images = finished.metrics["splits"]["test"]["images"]
    (photos / test).unlink()
    report = write_report([finished], map_method="pca")
    (note,) = report.notes
    assert f"{all_images - 1} of {all_images} test images are shown" in note
    assert f"1 removed ({test})" in note
    assert note in report.page.read_text()
    files = [row["file"] for row in read_table(report.folder / "map.csv")]
    assert len(files) == all_images - 1
    assert str(photos / test) not in files


def test_a_report_never_takes_an_image_that_was_trained_on_for_a_test_image(finished, photos):
    recorded = [json.loads(line)[0] for line in finished.manifest_path.read_text().splitlines()[1:]]
    tested = {str(photos / path) for path in recorded[-finished.metrics["splits"]["test"]["images"] :]}
    for label in ("class-11", "class-12"):
        shutil.rmtree(photos / label)
    report = write_report([finished], map_method="pca")
    files = {row["file"] for row in read_table(report.folder / "map.csv")}
    assert files
    assert files <= tested


def test_a_start_killed_before_its_config_begins_with_the_images_of_the_next(config, photos, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data.jsonl").write_text("of the start before\n")
    run = train(with_settings(config, ["num_epochs=1"]), tmp_path / "run")
    assert read_manifest(run.manifest_path).source == "files"


def test_a_damaged_manifest_is_refused_in_a_sentence(stopped):
    stopped.manifest_path.write_text(stopped.manifest_path.read_text().replace(".png", ".jpg", 1))
    with pytest.raises(UserError, match="is damaged"):
        resume(stopped.path)
