"""Slow, broken and hostile clients, and an index that a stranger made."""

import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import time
import urllib.request
from contextlib import closing
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from pads.errors import UserError
from pads.search.index import Index
from pads.search.serve import guard, patience, pictures
from pads.search.serve.guard import host_name, pick_token
from pads.search.serve.served import Served
from pads.search.serve.server import greeting, make_app

HALF = b"GET /api/about HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("this system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(address: str, data: bytes) -> socket.socket:
    parts = urlsplit(address)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=5)
    connection.sendall(data)
    return connection


# -- slow --------------------------------------------------------------------------------------------------------------


def test_an_honest_client_is_answered_beside_1100_half_open_connections(served, serving, many_files, wait_until):
    with serving(served) as address:
        connections = [connect(address, HALF) for _ in range(1100)]
        start = time.perf_counter()
        with urllib.request.urlopen(f"{address}/api/about", timeout=10) as answer:
            assert json.load(answer)["state"] == "ready"
        assert time.perf_counter() - start < 2
        wait_until(lambda: len(patience.waiting) <= patience.MOST_WAITING)
        for connection in connections:
            connection.close()


def test_whoever_sends_a_whole_request_at_once_is_not_taken_for_one_of_many_that_do_not(served, serving, many_files):
    """Hundreds of connections may be accepted before the request of one of them is read."""
    with serving(served) as address:
        connections, honest = [], []
        for number in range(900):
            if number % 100 == 50:
                honest.append(connect(address, b"GET /api/about HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            connections.append(connect(address, HALF))
        for connection in honest:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        for connection in [*connections, *honest]:
            connection.close()


@pytest.mark.parametrize("before", [b"", b"GET /api/about HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_half_a_request_is_not_waited_for_for_ever(served, serving, monkeypatch, before):
    """Neither the first of a connection nor a later one."""
    monkeypatch.setattr(patience, "HEADER_SECONDS", 0.5)
    with serving(served) as address, connect(address, before) as connection:
        if before:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            while b"}" not in connection.recv(10_000):
                pass
        connection.sendall(HALF)
        assert read_to_the_end(connection) == b""
    assert not patience.waiting


def read_to_the_end(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


def test_an_upload_that_never_ends_is_not_waited_for_for_ever(served, serving, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.5)
    head = b"POST /api/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    with serving(served) as address, connect(address, head + b"Content-Length: 1000\r\n\r\n--b") as connection:
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 408")


UPLOAD = b"POST /api/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"


def test_an_honest_client_is_answered_beside_many_uploads_that_do_not_end(served, serving, many_files, wait_until):
    with serving(served) as address:
        connections = [connect(address, UPLOAD + b"Content-Length: 1000\r\n\r\n--b") for _ in range(600)]
        with urllib.request.urlopen(f"{address}/api/about", timeout=10) as answer:
            assert json.load(answer)["state"] == "ready"
        wait_until(lambda: len(patience.waiting) <= patience.MOST_WAITING)
        for connection in connections:
            connection.close()
        wait_until(lambda: not patience.waiting)


def test_broken_requests_do_not_fill_the_terminal(served, serving, capfd):
    with serving(served) as address:
        for request in (UPLOAD + b"Content-Length: 9\r\n\r\n--b--bbbb", b"\0\1\2\r\n\r\n"):
            with connect(address, request) as connection:
                assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert capfd.readouterr().err == ""


def test_headers_without_end_are_not_kept(served, serving, monkeypatch):
    with serving(served) as address, connect(address, HALF) as connection, pytest.raises(OSError):
        for _ in range(1000):
            connection.sendall(b"x" * 10_000 + b"\r\nX-More: ")
    assert not patience.waiting


def test_answers_that_nobody_takes_are_not_kept(served, serving, monkeypatch, tmp_path, wait_until):
    """Neither for ever nor beyond a number of bytes; whoever takes his is served."""
    large = b"x" * 20_000_000
    monkeypatch.setattr(pictures, "show_whole", lambda content: (large, "image/png"))
    monkeypatch.setattr(patience, "MOST_UNSENT", 50_000_000)
    ask = b"GET /api/image/0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(served) as address:
        connections = [connect(address, ask) for _ in range(6)]
        wait_until(lambda: 0 < len(patience.sending) <= 2)
        with urllib.request.urlopen(f"{address}/api/image/0", timeout=10) as answer:
            assert answer.read() == large
        for connection in connections:
            connection.close()
        wait_until(lambda: not patience.sending)
        monkeypatch.setattr(patience, "SEND_SECONDS", 0.3)
        with connect(address, ask) as connection:
            wait_until(lambda: patience.sending)
            wait_until(lambda: not patience.sending)
            num_bytes = 0
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(2**20):
                    num_bytes += len(part)
            assert num_bytes < len(large)


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "//localhost", "localhost", "http://", "http://localhost@evil"]
)
def test_a_broken_origin_is_refused(client, origin):
    assert client.get("/api/about", headers={"origin": origin}).status_code == 403


@pytest.mark.parametrize(
    "host",
    [
        "[::1].evil.example",
        "localhost:80@evil",
        "localhost:80:80",
        "localhost:",
        "[::1",
        "::1",
        "localhost/x",
        "a@localhost",
        "localhost ",
    ],
)
def test_a_host_with_anything_behind_its_name_is_none(client, host):
    assert host_name(host) == ""
    assert client.get("/api/about", headers={"host": host}).status_code in (400, 403)


# -- a stranger's index ------------------------------------------------------------------------------------------------


def test_an_index_shows_only_what_was_indexed(index_path, tmp_path):
    """A stranger's index may name any file, and has not seen it."""
    secret = tmp_path / "secret.png"
    Image.new("RGB", (9, 9), "red").save(secret)
    path = shutil.copytree(index_path, tmp_path / "index")
    manifest = json.loads((path / "index.json").read_text())
    rows = json.loads((path / manifest["files"]["rows"]).read_text())
    rows[0][0] = secret.resolve().as_posix().removeprefix("/")
    rows.sort()
    at = next(number for number, row in enumerate(rows) if row[0].endswith("secret.png"))
    checksum = rows[at][3]
    for known in (checksum, hashlib.sha256(secret.read_bytes()).hexdigest()):
        rows[at][3] = known
        (path / manifest["files"]["rows"]).write_text(json.dumps(rows))
        (path / "index.json").write_text(json.dumps({**manifest, "root": "/", "checksums": {}, "sha256": None}))
        with closing(Served(path)) as served:
            client = TestClient(make_app(served), base_url="http://localhost")
            codes = {client.get(f"/api/{kind}/{at}").status_code for kind in ("image", "thumbnail")}
        assert codes == ({404} if known == checksum else {200})


def test_vectors_that_are_cut_short_in_their_place_end_nobody(index_path, tmp_path):
    path = shutil.copytree(index_path, tmp_path / "index")
    child = os.fork()
    if child == 0:
        index = Index.open(path)
        os.truncate(path / index.manifest["files"]["vectors"], 10)
        found = index.search(np.ones((1, 8), np.float32), 3)
        os._exit(0 if found[1].shape == (1, 3) else 1)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFSIGNALED(status), signal.Signals(os.WTERMSIG(status)).name
    assert os.WEXITSTATUS(status) == 0


# -- beyond this machine -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "shop.local"])
def test_beyond_this_machine_a_token_must_be_asked_for_or_not(host):
    with pytest.raises(UserError, match="--token"):
        pick_token(host, None, False)
    assert pick_token(host, None, True) is None
    assert pick_token(host, "open-sesame", False) == "open-sesame"
    assert len(str(pick_token(host, "", False))) >= 32 and pick_token(host, "", False) != pick_token(host, "", False)


def test_on_this_machine_none_is_needed_and_nonsense_is_refused():
    assert pick_token("127.0.0.1", None, False) is None
    with pytest.raises(UserError, match="exclude"):
        pick_token("0.0.0.0", "open-sesame", True)
    for token in ("short", "with space in it", "ünïcode-ünïcode"):
        with pytest.raises(UserError, match="at least 8"):
            pick_token("0.0.0.0", token, False)


def test_whoever_does_not_know_the_token_sees_nothing(served):
    client = TestClient(make_app(served, token="open-sesame"), base_url="http://localhost")
    known = {"Authorization": "Bearer open-sesame"}
    for address in (
        "/api/about",
        "/api/index",
        "/api/image/0",
        "/api/thumbnail/0",
        "/api/map",
        "/report",
        "/api/nothing",
    ):
        assert client.get(address).status_code == 401
        assert client.get(address, headers={"Authorization": "Bearer open-sesam"}).status_code == 401
        assert client.get(address, headers={"Authorization": "Bearer ünïcode".encode()}).status_code == 401
        assert client.get(address, headers=known).status_code != 401
    for address in ("/", "/static/app.js"):
        assert client.get(address).status_code == 200
    assert client.post("/api/token").status_code == 401
    answer = client.post("/api/token", headers=known)
    assert answer.status_code == 204
    assert (
        "httponly" in answer.headers["set-cookie"].lower() and "samesite=strict" in answer.headers["set-cookie"].lower()
    )
    assert client.get("/api/thumbnail/0").status_code == 200  # by the cookie


def test_the_token_is_printed_once_in_the_fragment_of_the_address(served):
    sentences = greeting(served, "0.0.0.0", 1, "open-sesame")
    assert " ".join(sentences).count("open-sesame") == 1
    assert "http://localhost:1/#token=open-sesame " in sentences[0]
