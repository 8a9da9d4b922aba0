"""An index in a folder that somebody else made, that a kill left behind, or that holds what is no image."""

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from pads.errors import UserError
from pads.runtime import files as written
from pads.search.index import Index, build_index
from pads.search.serve.maps import read_layout


@pytest.fixture
def own(index, tmp_path):
    """A copy of the index, to be spoilt."""
    return shutil.copytree(index.path, tmp_path / "index")


@pytest.fixture
def folder(photos, tmp_path):
    return shutil.copytree(photos, tmp_path / "photos")


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "precious.txt"
    path.write_text("precious")
    yield path
    assert path.read_text() == "precious"


# -- killed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rebuild", [False, True])
def test_an_index_killed_while_it_writes_its_first_manifest_goes_on(run, photos, own, rebuild):
    manifest = json.loads((own / "index.json").read_text())
    (own / "index.json").rename(own / "index.json.partial")
    (own / "pending").mkdir()
    again = build_index(run, photos, own, rebuild=rebuild)
    assert len(again) == manifest["num_images"]
    assert sorted(each.name for each in own.iterdir()) == sorted(
        ["index.json", "lock", *again.manifest["files"].values()]
    )


# -- no files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["fifo", "zero"])
@pytest.mark.parametrize("kind", ["rows", "vectors", "model", "manifest", "map"])
def test_what_is_no_file_is_not_read(own, kind, what):
    manifest = json.loads((own / "index.json").read_text())
    names = {**manifest["files"], "manifest": "index.json", "map": "map.npz"}
    for checksums in (manifest["checksums"], {}):
        (own / "index.json").unlink()
        (own / "index.json").write_text(json.dumps({**manifest, "checksums": checksums, "sha256": None}))
        (own / names[kind]).unlink(missing_ok=True)
        os.mkfifo(own / names[kind]) if what == "fifo" else (own / names[kind]).symlink_to("/dev/zero")
        if kind == "map":
            assert read_layout(own / "map.npz", "x") is None
        else:
            with pytest.raises(UserError):
                Index.open(own)


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows-2.json.partial", "rows-2.json", "vectors-2.npy", "index.json.partial"])
def test_no_file_of_an_index_is_written_through_a_link(run, folder, own, outside, name):
    (own / name).symlink_to(outside)
    Image.new("RGB", (16, 16)).save(folder / "new.png")
    index = build_index(run, folder, own)
    assert "new.png" in index.paths
    assert not any(each.is_symlink() for each in own.iterdir())


@pytest.mark.parametrize("name", ["lock", "pending"])
def test_a_lock_or_a_folder_that_is_a_link_is_refused(run, folder, own, outside, tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (own / name).unlink(missing_ok=True)
    (own / name).symlink_to(outside if name == "lock" else tmp_path / "elsewhere")
    Image.new("RGB", (16, 16)).save(folder / "new.png")
    with pytest.raises(UserError, match=f"{name} could not be written: it is a link"):
        build_index(run, folder, own)
    assert os.listdir(tmp_path / "elsewhere") == []


# -- no images ---------------------------------------------------------------------------------------------------------


def test_only_regular_files_are_images(run, folder, tmp_path):
    os.mkfifo(folder / "fifo.jpg")
    (folder / "endless.jpg").symlink_to("/dev/zero")
    (folder / "link.png").symlink_to(folder / "class0" / "0.png")
    notes = []
    index = build_index(run, folder, tmp_path / "new", note=notes.append)
    assert "link.png" in index.paths and not {"fifo.jpg", "endless.jpg"} & set(index.paths)
    assert "endless.jpg (not a regular file)" in notes[0] and "fifo.jpg (not a regular file)" in notes[0]
    with pytest.raises(UserError, match="not a regular file"):
        index.embed(folder / "fifo.jpg")


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vectors-1.npy", "rows-1.json", "index.json", "00000000"])
def test_a_full_disk_advises_the_same_command(run, photos, tmp_path, monkeypatch, name):
    replace = os.replace

    def full(source, target):
        if os.path.basename(target).startswith(name):
            raise OSError("100 requested and 50 written")
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(written.os, "replace", full)
        with pytest.raises(UserError, match=r"the disk is full.*run the same command again") as refusal:
            build_index(run, photos, tmp_path / "index")
    assert "--resume" not in str(refusal.value)
    np.testing.assert_array_equal(build_index(run, photos, tmp_path / "index").vectors_ND.shape[0], 35)
    assert len(Index.open(tmp_path / "index")) == 35


# -- damaged -----------------------------------------------------------------------------------------------------------


def change(path, keys, value):
    """Put a value into a JSON file, or take it away."""
    content = json.loads(path.read_text())
    *parents, last = keys
    inner = content
    for key in parents:
        inner = inner[key]
    if value is MISSING:
        del inner[last]
    else:
        inner[last] = value
    if isinstance(content, dict):
        content.pop("sha256", None)  # else nothing would come further than this
    path.write_text(json.dumps(content))


MISSING = object()
DEEP = "[" * 100_000
ANYTHING = (b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe\x00", b"[1, 2]", DEEP.encode(), b'{"format": 1}', b"1e999")


@pytest.mark.parametrize("content", ANYTHING)
@pytest.mark.parametrize("kind", ["manifest", "rows", "vectors", "model"])
def test_any_bytes_in_a_file_of_an_index_are_refused_in_a_sentence(own, kind, content):
    manifest = json.loads((own / "index.json").read_text())
    (own / manifest["files"].get(kind, "index.json")).write_bytes(content)
    with pytest.raises(UserError, match=r"damaged|another version|not a whole model") as refusal:
        Index.open(own)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 1000


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["files"], MISSING),
        (["files", "rows"], MISSING),
        (["files", "vectors"], 3),
        (["files", "vectors"], "/etc/passwd"),
        (["files", "rows"], "../precious.json"),
        (["root"], MISSING),
        (["root"], None),
        (["calibration"], {"num_images": 1}),
        (["calibration", "distances_P"], [1.0]),
        (["calibration", "num_images"], 0),
        (["codes"], {"num_probes": 1, "recall": 1.0}),
        (["codes"], "x"),
        (["num_images"], 7),
        (["num_images"], "many"),
        (["model"], ["x"]),
        (["format"], "1"),
    ],
)
def test_a_nested_key_that_does_not_fit_is_refused_in_a_sentence(own, keys, value):
    change(own / "index.json", keys, value)
    with pytest.raises(UserError, match=r"damaged|another version"):
        Index.open(own)


