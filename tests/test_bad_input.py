"""A user's mistake gets one sentence with what to do, a bad exit code and no traceback, and costs nothing."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from pads.cli import main
from pads.runs import RunFolder, checkpoint
from pads.runtime import files

torch.set_num_threads(1)

TINY = [
    "network.weights=none",
    "data.image_size=16",
    "data.resize=16",
    "data.store_size=16",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.selection_share=0.1",
    "data.reward_share=0.15",
    "num_epochs=3",
    "adapt_every=1",
    "log_every=1",
    "threads=1",
]


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Pads = Callable[..., Answer]


@pytest.fixture
def pads(capfd) -> Pads:
    """Runs a command as a terminal would, and returns its exit code and what it said."""

    def run(*arguments: object) -> Answer:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        if isinstance(left.value.code, str):  # Python itself prints it and leaves with 1
            print(left.value.code, file=sys.stderr)
        out, err = capfd.readouterr()
        return Answer(1 if isinstance(left.value.code, str) else left.value.code or 0, out, err)

    return run


def settings(*more: str) -> list[str]:
    return ["--no-report", "--no-index", *(word for setting in (*TINY, *more) for word in ("--set", setting))]


def check_refused(answer: Answer, *words: str) -> None:
    assert answer.code in (1, 2), answer
    assert "Traceback" not in answer.out + answer.err
    sentences = [line for line in answer.err.splitlines() if not line.startswith("note:")]
    assert len(sentences) == 1, answer.err
    assert sentences[0].startswith("pads: ")
    for word in words:
        assert word in sentences[0]


@pytest.fixture(scope="module")
def untouched_photos(noisy_photos) -> Path:
    return noisy_photos(10)


@pytest.fixture
def photos(untouched_photos, tmp_path) -> Path:
    """Ten classes of six pictures, to be spoilt."""
    return Path(shutil.copytree(untouched_photos, tmp_path / "photos"))


@pytest.fixture(scope="module")
def untouched_run(untouched_photos, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "finished"
    with pytest.raises(SystemExit) as left:
        main(["train", "folder-pads", "--data", str(untouched_photos), "--run", str(run), "--plain", *settings()])
    assert left.value.code == 0
    return run


@pytest.fixture
def finished(untouched_run, tmp_path) -> Path:
    """A finished run, to be spoilt."""
    return Path(shutil.copytree(untouched_run, tmp_path / "run"))


@pytest.fixture
def unfinished(finished) -> Path:
    """A run that was killed after its last checkpoint."""
    (finished / "metrics.json").unlink()
    return finished


# -- images ------------------------------------------------------------------------------------------------------------


def empty(photos: Path) -> None:
    shutil.rmtree(photos)
    photos.mkdir()


def leave_one_image(photos: Path) -> None:
    for number in range(1, 6):
        (photos / "class-03" / f"{number}.png").unlink()


def leave_one_of_each(photos: Path) -> None:
    for path in photos.glob("*/[1-5].png"):
        path.unlink()


def leave_one_class(photos: Path) -> None:
    for label in range(1, 10):
        shutil.rmtree(photos / f"class-{label:02d}")


def leave_no_class_folders(photos: Path) -> None:
    shutil.copy(photos / "class-00" / "0.png", photos / "loose.png")
    for label in range(10):
        shutil.rmtree(photos / f"class-{label:02d}")


def corrupt(photos: Path) -> None:
    (photos / "class-04" / "2.png").write_bytes(b"this is no picture")


def truncate(photos: Path, kept: int = 600) -> None:
    path = photos / "class-04" / "2.png"
    path.write_bytes(path.read_bytes()[:kept])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (shutil.rmtree, ["there is no folder", "photos"]),
        (empty, ["no images", "a folder of its own"]),
        (leave_one_of_each, ["nothing but 10 classes with a single image", "add some"]),
        (leave_one_class, ["1 class (class-00)", "needs at least 4"]),
        (leave_no_class_folders, ["no class folders"]),
    ],
)
def test_images_that_cannot_be_trained_on_are_refused_and_leave_no_run(pads, photos, tmp_path, spoil, words):
    spoil(photos)
    answer = pads("train", "folder", "--data", photos, "--run", tmp_path / "run", *settings())
    check_refused(answer, *words)
    assert not (tmp_path / "run").exists()


def test_a_class_with_one_image_is_left_out_and_said_so_or_refused_if_asked_for(pads, photos, tmp_path):
    leave_one_image(photos)
    command = ["train", "folder", "--data", photos, "--run", tmp_path / "run"]
    refused = pads(*command, *settings("data.options.skip_small_classes=false"))
    check_refused(refused, "class-03", "single image", "skip_small_classes=true")
    answer = pads(*command, *settings("num_epochs=1", "data.classes_per_batch=2"))
    assert answer.code == 0, answer.err
    assert "Left out 1 class with a single image" in answer.out


@pytest.mark.parametrize("spoil", [corrupt, truncate, partial(truncate, kept=0)])
def test_strict_refuses_a_bad_image_and_leaves_no_run(pads, photos, tmp_path, spoil):
    spoil(photos)
    answer = pads("train", "folder", "--data", photos, "--run", tmp_path / "run", "--strict", *settings())
    check_refused(answer, "1 of 60 images", "class-04/2.png", "without --strict")
    assert not (tmp_path / "run").exists()


def test_every_bad_image_of_every_split_is_counted_at_once_and_the_first_are_named(pads, photos, tmp_path):
    for number in range(6):
        (photos / "class-01" / f"{number}.png").write_bytes(b"bad")
    (photos / "class-04" / "3.png").write_bytes(b"bad")
    (photos / "class-08" / "3.png").write_bytes(b"bad")
    command = ["train", "folder", "--data", photos, "--run", tmp_path / "run"]
    answer = pads(*command, "--strict", *settings())
    check_refused(answer, "8 of 60 images", "class-01/0.png", "class-01/4.png", "3 more")
    answer = pads(*command, *settings("num_epochs=1", "data.classes_per_batch=2"))
    assert "Left out 8 images that cannot be read: class-01/0.png (not an image" in answer.out
    assert "Left out 1 class of which no image can be read: class-01." in answer.out
    assert f"{tmp_path / 'run' / 'data.jsonl'} lists them." in answer.out
    listed = [json.loads(line) for line in (tmp_path / "run" / "data.jsonl").read_text().splitlines()]
    assert listed[0]["left_out"]["files"] == 8
    assert [row[0] for row in listed[1:9]] == [f"class-01/{n}.png" for n in range(6)] + [
        "class-04/3.png",
        "class-08/3.png",
    ]


@pytest.mark.parametrize("word", [["--skip-bad-images"], []])
def test_bad_images_are_left_out_and_said_so(pads, photos, tmp_path, word):
    corrupt(photos)
    answer = pads("train", "folder", "--data", photos, "--run", tmp_path / "run", *word, *settings("num_epochs=1"))
    assert answer.code == 0
    assert "Left out 1 image that cannot be read" in answer.out
    assert "class-04/2.png" in answer.out
    assert pads("evaluate", tmp_path / "run").code == 0


def test_what_is_left_to_be_chosen_is_chosen_for_the_images_that_can_be_read(pads, photos, tmp_path):
    """Else a batch would ask for classes that are not there."""
    for path in (*photos.glob("class-0[0-6]/*.png"),):
        path.write_bytes(b"bad")
    small = [each for each in settings("num_epochs=1") if not re.search("per_batch|per_class|_share", each)]
    words = [f"--set={each}" for each in small if not each.startswith("--")]
    answer = pads("train", "folder", "--data", photos, "--run", tmp_path / "run", "--no-report", "--no-index", *words)
    assert answer.code == 0, answer.err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["classes_per_batch"] <= 3


@pytest.mark.parametrize("label", [0, 1, 2, 3, 4, 5, 6, 7])  # whatever its role is
def test_a_class_that_bad_images_leave_with_one_is_left_out(pads, photos, tmp_path, label):
    for number in range(5):
        (photos / f"class-{label:02d}" / f"{number}.png").write_bytes(b"bad")
    options = [*settings("num_epochs=1", "data.classes_per_batch=2")]
    answer = pads("train", "folder", "--data", photos, "--run", tmp_path / "run", *options)
    assert answer.code == 0, answer.err
    assert f"with a single image: class-{label:02d}." in answer.out
    sizes = json.loads((tmp_path / "run" / "metrics.json").read_text())["splits"]
    assert sum(size["images"] for size in sizes.values()) == 9 * 6


def test_a_bench_of_no_steps_is_refused_and_writes_nothing(pads, tmp_path):
    answer = pads("bench", "emoji-pads", "--steps", "0", "--out", tmp_path / "bench.json")
    assert answer.code != 0 and "give at least 1" in answer.err
    assert not (tmp_path / "bench.json").exists()


def test_bad_images_that_leave_no_class_are_refused_even_so(pads, photos, tmp_path):
    for path in photos.glob("*/[1-5].png"):
        path.write_bytes(b"bad")
    answer = pads("train", "folder", "--data", photos, "--run", tmp_path / "run", "--skip-bad-images", *settings())
    check_refused(answer, "no class with two images")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_may_not_be_read_is_named(pads, photos, tmp_path, monkeypatch):
    scandir = os.scandir

    def guarded(path):
        if str(path).endswith("class-02"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    answer = pads("train", "folder", "--data", photos, "--run", tmp_path / "run", *settings())
    check_refused(answer, "class-02", "permission denied")


def test_a_csv_whose_files_are_missing_is_refused_and_leaves_no_run(pads, photos, tmp_path):
    """tests/data/test_table.py has what else a CSV may lack."""
    rows = [
        f"{label},{split},class-{label:02d}/0.png" for label, split in enumerate(("train", "train", "test", "test"))
    ]
    (photos / "table.csv").write_text("\n".join(["label,split,path", *rows, "1,train,class-01/nowhere.png"]))
    answer = pads("train", "csv", "--data", photos / "table.csv", "--run", tmp_path / "run", *settings())
    check_refused(answer, "file is missing", "class-01/nowhere.png", "line 6")
    assert not (tmp_path / "run").exists()


def test_bad_images_in_a_csv_with_queries_leave_only_queries_that_can_be_answered(pads, photos, tmp_path):
    rows = ["label,split,path,is_query,is_gallery"]
    rows += [f"{label},train,class-{label:02d}/{i}.png,," for label in range(6) for i in range(6)]
    rows += [f"{label},test,class-{label:02d}/{i}.png,{i == 0},{i > 0}" for label in range(6, 10) for i in range(3)]
    (photos / "table.csv").write_text("\n".join(rows))
    for number in (1, 2):
        (photos / "class-07" / f"{number}.png").write_bytes(b"bad")
    options = [*settings("num_epochs=1", "data.classes_per_batch=2")]
    answer = pads("train", "csv", "--data", photos, "--run", tmp_path / "run", *options)
    assert answer.code == 0, answer.err
    recall = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]["raw pixels"]["recall@8"]
    assert recall == 1.0  # of three queries; the fourth has nothing to find


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("curriculum.options.bins.interval=[1.4,0.1]", ["lambda_min < lambda_max"]),
        ("curriculum.options.bins.interval=[0.5,0.5]", ["lambda_min < lambda_max"]),
        ("curriculum.options.bins.interval=[1]", ["lambda_min"]),
        ("curriculum.options.bins.num_bins=0", ["num_bins is 0", "at least one"]),
        ("curriculum.options.bins.num_bins=-3", ["num_bins is -3"]),
        ("curriculum.options.bins.initial=[1,2]", ["2 numbers for 30 bins"]),
        ("curriculum.options.bins.initial=N(0.5,0)", ["above 0"]),
        ("curriculum.options.bins.clip=[1]", ["clip"]),
        ("curriculum.options.multipliers=[0.8,-1]", ["positive factors"]),
        ("curriculum.options.multipliers=[1e999,1]", ["positive factors"]),
        ("adapt_every=-1", ["adapt_every is -1", "at least 1", "null"]),
        ("adapt_every=0", ["adapt_every is 0"]),
        ("num_epochs=-1", ["num_epochs is -1"]),
        ("num_epohcs=3", ["num_epohcs", "did you mean num_epochs"]),
        ("loss.options.betta=0.6", ["did you mean loss.options.beta"]),
        ("num_epochs=many", ["num_epochs must be a whole number"]),
        ("num_epochs", ["key=value"]),
        ("loss.name=hinge", ["no loss 'hinge'", "margin"]),
        ("curriculum.name=lerned", ["did you mean learned"]),
        ("curriculum.options.agent=dqn", ["no agent 'dqn'", "ppo"]),
        ("curriculum.options.reward=accuracy", ["no reward 'accuracy'"]),
        ("network.backbone=resnet5", ["did you mean resnet50"]),
        ("network.pooling=median", ["no pooling 'median'"]),
        ("network.weights=nowhere.pt", ["nowhere.pt"]),
        ("data.name=fodler", ["did you mean folder"]),
        ("data.batches=with replacment", ["did you mean with replacement"]),
        ("data.augmentation=blur", ["no augmentation 'blur'"]),
        ("data.classes_per_batch=50", ["a batch needs 50 classes", "only 4"]),
        ("data.classes_per_batch=0", ["classes_per_batch is 0"]),
        ("data.samples_per_class=-1", ["samples_per_class is -1"]),
        ("data.image_size=0", ["image_size is 0"]),
        ("data.image_size=32", ["must not exceed data.resize"]),
        ("data.store_size=-1", ["store_size is -1"]),
        ("data.reward_share=0", ["reward split", "data.reward_share"]),
        ("data.selection_share=1.5", ["selection_share"]),
        ("network.embedding_dim=0", ["embedding_dim is 0"]),
        ("network.std=[0,0,0]", ["network.std"]),
        ("sampling.rho=2", ["rho"]),
        ("sampling.negatives_from=nobody", ["negatives_from"]),
        ("optimiser.learning_rate=-1", ["learning_rate is -1"]),
        ("optimiser.learning_rate=NaN", ["learning_rate is nan"]),
        ("recall_at=[]", ["recall_at"]),
        ("recall_at=[0]", ["recall_at"]),
        ("seed=-1", ["seed is -1"]),
        ("threads=0", ["threads is 0"]),
        ("threads=100000", ["threads is 100000"]),
        ("device=abacus", ["device 'abacus'", "cpu"]),
        ("device=meta", ["device 'meta'"]),
    ],
)
def test_a_setting_that_cannot_work_is_refused_and_leaves_no_run(pads, untouched_photos, tmp_path, setting, words):
    run = tmp_path / "run"
    check_refused(pads("train", "folder-pads", "--data", untouched_photos, "--run", run, *settings(setting)), *words)
    assert not run.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], ["name a recipe", "pads recipes"]),
        (["train", "emoji-pad"], ["no recipe 'emoji-pad'", "did you mean emoji-pads"]),
        (["recipes", "emoji-pad"], ["did you mean emoji-pads"]),
        (["train", "folder"], ["--data DIR"]),
        (["train", "csv"], ["--data FILE.csv"]),
        (["train", "folder", "--seed", "one"], ["--seed", "'one'"]),
        (["train", "folder", "--colour"], ["--colour", "--help"]),
        (["trian"], ["'trian'", "train", "pads --help"]),
        (["evaluate"], ["RUN"]),
        (["evaluate", "nowhere"], ["nowhere does not exist"]),
        (["evaluate", "nowhere", "--split", "all"], ["'all'", "test"]),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(pads, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    check_refused(pads(*arguments), *words)
    assert not list(tmp_path.iterdir())


# -- run folders -------------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_never_written_over(pads, untouched_photos, finished):
    before = contents(finished)
    answer = pads("train", "folder", "--data", untouched_photos, "--run", finished, *settings())
    check_refused(answer, "holds a run already", "--resume")
    assert contents(finished) == before


def test_a_folder_with_something_in_it_is_no_place_for_a_run(pads, untouched_photos, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("one")
    answer = pads("train", "folder", "--data", untouched_photos, "--run", tmp_path / "thesis", *settings())
    check_refused(answer, "not empty", "--run")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "one"


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_a_run_cannot_be_where_a_file_is(pads, untouched_photos, tmp_path, place):
    (tmp_path / "file").write_text("something")
    check_refused(pads("train", "folder", "--data", untouched_photos, "--run", tmp_path / place, *settings()), "file")
    assert (tmp_path / "file").read_text() == "something"


@pytest.mark.parametrize("command", [["train", "--resume"], ["evaluate"]])
def test_a_folder_that_is_no_run_is_refused(pads, tmp_path, command):
    (tmp_path / "photos").mkdir()
    check_refused(pads(*command, tmp_path / "photos"), "is not a run folder")
    check_refused(pads(*command, tmp_path / "nowhere"), "does not exist")


@pytest.mark.parametrize(
    "more",
    [
        ["folder"],
        ["--data", "x"],
        ["--set", "seed=1"],
        ["--run", "x"],
        ["--seed", "0"],
        ["--device", "cpu"],
        ["--strict"],
        ["--paper-protocol"],
    ],
)
def test_resume_takes_nothing_that_would_change_the_run(pads, unfinished, more):
    before = contents(unfinished)
    check_refused(pads("train", *more, "--resume", unfinished), "leave out", more[0].replace("folder", "recipe"))
    assert contents(unfinished) == before


def test_a_run_folder_in_place_of_a_recipe_is_told_how_to_resume(pads, unfinished):
    check_refused(pads("train", unfinished), "--resume")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"num_epohcs": 3}', '{"seed": "one"}', "\x00\xff"])
@pytest.mark.parametrize("command", [["train", "--resume"], ["evaluate"]])
def test_a_config_that_was_spoilt_is_refused(pads, unfinished, command, text):
    (unfinished / "config.json").write_text(text, encoding="latin-1")
    check_refused(pads(*command, unfinished), "config.json")


def test_a_config_that_no_longer_fits_the_checkpoint_is_refused(pads, unfinished):
    config = json.loads((unfinished / "config.json").read_text())
    config["network"]["embedding_dim"] = 7
    (unfinished / "config.json").write_text(json.dumps(config))
    check_refused(pads("train", "--resume", unfinished), "does not fit", "config.json")
    check_refused(pads("evaluate", unfinished), "does not fit", "config.json")


def test_final_figures_that_were_spoilt_are_refused(pads, finished):
    (finished / "metrics.json").write_text("{")
    check_refused(pads("train", "--resume", finished), "metrics.json", "delete")


@pytest.mark.parametrize("kept", [0, 100, 10_000])
def test_a_spoilt_checkpoint_is_named_and_the_one_before_still_leads_to_the_end(pads, untouched_run, unfinished, kept):
    _, newest = RunFolder(unfinished).checkpoints()
    newest.write_bytes(newest.read_bytes()[:kept])
    check_refused(pads("train", "--resume", unfinished), newest.name, "delete it")
    check_refused(pads("evaluate", unfinished, "--checkpoint", "last"), newest.name)
    newest.unlink()
    assert pads("train", "--resume", unfinished, "--plain", "--no-report", "--no-index").code == 0
    assert (unfinished / "events.jsonl").read_bytes() == (untouched_run / "events.jsonl").read_bytes()
    assert (unfinished / "metrics.json").read_bytes() == (untouched_run / "metrics.json").read_bytes()


def test_a_run_without_a_checkpoint_cannot_be_evaluated_but_resumed(pads, unfinished):
    for path in (*RunFolder(unfinished).checkpoints(), unfinished / "selected.safetensors"):
        path.unlink()
    check_refused(pads("evaluate", unfinished), "no checkpoint yet", "--resume")
    assert pads("train", "--resume", unfinished, "--plain", "--no-report", "--no-index").code == 0


def test_evaluating_an_unfinished_run_works_and_says_that_it_is_not_finished(pads, unfinished):
    answer = pads("evaluate", unfinished)
    assert answer.code == 0
    assert "not finished" in answer.err


def test_an_empty_split_cannot_be_evaluated(pads, untouched_photos, tmp_path):
    run = tmp_path / "run"
    options = settings("data.selection_share=0", "num_epochs=1")
    assert pads("train", "folder", "--data", untouched_photos, "--run", run, *options).code == 0
    check_refused(pads("evaluate", run, "--split", "selection"), "selection split", "--split")


def test_two_processes_cannot_train_one_run(pads, unfinished):
    with RunFolder.open(unfinished):
        check_refused(pads("train", "--resume", unfinished), "another process")


def test_images_that_have_gone_are_missed_at_resume(pads, unfinished):
    config = json.loads((unfinished / "config.json").read_text())
    config["data"]["root"] = str(unfinished / "nowhere")
    (unfinished / "config.json").write_text(json.dumps(config))
    check_refused(pads("train", "--resume", unfinished), "there is no folder", "nowhere")


# -- while it trains ---------------------------------------------------------------------------------------------------


def full_at(monkeypatch, name: str, number: int) -> None:
    """The disk is full when a file whose name begins so is put in place for the how-manieth time."""
    replace, seen = os.replace, []

    def guarded(source, target):
        if Path(target).name.startswith(name):
            seen.append(target)
            if len(seen) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", guarded)


@pytest.mark.parametrize(("name", "number"), [("step-", 2), ("step-", 3), ("selected", 1), ("metrics.json", 1)])
def test_a_full_disk_costs_no_checkpoint(pads, untouched_photos, untouched_run, tmp_path, monkeypatch, name, number):
    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        full_at(patched, name, number)
        answer = pads("train", "folder-pads", "--data", untouched_photos, "--run", run, "--plain", *settings())
    check_refused(answer, "the disk is full", name, "--resume")
    assert not list(run.rglob("*.partial"))
    if name == "step-":
        assert len(RunFolder(run).checkpoints()) == number - 1
    assert pads("train", "--resume", run, "--plain", "--no-report", "--no-index").code == 0
    for file in ("events.jsonl", "metrics.json", "selected.safetensors"):
        assert (run / file).read_bytes() == (untouched_run / file).read_bytes()


@pytest.mark.parametrize("name", ["environment.json", "data.jsonl", "config.json"])
def test_a_disk_that_is_full_from_the_start_leaves_no_run(pads, untouched_photos, tmp_path, monkeypatch, name):
    full_at(monkeypatch, name, 1)
    answer = pads("train", "folder", "--data", untouched_photos, "--run", tmp_path / "run", *settings())
    check_refused(answer, "the disk is full")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("kilobytes", "file"), [(5, "events.jsonl"), (500, "selected"), (2000, "step-")])
def test_a_limit_of_the_system_is_met_in_the_same_way(pads, untouched_run, unfinished, kilobytes, file):
    """Files may grow to so many kilobytes and no further: first the events hit that, then the network, then the checkpoints."""
    newest = RunFolder(unfinished).checkpoints()[-1]
    newest.unlink()
    before = RunFolder(unfinished).checkpoints()[-1].read_bytes()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * kilobytes, unlimited[1]))
    try:
        answer = pads("train", "--resume", unfinished, "--plain")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    check_refused(answer, "the disk is full", file)
    assert RunFolder(unfinished).checkpoints()[-1].read_bytes() == before
    assert pads("train", "--resume", unfinished, "--plain", "--no-report", "--no-index").code == 0
    assert (unfinished / "events.jsonl").read_bytes() == (untouched_run / "events.jsonl").read_bytes()


@pytest.mark.parametrize("more", [[], ["data.selection_share=0", "adapt_every=null"]])
def test_a_loss_that_is_no_longer_finite_stops_the_run_and_keeps_the_good_checkpoint(
    pads, untouched_photos, tmp_path, more
):
    run = tmp_path / "run"
    options = settings("num_epochs=6", "optimiser.milestones=[2]", "optimiser.factor=1e36", *more)
    answer = pads("train", "folder", "--data", untouched_photos, "--run", run, "--plain", *options)
    check_refused(answer, "finite", "learning")
    states = [checkpoint.load_state(path) for path in RunFolder(run).checkpoints()]
    assert states
    assert all(torch.isfinite(weights).all() for state in states for weights in state["network"].values())
    assert all(line.startswith('{"event"') for line in (run / "events.jsonl").read_text().splitlines())
    assert pads("evaluate", run).code == 0


def test_a_loss_that_is_never_finite_leaves_no_run(pads, untouched_photos, tmp_path):
    run = tmp_path / "run"
    options = settings("optimiser.learning_rate=1e30", "log_every=9")
    check_refused(pads("train", "folder", "--data", untouched_photos, "--run", run, *options), "finite")
    assert not run.exists()
