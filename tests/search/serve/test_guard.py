"""Who may ask, how much they may send, and what lies outside the index."""

import hashlib
import io
import json
import socket

import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from pads.search.serve.guard import is_allowed, is_loopback
from pads.search.serve.pictures import file_below
from pads.search.serve.server import make_app

PAGES = ["/", "/docs", "/static/app.js", "/openapi.json", "/api/index", "/api/thumbnail/0", "/api/nothing"]


@pytest.mark.parametrize("address", PAGES)
def test_every_answer_has_the_security_headers_and_no_cors(client, address):
    headers = client.get(address).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "localhost.evil.example", "127.0.0.1.nip.io", ""]
)
@pytest.mark.parametrize("address", PAGES)
def test_a_stranger_s_name_for_this_machine_is_refused(client, host, address):
    answer = client.get(address, headers={"host": host})
    assert answer.status_code == 403
    assert "--host" in answer.json()["error"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8420", "[::1]:8420", "[::1]"])
def test_the_names_of_this_machine_are_answered(client, host):
    assert client.get("/api/about", headers={"host": host}).status_code == 200


def test_the_host_that_was_given_is_a_name_too(served):
    client = TestClient(make_app(served, host="shop.local"), base_url="http://shop.local:8420")
    assert client.get("/api/about").status_code == 200
    assert client.get("/api/about", headers={"host": "other.local"}).status_code == 403


@pytest.mark.parametrize(
    ("name", "host", "allowed"),
    [
        ("192.168.1.5", "0.0.0.0", True),
        ("fe80::1", "::", True),
        (socket.gethostname().lower(), "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("192.168.1.5", "127.0.0.1", False),
        ("", "", False),
    ],
)
def test_a_server_for_everyone_answers_to_addresses_but_not_to_strange_names(name, host, allowed):
    assert is_allowed(name, host) == allowed


def test_only_this_machine_s_own_addresses_are_loopback():
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "", "10.0.0.1", "shop.local")))


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://evil.example/localhost"]
)
def test_pages_of_other_sites_may_not_ask(client, origin):
    answer = client.get("/api/about", headers={"origin": origin})
    assert answer.status_code == 403
    assert client.get("/api/about", headers={"origin": "http://localhost"}).status_code == 200


def test_an_upload_that_says_it_is_too_large_is_refused(client):
    answer = client.post("/api/search", files={"image": ("x", bytes(25_000_001))})
    assert answer.status_code == 413
    assert "25 MB" in answer.json()["error"]


def test_an_upload_that_does_not_say_how_large_it_is_is_cut_off(client):
    sent = []

    def flood():
        yield b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
        for _ in range(60):
            sent.append(1)
            yield bytes(1_000_000)

    answer = client.post("/api/search", content=flood(), headers={"content-type": "multipart/form-data; boundary=b"})
    assert answer.status_code == 413
    assert "25 MB" in answer.json()["error"]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path):
    """A folder with an image, beside one that is nobody's business, and links of each kind."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    for path in (root / "folder" / "in.png", tmp_path / "secret.png"):
        Image.new("RGB", (4, 4)).save(path)
    (root / "inward.png").symlink_to(root / "folder" / "in.png")
    (root / "outward.png").symlink_to(tmp_path / "secret.png")
    (root / "folder-out").symlink_to(tmp_path, target_is_directory=True)
    return root


@pytest.mark.parametrize("name", ["folder/in.png", "inward.png", "folder/../folder/in.png"])
def test_files_below_the_root_are_found(place, name):
    assert file_below(place, name).read_bytes() == (place / "folder" / "in.png").read_bytes()


@pytest.mark.parametrize("name", ["../secret.png", "folder/../../secret.png", "{out}", "/etc/hostname"])
@pytest.mark.parametrize("links_to", [frozenset(), None])
def test_names_that_lead_out_of_the_root_are_refused_whatever_links_may_do(place, name, links_to):
    with pytest.raises(HTTPException) as refused:
        file_below(place, name.format(out=place.parent / "secret.png"), links_to)
    assert refused.value.status_code == 403


@pytest.mark.parametrize("name", ["outward.png", "folder-out/secret.png"])
def test_links_out_of_the_root_are_shown_only_if_asked_for_or_known(place, name):
    with pytest.raises(HTTPException, match="--follow-links"):
        file_below(place, name)
    with pytest.raises(HTTPException, match="--follow-links"):
        file_below(place, name, frozenset({place.parent / "other.png"}))
    secret = (place.parent / "secret.png").resolve()
    for links_to in (None, frozenset({secret})):
        assert file_below(place, name, links_to).resolve() == secret


def rename(monkeypatch, index, row, name, content=b""):
    """Lets the index name another file, as if it had been indexed with this content."""
    monkeypatch.setattr(index, "paths", [*index.paths[:row], name, *index.paths[row + 1 :]])
    checksum = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(index, "checksums", [*index.checksums[:row], checksum, *index.checksums[row + 1 :]])


def test_a_changed_index_cannot_make_the_server_show_other_files(served, client, monkeypatch, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    rename(monkeypatch, served.ready().index, 0, str(tmp_path / "secret.png"))
    served.ready().thumbnail.cache_clear()
    for address in ("/api/image/0", "/api/thumbnail/0"):
        answer = client.get(address)
        assert answer.status_code == 403
        assert "outside" in answer.json()["error"]


def test_a_file_that_is_gone_or_no_longer_an_image_is_told(served, client, monkeypatch, tmp_path):
    searcher = served.ready()
    monkeypatch.setattr(searcher.index, "root", tmp_path)
    rename(monkeypatch, searcher.index, 0, "gone.png")
    rename(monkeypatch, searcher.index, 1, "page.png", b"<html><script>window.hacked=1</script>")
    (tmp_path / "page.png").write_text("<html><script>window.hacked=1</script>")
    searcher.thumbnail.cache_clear()
    for kind in ("image", "thumbnail"):
        assert client.get(f"/api/{kind}/0").status_code == 404
        assert client.get(f"/api/{kind}/1").status_code == 415


def test_an_image_that_is_also_a_page_is_never_served_as_one(served, client, monkeypatch, tmp_path):
    out = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(out, "GIF")
    (tmp_path / "both.html").write_bytes(out.getvalue() + b"<script>window.hacked=1</script>")
    monkeypatch.setattr(served.ready().index, "root", tmp_path)
    rename(monkeypatch, served.ready().index, 0, "both.html", (tmp_path / "both.html").read_bytes())
    answer = client.get("/api/image/0")
    assert answer.headers["content-type"] == "image/gif"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_errors_are_json_also_where_they_quote_what_was_asked_for(client):
    answer = client.get("/api/search", params={"row": 0, "label": "<script>\n\"'"})
    assert answer.headers["content-type"] == "application/json"
    assert "<script>" in json.loads(answer.text)["error"]
