"""Indexes and runs as they are served: opening, following a run to its end, the map, many requests at once."""

import asyncio
import os
import shutil
import socket
import sys
import threading
import tomllib
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

import pads
from pads.autoconfig import resolve_auto
from pads.cli import main
from pads.config import Config, Part, to_json, with_settings
from pads.errors import UserError
from pads.recipes import RECIPES
from pads.reports.projection import project
from pads.runs import RunFolder
from pads.search.index import Index
from pads.search.serve import maps, serve
from pads.search.serve.embedder import Embedder
from pads.search.serve.live import LiveRun
from pads.search.serve.maps import Layout, Map, in_unit_square, read_layout, spread, write_layout
from pads.search.serve.served import Served
from pads.search.serve.server import PAGES, STATIC, bind_socket, greeting, make_app
from pads.search.serve.testimages import file_names, images_of, link_test_images

# -- at the door -------------------------------------------------------------------------------------------------------


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main(["serve", *map(str, arguments)])
    sentence = str(left.value.code)
    assert sentence.startswith("pads: ")
    assert "\n" not in sentence
    return sentence


def test_what_is_neither_an_index_nor_a_run_is_refused(capsys, tmp_path):
    assert "does not exist" in refusal(capsys, tmp_path / "nothing", "--port", 0)
    assert "neither an index nor a run" in refusal(capsys, tmp_path, "--port", 0)
    (tmp_path / "file").write_text("x")
    assert "neither" in refusal(capsys, tmp_path / "file", "--port", 0)


def test_a_damaged_index_is_refused(capsys, index_path, tmp_path):
    shutil.copytree(index_path, tmp_path / "index")
    (tmp_path / "index" / "index.json").write_text("{")
    refusal(capsys, tmp_path / "index", "--port", 0)


def test_a_taken_port_is_told_before_anything_is_loaded(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is taken" in refusal(capsys, tmp_path / "nothing", "--port", port)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--port", 70000), "between 0 and 65535"),
        (("--host", "no.such.host.invalid"), "not a name"),
        (("--host", "192.0.2.1", "--port", 0), "address of this machine"),
    ],
)
def test_a_port_or_host_that_cannot_be_is_refused(capsys, tmp_path, arguments, words):
    assert words in refusal(capsys, tmp_path, *arguments)


def test_the_images_of_an_index_may_have_moved(index_path, photos, tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        Served(index_path, images=tmp_path / "nowhere")
    moved = shutil.copytree(photos, tmp_path / "moved")
    served = Served(index_path, images=moved)
    assert served.ready().file(0).is_relative_to(moved)
    served.close()


def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match=r"uvicorn is not installed.*pads-dml\[serve\]"):
        serve(tmp_path)


def test_the_real_port_is_printed_and_a_warning_where_others_can_reach_it(served):
    with bind_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        (line,) = greeting(served, "127.0.0.1", port)
    assert f"http://127.0.0.1:{port}" in line
    assert "no password" in greeting(served, "0.0.0.0", 1)[-1]
    assert "http://[::1]:1 " in greeting(served, "::1", 1)[0]


# -- a run -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(run, tmp_path):
    """The finished run, in a folder of this test."""
    return RunFolder.open(shutil.copytree(run.path, tmp_path / "copied run"))


def test_a_finished_run_gets_an_index_over_its_test_images(copied, wait_until):
    served = Served(copied.path)
    wait_until(lambda: served.state in ("ready", "failed"))
    assert served.reason == ""
    searcher, images = served.ready(), images_of(copied)
    assert sorted(searcher.labels) == sorted(images.class_names[label] for label in images.labels)
    np.testing.assert_allclose(
        searcher.index.vectors_ND, searcher.index.embed([searcher.file(row) for row in range(len(images))]), atol=1e-6
    )
    client = TestClient(make_app(served), base_url="http://localhost")
    assert client.get("/api/thumbnail/0").status_code == 200
    served.close()
    before = (copied.path / "index" / "index.json").stat().st_mtime_ns
    again = Served(copied.path)
    wait_until(lambda: again.state == "ready")
    again.close()
    assert (copied.path / "index" / "index.json").stat().st_mtime_ns == before


