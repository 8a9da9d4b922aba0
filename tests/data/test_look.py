"""The look at the data: every file is used or listed with its reason, whatever the order and the number of threads."""

import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pads.config import Data
from pads.data import loading
from pads.data import store as store_module
from pads.data.benchmark import split_lists
from pads.data.loading import load_images, look_at_data
from pads.data.manifest import NAME, describe_manifest, format_manifest, list_data, read_manifest
from pads.data.prepare import prepare, read_data
from pads.data.store import move_rows
from pads.errors import UserError
from pads.runs.watch import nobody

CPU = torch.device("cpu")


def draw(path: Path, seed: int, quality: int = 90) -> None:
    noise = np.random.default_rng(seed).integers(0, 255, (5, 5, 3), dtype=np.uint8)
    picture = Image.fromarray(noise).resize((40, 30), Image.Resampling.BICUBIC)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, "JPEG", quality=quality)


def of(root: Path, **more) -> Data:
    return Data(name="folder", root=str(root), store_size=16, store_ratio=1.0, image_size=8, resize=8, **more)


@pytest.fixture
def photos(tmp_path) -> Path:
    for label in range(8):
        for number in range(4):
            draw(tmp_path / "photos" / f"class-{label}" / f"{number}.jpg", 10 * label + number)
    return tmp_path / "photos"


KINDS = ("good", "words", "empty", "truncated", "copy", "near", "text", "hidden", "loose", "gone link", "fifo")


def add_file(root: Path, kind: str, label: int, number: int) -> None:
    folder = root / f"class-{label}"
    source, path = root / "class-0" / "0.jpg", folder / f"new-{number}.jpg"
    if kind == "good":
        draw(path, 1000 + number)
    elif kind == "words":
        path.write_text("no picture")
    elif kind == "empty":
        path.touch()
    elif kind == "truncated":
        path.write_bytes(source.read_bytes()[:400])
    elif kind == "copy":
        shutil.copyfile(source, path)
    elif kind == "near":
        Image.open(source).save(path, "JPEG", quality=40 + number)  # no two of them the same
    elif kind == "text":
        path.with_suffix(".txt").write_text("a note")
    elif kind == "hidden":
        (folder / f".new-{number}.jpg").touch()
    elif kind == "loose":
        draw(root / f"new-{number}.jpg", 2000 + number)
    elif kind == "gone link":
        path.symlink_to(root / "nowhere.jpg")
    elif kind == "fifo":
        os.mkfifo(path)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7)), max_size=8), st.randoms())
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_file_is_used_or_listed_whatever_the_order_and_the_threads(tmp_path_factory, made, files, chance):
    root = tmp_path_factory.mktemp("mixed") / "photos"
    shutil.copytree(made, root)
    for number, (kind, label) in enumerate(files):
        add_file(root, kind, label, number)
    texts = set()
    for num_threads in (1, 3):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "cpu_count", lambda num=num_threads: num)
            patched.setattr(os, "walk", shuffle(os.walk, chance))
            manifests = [look_at_data(of(root))[1], load_images(of(root), CPU, nobody).manifest]
        texts |= {format_manifest(replace(each, num_near=0, alike=())) for each in manifests}
    assert len(texts) == 1

    manifest = manifests[0]
    used = [entry.path for entries in manifest.splits.values() for entry in entries]
    listed = [entry.path for entry in manifest.left_out]
    names = [Path(parent, name) for parent, _, names in os.walk(root) for name in names if not name.startswith(".")]
    assert sorted(used + listed) == sorted(path.relative_to(root).as_posix() for path in names)
    bad = {entry.path for entry in manifest.bad}
    spoilt = {
        number for number, (kind, _) in enumerate(files) if kind in ("words", "empty", "truncated", "gone link", "fifo")
    }
    assert {int(Path(path).stem.partition("-")[2]) for path in bad} == spoilt
    num_copies = sum(kind == "copy" for kind, _ in files)
    assert manifest.num_copies == num_copies
    across = {(kind, label) for kind, label in files if kind == "copy" and label != 0}
    assert {entry.kind for entry in manifest.alike if entry.kind == "copy"} == ({"copy"} if across else set())


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("made") / "photos"
    for label in range(8):
        for number in range(3):
            draw(root / f"class-{label}" / f"{number}.jpg", 10 * label + number)
    return root


