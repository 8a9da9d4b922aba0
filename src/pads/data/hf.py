"""A data set of Hugging Face `datasets`: from `save_to_disk`, a folder of parquet files or images, or the Hub."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pads.data.benchmark import Benchmark, ImageList, classes_with_two, count, image_list, list_few, overlap_notes
from pads.data.folder import HOLD_OUTS, MIN_CLASSES, check_num_classes, hold_out_test
from pads.errors import UserError, missing_extra
from pads.runtime.files import NotWritten, make_inner_folder, write_atomically

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
LABEL_COLUMNS = ("label", "labels", "class", "category", "fine_label", "product_id", "item_id", "id")
VALIDATION = ("validation", "val", "valid", "dev")
SUFFIXES = {
    b"\xff\xd8": ".jpg",
    b"\x89P": ".png",
    b"GI": ".gif",
    b"RI": ".webp",
    b"BM": ".bmp",
    b"II": ".tif",
    b"MM": ".tif",
}
"""By the first two bytes of a file."""


def hf(
    root: str | Path | None = None,
    config_name: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    hold_out: str = "auto",
    test_share: float = 0.2,
    skip_small_classes: bool = True,
) -> Benchmark:
    """The images of a `datasets` data set; its own train and test splits if it has them and hold_out is `auto`.

    Else all its images together, of which test_share is held out as in `folder`: of the `classes` or of the `images`.
    """
    if root is None:
        raise UserError("say which data set: --data DIR for a local one, or --data USER/NAME for one on the Hub.")
    if not 0 < test_share < 1:
        raise UserError(f"data.options.test_share (of the classes) must lie between 0 and 1, and is {test_share!r}.")
    if hold_out not in HOLD_OUTS:
        raise UserError(
            f"data.options.hold_out must be {', '.join(HOLD_OUTS[:-1])} or {HOLD_OUTS[-1]}, not {hold_out!r}."
        )
    splits = read_splits(root, config_name)
    place = Path(root).expanduser() / ".pads-images" if Path(root).expanduser().is_dir() else hub_place(str(root))
    columns = {name: columns_of(split, image_column, label_column, str(root)) for name, split in splits.items()}
    lists: dict[str, ImageList] = {}
    notes: tuple[str, ...] = ()
    for name, split in splits.items():
        lists[name], split_notes = images_of(split, *columns[name], place, f"{name} split of {root}")
        notes += split_notes
    if hold_out == "auto" and "train" in lists and find_test_split(lists) is not None:
        return take_published_split(lists, skip_small_classes, str(root), notes)
    images, small_notes = classes_with_two(join_lists(lists.values()), skip_small_classes, str(root))
    return replace(hold_out_test(images, test_share, hold_out, Path(root), notes + small_notes), name="hf")


def read_splits(root: str | Path, config_name: str | None) -> dict[str, Any]:
    """The splits by name, with images as they are stored."""
    try:
        import datasets
    except ImportError as error:
        raise missing_extra("datasets", "hub") from error
    path = Path(root).expanduser()
    if path.is_file():
        raise UserError(f"{root} is a file; --data takes the folder that holds it, or a name on the Hub.")
    if path.is_dir() and not any(path.iterdir()):
        raise UserError(f"{root} is empty; --data takes a folder with a data set, or a name on the Hub.")
    if not path.is_dir() and not HUB_NAME.fullmatch(str(root)):
        raise UserError(f"there is no folder {root}; --data takes a folder with a data set, or a name on the Hub.")
    try:
        if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
            loaded = datasets.load_from_disk(str(path))
        else:
            if not path.is_dir():
                check_reachable(str(root))
            loaded = datasets.load_dataset(str(path if path.is_dir() else root), config_name)
    except Exception as error:  # datasets raises of its own, of pyarrow's and of the Hub's
        what = "read as a data set" if path.is_dir() else "found as a folder here or fetched as a data set from the Hub"
        raise UserError(f"{root} could not be {what}: {first_sentence(error)}.") from error
    return dict(loaded) if isinstance(loaded, Mapping) else {"train": loaded}


def check_reachable(name: str) -> None:
    """Fails at once where `load_dataset` would try for half a minute; with HF_HUB_OFFLINE the cache is all there is."""
    from huggingface_hub import HfApi, constants

    if not constants.HF_HUB_OFFLINE:
        HfApi(library_name="pads").dataset_info(name, timeout=20)


def first_sentence(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().partition("\n")[0].rstrip(".")


def hub_place(name: str) -> Path:
    import datasets

    return Path(datasets.config.HF_DATASETS_CACHE, "pads-images", name.replace("/", "--"))


# -- columns -----------------------------------------------------------------------------------------------------------


def columns_of(split: Any, image: str | None, label: str | None, where: str) -> tuple[str, str]:
    """The columns that hold the images and their classes: those named, or the only ones that can be meant."""
    import datasets

    features = split.features
    for option, column in (("image_column", image), ("label_column", label)):
        if column is not None and column not in features:
            raise UserError(f"data.options.{option} is {column}, but {where} has: {', '.join(features)}.")
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    if image is None and len(images) != 1:
        found = f"{len(images)} columns of images ({', '.join(images)})" if images else "no column of images"
        raise UserError(f"{where} has {found} among {', '.join(features)}: name it by data.options.image_column.")
    labels = [name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
    if label is None and len(labels) != 1:
        labels = [name for name in LABEL_COLUMNS if name in features][:1]
    if label is None and not labels:
        raise UserError(
            f"{where} has no column of labels among {', '.join(features)}: name it by data.options.label_column."
        )
    return image or images[0], label or labels[0]


def images_of(split: Any, image: str, label: str, place: Path, where: str) -> tuple[ImageList, tuple[str, ...]]:
    """The images of a split as files: those that it points to, or written out once from the bytes that it holds."""
    import datasets

    if not isinstance(split.features[image], datasets.Image):
        raise UserError(
            f"the column {image} of the {where} does not hold images: name another by data.options.image_column."
        )
    names = getattr(split.features[label], "names", None)
    fingerprint = hashlib.sha256(str(split._fingerprint).encode()).hexdigest()[:16]
    rows = split.select_columns([image, label]).cast_column(image, datasets.Image(decode=False))
    classes: dict[str, list[Path]] = {}
    num_without = 0
    for index, row in enumerate(rows):
        value, picture = row[label], row[image]
        if value is None or picture is None or (names is not None and value == -1):
            num_without += 1  # -1 is how a test without labels is published
            continue
        name = str(names[value] if names is not None else value)
        classes.setdefault(name, []).append(as_file(picture, place / fingerprint / f"{index:07d}"))
    if not classes:
        raise UserError(f"none of the rows of the {where} has both a label and an image.")
    without = count(num_without, "row", "rows")
    notes = (f"Left out {without} of the {where} without a label or an image.",) if num_without else ()
    return image_list(sorted(classes.items())), notes


def as_file(picture: Mapping[str, Any], path: Path) -> Path:
    """Where the picture lies, written there if it was only bytes."""
    content = picture["bytes"]
    if content is None:
        return Path(picture["path"])
    path = path.with_suffix(SUFFIXES.get(content[:2], ".img"))
    if not path.is_file() or path.stat().st_size != len(content):
        try:
            make_inner_folder(path.parents[1])
            make_inner_folder(path.parent)
            write_atomically(path, content, sync=False)
        except NotWritten as error:
            raise UserError(f"the images cannot be written to {path.parent} ({error.reason}).") from error
    return path


# -- splits ------------------------------------------------------------------------------------------------------------


def find_test_split(splits: Iterable[str]) -> str | None:
    """Find the split to test on: test, else the one for validation."""
    return next((name for name in ("test", *VALIDATION) if name in splits), None)


def take_published_split(
    lists: Mapping[str, ImageList], skip_small_classes: bool, where: str, notes: tuple[str, ...]
) -> Benchmark:
    """Take the splits of the data set itself: train, test, and a validation split beside these to select the epoch."""
    test = find_test_split(lists)
    selection = next((name for name in VALIDATION if name in lists and name != test), None)
    used: dict[str, ImageList] = {}
    for name in filter(None, ("train", test, selection)):
        used[name], small = classes_with_two(lists[name], skip_small_classes, f"the {name} split of {where}")
        check_num_classes(used[name], Path(where), MIN_CLASSES, f"in its {name} split")
        notes += small
    others = [name for name in lists if name not in used]
    if others:
        notes += (f"Left out the splits {list_few(others)} of {where}.",)
    train, test_images, selected = used["train"], used[str(test)], used.get(str(selection))
    overlap = overlap_notes(train, test_images, selected)
    if overlap:
        overlap += ("--set data.options.hold_out=classes would test on classes that training never sees.",)
    return Benchmark("hf", train, test_images, selected, notes + overlap)


def join_lists(lists: Iterable[ImageList]) -> ImageList:
    """Join all images, those of the same class together."""
    classes: dict[str, list[Path]] = {}
    for images in lists:
        for path, label in zip(images.paths, images.labels, strict=True):
            classes.setdefault(images.class_names[label], []).append(path)
    return image_list(sorted(classes.items()))
