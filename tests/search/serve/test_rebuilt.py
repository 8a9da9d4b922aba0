"""An index that is rebuilt while it is served: the next request is answered from the new one, and none is lost."""

import asyncio
import shutil
import threading

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import pads
from pads.search.index import build_index
from pads.search.serve.served import Served
from pads.search.serve.server import make_app


@pytest.fixture
def shop(run, tmp_path):
    """Pictures, an index of them, and a server of it."""
    rng = np.random.default_rng(3)
    for name in ("a/0.png", "a/1.png", "b/0.png", "b/1.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(tmp_path / "photos" / name)
    pads.build_index(run, tmp_path / "photos", tmp_path / "index")
    served = Served(tmp_path / "index")
    client = TestClient(make_app(served), base_url="http://localhost", raise_server_exceptions=False)
    yield tmp_path, served, client
    served.close()


def add_a_picture(run, folder):
    shutil.copyfile(folder / "photos/b/1.png", folder / "photos/a/00.png")
    build_index(run, folder / "photos", folder / "index")


def test_the_next_request_is_answered_from_the_new_index(run, shop):
    folder, _, client = shop
    before = client.get("/api/index").json()
    found = client.get("/api/search?row=0").json()
    assert (before["images"], found["version"]) == (4, before["version"])
    add_a_picture(run, folder)
    after = client.get("/api/search?row=3").json()
    assert after["version"] != before["version"]
    assert {each["path"] for each in after["neighbours"]} == {"a/0.png", "a/00.png", "a/1.png", "b/1.png"}
    assert client.get("/api/index").json()["images"] == 5
    assert client.get("/api/sample").json()["version"] == after["version"]


def test_uploads_and_pictures_are_those_of_the_new_index(run, shop):
    folder, _, client = shop
    add_a_picture(run, folder)
    content = (folder / "photos/a/00.png").read_bytes()
    found = client.post("/api/search?k=2", files={"image": ("x", content)}).json()["neighbours"]
    assert {each["path"] for each in found} == {"a/00.png", "b/1.png"}
    assert client.get("/api/image/1").content == content


def test_rows_of_the_index_before_are_refused_where_they_are_known_as_such(run, shop):
    folder, _, client = shop
    version = client.get("/api/index").json()["version"]
    for address in ("/api/search?row=1&", "/api/image/1?", "/api/thumbnail/1?"):
        assert client.get(f"{address}v={version}").status_code == 200
    add_a_picture(run, folder)
    for address in ("/api/search?row=1&", "/api/image/1?", "/api/thumbnail/1?"):
        refused = client.get(f"{address}v={version}")
        assert refused.status_code == 410
        assert "rebuilt" in refused.json()["error"]


def test_a_request_that_is_under_way_ends_on_the_index_that_it_began_with(run, shop, wait_until):
    folder, served, _ = shop
    before = served.ready()
    may_go, embed_stored = threading.Event(), before.index.model.embed_stored

    def wait_and_embed(*stored):
        may_go.wait()
        return embed_stored(*stored)

    before.index.model.embed_stored = wait_and_embed
    content = (folder / "photos/a/0.png").read_bytes()

    async def ask():
        transport = httpx.ASGITransport(make_app(served))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
            slow = asyncio.create_task(client.post("/api/search", files={"image": ("x", content)}))
            while not served._lent[before]:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(add_a_picture, run, folder)
            quick = await client.get("/api/search?row=0")
            assert before.embedder.thread.is_alive()
            may_go.set()
            return (await slow).json(), quick.json()

    slow, quick = asyncio.run(ask())
    assert slow["version"] == before.version
    assert slow["neighbours"][0]["path"] == "a/0.png"
    assert quick["version"] == served.ready().version != before.version
    wait_until(lambda: not before.embedder.thread.is_alive())  # and then it is closed


def test_a_rebuild_that_changes_nothing_keeps_what_is_there(run, shop):
    folder, served, client = shop
    before = served.ready()
    build_index(run, folder / "photos", folder / "index")
    assert client.get("/api/index").status_code == 200
    assert served.ready() is before


@pytest.mark.parametrize("damage", [lambda path: path.write_text("{"), lambda path: path.unlink()])
def test_an_index_that_is_broken_or_gone_leaves_the_one_before(shop, damage, capsys):
    folder, _, client = shop
    damage(folder / "index" / "index.json")
    for _ in range(3):
        assert client.get("/api/search?row=0").status_code == 200
    assert capsys.readouterr().err.count("served on") <= 1


def test_requests_while_it_is_rebuilt_again_and_again_never_fail(run, shop, serving):
    folder, served, _ = shop
    stop, failed, asked = threading.Event(), [], []

    def ask(address):
        with httpx.Client(base_url=address, timeout=30) as client:
            while not stop.is_set():
                answers = [client.get("/api/search?row=0"), client.get("/api/thumbnail/1")]
                with (folder / "photos/a/0.png").open("rb") as image:
                    answers.append(client.post("/api/search?k=1", files={"image": image}))
                asked.append(len(answers))
                failed.extend(answer.text for answer in answers if answer.status_code != 200)

    with serving(served) as address:
        threads = [threading.Thread(target=ask, args=(address,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(4):
            shutil.copyfile(folder / "photos/b/1.png", folder / f"photos/b/{number + 2}.png")
            build_index(run, folder / "photos", folder / "index", rebuild=number == 2)
        stop.set()
        for thread in threads:
            thread.join()
        with httpx.Client(base_url=address) as client:
            assert client.get("/api/index").json()["images"] == 8
    assert failed == []
    assert sum(asked) > 0