def shuffle(walk, chance: random.Random):
    def shuffled(*given, **options):
        for parent, folders, names in walk(*given, **options):
            chance.shuffle(names)
            yield parent, folders, names

    return shuffled


def test_splits_are_drawn_after_bad_files_have_left(photos):
    """As if they had never been there; pixels and labels of every split are those of the files."""
    expected = load_images(of(photos), CPU, nobody)
    for number, label in enumerate((0, 2, 2, 5)):
        (photos / f"class-{label}" / f"0-bad-{number}.jpg").write_text("no picture")
    (photos / "all-bad").mkdir()
    for number in range(3):
        (photos / "all-bad" / f"{number}.jpg").write_text("no picture")
    notes = []
    found = load_images(of(photos), CPU, lambda kind, step, values: notes.extend(values.get("notes", ())))
    for split, images in split_lists(expected.benchmark).items():
        assert split_lists(found.benchmark)[split].paths == images.paths
        theirs, ours = getattr(expected, split), getattr(found, split)
        assert torch.equal(theirs.pixels, ours.pixels) and torch.equal(theirs.labels_N, ours.labels_N)
        assert torch.equal(theirs.sizes_N2, ours.sizes_N2)
    assert "Left out 1 class of which no image can be read: all-bad." in notes
    assert len(found.manifest.bad) == 7


def test_one_look_is_enough_a_resumed_run_decodes_only_what_it_uses(photos, monkeypatch):
    (photos / "class-3" / "0.jpg").write_text("no picture")
    first = load_images(of(photos), CPU, nobody)
    seen = []
    monkeypatch.setattr(
        store_module,
        "read_stored",
        lambda path, *more, read=store_module.read_stored: seen.append(path) or read(path, *more),
    )
    monkeypatch.setattr(store_module.Looks, "empty", lambda number: pytest.fail("nothing is to be looked at again"))
    again = load_images(of(photos), CPU, nobody, known=first.manifest)
    assert photos / "class-3" / "0.jpg" not in seen and len(seen) == 31
    assert torch.equal(again.train.pixels, first.train.pixels) and again.manifest is None


def test_an_image_that_can_no_longer_be_read_is_refused_by_a_run_that_could(photos):
    first = load_images(of(photos), CPU, nobody)
    path = photos / "class-3" / "0.jpg"
    path.write_text("no picture")
    with pytest.raises(
        UserError, match=r"1 image could be read when the run began, and cannot be now: .*class-3/0.jpg"
    ):
        load_images(of(photos), CPU, nobody, known=first.manifest)


def test_a_bad_image_that_was_mended_is_a_change(photos):
    from pads.data.manifest import find_changes

    (photos / "class-3" / "0.jpg").write_text("no picture")
    data = of(photos)
    before = load_images(data, CPU, nobody).manifest
    assert not find_changes(before, list_data(data, *read_data(data, before), before))
    draw(photos / "class-3" / "0.jpg", 3)
    assert find_changes(before, list_data(data, *read_data(data, before), before)).of_images == {
        "changed": ["class-3/0.jpg"]
    }
    (photos / "class-3" / "0.jpg").unlink()
    assert find_changes(before, list_data(data, *read_data(data, before), before)).of_images == {
        "removed": ["class-3/0.jpg"]
    }


def test_strict_refuses_all_splits_at_once(photos):
    for label in range(8):
        (photos / f"class-{label}" / "0.jpg").write_text("no picture")
    for look in (look_at_data, lambda data: load_images(data, CPU, nobody)):
        with pytest.raises(UserError, match=r"8 of 32 images cannot be used: .*and 3 more; mend or remove them"):
            look(of(photos, strict=True))


