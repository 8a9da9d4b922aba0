"""What the network sees: images of one role, cropped, resampled and normalised on their device.

Dimensions: B batch, N images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pads.config import Config, Data, Network, call, lookup
from pads.data import DATASETS
from pads.data.augment import AUGMENTATIONS, centre_boxes, normalise, resample
from pads.data.benchmark import ImageList, QueryGallery
from pads.data.splits import split_roles
from pads.data.store import ImageStore, load_store

EVALUATION_BATCH = 128


@dataclass(frozen=True)
class Preprocessing:
    """From stored pixels to the network's input; a trained model carries its own."""

    image_size: int
    resize: int
    store_size: int
    augmentation: str
    flip: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @classmethod
    def of(cls, data: Data, network: Network) -> Preprocessing:
        lookup(AUGMENTATIONS, data.augmentation, "augmentation")
        return cls(
            data.image_size, data.resize, data.store_size, data.augmentation, data.flip, network.mean, network.std
        )

    def for_training(self, pixels_BCHW: Tensor, sizes_B2: Tensor, generator: torch.Generator) -> Tensor:
        """A random crop and a random flip in one resampling."""
        boxes_B4 = AUGMENTATIONS[self.augmentation](sizes_B2, resize=self.resize, crop=self.image_size, generator=generator)
        flips_B = None
        if self.flip:
            flips_B = torch.rand(len(sizes_B2), device=sizes_B2.device, generator=generator) < 0.5
        return normalise(resample(pixels_BCHW, boxes_B4, self.image_size, flips_B=flips_B), self.mean, self.std)

    def for_evaluation(self, pixels_BCHW: Tensor, sizes_B2: Tensor) -> Tensor:
        """The centre of the picture."""
        boxes_B4 = centre_boxes(sizes_B2, resize=self.resize, crop=self.image_size)
        return normalise(resample(pixels_BCHW, boxes_B4, self.image_size), self.mean, self.std)


@dataclass(frozen=True)
class View:
    """The images of one role. Iterating gives evaluation batches of (images, labels)."""

    store: ImageStore
    indices_N: Tensor
    labels_N: Tensor
    preprocessing: Preprocessing
    is_query_N: Tensor | None = None
    is_gallery_N: Tensor | None = None

    @classmethod
    def of(cls, store: ImageStore, indices: np.ndarray, preprocessing: Preprocessing, **flags: Tensor) -> View:
        """Labels are counted anew, 0 .. C - 1 within the role."""
        indices_N = torch.as_tensor(indices, dtype=torch.int64, device=store.pixels.device)
        labels_N = store.labels_N[indices_N].unique(return_inverse=True)[1]
        return cls(store, indices_N, labels_N, preprocessing, **flags)

    def __len__(self) -> int:
        return len(self.indices_N)

    @property
    def num_classes(self) -> int:
        return int(self.labels_N.max()) + 1 if len(self) else 0

    def training_batch(self, picked_B: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The picked images of this role, augmented, with their labels."""
        at_B = self.indices_N[picked_B]
        images = self.preprocessing.for_training(self.store.pixels[at_B], self.store.sizes_N2[at_B], generator)
        return images, self.labels_N[picked_B]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for at_B, labels_B in zip(self.indices_N.split(EVALUATION_BATCH), self.labels_N.split(EVALUATION_BATCH), strict=True):
            yield self.preprocessing.for_evaluation(self.store.pixels[at_B], self.store.sizes_N2[at_B]), labels_B


@dataclass(frozen=True)
class Views:
    """Four roles, never mixed: train, reward (what the policy sees), selection (picks the epoch), test."""

    train: View
    reward: View
    selection: View
    test: View
    notes: tuple[str, ...]

    @property
    def device(self) -> torch.device:
        return self.train.store.pixels.device

    def sizes(self) -> dict[str, dict[str, int]]:
        roles = {"train": self.train, "reward": self.reward, "selection": self.selection, "test": self.test}
        return {name: {"images": len(view), "classes": view.num_classes} for name, view in roles.items()}


def load_views(config: Config, device: torch.device, watch: Callable[[str, int, Mapping[str, Any]], None]) -> Views:
    """Reads the data set, decodes every image once, and deals the training images out to their roles."""
    data, preprocessing = config.data, Preprocessing.of(config.data, config.network)
    given = {} if data.root is None else {"root": Path(data.root)}
    benchmark = call(lookup(DATASETS, data.name, "data set"), data.options, "data.options", **given)
    watch("note", 0, {"notes": benchmark.notes})

    def decoded(images: ImageList, what: str) -> ImageStore:
        store = load_store(
            images,
            data.store_size,
            skip_bad_images=data.skip_bad_images,
            progress=lambda done, total: watch("decoding", done, {"total": total, "what": what}),
        )
        if store.bad_images:
            watch("note", 0, {"notes": (bad_images_note(store.bad_images),)})
        return store.to(device)

    train = decoded(benchmark.train, "training images")
    roles = split_roles(
        train.labels_N.cpu().numpy(),
        selection_share=0.0 if data.paper_protocol or benchmark.selection else data.selection_share,
        reward_share=data.reward_share,
        reward_split=data.reward_split,
        reward_pick=data.reward_pick,
        seed=data.split_seed,
    )
    watch("note", 0, {"notes": roles.notes})
    if benchmark.selection and not data.paper_protocol:
        selection = whole(decoded(benchmark.selection, "selection images"), preprocessing)
    else:
        selection = View.of(train, roles.selection, preprocessing)
    return Views(
        View.of(train, roles.train, preprocessing),
        View.of(train, roles.reward, preprocessing),
        selection,
        view_of_test(benchmark.test, decoded, preprocessing),
        (*benchmark.notes, *roles.notes),
    )


def whole(store: ImageStore, preprocessing: Preprocessing) -> View:
    return View.of(store, np.arange(len(store)), preprocessing)


def view_of_test(
    test: ImageList | QueryGallery, decoded: Callable[[ImageList, str], ImageStore], preprocessing: Preprocessing
) -> View:
    if isinstance(test, ImageList):
        return whole(decoded(test, "test images"), preprocessing)
    store = decoded(test.images, "test images")
    kept = test.subset(store.kept)
    flags = {"is_query_N": torch.as_tensor(kept.is_query), "is_gallery_N": torch.as_tensor(kept.is_gallery)}
    return View.of(store, np.arange(len(store)), preprocessing, **{k: v.to(store.pixels.device) for k, v in flags.items()})


def bad_images_note(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"left out {len(names)} image{'s' if len(names) > 1 else ''} that could not be read: {shown}"
