"""Pushing and pulling with the Hub's own client, against a server on this machine that speaks the few endpoints used."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from huggingface_hub import HfApi

import pads
from pads.build import build_network
from pads.cli import main
from pads.config import Config, Data, Network
from pads.publish import hub
from pads.runs import RunFolder
from pads.runs import hub as runs_hub

TOKEN = "hf_token-of-the-test"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """One repository per name, its files in memory; only who has the token may write."""

    repos: dict[str, dict[str, bytes]]

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def as_json(self, value: object, code: int = 200) -> None:
        self.answer(code, json.dumps(value).encode(), Content_Type="application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.as_json({"error": "Invalid username or password."}, 401)
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.repos.setdefault(name, {})
            self.as_json({"url": f"http://{self.headers['Host']}/{name}", "name": name})
        elif self.path == "/api/validate-yaml":
            self.as_json({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            self.as_json({"files": files})
        elif found := re.match(r"/api/models/(.+)/commit/", self.path):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.repos[found[1]][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"http://{self.headers['Host']}/{found[1]}/commit/{COMMIT}"
            self.as_json({"commitUrl": url, "commitOid": COMMIT, "pullRequestUrl": None, "success": True})
        else:
            self.as_json({"error": f"unexpected {self.path}"}, 500)

    def do_GET(self) -> None:
        if found := re.match(r"/api/models/([^/]+/[^/]+)(/revision/|/tree/|$)", self.path):
            if found[1] not in self.repos:
                self.answer(404, b"{}", X_Error_Code="RepoNotFound")
            elif found[2] == "/tree/":
                files = self.repos[found[1]].items()
                self.as_json([{"type": "file", "path": p, "size": len(c), "oid": oid(c)} for p, c in files])
            else:
                siblings = [{"rfilename": path} for path in self.repos[found[1]]]
                self.as_json({"id": found[1], "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})
        elif (found := re.match(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path)) and found[1] in self.repos:
            content = self.repos[found[1]][found[2]]
            self.answer(200, content, ETag=f'"{oid(content)}"', X_Repo_Commit=COMMIT)
        else:
            self.as_json({"error": f"unexpected {self.path}"}, 404)

    do_HEAD = do_GET


def oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def talk_through(client: HfApi, monkeypatch) -> None:
    for module in (hub, runs_hub):
        monkeypatch.setattr(module, "hub_api", lambda: client)


@pytest.fixture
def repos(monkeypatch, tmp_path):
    """The files on the Hub; the client of pads talks to the server on this machine, with a token."""
    handler = type("OneHub", (Hub,), {"repos": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    client = HfApi(endpoint=endpoint, token=TOKEN)
    talk_through(client, monkeypatch)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    yield handler.repos
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def run(tmp_path):
    data = Data(name="folder", root=str(tmp_path / "secret place"), image_size=32, resize=36, store_size=40)
    network = Network("small", embedding_dim=8, weights=str(tmp_path / "secret place" / "start.pth"))
    run = RunFolder.create(tmp_path / "run", Config(recipe="folder", data=data, network=network))
    run.save_selected(build_network(replace(run.config, seed=7)).state_dict(), epoch=3)
    return run


def test_a_run_comes_back_from_the_hub_as_it_was(repos, run):
    address = hub.push(run, "anna/mugs")
    assert address.endswith("/anna/mugs")
    assert set(repos["anna/mugs"]) == {"README.md", "config.json", "selected.safetensors"}
    picture = torch.randint(256, (50, 40, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).numpy()
    there, here = pads.load("hf://anna/mugs"), pads.load(run)
    assert torch.equal(there.embed(picture), here.embed(picture))
    assert there.preprocessing == here.preprocessing


def test_nothing_on_the_hub_tells_of_the_machine(repos, run, tmp_path):
    hub.push(run, "anna/mugs")
    for content in repos["anna/mugs"].values():
        assert b"secret place" not in content
        assert str(tmp_path).encode() not in content
    assert json.loads(repos["anna/mugs"]["config.json"])["network"]["weights"] == "start.pth"


def test_the_command_says_where_it_is_and_how_to_use_it(repos, run, capsys):
    with pytest.raises(SystemExit) as left:
        main(["push", str(run.path), "anna/mugs", "--private"])
    assert left.value.code == 0
    assert 'pads.load("hf://anna/mugs")' in capsys.readouterr().out
    assert repos["anna/mugs"]["README.md"].startswith(b"---\nlibrary_name: pads")


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    sentence = str(left.value.code)
    assert sentence.startswith("pads: ")
    assert "\n" not in sentence
    return sentence


def test_without_a_token_one_sentence_says_how_to_get_one(repos, run, capsys, monkeypatch):
    talk_through(HfApi(endpoint=hub.hub_api().endpoint, token="hf_wrong"), monkeypatch)
    sentence = refused(capsys, "push", run.path, "anna/mugs")
    assert "hf auth login" in sentence
    assert "anna/mugs" in sentence


def test_without_a_network_one_sentence_says_so(run, capsys, monkeypatch):
    talk_through(HfApi(endpoint="http://127.0.0.1:9", token=TOKEN), monkeypatch)
    assert "could not be written on the Hub" in refused(capsys, "push", run.path, "anna/mugs")
    with pytest.raises(pads.UserError, match=r"hf://anna/mugs could not be fetched from the Hub .*network"):
        pads.load("hf://anna/mugs")


def test_a_repository_that_is_not_there_or_holds_something_else_is_refused(repos):
    with pytest.raises(pads.UserError, match="could not be fetched"):
        pads.load("hf://anna/nothing")
    repos["anna/text"] = {"README.md": b"words"}
    with pytest.raises(pads.UserError, match=r"holds no run of pads: `pads push RUN anna/text`"):
        pads.load("hf://anna/text")


@pytest.mark.parametrize("name", ["mugs", "a/b/c", "anna/", "../x y"])
def test_a_name_that_is_none_is_refused(run, name):
    with pytest.raises(pads.UserError, match="write USER/NAME"):
        hub.push(run, name)
    with pytest.raises(pads.UserError, match="write USER/NAME"):
        pads.load(f"hf://{name}")


def test_a_run_without_a_network_yet_is_refused(repos, tmp_path):
    empty = RunFolder.create(tmp_path / "empty", Config())
    with pytest.raises(pads.UserError, match="no checkpoint yet"):
        hub.push(empty, "anna/mugs")
    assert repos == {}
