"""Data sets of Hugging Face `datasets`, made here on disk: nothing is fetched, but for a name that cannot be reached."""

from __future__ import annotations

import datasets
import numpy as np
import pytest
from PIL import Image

import pads
from pads.config import with_settings
from pads.data.hf import hf
from pads.errors import UserError

NAMES = [f"mug-{label}" for label in range(8)]


def picture(label: int, number: int) -> Image.Image:
    pixels = np.random.default_rng([label, number]).integers(25 * label, 25 * label + 60, (24, 30, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def made(labels, images=4, feature=None, **more):
    """A split with so many images of each label."""
    rows = [(label, number) for label in labels for number in range(images)]
    columns = {"image": [picture(*row) for row in rows], "label": [label for label, _ in rows]}
    features = {"image": datasets.Image(), "label": feature or datasets.ClassLabel(names=NAMES)}
    for name, (values, kind) in more.items():
        columns[name], features[name] = values, kind
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def test_one_split_is_divided_by_class_and_its_images_are_written_once(tmp_path):
    made(range(8)).save_to_disk(str(tmp_path / "mugs"))
    benchmark = hf(tmp_path / "mugs")
    assert (len(benchmark.train), len(benchmark.test)) == (24, 8)
    assert set(benchmark.train.class_names + benchmark.test.class_names) == set(NAMES)
    assert "Held out 2 of 8 classes to test on." in benchmark.notes
    before = {path: path.stat().st_mtime_ns for path in benchmark.train.paths}
    assert {path: path.stat().st_mtime_ns for path in hf(tmp_path / "mugs").train.paths} == before
    first = benchmark.train.paths[1]
    assert np.array_equal(np.asarray(Image.open(first)), np.asarray(picture(0, 1)))
    assert first.suffix == ".png"


def test_its_own_splits_are_taken_and_shared_classes_are_said(tmp_path):
    splits = {"train": made(range(4)), "test": made(range(2, 6)), "validation": made([6, 7]), "extra": made([0])}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "mugs"))
    benchmark = hf(tmp_path / "mugs")
    assert benchmark.train.class_names == tuple(NAMES[:4])
    assert benchmark.test.class_names == tuple(NAMES[2:6])
    assert benchmark.selection is not None
    assert benchmark.selection.class_names == ("mug-6", "mug-7")
    notes = " ".join(benchmark.notes)
    assert "2 classes are in both the train and the test split" in notes
    assert "hold_out=classes" in notes
    assert "Left out the splits extra" in notes
    by_class = hf(tmp_path / "mugs", hold_out="classes")
    assert not set(by_class.train.class_names) & set(by_class.test.class_names)
    assert len(by_class.train) + len(by_class.test) == (4 + 4 + 2 + 1) * 4


def test_a_validation_split_is_the_test_where_there_is_none(tmp_path):
    datasets.DatasetDict({"train": made(range(4)), "validation": made(range(4, 8))}).save_to_disk(
        str(tmp_path / "mugs")
    )
    benchmark = hf(tmp_path / "mugs")
    assert benchmark.test.class_names == tuple(NAMES[4:])
    assert benchmark.selection is None


def test_parquet_and_a_folder_of_images_are_read(tmp_path):
    (tmp_path / "parquet").mkdir()
    made(range(8)).to_parquet(str(tmp_path / "parquet" / "train.parquet"))
    assert hf(tmp_path / "parquet").train.class_names == hf(str(tmp_path / "parquet")).train.class_names
    for label in range(8):
        (tmp_path / "images" / f"mug-{label}").mkdir(parents=True)
        for number in range(3):
            picture(label, number).save(tmp_path / "images" / f"mug-{label}" / f"{number}.png")
    benchmark = hf(tmp_path / "images")
    assert len(benchmark.train) + len(benchmark.test) == 24
    assert all(tmp_path / "images" in path.parents for path in benchmark.train.paths)
    assert not (tmp_path / "images" / ".pads-images").exists()  # the files are there already


def test_labels_may_be_texts_or_numbers_and_rows_without_one_are_left_out(tmp_path):
    rows = made([0, 1, 2, 3], feature=datasets.Value("string")).to_dict()
    rows["label"] = [None if index == 5 else f"item {label}" for index, label in enumerate(rows["label"])]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "texts"))
    benchmark = hf(tmp_path / "texts")
    assert set(benchmark.train.class_names + benchmark.test.class_names) == {f"item {label}" for label in range(4)}
    assert any("Left out 1 row" in note for note in benchmark.notes)


def test_columns_that_can_be_several_are_to_be_named(tmp_path):
    others = [picture(7, 7)] * 16
    made(range(4), mask=(others, datasets.Image())).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(UserError, match=r"2 columns of images \(image, mask\).*image_column"):
        hf(tmp_path / "two")
    assert len(hf(tmp_path / "two", image_column="image").train) == 8
    with pytest.raises(UserError, match=r"image_column is picture, but .* has: image, label, mask"):
        hf(tmp_path / "two", image_column="picture")
    with pytest.raises(UserError, match="does not hold images"):
        hf(tmp_path / "two", image_column="label")
    made(range(4)).rename_column("label", "sort").cast_column("sort", datasets.Value("int64")).save_to_disk(
        str(tmp_path / "sorts")
    )
    with pytest.raises(UserError, match=r"no column of labels among image, sort.*label_column"):
        hf(tmp_path / "sorts")
    assert hf(tmp_path / "sorts", label_column="sort").train.num_classes == 2


def test_what_is_no_data_set_is_refused_in_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="--data USER/NAME"):
        hf()
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").write_text("words")
    for root, words in (
        (tmp_path / "words", "no column of images among text"),
        (tmp_path / "words" / "a.txt", "is a file"),
        (tmp_path / "no where", "there is no folder"),
    ):
        with pytest.raises(UserError, match=words) as refused:
            hf(root)
        assert "\n" not in str(refused.value)

    def unreachable(*_, **options):
        raise ConnectionError("Couldn't reach the Hub\nat all")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    with pytest.raises(UserError, match=r"anna/mugs could not be found .* from the Hub: Couldn't reach the Hub\."):
        hf("anna/mugs")
    with pytest.raises(UserError, match="hold_out must be"):
        hf("anna/mugs", hold_out="rows")


def test_images_of_the_hub_go_into_its_own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **options: None)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: {"train": made(range(8))})
    monkeypatch.chdir(tmp_path)
    benchmark = hf("anna/mugs")
    assert all(tmp_path / "cache" / "pads-images" / "anna--mugs" in path.parents for path in benchmark.train.paths)


def test_a_run_trains_on_one(tmp_path):
    made(range(8)).save_to_disk(str(tmp_path / "mugs"))
    settings = [f"data.root={tmp_path / 'mugs'}", "num_epochs=1", "threads=1", "device=cpu"]
    run = pads.train(with_settings(pads.RECIPES["hf"](), settings), tmp_path / "run")
    assert run.metrics["splits"]["test"] == {"images": 8, "classes": 2}