@pytest.mark.parametrize(
    "row", [None, [], ["a", 1], ["a", "b", 1, "c"], [3, 1, 1, "c"], ["", 1, 1, "c"], {"path": "a"}]
)
def test_a_row_that_is_none_is_refused_in_a_sentence(own, run, photos, row):
    change(own / json.loads((own / "index.json").read_text())["files"]["rows"], [0], row)
    with pytest.raises(UserError, match=r"rows-1\.json is damaged"):
        Index.open(own)
    with pytest.raises(UserError, match="--rebuild"):
        build_index(run, photos, own)
    assert len(build_index(run, photos, own, rebuild=True)) == 35


@pytest.mark.parametrize(
    "array", [np.zeros((3, 8), np.float32), np.zeros((35, 8)), np.zeros(35, np.float32), "objects"]
)
def test_an_array_of_another_kind_is_refused_in_a_sentence(own, array):
    file = own / json.loads((own / "index.json").read_text())["files"]["vectors"]
    np.save(file, np.array([{"a": 1}]) if isinstance(array, str) else array, allow_pickle=True)
    with pytest.raises(UserError, match=r"vectors-1\.npy is damaged"):
        Index.open(own)


def test_a_chunk_of_a_stopped_process_that_does_not_fit_is_embedded_again(own, run, photos):
    from pads.runs.checkpoint import save_state

    (own / "index.json").unlink()
    (own / "pending").mkdir()
    save_state(own / "pending" / "00000000.safetensors", {"model": "x"})
    save_state(own / "pending" / "00000001.safetensors", {"rows": 3, "vectors": None, "model": 1})
    (own / "pending" / "mine.safetensors").write_bytes(b"")
    (own / "rows-x.json").write_text("")
    assert len(build_index(run, photos, own)) == 35


@pytest.mark.parametrize("kind", ["model", "rows", "vectors"])
def test_a_flipped_bit_in_any_file_of_an_index_is_noticed(own, run, photos, kind):
    file = own / json.loads((own / "index.json").read_text())["files"][kind]
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged|not a whole model"):
        Index.open(own)
    with pytest.raises(UserError, match=r"damaged .*--rebuild"):
        build_index(run, photos, own)


def test_a_flipped_digit_in_the_manifest_is_noticed(own):
    text = (own / "index.json").read_text()
    at = text.index("0.", text.index("distances_P")) + 2
    (own / "index.json").write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
    with pytest.raises(UserError, match=r"index\.json is damaged .*checksum"):
        Index.open(own)


def test_an_index_of_an_older_version_without_checksums_is_read(own):
    change(own / "index.json", ["checksums"], MISSING)
    assert len(Index.open(own)) == 35
