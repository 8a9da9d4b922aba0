"""CARS196 (Krause et al. 2013): 196 models of cars, the first 98 to train on and the others to test on.

Class folders are taken by name. That is not quite the official order, but has the same 98 models first.
"""

from __future__ import annotations

from pathlib import Path

from pads.data.benchmark import Benchmark
from pads.data.published import Published, checked_benchmark, class_folders, dataset_folder, halves
from pads.errors import UserError

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
    classes = annotated_classes(annotations) if annotations.is_file() else class_folders(root)
    return checked_benchmark("cars196", halves(classes), published, root)


def annotated_classes(annotations: Path) -> list[tuple[str, list[Path]]]:
    """Each class with its images, in the official order, by the file that gives every image the number of its class."""
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError("scipy is needed to read cars_annos.mat; install it with: pip install scipy") from error
    try:
        contents = loadmat(annotations, squeeze_me=True)
        classes: list[tuple[str, list[Path]]] = [(str(name), []) for name in contents["class_names"]]
        images = contents["annotations"]
        for path, number in zip(images["relative_im_path"], images["class"], strict=True):
            classes[int(number) - 1][1].append(annotations.parent / str(path))
        return classes
    except Exception as error:  # scipy raises whatever it stumbles over
        raise UserError(f"{annotations} is not as published: download it again.") from error
