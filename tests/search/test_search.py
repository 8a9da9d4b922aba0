"""`pads index` and `pads search` as a person meets them."""

import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from pads.cli import main
from pads.search import search as search_module


def called(capsys, *arguments):
    """Exit code or message, standard output and standard error."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return left.value.code, captured.out, captured.err


@pytest.fixture
def query(photos):
    return photos / "class1" / "3.png"


def test_index_says_what_it_did(capsys, run, photos, tmp_path):
    folder = shutil.copytree(photos, tmp_path / "photos")
    (folder / "bro\nken.png").write_text("")
    code, out, _ = called(capsys, "index", run.path, folder, "--out", tmp_path / "index")
    assert code == 0
    assert "35 new, 0 changed, 0 gone, 0 as before." in out
    assert "35 images (5 labels)" in out and "faiss, exact" in out and "calibrated on" in out
    assert "bro\\nken.png (" in out


def test_search_prints_ranked_paths_with_distances(capsys, index, query):
    code, out, _ = called(capsys, "search", index.path, query, "-k", 3, "--precision", 0.5)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == str(query)
    assert lines[1].split() == ["1", "0.0000", "same", "class1/3.png"]
    distances, rows = index.search(query, 3)
    for rank, (distance, row) in enumerate(zip(distances[0], rows[0], strict=True)):
        words = lines[1 + rank].split()
        assert (words[0], words[1], words[-1]) == (str(rank + 1), f"{distance:.4f}", index.paths[row])
        assert words[2] == index.marks(0.5).call(distance)
    assert "50 %" in lines[4] and "24 images of 4 classes" in lines[4]


def test_json_is_a_line_for_each_query_with_everything_in_it(capsys, index, query, photos):
    code, out, err = called(capsys, "search", index.path, query, photos / "class0" / "0.png", "--json", "-k", 2)
    assert code == 0
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["query"] for answer in answers] == [str(query), str(photos / "class0" / "0.png")]
    first = answers[0]["neighbours"][0]
    assert first["path"] == "class1/3.png" and first["label"] == "class1" and first["file"] == str(query)
    assert first["distance"] == pytest.approx(0, abs=1e-5) and first["same"] in (True, None)
    assert "precision" in err


def test_queries_come_from_a_file_or_standard_input(capsys, index, query, photos, tmp_path, monkeypatch):
    (tmp_path / "list.txt").write_text(f"{photos / 'class2' / '0.png'}\n\n{photos / 'class3' / '0.png'}\n")
    _, out, _ = called(capsys, "search", index.path, query, "--from", tmp_path / "list.txt", "--json")
    assert [json.loads(line)["neighbours"][0]["label"] for line in out.splitlines()] == ["class1", "class2", "class3"]
    with open(tmp_path / "list.txt") as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        _, out, _ = called(capsys, "search", index.path, "--from", "-", "--json")
    assert len(out.splitlines()) == 2


def test_a_label_narrows_the_search(capsys, index, query):
    _, out, _ = called(capsys, "search", index.path, query, "--label", "class4", "--json", "-k", 100)
    neighbours = json.loads(out)["neighbours"]
    assert len(neighbours) == 7 and {each["label"] for each in neighbours} == {"class4"}


def test_of_many_queries_the_unreadable_are_named_and_the_others_answered(capsys, index, query, tmp_path):
    code, out, err = called(capsys, "search", index.path, tmp_path / "gone.png", query, "--json")
    assert code == 0 and len(out.splitlines()) == 1 and "gone.png" in err
    code, _, _ = called(capsys, "search", index.path, tmp_path / "gone.png", tmp_path / "too.png")
    assert code == "pads: none of the queries can be read."


def test_a_precision_that_cannot_be_reached_is_said(capsys, index, query, monkeypatch):
    precisions = type(index.calibration).precisions
    monkeypatch.setattr(type(index.calibration), "precisions", lambda *of: np.minimum(precisions(*of), 0.874))
    monkeypatch.setattr(type(index.calibration), "far_point", lambda *_: None)
    _, out, _ = called(capsys, "search", index.path, query, "-k", 1)
    assert out.splitlines()[1].split() == ["1", "0.0000", "class1/3.png"]
    assert out.count("No distance promises a precision of 95 % in an index of 35 images.") == 1
    nearer = index.calibration.distances_P[index.calibration.point(0.87, 35)]
    assert f"of the neighbours nearer than {nearer:.4f}, about 87 % are the same item (--precision 0.87)." in out
    _, out, _ = called(capsys, "search", index.path, query, "-k", 1, "--precision", 0.87)
    assert out.splitlines()[1].split() == ["1", "0.0000", "same", "class1/3.png"]


# -- contact sheets ----------------------------------------------------------------------------------------------------


def test_a_contact_sheet_has_a_tile_for_the_query_and_each_neighbour(capsys, index, query, tmp_path):
    code, out, _ = called(capsys, "search", index.path, query, query, "-k", 4, "--sheet", tmp_path / "sheet.png")
    assert code == 0 and f"contact sheet: {tmp_path / 'sheet.png'}" in out
    with Image.open(tmp_path / "sheet.png") as sheet:
        width, height = search_module.TILE + search_module.GAP, search_module.TILE + search_module.CAPTION
        assert sheet.width == 5 * width + search_module.GAP
        assert sheet.height == 2 * (height + search_module.GAP) + search_module.GAP


def boxes_of(text, font):
    """How many letters the font draws as the box that stands for a letter it has not."""
    return sum(bytes(font.getmask(letter)) == bytes(font.getmask("\uffff")) for letter in text if letter != " ")


@pytest.mark.parametrize("fonts", [search_module.FONTS, ("nowhere.ttf",)])
def test_names_with_accents_are_drawn_without_boxes(monkeypatch, fonts):
    monkeypatch.setattr(search_module, "FONTS", fonts)
    search_module.find_font.cache_clear()
    font = search_module.find_font(11)
    for name in ("café/crème brûlée.jpg", "Žluťoučký kůň", "mug-ß-Ø.png", "猫.jpg", "cafe\u0301.jpg", "日本語"):
        made = search_module.make_legible(name, font)
        assert boxes_of(made, font) == 0, (name, made)
    assert search_module.make_legible("plain name_1.jpg", font) == "plain name_1.jpg"
    if "nowhere.ttf" not in fonts and boxes_of("é", font) == 0:
        assert search_module.make_legible("cafe\u0301", font) == "café"
    search_module.find_font.cache_clear()


def test_show_opens_the_sheet_where_there_is_a_display(capsys, index, query, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(search_module.subprocess, "Popen", lambda command, **_: opened.append(command))
    monkeypatch.setattr(search_module.shutil, "which", lambda name: "/usr/bin/" + name)
    monkeypatch.setattr(search_module.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    _, out, _ = called(capsys, "search", index.path, query, "--show")
    assert opened[0][1] in out
    with Image.open(opened[0][1]) as sheet:
        assert sheet.width > sheet.height


def test_without_a_display_show_says_where_the_sheet_is(capsys, index, query, monkeypatch, tmp_path):
    monkeypatch.setattr(search_module.tempfile, "tempdir", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    _, out, _ = called(capsys, "search", index.path, query, "--show")
    assert out.splitlines()[-1].endswith(".png") and str(tmp_path) in out.splitlines()[-1]


def test_images_that_are_gone_are_said_so_and_moved_ones_are_found(run, photos, capsys, index, query, tmp_path):
    moved = shutil.copytree(photos, tmp_path / "moved")
    _, out, _ = called(capsys, "search", index.path, query, "--images", moved, "--json", "-k", 1)
    assert json.loads(out)["neighbours"][0]["file"] == str(moved / "class1" / "3.png")
    (moved / "class1" / "3.png").unlink()
    arguments = ("--images", moved, "--sheet", tmp_path / "sheet.png", "-k", 1)
    assert called(capsys, "search", index.path, query, *arguments)[0] == 0


# -- wrong input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to search for"),
        (["QUERY", "-k", "0"], "at least 1"),
        (["QUERY", "--label", "class9"], "class"),
        (["QUERY", "--precision", "95"], "--precision"),
        (["QUERY", "--sheet", "sheet.docx"], ".png"),
        (["QUERY", "--sheet", "nowhere/sheet.png"], "nowhere"),
        (["QUERY", "--images", "nowhere"], "nowhere"),
        (["--from", "nowhere.txt"], "nowhere.txt"),
        (["nowhere.png"], "nowhere.png"),
    ],
)
def test_wrong_input_gets_one_sentence(capsys, index, query, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, _ = called(capsys, "search", index.path, *(query if each == "QUERY" else each for each in arguments))
    assert sentence in code and code.startswith("pads: ") and "\n" not in code and not out


def test_what_is_not_an_index_is_refused(capsys, query, tmp_path):
    assert "pads index" in called(capsys, "search", tmp_path, query)[0]
