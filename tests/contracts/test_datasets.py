"""What every data set must do: name files that exist, with classes counted from 0, and keep training and test apart.

A new data set needs one line in SAMPLES: a function that lays out a small copy of it.
"""

import csv
import sys
from dataclasses import replace

import datasets
import numpy as np
import pytest
from PIL import Image

from pads.data import DATASETS
from pads.data.benchmark import ImageList, QueryGallery
from pads.data.store import load_store
from pads.errors import UserError

every_dataset = pytest.mark.parametrize("name", DATASETS)
NUM_CLASSES, NUM_IMAGES = 8, 4


def picture(path, rng):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (8, 10, 3), dtype=np.uint8)).save(path)


def sample_emoji(root, rng):
    for vendor in range(NUM_IMAGES):
        for code in range(NUM_CLASSES):
            picture(root / f"vendor{vendor}" / f"U+{0x1F600 + code:X}.png", rng)


def sample_folder(root, rng):
    for label in range(NUM_CLASSES):
        for index in range(NUM_IMAGES):
            picture(root / f"class{label}" / f"{index}.png", rng)


def sample_csv(root, rng):
    sample_folder(root, rng)
    with (root / "images.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "split", "path"])
        for label in range(NUM_CLASSES):
            for index in range(NUM_IMAGES):
                writer.writerow([label, "train" if label % 2 else "test", f"class{label}/{index}.png"])


def sample_cub200(root, rng):
    for label in range(NUM_CLASSES):
        for index in range(NUM_IMAGES):
            picture(root / "images" / f"{label + 1:03d}.Bird_{label}" / f"{index}.jpg", rng)


def sample_sop(root, rng):
    for split, labels in (("train", range(1, 5)), ("test", range(5, 9))):
        rows = ["image_id class_id super_class_id path"]
        for label in labels:
            for index in range(NUM_IMAGES):
                picture(root / "bicycle_final" / f"{label}_{index}.jpg", rng)
                rows.append(f"{len(rows)} {label} 1 bicycle_final/{label}_{index}.jpg")
        (root / f"Ebay_{split}.txt").write_text("\n".join(rows))


def sample_inshop(root, rng):
    rows = ["32", "image_name item_id evaluation_status"]
    for label in range(NUM_CLASSES):
        for index in range(NUM_IMAGES):
            name, split = f"img/MEN/id_{label}/{index}.jpg", "train" if label < 4 else ("query", "gallery")[index % 2]
            picture(root / name, rng)
            rows.append(f"{name} id_{label:08d} {split}")
    (root / "list_eval_partition.txt").write_text("\n".join(rows))


def sample_hf(root, rng):
    pictures = [
        Image.fromarray(rng.integers(0, 256, (8, 10, 3), dtype=np.uint8)) for _ in range(NUM_CLASSES * NUM_IMAGES)
    ]
    labels = [f"class{index // NUM_IMAGES}" for index in range(len(pictures))]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    datasets.Dataset.from_dict({"image": pictures, "label": labels}, features=features).save_to_disk(str(root))


SAMPLES = {
    "emoji": sample_emoji,
    "cub200": sample_cub200,
    "cars196": sample_folder,
    "sop": sample_sop,
    "inshop": sample_inshop,
    "folder": sample_folder,
    "csv": sample_csv,
    "hf": sample_hf,
}
SMALL = {"train": (16, 4), "test": (16, 4), "query": (8, 4), "gallery": (8, 4)}
"""Images and classes of a small copy, for the data sets that know how large the real one is."""


@pytest.fixture
def root(name, tmp_path, monkeypatch):
    module = sys.modules[DATASETS[name].__module__]
    if hasattr(module, "PUBLISHED"):
        splits = {split: SMALL[split] for split in module.PUBLISHED.splits}
        monkeypatch.setattr(module, "PUBLISHED", replace(module.PUBLISHED, splits=splits))
    SAMPLES[name](tmp_path / "data", np.random.default_rng(0))
    return tmp_path / "data"


def image_lists(benchmark):
    test = benchmark.test.images if isinstance(benchmark.test, QueryGallery) else benchmark.test
    return [images for images in (benchmark.train, test, benchmark.selection) if images is not None]


@every_dataset
def test_the_images_of_every_data_set_exist_and_can_be_decoded(name, root):
    for images in image_lists(DATASETS[name](root)):
        assert isinstance(images, ImageList)
        assert len(images) > 0
        assert all(path.is_file() for path in images.paths)
        assert load_store(images, 4).pixels.shape == (len(images), 3, 4, 4)


@every_dataset
def test_every_class_of_every_data_set_has_a_number_a_name_and_two_images(name, root):
    for images in image_lists(DATASETS[name](root)):
        assert len(images.class_names) == len(set(images.class_names)) >= 2
        assert np.unique(images.labels).tolist() == list(range(images.num_classes))
        assert np.bincount(images.labels).min() >= 2


@every_dataset
def test_no_image_of_any_data_set_is_in_two_roles_and_none_is_lost(name, root):
    lists = image_lists(DATASETS[name](root))
    paths = [path for images in lists for path in images.paths]
    assert len(paths) == len(set(paths)) == NUM_CLASSES * NUM_IMAGES


@every_dataset
def test_the_test_classes_of_every_data_set_are_unseen_in_training(name, root):
    train, test, *_ = image_lists(DATASETS[name](root))
    assert not set(train.class_names) & set(test.class_names)


@every_dataset
def test_every_data_set_is_the_same_every_time_whether_its_root_is_text_or_a_path(name, root):
    first, second = DATASETS[name](root), DATASETS[name](str(root))
    assert first.name == name
    assert first.notes == second.notes
    for a, b in zip(image_lists(first), image_lists(second), strict=True):
        assert a.paths == b.paths
        assert a.labels.tolist() == b.labels.tolist()
        assert a.class_names == b.class_names


@every_dataset
def test_every_data_set_refuses_a_folder_that_is_missing_or_empty_in_one_sentence(name, tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UserError) as refused:
            DATASETS[name](path)
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)
