"""`pads check`: the look alone, and its screen."""

import io
import json
import shutil

import pytest
from rich.console import Console

from pads.cli import main
from pads.config import Data
from pads.data.loading import look_at_data
from pads.look import guess_kind, print_look


@pytest.fixture
def photos(noisy_photos, tmp_path):
    shutil.copytree(noisy_photos(8, sizes=[(20, 24)]), tmp_path / "photos")
    (tmp_path / "photos" / "class-01" / "0.png").write_text("no picture")
    (tmp_path / "photos" / "class-02" / "notes.txt").write_text("a note")
    shutil.copyfile(tmp_path / "photos" / "class-03" / "0.png", tmp_path / "photos" / "class-04" / "copy.png")
    return tmp_path / "photos"


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    return ended.value.code, capsys.readouterr()


def test_check_prints_what_is_left_out_and_the_copies_and_writes_the_list(photos, tmp_path, capsys):
    code, answer = run(capsys, "check", photos, "--out", tmp_path / "found.jsonl")
    assert code == 0
    for words in (
        "48 images to use, 2 left out",
        "1 image that cannot be read",
        "class-01/0.png  not an image",
        "1  not an image by its name  class-02/notes.txt",
        "class-03/0.png  class-04/copy.png  copy, other class",
        "Training goes on without the 1 image that cannot be read; --strict refuses them.",
    ):
        assert words in answer.out
    header, bad, *_ = map(json.loads, (tmp_path / "found.jsonl").read_text().splitlines())
    assert header["left_out"]["files"] == 2 and header["copies"] == 1 and bad[0] == "class-01/0.png"
    code, _ = run(capsys, "check", photos, "--strict")
    assert "1 of 49 images cannot be used" in code


def test_the_screen_keeps_brackets_and_wraps_in_its_columns(photos):
    benchmark, manifest = look_at_data(Data(name="folder", root=str(photos)))
    (entry, *rest) = manifest.left_out
    named = entry._replace(reason='pip install "pads-dml[heic]"')
    from dataclasses import replace

    console = Console(file=io.StringIO(), width=50, force_terminal=True, color_system=None, highlight=False)
    print_look(benchmark, replace(manifest, left_out=(named, *rest)), "photos/", console)
    lines = console.file.getvalue().splitlines()
    assert any("pads-dml[heic]" in line for line in lines)
    assert max(map(len, lines)) <= 50


def test_the_kind_is_known_by_the_files(photos, tmp_path, capsys):
    assert guess_kind(str(photos)) == "folder"
    (tmp_path / "table.csv").write_text("label,split,path\n")
    assert guess_kind(str(tmp_path / "table.csv")) == "csv"
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_dict.json").write_text("{}")
    assert guess_kind(str(tmp_path / "saved")) == "hf"
    assert "--as hf" in run(capsys, "check", tmp_path / "nowhere")[0]