def test_links_of_a_run_lead_to_its_test_images_and_nowhere_else(copied, wait_until, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    served = Served(copied.path)
    wait_until(lambda: served.state == "ready")
    link = served.ready().index.root / served.ready().index.paths[0]
    link.unlink()
    link.symlink_to(tmp_path / "secret.png")
    client = TestClient(make_app(served), base_url="http://localhost")
    assert client.get("/api/image/0").status_code == 403
    assert client.get("/api/image/1").status_code == 200
    served.close()


def test_test_images_that_are_gone_are_told_and_the_curves_stay(copied, wait_until, tmp_path):
    config = with_settings(copied.config, [f"data.root={tmp_path / 'gone'}"])
    copied.config_path.write_text(to_json(config))
    served = Served(copied.path)
    wait_until(lambda: served.state == "failed")
    assert "gone" in served.reason
    client = TestClient(make_app(served), base_url="http://localhost")
    assert client.get("/api/search?row=0").status_code == 503
    assert "could not be built" in client.get("/api/index").json()["error"]
    assert client.get("/api/run").status_code == 200
    served.close()


def test_the_data_set_of_a_run_may_have_moved(copied, wait_until, tmp_path):
    moved = shutil.copytree(copied.config.data.root, tmp_path / "moved")
    copied.config_path.write_text(to_json(with_settings(copied.config, [f"data.root={tmp_path / 'gone'}"])))
    served = Served(copied.path, images=moved)
    wait_until(lambda: served.state in ("ready", "failed"))
    assert served.ready().file(0).resolve().is_relative_to(moved.resolve())
    served.close()


def test_a_part_of_an_image_is_indexed_where_the_run_uses_a_part(tmp_path):
    pixels = np.zeros((20, 20, 3), np.uint8)
    pixels[:10, :10] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    columns = "path,label,split,x_1,y_1,x_2,y_2,is_query,is_gallery"
    rows = [f"a.png,{label},train,0,0,10,10,," for label in (0, 0, 1, 1)]
    rows += [f"a.png,{label},validation,0,0,10,10,True,True" for label in (2, 2, 3, 3)]
    lines = [columns, *rows]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    config = with_settings(RECIPES["csv"](), [f"data.root={tmp_path / 'data.csv'}"])
    run = RunFolder.create(tmp_path / "run", resolve_auto(config, torch.device("cpu"), lambda *_: None))
    folder = link_test_images(run)
    files = sorted(folder.rglob("*.png"))
    assert len(files) == 4
    for file in files:
        assert not file.is_symlink()
        assert np.asarray(Image.open(file)).tolist() == pixels[:10, :10].tolist()


def test_every_class_becomes_a_folder_of_its_own_name_where_that_can_be(tmp_path):
    names = ("plain", "with/slash", "with∕slash", ".hidden", "", "_", "long " * 100, "long " * 99 + "other", "é\nü")
    made = file_names(names)
    assert len(set(made)) == len(names)
    assert made[0] == "plain"
    assert made[-1] == "é\nü"
    for name in made:
        assert not name.startswith(".")
        (tmp_path / name).mkdir()
        assert (tmp_path / name).parent == tmp_path


def training_event(step, loss):
    return {"event": "training", "step": step, "loss": loss, "drawn": [1 / 30] * 30}


@pytest.fixture
def live(tmp_path):
    """A run that has just begun."""
    config = Config(recipe="mine", curriculum=Part("learned"), num_epochs=10)
    return RunFolder.create(tmp_path / "live", config)


def test_a_run_that_is_trained_is_followed(live, wait_until):
    served = Served(live.path)
    client = TestClient(make_app(served), base_url="http://localhost")
    first = client.get("/api/run")
    assert first.json()["curves"] == {}
    assert (first.json()["finished"], first.json()["step"], first.json()["news_at"]) == (False, 0, None)
    assert served.state == "training"
    assert "still training" in client.get("/api/index").json()["error"]
    tag = first.headers["etag"]
    assert client.get("/api/run", headers={"if-none-match": tag}).status_code == 304
    with live:
        for step in (1, 2):
            live.append("events.jsonl", training_event(step, 0.5 / step))
        live.append("events.jsonl", {"event": "selection", "step": 20, "epoch": 2, "recall@1": 0.25, "map@r": 0.1})
        live.append("timing.jsonl", {"step": 2, "seconds": 1, "images_per_second": 77.0})
    second = client.get("/api/run", headers={"if-none-match": tag})
    assert second.status_code == 200
    answer = second.json()
    assert answer["curves"]["loss"] == {"steps": [1, 2], "values": [0.5, 0.25]}
    assert (answer["step"], answer["num_steps"], answer["images_per_second"]) == (20, 100, 77.0)
    assert len(answer["distribution"]["p"][0]) == 30
    with open(live.path / "events.jsonl", "a") as file:
        file.write('{"event": "training", "step": 2')  # a line that is being written
    assert client.get("/api/run").json()["step"] == 20
    served.close()


def test_figures_that_are_not_numbers_are_left_open(live):
    live.write_json("metrics.json", {"test": {"trained": {"recall@1": float("nan"), "nmi": 0.5}}, "protocol": "last"})
    assert LiveRun(live).answer()["figures"] == {"trained": {"recall@1": None, "nmi": 0.5}}


def test_the_report_of_a_run_is_shown_in_a_box_of_its_own(copied, wait_until):
    served = Served(copied.path)
    client = TestClient(make_app(served), base_url="http://localhost")
    assert client.get("/report").status_code == 404
    assert client.get("/api/run").json()["report"] is False
    (copied.path / "report.html").write_text("<p>größe")
    assert client.get("/api/run").json()["report"] is True
    answer = client.get("/report")
    assert answer.text == "<p>größe"
    assert "sandbox allow-scripts;" in answer.headers["content-security-policy"]
    assert "connect-src" not in answer.headers["content-security-policy"]
    wait_until(lambda: served.state == "ready")
    served.close()


# -- the map -----------------------------------------------------------------------------------------------------------


def test_the_map_is_made_once_and_kept_beside_the_index(index_path, wait_until, tmp_path, monkeypatch):
    path = shutil.copytree(index_path, tmp_path / "index", ignore=shutil.ignore_patterns("map.npz"))
    served = Served(path)
    client = TestClient(make_app(served), base_url="http://localhost")
    assert client.get("/api/map").json()["state"] == "computing"
    assert client.get("/api/search?row=0").status_code == 200
    wait_until(lambda: served.ready().map.state != "computing")
    answer = client.get("/api/map").json()
    assert (answer["state"], answer["method"], answer["rows"]) == ("ready", "PCA", list(range(30)))
    xy_N2, _ = project(served.ready().index.vectors_ND)
    np.testing.assert_allclose(np.column_stack([answer["x"], answer["y"]]), in_unit_square(xy_N2), atol=1e-4)
    labels = [each["label"] for each in client.get("/api/index").json()["labels"]]
    assert [labels[number] for number in answer["labels"]] == served.ready().labels
    served.close()
    monkeypatch.setattr(maps.subprocess, "Popen", None)
    again = Served(path)
    assert again.ready().layout() == answer
    again.close()


def test_a_map_of_other_vectors_or_a_broken_one_is_made_anew(tmp_path):
    file = tmp_path / "map.npz"
    layout = Layout(np.arange(3), np.zeros((3, 2), np.float32), "PCA")
    assert read_layout(file, "a") is None
    write_layout(file, layout, "a")
    assert read_layout(file, "b") is None
    kept = read_layout(file, "a")
    assert kept.method == "PCA"
    assert kept.rows_M.tolist() == [0, 1, 2]
    file.write_bytes(file.read_bytes()[:100])
    assert read_layout(file, "a") is None
    assert os.listdir(tmp_path) == ["map.npz"]


def test_bringing_an_index_up_to_date_takes_the_old_map_away(run, photos, index_path, tmp_path):
    path = shutil.copytree(index_path, tmp_path / "index")
    write_layout(path / "map.npz", Layout(np.arange(3), np.zeros((3, 2), np.float32), "PCA"), "old")
    pads.build_index(run, photos, path)
    assert not (path / "map.npz").exists()


def test_a_map_that_cannot_be_made_says_why(tmp_path, wait_until):
    failing = Map(tmp_path, np.array([[None]]), "v")
    wait_until(lambda: failing.state != "computing")
    assert failing.state == "failed"
    assert "Object arrays" in failing.reason


def test_a_map_that_cannot_be_kept_is_shown_nevertheless(tmp_path, wait_until, monkeypatch):
    layout = Layout(np.arange(3), np.zeros((3, 2), np.float32), "PCA")
    monkeypatch.setattr(Map, "_project", lambda self: layout)
    made = Map(tmp_path / "nowhere", np.eye(3, dtype=np.float32), "v")
    wait_until(lambda: made.state != "computing")
    assert (made.state, made.layout) == ("ready", layout)


def test_closing_ends_the_process_that_makes_the_map(tmp_path, wait_until):
    made = Map(tmp_path, np.eye(4, dtype=np.float32), "v")
    wait_until(lambda: made.process is not None)
    made.close()
    assert made.process.returncode is not None
    assert not made.thread.is_alive()


def test_a_map_holds_an_even_share_of_very_many_images():
    assert spread(5, 20).tolist() == [0, 1, 2, 3, 4]
    rows = spread(100_003, 20_000)
    assert len(rows) == 20_000
    assert (rows[0], rows[-1]) == (0, 100_002)
    assert set(np.diff(rows)) <= {5, 6}


def test_a_layout_keeps_its_proportions_and_may_be_a_single_point():
    xy = in_unit_square(np.array([[10.0, 0.0], [14.0, 1.0], [12.0, 2.0]]))
    assert xy.tolist() == [[0.0, 0.25], [1.0, 0.5], [0.5, 0.75]]
    assert in_unit_square(np.ones((3, 2))).tolist() == [[0.5, 0.5]] * 3


# -- many at once ------------------------------------------------------------------------------------------------------


def test_uploads_that_wait_together_are_embedded_together(index_path, photos):
    index = Index.open(index_path)
    sizes, embed_stored = [], index.model.embed_stored
    may_go = threading.Event()

    def counted(squares, originals):
        sizes.append(len(squares))
        may_go.wait()
        return embed_stored(squares, originals)

    index.model.embed_stored = counted
    embedder = Embedder(index.model)
    files = [photos / path for path in index.paths]

    async def all_of_them():
        tasks = [asyncio.create_task(embedder.embed(file.read_bytes())) for file in files]
        while sum(sizes) + embedder.waiting.qsize() < len(files):
            await asyncio.sleep(0.01)
        may_go.set()
        return await asyncio.gather(*tasks)

    vectors = asyncio.run(all_of_them())
    embedder.close()
    np.testing.assert_allclose(vectors, index.vectors_ND, atol=1e-5)
    assert sum(sizes) == 30
    assert len(sizes) <= 3  # the first that came, and the others by sixteen
    assert max(sizes) <= 16


def test_fifty_requests_at_once_are_answered_without_an_error(served, serving, photos):
    """Half by upload, half by row; each answer is that of its own question."""
    searcher = served.ready()
    files = [(photos / path).read_bytes() for path in searcher.index.paths[:25]]

    async def ask_all(address):
        async with httpx.AsyncClient(base_url=address, timeout=30, limits=httpx.Limits(max_connections=50)) as client:
            uploads = [client.post("/api/search", params={"k": 1}, files={"image": ("x", data)}) for data in files]
            rows = [client.get("/api/search", params={"row": row, "k": 1}) for row in range(25)]
            return await asyncio.gather(*uploads, *rows)

    with serving(served) as address:
        answers = asyncio.run(ask_all(address))
    assert [answer.status_code for answer in answers] == [200] * 50
    assert [answer.json()["neighbours"][0]["row"] for answer in answers[:25]] == list(range(25))
    assert [answer.json()["query"]["row"] for answer in answers[25:]] == list(range(25))


# -- as it is installed ------------------------------------------------------------------------------------------------


def test_every_static_file_is_served_and_part_of_the_package(client):
    static = Path(pads.__file__).parent / "search" / "serve" / "static"
    assert {path.name for path in static.iterdir()} == {*STATIC, *PAGES.values()}
    for name, kind in STATIC.items():
        answer = client.get(f"/static/{name}")
        assert answer.content == (static / name).read_bytes()
        assert answer.headers["content-type"].startswith(kind)
    project_file = Path(__file__).parents[3] / "pyproject.toml"
    packaged = tomllib.loads(project_file.read_text())["tool"]["setuptools"]["package-data"]["pads"]
    assert "search/serve/static/*" in packaged