def test_copies_in_other_classes_and_splits_are_named_and_others_counted(photos):
    draw(photos / "class-0" / "near.jpg", 1, quality=50)  # of class-0/1.jpg
    shutil.copyfile(photos / "class-0" / "0.jpg", photos / "class-1" / "copy.jpg")
    test = split_lists(read_data(of(photos))[0])["test"].paths[0]
    shutil.copyfile(test, photos / "class-0" / "of-test.jpg")
    manifest = load_images(of(photos), CPU, nobody).manifest
    name = test.relative_to(photos).as_posix()
    assert (manifest.num_copies, manifest.num_near) == (2, 1)
    assert set(manifest.alike) == {
        ("class-0/0.jpg", "class-1/copy.jpg", "copy", "class"),
        ("class-0/of-test.jpg", name, "copy", "class and split"),
    }
    notes = " ".join(describe_manifest(manifest, Path("data.jsonl")))
    assert "2 files are copies of others. 1 image looks the same as another." in notes
    assert f"1 pair of copies in different classes and splits: class-0/of-test.jpg and {name}." in notes


def test_files_that_agree_at_both_ends_only_are_no_copies(photos):
    """A sample is hashed; what it takes for copies is compared as a whole."""
    head, tail = os.urandom(20_000), os.urandom(20_000)
    paths = [photos / "class-0" / "a.bmp", photos / "class-1" / "b.bmp"]
    samples = [loading.Looks.empty(2).samples[0]] * 2
    for path, middle in zip(paths, (b"1", b"2"), strict=True):
        path.write_bytes(head + middle + tail)
    from pads.data.look import group_copies, sample_file

    samples = [sample_file(path) for path in paths]
    assert samples[0] == samples[1] and group_copies(paths, samples) == []
    shutil.copyfile(*paths)
    assert group_copies(paths, [sample_file(path) for path in paths]) == [[0, 1]]


def test_a_prepared_store_keeps_the_list_and_a_run_takes_it_from_there(photos, monkeypatch, tmp_path):
    (photos / "class-2" / "0.jpg").write_text("no picture")
    shutil.copyfile(photos / "class-0" / "0.jpg", photos / "class-1" / "copy.jpg")
    by_files = load_images(of(photos), CPU, nobody)
    prepared = prepare("folder", photos, size=16, ratio=1.0, num_workers=1)
    listed = (prepared.path / NAME).read_text()
    assert [json.loads(line) for line in listed.splitlines()[1:3]] == [
        ["class-2/0.jpg", 10, by_files.manifest.bad[0].content, by_files.manifest.bad[0].reason],
        ["class-0/0.jpg", "class-1/copy.jpg", "copy", "class"],
    ]
    monkeypatch.setattr(store_module, "read_stored", lambda *_: pytest.fail("nothing is to be decoded"))
    by_store = load_images(of(photos), CPU, nobody)
    assert format_manifest(by_store.manifest) == listed
    shutil.move(prepared.path, tmp_path / "moved")
    alone = load_images(of(tmp_path / "moved"), CPU, nobody)
    assert format_manifest(alone.manifest) == listed
    for images in (by_store, alone):
        for split in ("train", "test"):
            theirs, ours = getattr(by_files, split), getattr(images, split)
            rows = torch.arange(len(theirs))
            assert torch.equal(theirs.take(rows)[0], ours.take(rows)[0])
            assert torch.equal(theirs.labels_N, ours.labels_N)


def test_a_manifest_of_an_earlier_version_is_read(photos, tmp_path):
    text = format_manifest(load_images(of(photos), CPU, nobody).manifest).splitlines()
    header = json.loads(text[0])
    for key in ("copies", "near_copies", "left_out", "alike"):
        del header[key]
    (tmp_path / NAME).write_text("\n".join([json.dumps({**header, "format": 1}), *text[1:], ""]))
    assert read_manifest(tmp_path / NAME).num_images == 32


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_moved_to_the_front_in_their_order(seed):
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 99, (20, 3))
    rows = rng.permutation(20)[: rng.integers(0, 21)]
    expected = array[rows]
    move_rows(array, rows)
    assert np.array_equal(array[: len(rows)], expected)
