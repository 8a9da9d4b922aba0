"""`pads report`: what is written, from whole and from broken runs, and that it never costs a run anything."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pads.cli import MAPS, main
from pads.errors import UserError
from pads.reports import figures, report
from pads.reports.figures import draw_curricula, draw_initial
from pads.reports.html import safe_json
from pads.reports.look import images_to_show, look_at
from pads.reports.report import write_report
from pads.runs import RunFolder

from .conftest import EVIL, NO_TEXT, SETTINGS, TEST_CLASSES

TABLES = ("confused", "curves", "distribution", "drawn", "figures", "map", "queries")
PICTURES = ("curves", "distribution", "map", "retrieval")


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def data_of(page):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1]
    return json.loads(text)


@pytest.fixture
def no_pictures(monkeypatch):
    """As where matplotlib is not installed, which is quicker too."""
    monkeypatch.setattr(report, "has_matplotlib", lambda: False)


@pytest.fixture(scope="module")
def drawn(runs, tmp_path_factory):
    """Two groups, one of them of two seeds, with everything."""
    given = [runs["pads"], runs["static"].path, str(runs["pads-1"].path)]
    return write_report(given, tmp_path_factory.mktemp("reports") / "all", classes=["zebra"])


# -- what is written ---------------------------------------------------------------------------------------------------


def test_everything_is_written_and_named(drawn):
    expected = {f"{name}.csv" for name in TABLES} | {f"{name}.{kind}" for name in PICTURES for kind in ("png", "svg")}
    assert {path.name for path in drawn.files} == {path.name for path in drawn.folder.iterdir()} == expected
    assert drawn.page.parent / "report" == drawn.folder
    assert drawn.notes == ()
    text = drawn.page.read_text()
    assert all(f"report/{name}" in text for name in expected)


def test_the_page_asks_nothing_of_the_network(drawn):
    text = drawn.page.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", text)
    addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a language, not a place
    assert "default-src 'none'" in text


def test_pictures_can_be_opened(drawn):
    for name in PICTURES:
        with Image.open(drawn.folder / f"{name}.png") as image:
            assert min(image.size) > 300
            assert np.asarray(image.convert("L")).std() > 5
        assert ElementTree.parse(drawn.folder / f"{name}.svg").getroot().tag.endswith("svg")


def test_tables_hold_the_numbers_of_the_events(drawn, runs):
    events = map(json.loads, (runs["pads-1"].path / "events.jsonl").read_text().splitlines())
    losses = {str(event["step"]): event["loss"] for event in events if event["event"] == "training"}
    mine = [row for row in rows_of(drawn.folder / "curves.csv") if row["run"] == str(runs["pads-1"].path)]
    assert {row["step"]: float(row["value"]) for row in mine if row["curve"] == "loss"} == losses
    assert {row["label"] for row in rows_of(drawn.folder / "drawn.csv")} == {"folder", "static"}
    assert {row["label"] for row in rows_of(drawn.folder / "distribution.csv")} == {"folder"}
    test = runs["static"].metrics["test"]["trained"]
    row = next(
        row
        for row in rows_of(drawn.folder / "figures.csv")
        if (row["label"], row["network"], row["metric"]) == ("static", "trained", "map@r")
    )
    assert (float(row["value"]), row["protocol"]) == (test["map@r"], "selected")


def test_the_mean_average_precision_of_the_queries_is_the_runs_own_figure(drawn, runs):
    precisions = [float(row["average_precision"]) for row in rows_of(drawn.folder / "queries.csv")]
    assert np.mean(precisions) == pytest.approx(runs["pads"].metrics["test"]["trained"]["map@r"], abs=1e-5)
    written = {name.replace(NO_TEXT, "caf\\udce9") for name in TEST_CLASSES}
    assert {row["class"] for row in rows_of(drawn.folder / "map.csv")} == written


def test_the_page_holds_every_test_image_and_what_it_finds(drawn):
    look = data_of(drawn.page)["look"]
    assert len(look["labels"]) == len(look["neighbours"]) == len(look["x"]) == 30
    assert all(len(found) == 8 and image not in found for image, found in enumerate(look["neighbours"]))
    assert [look["classes"][label] for label in look["pinned"]] == ["zebra"]
    assert 0 <= min(look["x"]) < max(look["x"]) <= 1


def test_the_mean_over_seeds_comes_first_and_each_run_after_it(drawn, runs):
    shown = data_of(drawn.page)["distributions"]
    assert [each["label"] for each in shown] == [
        "folder: mean of 2 runs",
        "folder, seed 0",
        "folder, seed 1",
        "static, seed 0",
    ]
    means = np.mean([shown[1]["p"]["rows"], shown[2]["p"]["rows"]], axis=0)
    assert np.array(shown[0]["p"]["rows"]) == pytest.approx(means, rel=1e-3)
    assert shown[3]["p"] is None
    assert "distance-weighted" in shown[3]["caption"]


def test_no_name_is_taken_for_markup(drawn):
    text = drawn.page.read_text()
    assert EVIL not in text
    assert EVIL in data_of(drawn.page)["look"]["classes"]
    assert safe_json("</script><script>&") == '"\\u003c/script\\u003e\\u003cscript\\u003e\\u0026"'


def test_the_same_runs_give_the_same_page(drawn, runs, tmp_path, no_pictures):
    again = write_report([runs["pads"]], tmp_path / "page-1.html")
    twice = write_report([runs["pads"]], tmp_path / "page-2.html")
    assert again.page.read_text().replace("page-1/", "page-2/") == twice.page.read_text()
    assert again.folder == tmp_path / "page-1"


def test_a_page_for_all_of_cub_has_room_for_all_of_its_test_images():
    assert len(images_to_show(None, np.zeros(5_924, int), [], [], [])) == 5_924


def test_of_many_images_those_of_the_gallery_are_shown_and_whole_classes(runs):
    look = look_at(runs["pads"], map_method="none")
    rows = [*look.good, *look.bad]
    shown = images_to_show(look.found, look.labels_N, rows[:1], look.confused[:1], [4], most=26)
    needed = {*look.found.queries_Q[rows[:1]], *look.found.neighbours_QK[rows[0], :8], look.confused[0].query}
    assert needed | set(np.flatnonzero(look.labels_N == 4)) <= set(shown.tolist())
    assert len(shown) < 30
    assert sorted(shown) == shown.tolist()


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_without_matplotlib_the_page_and_the_tables_still_come(run, no_pictures):
    made = write_report([run])
    assert {path.suffix for path in made.files} == {".csv"}
    assert made.page == run.path / "report.html"
    assert 'pip install "pads-dml[plots]"' in made.notes[0]


def test_a_run_whose_images_have_gone_says_so_and_draws_the_rest(run, no_pictures):
    config = json.loads(run.config_path.read_text())
    config["data"]["root"] = "gone"
    run.config_path.write_text(json.dumps(config))
    made = write_report([run])
    assert "there is no folder gone" in made.notes[0]
    data = data_of(made.page)
    assert data["look"] is None
    assert "there is no folder gone" in data["look_missing"]
    assert data["charts"]


def test_a_run_without_a_checkpoint_says_so(stopped, no_pictures):
    shutil.rmtree(stopped.checkpoints_path)
    stopped.selected_path.unlink()
    made = write_report([stopped])
    assert "no checkpoint yet" in made.notes[0]
    assert "is not finished" in made.page.read_text()


def test_a_run_that_is_still_training_shows_how_good_it_is_so_far(stopped, no_pictures):
    text = write_report([stopped]).page.read_text()
    assert "so far" in text
    assert 'class="stamp unfinished"' in text


def test_a_run_that_has_just_begun_can_be_reported(config, tmp_path):
    made = write_report([RunFolder.create(tmp_path / "run", config)])
    data = data_of(made.page)
    assert data["charts"] == []
    assert "first training record" in data["charts_caption"]
    assert {path.name for path in made.files} == {"distribution.csv", "distribution.png", "distribution.svg"}


def test_a_run_without_a_policy_speaks_of_none(runs, tmp_path, no_pictures):
    of_static, of_pads = (data_of(write_report([runs[name]], tmp_path / name).page) for name in ("static", "pads"))
    assert "Mean boundary β of the margin loss" in [chart["title"] for chart in of_static["charts"]]
    assert ["boundary that rises" in data["charts_caption"] for data in (of_static, of_pads)] == [True, False]
    assert ["policy" in data["charts_caption"] for data in (of_static, of_pads)] == [False, True]
    (shown,) = of_static["distributions"]
    assert (shown["p"], shown["missing"]) == (None, "")
    assert "distance-weighted" in shown["caption"]


def test_an_unknown_class_is_refused_before_anything_is_written(run, no_pictures):
    with pytest.raises(UserError, match="no class 'zebar'; did you mean zebra"):
        write_report([run], classes=["zebar"])
    assert not (run.path / "report.html").exists()
    assert not (run.path / "report").exists()


# -- the command -------------------------------------------------------------------------------------------------------


def answer(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return left.value.code, out, err


def test_the_command_says_where_the_page_is(capsys, run, no_pictures, tmp_path):
    code, out, err = answer(capsys, "report", run.path, "--map", "none")
    assert code == 0
    assert re.fullmatch(rf"{run.path}/report.html \(0\.\d MB\), and 6 files in {run.path}/report\n", out)
    assert err.startswith("note: no PNG and SVG")
    assert "--map none" in (run.path / "report.html").read_text()
    code, out, _ = answer(capsys, "report", run.path, run.path, "--map", "pca", "--out", tmp_path / "both")
    assert (code, (tmp_path / "both" / "report.html").exists()) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "RUN"),
        (["nowhere"], "nowhere does not exist"),
        (["RUN", "--map", "tsne"], "tsne"),
        (["RUN", "--class", "nobody"], "no class 'nobody'"),
        (["RUN", "--out", "RUN/config.json"], "could not be written"),
    ],
)
def test_wrong_input_is_answered_with_one_sentence(capsys, run, no_pictures, arguments, words):
    code, _, err = answer(capsys, "report", *(argument.replace("RUN", str(run.path)) for argument in arguments))
    said = f"pads: {err}" if code == 2 else str(code)
    assert code != 0
    assert words in said
    assert "\n" not in str(code)


def test_the_maps_of_the_command_are_those_of_the_report():
    assert MAPS == report.MAPS


def train(capsys, photos, run, *more):
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    return answer(capsys, "train", "folder", "--data", photos, "--run", run, *options, "--set", "num_epochs=1", *more)


def test_a_training_ends_with_its_report(capsys, photos, tmp_path, no_pictures):
    code, out, err = train(capsys, photos, tmp_path / "run", "--no-index")
    assert (code, err) == (0, "")
    assert out.endswith(f"Next: open {tmp_path / 'run' / 'report.html'}\n")
    (tmp_path / "run" / "metrics.json").unlink()
    (tmp_path / "run" / "report.html").unlink()
    code, out, _ = answer(capsys, "train", "--resume", tmp_path / "run", "--no-index")
    assert (code, (tmp_path / "run" / "report.html").exists()) == (0, True)


def test_a_report_that_is_not_wanted_is_not_drawn(capsys, photos, tmp_path):
    code, out, _ = train(capsys, photos, tmp_path / "run", "--no-report", "--no-index")
    assert code == 0
    assert "Next:" not in out
    assert not (tmp_path / "run" / "report").exists()


@pytest.mark.parametrize("error", [RuntimeError("no ink\nand no paper"), KeyboardInterrupt(), MemoryError()])
def test_a_report_that_fails_fails_no_run(capsys, photos, tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(report, "write_report", fail)
    code, _, err = train(capsys, photos, tmp_path / "run")
    assert code == 0
    assert RunFolder.open(tmp_path / "run").is_finished
    assert len(err.splitlines()) == 1
    assert ("no ink" if str(error) else type(error).__name__) in err
    assert f"pads report {tmp_path / 'run'}" in err


# -- the paper's figures -----------------------------------------------------------------------------------------------


def test_curricula_are_drawn_a_row_each(runs, tmp_path):
    rows = {"PADS": [runs["pads"], runs["pads-1"]], "one seed": [runs["pads-1"]]}
    assert [path.name for path in draw_curricula(rows, tmp_path)] == ["curricula.png", "curricula.svg"]
    text = (tmp_path / "curricula.svg").read_text()
    assert all(f"{label}, {scale} scale" in text for label in rows for scale in ("linear", "log"))


def test_a_curriculum_without_bins_cannot_be_drawn_as_one(runs, tmp_path):
    with pytest.raises(UserError, match="no run of U-dist samples by bins"):
        draw_curricula({"U-dist": [runs["static"]]}, tmp_path)


def test_the_initial_distribution_is_drawn_with_its_limits(tmp_path):
    paths = draw_initial(tmp_path)
    assert [path.name for path in paths] == ["initial-distribution.png", "initial-distribution.svg"]
    text = paths[1].read_text()
    assert "= 0.1" in text
    assert "= 1.4" in text


def test_drawing_without_matplotlib_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "has_matplotlib", lambda: False)
    with pytest.raises(UserError, match=r'pip install "pads-dml\[plots\]"'):
        draw_initial(tmp_path)


def test_reading_a_run_needs_no_matplotlib(monkeypatch, runs):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    from pads.reports.series import series_of

    assert series_of(runs["pads"])["curves"]


def test_the_snippet_of_the_docs_runs(runs):
    page = Path(__file__, "../../../docs/reports.md").resolve().read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    names = {"vectors": np.random.default_rng(0).normal(size=(9, 4))}
    exec(code.replace("runs/emoji-pads-0", str(runs["pads"].path)), names)
    assert len(names["losses"]["steps"]) == len(names["losses"]["values"]) > 0
    assert (names["xy"].shape, names["method"]) == ((9, 2), "pca")
