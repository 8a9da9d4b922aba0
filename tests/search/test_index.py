"""An index gives the vectors of its run, survives everything that happens to folders, and embeds nothing twice."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

import pads
from pads.config import with_settings
from pads.data.manifest import read_manifest
from pads.errors import UserError
from pads.model import Model
from pads.search import files
from pads.search import index as index_module
from pads.search.index import Index, build_index, rows_of_labels


@pytest.fixture
def folder(photos, tmp_path):
    return shutil.copytree(photos, tmp_path / "photos")


@pytest.fixture
def num_embedded(monkeypatch):
    """How many images went through the network, so far."""
    counts = []
    embed = Model.embed_stored
    monkeypatch.setattr(
        Model, "embed_stored", lambda self, stored, sizes: counts.append(len(stored)) or embed(self, stored, sizes)
    )
    return lambda: sum(counts)


def expected(run, root, paths):
    return pads.load(run, device="cpu").embed([root / path for path in paths]).numpy()


def noise(seed, size=(20, 16)):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


# -- what is in it -----------------------------------------------------------------------------------------------------


def test_the_vectors_are_those_of_the_run_in_the_order_of_the_paths(index, run, photos):
    assert index.paths == sorted(path.relative_to(photos).as_posix() for path in photos.glob("*/*.png"))
    np.testing.assert_allclose(index.vectors_ND, expected(run, photos, index.paths), atol=1e-6)
    assert index.vectors_ND.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(index.vectors_ND, axis=1), 1, atol=1e-5)
    assert index.root == photos.resolve()


def test_the_label_is_the_folder_directly_below_the_root(run, tmp_path):
    root = tmp_path / "images"
    names = ["loose.png", "Mug/a.png", "mug/deep/er/b.png", "mug-blue/c.png", "mug0/d.png", "mug.d/e.png"]
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        noise(number).save(root / name)
    index = build_index(run, root, tmp_path / "index")
    assert dict(zip(index.paths, index.labels, strict=True)) == {
        name: name.split("/")[0] if "/" in name else None for name in names
    }
    for label in ("Mug", "mug", "mug-blue", "mug0", "mug.d"):
        rows = index.search(index.vectors_ND[:1], 10, label=label)[1]
        assert [index.labels[row] for row in rows[0]] == [label]


def test_the_rows_of_a_label_are_those_that_a_loop_finds():
    rng = np.random.default_rng(0)
    paths = sorted({"".join(rng.choice(list("ab/-0."), 5)) + ".png" for _ in range(300)})
    found = rows_of_labels(paths)
    labels = [files.label_of(path) for path in paths]
    assert found.keys() == {label for label in labels if label is not None}
    for label, rows in found.items():
        assert list(rows) == [row for row, each in enumerate(labels) if each == label]


def test_images_of_every_kind_are_embedded_as_the_run_does(run, tmp_path):
    root = tmp_path / "images"
    root.mkdir()
    picture = noise(0)
    picture.save(root / "rgb.jpg")
    picture.convert("L").save(root / "grey.png")
    picture.convert("1").save(root / "bits.png")
    picture.convert("CMYK").save(root / "cmyk.jpg")
    picture.convert("P").save(root / "palette.png", transparency=3)
    translucent = picture.copy()
    translucent.putalpha(90)
    translucent.save(root / "rgba.webp", lossless=True)
    translucent.convert("LA").save(root / "la.png")
    Image.fromarray(np.arange(320, dtype=np.uint16).reshape(16, 20) * 200).save(root / "16-bit.png")
    picture.save(root / "animated.gif", save_all=True, append_images=[noise(1), noise(2)])
    picture.save(root / "picture.BMP")
    picture.save(root / "picture.tiff")
    index = build_index(run, root, tmp_path / "index")
    assert len(index) == 11
    np.testing.assert_allclose(index.vectors_ND, expected(run, root, index.paths), atol=1e-6)


def test_the_eight_orientations_of_a_photograph_are_one_picture(run, tmp_path):
    root, upright = tmp_path / "images", noise(0, (40, 24))
    root.mkdir()
    turn = Image.Transpose  # what undoes the orientation when it is applied
    undone = {2: turn.FLIP_LEFT_RIGHT, 3: turn.ROTATE_180, 4: turn.FLIP_TOP_BOTTOM, 5: turn.TRANSPOSE}
    undone |= {6: turn.ROTATE_90, 7: turn.TRANSVERSE, 8: turn.ROTATE_270}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = upright if orientation == 1 else upright.transpose(undone[orientation])
        stored.save(root / f"{orientation}.png", exif=exif)
    index = build_index(run, root, tmp_path / "index")
    np.testing.assert_allclose(index.vectors_ND, index.vectors_ND[:1].repeat(8, 0), atol=1e-6)


def test_names_may_hold_anything(run, tmp_path):
    root = tmp_path / "images"
    names = ["ünï 日本/ключ 🔑.png", "two\nlines/a\tb.png", os.fsdecode(b"not-utf8-\xff.png"), "quo'te\"s\\.png"]
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        noise(number).save(root / name, format="png")
    build_index(run, root, tmp_path / "index")
    index = Index.open(tmp_path / "index")
    assert index.paths == sorted(names)
    np.testing.assert_allclose(index.vectors_ND, expected(run, root, index.paths), atol=1e-6)


def test_one_image_makes_an_index(run, tmp_path):
    (tmp_path / "images").mkdir()
    noise(0).save(tmp_path / "images" / "a.png")
    index = build_index(run, tmp_path / "images", tmp_path / "index")
    distances, rows = index.search(index.vectors_ND, 5)
    assert distances.tolist() == [[0.0]] and rows.tolist() == [[0]]
    assert index.labels == [None]


# -- what is left out --------------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_left_out_and_named(run, folder, tmp_path):
    (folder / "class0" / "broken.png").write_bytes(b"no image")
    (folder / "class0" / "cut.png").write_bytes((folder / "class0" / "0.png").read_bytes()[:60])
    (folder / "class0" / "dangling.png").symlink_to(tmp_path / "nowhere.png")
    (folder / "class1" / "list.txt").write_text("text")
    (folder / ".hidden.png").write_bytes(b"no image")
    notes = []
    index = build_index(run, folder, tmp_path / "index", note=notes.append)
    assert len(index) == 35
    bad = next(note for note in notes if "cannot be read" in note)
    assert all(f"class0/{name}.png (" in bad for name in ("broken", "cut", "dangling")) and "3 images" in bad
    assert any(".txt" in note for note in notes)
    assert not any("hidden" in note for note in notes)


def test_a_decompression_bomb_is_left_out_and_a_large_photograph_is_not(run, tmp_path, monkeypatch):
    root = tmp_path / "images"
    root.mkdir()
    noise(0, (30, 30)).save(root / "bomb.png")
    noise(0, (20, 30)).save(root / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    notes = []
    index = build_index(run, root, tmp_path / "index", note=notes.append)
    assert index.paths == ["large.png"]
    assert any("bomb.png (" in note for note in notes)


def test_a_file_that_vanishes_meanwhile_is_left_out_and_named(run, folder, tmp_path):
    notes = []

    def vanish(what, done, total):
        (folder / "class4" / "6.png").unlink(missing_ok=True)

    index = build_index(run, folder, tmp_path / "index", progress=vanish, note=notes.append)
    assert len(index) == 34 and "class4/6.png" not in index.paths
    assert any("class4/6.png (no such file or directory)" in note for note in notes)


def test_links_to_folders_are_followed_once_and_loops_end(run, folder, tmp_path):
    (folder / "class0" / "loop").symlink_to(folder)
    (folder / "a-link-to-class1").symlink_to(folder / "class1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    noise(9).save(elsewhere / "x.png")
    (folder / "linked").symlink_to(elsewhere)
    index = build_index(run, folder, tmp_path / "index")
    assert len(index) == 36
    assert "linked/x.png" in index.paths and "class1/0.png" in index.paths


def test_the_index_itself_may_lie_among_the_images(run, folder):
    for _ in range(2):
        notes = []
        index = build_index(run, folder, folder / "index", note=notes.append)
        assert len(index) == 35 and not any("other kinds" in note for note in notes)


# -- bringing it up to date --------------------------------------------------------------------------------------------


def test_only_new_and_changed_files_are_embedded_and_deleted_ones_leave(run, folder, tmp_path, num_embedded):
    build_index(run, folder, tmp_path / "index")
    before = num_embedded()
    noise(5).save(folder / "class0" / "new.png")
    noise(6).save(folder / "class1" / "0.png")
    (folder / "class2" / "0.png").unlink()
    notes = []
    index = build_index(run, folder, tmp_path / "index", note=notes.append)
    assert num_embedded() - before == 2
    assert "1 new, 1 changed, 1 gone, 33 as before." in notes
    assert "class2/0.png" not in index.paths
    np.testing.assert_allclose(index.vectors_ND, expected(run, folder, index.paths), atol=1e-6)
    assert sum(name.startswith("vectors-") for name in os.listdir(index.path)) == 1


def test_touched_renamed_and_copied_files_are_not_embedded_again(run, folder, tmp_path, num_embedded):
    build_index(run, folder, tmp_path / "index")
    before = num_embedded()
    os.utime(folder / "class0" / "0.png", ns=(1, 1))
    (folder / "class0").rename(folder / "renamed")
    shutil.copy(folder / "class1" / "0.png", folder / "class1" / "copy.png")
    index = build_index(run, folder, tmp_path / "index")
    assert num_embedded() == before
    np.testing.assert_allclose(index.vectors_ND, expected(run, folder, index.paths), atol=1e-6)


def test_nothing_is_written_anew_when_nothing_has_changed(run, folder, tmp_path):
    first = build_index(run, folder, tmp_path / "index")
    assert build_index(run, folder, tmp_path / "index").manifest == first.manifest


def test_a_folder_that_was_moved_is_found_again_without_embedding(run, folder, tmp_path, num_embedded):
    build_index(run, folder, tmp_path / "index")
    before = num_embedded()
    moved = folder.rename(tmp_path / "moved")
    index = build_index(run, moved, tmp_path / "index")
    assert index.root == moved and num_embedded() == before


def test_duplicates_are_all_found_at_distance_0(run, folder, tmp_path):
    for number in range(3):
        shutil.copy(folder / "class1" / "2.png", folder / "class3" / f"copy{number}.png")
    index = build_index(run, folder, tmp_path / "index")
    distances, rows = index.search(index.vectors_ND[index.paths.index("class1/2.png")], 5)
    found = {index.paths[row] for row in rows[0, :4]}
    assert found == {"class1/2.png", "class3/copy0.png", "class3/copy1.png", "class3/copy2.png"}
    assert distances[0, 3] == 0 < distances[0, 4]


def test_a_killed_process_loses_at_most_the_chunk_it_was_at(run, folder, tmp_path, monkeypatch, num_embedded):
    code = f"""
