"""CARS196 (Krause et al. 2013): 196 models of cars, the first 98 to train on and the others to test on.

Class folders are taken by name. That is not quite the official order, but has the same 98 models first.
"""

from __future__ import annotations

from pathlib import Path

from pads.data.benchmark import Benchmark
from pads.data.matlab import read_mat
from pads.data.published import Published, check_benchmark, class_folders, dataset_folder, halves
from pads.errors import UserError
from pads.runtime.reading import check_shape

PUBLISHED = Published(
    "CARS196",
    "a folder with cars_annos.mat and car_ims/*.jpg, or one with a folder of images for each of the 196 models, at "
    "once or dealt into train/ and test/",
    {"train": (8_054, 98), "test": (8_131, 98)},
)


def cars196(root: str | Path | None = None) -> Benchmark:
    """CARS196 with its published split."""
    return read(root, PUBLISHED)


def read(root: str | Path | None, published: Published) -> Benchmark:
    root = dataset_folder(root, published)
    annotations = root / "cars_annos.mat"
    classes = read_annotations(annotations) if annotations.is_file() else class_folders(root)
    return check_benchmark("cars196", halves(classes), published, root)


def read_annotations(annotations: Path) -> list[tuple[str, list[Path]]]:
    """Read each class with its images, in the official order, from the file that gives every image the number of its class."""
    try:
        contents = read_mat(annotations)
        classes: list[tuple[str, list[Path]]] = [(name, []) for name in contents["class_names"]]
        images = contents["annotations"]
        check_shape([*contents["class_names"], *images["relative_im_path"]], [str])
        for path, (number,) in zip(images["relative_im_path"], images["class"], strict=True):
            classes[range(1, 1 + len(classes)).index(int(number))][1].append(annotations.parent / path)
        if not all(paths for _, paths in classes):
            raise ValueError("a class without images")
        return classes
    except (OSError, ValueError, LookupError, TypeError, OverflowError) as error:
        raise UserError(f"{annotations} is not as published: download it again.") from error
