"""The API: what it answers, and how it refuses."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

EVIL = "<img src=x onerror=window.hacked=1>"


def upload(pixels=None, kind="PNG", name="photo.png"):
    """What a form sends for an image."""
    out = io.BytesIO()
    Image.fromarray(np.zeros((9, 7, 3), np.uint8) if pixels is None else pixels).save(out, kind)
    return {"image": (name, out.getvalue())}


def error_of(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    return answer.json()["error"]


def naive_neighbours(index, vector, k, label=None, without=None):
    """Row and distance of the nearest, by a loop."""
    rows = [row for row in range(len(index)) if row != without and (label is None or index.labels[row] == label)]
    found = [(float(np.linalg.norm(index.vectors_ND[row] - vector)), row) for row in rows]
    return [(row, distance) for distance, row in sorted(found)[:k]]


def assert_found(answer, expected):
    neighbours = answer["neighbours"]
    assert [each["row"] for each in neighbours] == [row for row, _ in expected]
    np.testing.assert_allclose([each["distance"] for each in neighbours], [d for _, d in expected], atol=2e-6)


# -- what is in it -----------------------------------------------------------------------------------------------------


def test_the_index_is_described_with_every_class_and_its_count(client, served):
    contents = client.get("/api/index").json()
    index = served.ready().index
    assert (contents["name"], contents["images"], contents["dimension"]) == ("shop", 30, 8)
    assert contents["engine"] == index.engine
    assert contents["unlabelled"] == 0
    counts = {each["label"]: each["images"] for each in contents["labels"]}
    assert counts == dict.fromkeys(["mugs", "größe 茶 🫖", EVIL, "\"quotes\" & 'more'", "new\nline", "caf\ufffd"], 5)


def test_thresholds_are_those_of_the_index_where_it_has_them(client, served):
    index = served.ready().index
    thresholds = {each["precision"]: each["distance"] for each in client.get("/api/index").json()["thresholds"]}
    assert thresholds == {p: t for p in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99) if (t := index.threshold(p)) is not None}
    assert set(thresholds) == {0.5, 0.7, 0.8, 0.9, 0.95}
    assert client.get("/api/index").json()["promise"] == ""  # 95 % can be had


def test_what_is_served_is_told_with_the_limits(client):
    about = client.get("/api/about").json()
    assert (about["name"], about["run"], about["state"]) == ("shop", False, "ready")
    assert about["max_bytes"] == 25_000_000
    assert "not a run" in error_of(client.get("/api/run"), 404)


# -- searching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 7, 29])
@pytest.mark.parametrize("k", [1, 10, 29, 500])
def test_the_neighbours_of_a_row_are_the_nearest_others(client, served, row, k):
    index = served.ready().index
    answer = client.get("/api/search", params={"row": row, "k": k}).json()
    assert answer["query"] == {"row": row, "label": served.ready().labels[row], "path": served.ready().paths[row]}
    assert_found(answer, naive_neighbours(index, index.vectors_ND[row], k, without=row))


def test_a_search_in_a_class_finds_that_class_alone(client, served):
    index = served.ready().index
    for each in client.get("/api/index").json()["labels"]:
        answer = client.get("/api/search", params={"row": 0, "label": each["label"]}).json()
        own = served.ready().names[each["label"]]
        assert {neighbour["label"] for neighbour in answer["neighbours"]} == {each["label"]}
        assert_found(answer, naive_neighbours(index, index.vectors_ND[0], 24, label=own, without=0))


def test_the_upload_of_an_indexed_file_finds_that_file_at_distance_zero(client, served):
    searcher = served.ready()
    for row in range(0, 30, 4):
        data = searcher.file(row).read_bytes()
        answer = client.post("/api/search", params={"k": 3}, files={"image": ("x", data)}).json()
        assert answer["query"] is None
        assert answer["neighbours"][0]["row"] == row
        assert answer["neighbours"][0]["distance"] == pytest.approx(0, abs=1e-6)


def test_a_large_jpeg_becomes_the_same_vector_as_the_file(client, served, tmp_path, generator):
    """Large JPEGs are decoded at a fraction of their size, from a file as from an upload."""
    pixels = np.random.default_rng(0).integers(0, 256, (300, 500, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "large.jpg")
    answer = client.post("/api/embed", files={"image": ("x", (tmp_path / "large.jpg").read_bytes())}).json()
    np.testing.assert_allclose(answer["vector"], served.ready().index.embed(tmp_path / "large.jpg")[0], atol=1e-6)
    assert np.linalg.norm(answer["vector"]) == pytest.approx(1, abs=1e-5)


def test_neighbours_below_the_threshold_of_a_precision_are_the_same_item(client, served):
    answer = client.get("/api/search", params={"row": 0, "k": 29, "precision": 0.8}).json()
    marks = served.ready().index.marks(0.8)
    assert (answer["threshold"], answer["other_threshold"]) == marks
    assert [each["mark"] for each in answer["neighbours"]] == [
        marks.call(each["distance"]) for each in answer["neighbours"]
    ]
    assert {each["same_item"] for each in answer["neighbours"] if each["mark"] == "same"} == {True}
    assert {each["same_item"] for each in answer["neighbours"] if each["mark"] == "unsure"} <= {None}
    plain = client.get("/api/search", params={"row": 0}).json()
    assert {each["same_item"] for each in plain["neighbours"]} == {None}
    assert "0.999" in error_of(client.get("/api/search", params={"row": 0, "precision": 0.999}), 409)


def test_a_sample_is_of_the_class_and_the_same_for_the_same_seed(client):
    first, again, other = (client.get("/api/sample", params={"k": 8, "seed": seed}).json() for seed in (0, 0, 1))
    assert first == again != other
    assert len({each["row"] for each in first["found"]}) == 8
    of_class = client.get("/api/sample", params={"label": EVIL}).json()["found"]
    assert [each["label"] for each in of_class] == [EVIL] * 5


# -- refusing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("row=30", 404, "no row 30"),
        ("row=-1", 404, "no row -1"),
        ("row=x", 422, "row: "),
        ("", 422, "row: field required"),
        ("row=0&k=0", 422, "k: "),
        ("row=0&k=1001", 422, "k: "),
        ("row=0&label=nothing", 404, "no class 'nothing'"),
        ("row=0&precision=0", 422, "precision: "),
        ("row=0&precision=nan", 422, "precision: "),
    ],
)
def test_a_search_that_cannot_be_is_refused_with_a_sentence(client, query, status, words):
    assert words in error_of(client.get(f"/api/search?{query}"), status)


@pytest.mark.parametrize("address", ["/api/image/30", "/api/thumbnail/30", "/api/image/-1", "/nothing", "/api/nothing"])
def test_what_is_not_there_is_a_404_in_json(client, address):
    error_of(client.get(address), 404)


def test_a_wrong_method_is_refused_in_json(client):
    error_of(client.delete("/api/search"), 405)


@pytest.mark.parametrize("address", ["/api/search", "/api/embed"])
@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"nonsense", 415, "not an image"),
        (b"", 415, "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n", 415, "not an image"),
        (b"P6 10 10 255 " + bytes(300), 415, "not an image"),
    ],
    ids=["text", "nothing", "a program for printers", "a format that is not offered"],
)
def test_what_is_not_an_image_is_refused(client, address, data, status, words):
    assert words in error_of(client.post(address, files={"image": ("x.png", data)}), status)


def test_a_cut_off_image_is_refused(client):
    whole = upload(np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8))["image"][1]
    assert "cannot be read" in error_of(client.post("/api/search", files={"image": ("x", whole[:2000])}), 415)


def test_an_upload_without_an_image_is_refused(client):
    assert error_of(client.post("/api/search", data={"other": "x"}), 422).startswith("image: ")
    assert error_of(client.post("/api/search", content=b"raw"), 422).startswith("image: ")


def bomb(width, height):
    """A PNG of a few bytes that says that it is that large."""
    out = io.BytesIO()
    Image.new("L", (1, 1)).save(out, "PNG")
    header = b"IHDR" + struct.pack(">II", width, height) + out.getvalue()[24:29]
    return out.getvalue()[:12] + header + struct.pack(">I", zlib.crc32(header)) + out.getvalue()[33:]


@pytest.mark.parametrize("side", [8_001, 9_999, 30_000], ids=["too many", "Pillow warns", "Pillow refuses itself"])
def test_a_small_file_with_too_many_pixels_is_refused_unread(client, side):
    assert "pixels" in error_of(client.post("/api/search", files={"image": ("bomb.png", bomb(side, side))}), 413)
    assert "cannot be read" in error_of(client.post("/api/search", files={"image": ("x.png", bomb(2, 2))}), 415)


def test_a_mistake_of_ours_is_a_500_that_gives_nothing_away(client, served, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("secret")

    monkeypatch.setattr(served.ready().index, "search", fail)
    assert "secret" not in error_of(client.get("/api/search?row=0"), 500)


def test_an_embedding_that_fails_is_told_to_whoever_waits_and_to_nobody_else(client, served, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(served.ready().index.model, "embed_stored", lambda *_: 1 / 0)
        error_of(client.post("/api/embed", files=upload()), 500)
    assert client.post("/api/embed", files=upload()).status_code == 200


# -- images ------------------------------------------------------------------------------------------------------------


def test_images_come_as_they_are_or_as_png(client, served):
    searcher = served.ready()
    kinds = {".png": "image/png", ".jpg": "image/jpeg", ".webp": "image/webp", ".bmp": "image/png"}
    for row, path in enumerate(searcher.index.paths):
        answer = client.get(f"/api/image/{row}")
        assert answer.headers["content-type"] == kinds[os.path.splitext(path)[1]]
        assert Image.open(io.BytesIO(answer.content)).size == (30, 24)
        if not path.endswith(".bmp"):
            assert answer.content == searcher.file(row).read_bytes()


def test_thumbnails_are_small_jpegs_that_a_browser_may_keep_by_their_version(client, served):
    version = client.get("/api/index").json()["version"]
    answer = client.get(f"/api/thumbnail/3?v={version}")
    assert Image.open(io.BytesIO(answer.content)).format == "JPEG"
    assert "immutable" in answer.headers["cache-control"]
    for address in ("/api/thumbnail/3", "/api/thumbnail/3?v=old"):
        assert client.get(address).headers["cache-control"] == "no-cache"


# -- documentation -----------------------------------------------------------------------------------------------------


def test_every_address_of_the_api_is_documented_with_its_errors(client):
    api = client.get("/openapi.json").json()
    addresses = ("about", "index", "search", "embed", "image/{row}", "thumbnail/{row}", "map", "run", "sample")
    assert {f"/api/{address}" for address in addresses} == set(api["paths"])
    for verbs in api["paths"].values():
        for operation in verbs.values():
            assert operation["description"]
            refusal = operation["responses"]["422"]["content"]["application/json"]["schema"]
            assert refusal["$ref"].endswith("/Problem")


@pytest.mark.parametrize("page", ["/", "/docs"])
def test_pages_load_nothing_from_elsewhere_and_run_nothing_inline(client, page):
    html = client.get(page).text
    assert "//" not in html.replace("<!doctype html>", "")
    assert "<style" not in html
    assert " style=" not in html
    assert html.count("<script") == html.count('<script src="/static/')


def test_where_95_percent_cannot_be_promised_the_page_is_told_what_can_be(client, served, monkeypatch):
    calibration = type(served.ready().index.calibration)
    precisions = calibration.precisions
    monkeypatch.setattr(calibration, "precisions", lambda *of: np.minimum(precisions(*of), 0.874))
    told = client.get("/api/index").json()
    assert "What can be promised" in told["promise"] and "about 87 % are the same item." in told["promise"]
    assert max(each["precision"] for each in told["thresholds"]) == 0.8