import os, signal
from pads.search import files, build_index
files.CHUNK_IMAGES = 8
def progress(what, done, total):
    if done >= 16:
        os.kill(os.getpid(), signal.SIGKILL)
build_index({str(run.path)!r}, {str(folder)!r}, {str(tmp_path / "index")!r}, device="cpu", progress=progress)
"""
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(UserError, match="not finished"):
        Index.open(tmp_path / "index")
    (tmp_path / "index" / "pending" / "00000001.safetensors").write_bytes(b"cut short")  # as by a full disk
    index = build_index(run, folder, tmp_path / "index")
    calibration = index.calibration.num_images
    assert num_embedded() == 35 - 8 and calibration
    np.testing.assert_allclose(index.vectors_ND, expected(run, folder, index.paths), atol=1e-6)
    assert not (tmp_path / "index" / "pending").exists()


def test_a_process_killed_while_writing_leaves_nothing_in_the_way(run, folder, tmp_path):
    path = tmp_path / "index"
    path.mkdir()
    for name in ("lock", "model-00ff.safetensors", "rows-1.json.partial", "vectors-1.npy", "codes-1.faiss"):
        (path / name).write_bytes(b"half")
    index = build_index(run, folder, path)
    assert sorted(each.name for each in path.iterdir()) == sorted(
        ["index.json", "lock", *index.manifest["files"].values()]
    )


def test_what_somebody_put_beside_the_files_of_an_index_stays(run, folder, tmp_path):
    index = build_index(run, folder, tmp_path / "index")
    (index.path / "notes.txt").write_text("mine")
    noise(5).save(folder / "new.png")
    build_index(run, folder, tmp_path / "index")
    assert (index.path / "notes.txt").read_text() == "mine"


# -- the door ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_run(training_photos, run, tmp_path_factory):
    config = with_settings(run.config, ["seed=5", "num_epochs=1", "data.selection_share=0"])
    return pads.train(config, tmp_path_factory.mktemp("runs") / "other")


def test_an_index_of_another_model_is_refused_unless_rebuilt(run, other_run, folder, tmp_path):
    build_index(run, folder, tmp_path / "index")
    with pytest.raises(UserError, match=r"another model.*--rebuild"):
        build_index(other_run, folder, tmp_path / "index")
    index = build_index(other_run, folder, tmp_path / "index", rebuild=True)
    np.testing.assert_allclose(index.vectors_ND, expected(other_run, folder, index.paths), atol=1e-6)
    assert sum(name.startswith("model-") for name in os.listdir(index.path)) == 1


def test_a_run_without_a_selection_split_gives_no_threshold_and_says_why(other_run, folder, tmp_path):
    index = build_index(other_run, folder, tmp_path / "index")
    assert index.threshold(0.5) is None and "no selection split" in index.not_calibrated


def test_an_index_without_the_images_of_the_run_is_calibrated_later(run, folder, training_photos, tmp_path):
    index = build_index(run, folder, tmp_path / "index", data=str(tmp_path / "gone"))
    assert index.calibration is None and "gone" in index.not_calibrated
    assert build_index(run, folder, tmp_path / "index").calibration is not None


@pytest.mark.parametrize("what", ["empty", "missing", "a file", "only text", "only broken"])
def test_a_folder_without_images_is_refused_and_leaves_nothing(run, tmp_path, what):
    images = tmp_path / "images"
    if what == "a file":
        images.write_text("")
    elif what != "missing":
        images.mkdir()
    if what == "only text":
        (images / "a.txt").write_text("")
    if what == "only broken":
        (images / "a.png").write_text("")
    with pytest.raises(UserError, match=r"images|folder"):
        build_index(run, images, tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_folder_that_lost_its_images_leaves_the_index_as_it_was(run, folder, tmp_path):
    build_index(run, folder, tmp_path / "index")
    shutil.rmtree(folder)
    folder.mkdir()
    with pytest.raises(UserError, match="no images"):
        build_index(run, folder, tmp_path / "index")
    assert len(Index.open(tmp_path / "index")) == 35


def test_a_place_that_is_not_an_index_is_not_touched(run, folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="not an index"):
        build_index(run, folder, tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


@pytest.mark.parametrize("place", ["/proc/index", "file/index"])
def test_a_place_that_cannot_be_written_is_refused_in_a_sentence(run, folder, tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written"):
        build_index(run, folder, tmp_path / place)


def test_one_process_at_a_time(run, folder, tmp_path):
    def again(what, done, total):
        with pytest.raises(UserError, match="another process"):
            build_index(run, folder, tmp_path / "index")

    build_index(run, folder, tmp_path / "index", progress=again)


@pytest.mark.parametrize("damage", ["json", "format", "vectors", "model"])
def test_a_damaged_index_is_refused_in_a_sentence_and_can_be_rebuilt(run, photos, index, tmp_path, damage):
    copy = shutil.copytree(index.path, tmp_path / "copy")
    manifest = json.loads((copy / "index.json").read_text())
    if damage in manifest["files"]:
        (copy / manifest["files"][damage]).unlink()
    else:
        text = "{" if damage == "json" else json.dumps({**manifest, "format": 99})
        (copy / "index.json").write_text(text)
    with pytest.raises(UserError, match=r"damaged|another version"):
        Index.open(copy)
    assert len(build_index(run, photos, copy, rebuild=True)) == 35


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_what_is_not_an_index_is_not_opened(tmp_path, place):
    with pytest.raises(UserError, match="pads index"):
        Index.open(tmp_path / place)


# -- searching ---------------------------------------------------------------------------------------------------------


def naive(vectors_ND, query_D, k, rows=None):
    rows = range(len(vectors_ND)) if rows is None else rows
    return sorted((float(np.linalg.norm(vectors_ND[row] - query_D)), row) for row in rows)[:k]


@pytest.mark.parametrize("k", [1, 4, 35, 1000])
@pytest.mark.parametrize("label", [None, "class3"])
def test_search_finds_what_a_loop_finds(index, k, label):
    queries = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    distances_QK, rows_QK = index.search(queries, k, label=label)
    rows = [row for row, each in enumerate(index.labels) if label in (None, each)]
    assert distances_QK.shape == rows_QK.shape == (6, min(k, len(rows)))
    for query, distances, found in zip(queries, distances_QK, rows_QK, strict=True):
        right = naive(index.vectors_ND, query, k, rows)
        np.testing.assert_allclose(distances, [distance for distance, _ in right], atol=1e-6)
        assert found.tolist() == [row for _, row in right]


def test_images_and_vectors_are_the_same_question(index, photos):
    path = photos / index.paths[11]
    by_image, by_vector = index.search([path, path], 4), index.search(index.embed([path, path]), 4)
    np.testing.assert_array_equal(by_image[1], by_vector[1])
    np.testing.assert_array_equal(index.search(path, 4)[1], by_vector[1][:1])
    with Image.open(path) as image:
        np.testing.assert_array_equal(index.search(np.asarray(image), 4)[1], by_vector[1][:1])


def test_no_query_has_no_answer(index):
    distances, rows = index.search(np.empty((0, 8), dtype=np.float32), 4)
    assert distances.shape == rows.shape == (0, 4)


def test_bad_questions_are_refused(index):
    with pytest.raises(UserError, match="class3"):
        index.search(index.vectors_ND, 1, label="clas3")
    with pytest.raises(UserError, match="at least 1"):
        index.search(index.vectors_ND, 0)
    with pytest.raises(UserError, match=r"\(queries, 8\)"):
        index.search(np.zeros((2, 9)), 1)


def test_without_faiss_torch_searches_and_says_so(index, monkeypatch):
    queries = np.random.default_rng(1).normal(size=(9, 8)).astype(np.float32)
    by_faiss = index.search(queries, 7)
    monkeypatch.setitem(sys.modules, "faiss", None)
    without = Index.open(index.path)
    assert "faiss" in index.engine and without.engine == "torch, exact"
    np.testing.assert_array_equal(without.search(queries, 7)[1], by_faiss[1])
    assert 'pip install "pads-dml[faiss]"' in " ".join(index_module.describe_index(without))


def test_threads_get_the_answers_of_one_thread(index, photos):
    paths = [photos / path for path in index.paths]
    alone = [index.search(path, 5)[1].tolist() for path in paths]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda path: index.search(path, 5)[1].tolist(), paths))
    assert together == alone


def test_an_index_needs_neither_run_nor_images_in_a_fresh_process(run, photos, folder, tmp_path):
    copied = shutil.copytree(run.path, tmp_path / "run")
    index = build_index(copied, folder, tmp_path / "index")
    shutil.rmtree(copied)
    shutil.rmtree(folder)
    moved = index.path.rename(tmp_path / "carried away")
    code = f"""
import pads
index = pads.Index.open({str(moved)!r})
print(*index.search({str(photos / "class2" / "3.png")!r}, 3)[1][0], index.threshold(0.5))
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    rows = index.search(photos / "class2" / "3.png", 3)[1][0]
    assert done.stdout.split() == [*map(str, rows), str(index.threshold(0.5))]


def test_an_index_is_written_into_while_another_reads_it(run, folder, tmp_path):
    reader = build_index(run, folder, tmp_path / "index")
    before = reader.search(reader.vectors_ND, 3)
    noise(3).save(folder / "class0" / "00.png")
    build_index(run, folder, tmp_path / "index")
    np.testing.assert_array_equal(reader.search(reader.vectors_ND, 3)[1], before[1])


def test_pictures_that_are_not_files_can_be_searched_for(index):
    content = io.BytesIO()
    noise(0).save(content, "jpeg")
    assert index.search([Image.open(content)], 2)[1].shape == (1, 2)


def test_files_that_are_left_out_are_listed_beside_the_index_or_refused(run, photos, tmp_path):
    folder, out, notes = tmp_path / "photos", tmp_path / "index", []
    shutil.copytree(photos, folder)
    (folder / "bad.png").write_text("no picture")
    (folder / "notes.txt").write_text("a note")
    with pytest.raises(UserError, match=r"1 of .* cannot be used: bad.png .*without --strict"):
        build_index(run, folder, out, strict=True)
    build_index(run, folder, out, note=notes.append)
    assert any("Left out 1 image that cannot be read: bad.png (not an image" in note for note in notes)
    assert any(note.endswith(f"{out / 'data.jsonl'} lists them.") for note in notes)
    left_out = read_manifest(out / "data.jsonl").left_out
    assert [(entry.path, entry.is_bad) for entry in left_out] == [("bad.png", True), ("notes.txt", False)]
    for name in ("bad.png", "notes.txt"):
        (folder / name).unlink()
    build_index(run, folder, out)
    assert not (out / "data.jsonl").exists()
