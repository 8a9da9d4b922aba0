"""Who may see which images: the four roles of a run, and the batches of each.

Dimensions: B batch, b the own part of it, M batches, N images, C channels, H height, W width.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pads.config import Config, Data
from pads.data.benchmark import Benchmark, ImageList, QueryGallery, count, find_answerable, list_few
from pads.data.manifest import Manifest
from pads.data.preprocessing import Preprocessing
from pads.data.splits import Roles, split_roles
from pads.data.store import ImageStore
from pads.errors import UserError
from pads.runs.watch import Watch, nobody
from pads.runtime.team import ALONE, Team

EVALUATION_BATCH = {"cpu": 128, "cuda": 448}
"""The most images at once."""
CUT_AT_ONCE = 128
"""The most images whose centres are cut out at once: one of 384 x 512 pixels takes 10 MB meanwhile."""
KEPT_CROPS = 2**28
"""Bytes of evaluation crops up to which a view keeps them: 1,783 images of 224 pixels."""


class View:
    """The images of one role. Iterating gives evaluation batches of (images, labels).

    A view is no value: its evaluation crops are the same every time, and it keeps them once they have been cut out.
    """

    def __init__(
        self,
        store: ImageStore,
        indices: np.ndarray | Tensor,
        preprocessing: Preprocessing,
        *,
        among: np.ndarray | None = None,
        batch_size: int | None = None,
        is_query_N: Tensor | None = None,
        is_gallery_N: Tensor | None = None,
    ) -> None:
        """Labels are counted anew, 0 .. C - 1 within the role, or among these images.

        batch_size: of evaluation; the most that the device likes, if none is given.
        """
        self.store, self.preprocessing, self.batch_size = store, preprocessing, batch_size
        self.is_query_N, self.is_gallery_N = is_query_N, is_gallery_N
        self.indices_N = torch.as_tensor(indices, dtype=torch.int64, device=store.device)
        among_N = self.indices_N if among is None else torch.as_tensor(among, dtype=torch.int64, device=store.device)
        classes_C = store.labels_N[among_N].unique()
        self.labels_N = torch.searchsorted(classes_C, store.labels_N[self.indices_N])
        self.num_labels = len(classes_C)
        """All labels are below this: the classes of the role, or more where other draws of it have other classes."""
        self.kept_crops: dict[tuple[int, int], list[Tensor]] = {}
        """The bytes of the evaluation batches, by the first and last batch of a process."""

    def __len__(self) -> int:
        return len(self.indices_N)

    @property
    def num_classes(self) -> int:
        return len(self.labels_N.unique())

    def read_batches(self, picked_MB: Tensor, own: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the pixels of the own part of each batch, sizes and labels of all of it; not augmented yet.

        One batch ahead if the pixels are not on the device.
        """
        indices_MB = self.indices_N[picked_MB]
        stored = self.store.batches(indices_MB[:, own])
        whole = zip(self.store.sizes_N2[indices_MB], self.labels_N[picked_MB], strict=True)
        for (pixels_bCHW, _), (sizes_B2, labels_B) in zip(stored, whole, strict=True):
            yield pixels_bCHW, sizes_B2, labels_B

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.batches()

    def batches(self, team: Team = ALONE) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the evaluation batches; of several processes, each gets its part of them."""
        size = self.batch_size or EVALUATION_BATCH.get(self.store.device.type, 128)
        indices, labels = self.indices_N.split(size), self.labels_N.split(size)
        own = team.share(len(indices))
        if own.start == own.stop:  # nothing is left for this one: a batch without labels, which `embed` leaves out
            indices, labels, own = indices[:1], (labels[0][:0],), slice(0, 1)
        key = (own.start, own.stop)
        crops = self.kept_crops.get(key) or self.cut_out([fill_up(at_B, size) for at_B in indices[own]], key)
        for crops_BCHW, labels_B in zip(crops, labels[own], strict=True):
            yield self.preprocessing.scale(crops_BCHW), labels_B

    def cut_out(self, indices: Sequence[Tensor], key: tuple[int, int]) -> Iterator[Tensor]:
        """Yield the centres of the images of each batch, and keep them if there is room for all."""
        num_bytes = 3 * self.preprocessing.image_size**2 * sum(map(len, indices))
        cut = []
        for pixels_BCHW, sizes_B2 in self.store.batches(indices):
            parts = zip(pixels_BCHW.split(CUT_AT_ONCE), sizes_B2.split(CUT_AT_ONCE), strict=True)
            crops_BCHW = torch.cat([self.preprocessing.cut_centres(*part) for part in parts])
            if num_bytes <= KEPT_CROPS:
                cut.append(crops_BCHW)
            yield crops_BCHW
        if cut:
            self.kept_crops[key] = cut  # not before the last: whoever stops early finds no half of them


def fill_up(at_B: Tensor, size: int) -> Tensor:
    """On a GPU, give every batch the same shape, so that a compiled network is compiled once; `embed` drops the rest."""
    return torch.cat([at_B, at_B[:1].expand(size - len(at_B))]) if at_B.is_cuda else at_B


@dataclass(frozen=True)
class Views:
    """Four roles, never mixed: train, reward (what the policy sees), selection (picks the epoch), test."""

    train: View
    reward: View
    selection: View
    test: View
    notes: tuple[str, ...]
    draw: int = 0
    """Train and reward may be drawn again and again from their common pool; the first draw is 0."""
    redraw: Callable[[int], Views] | None = None
    """Gives the same images with another draw."""
    resample_every: int | None = None

    def at(self, epoch: int) -> Views:
        """Return the roles of an epoch: they depend on it and on the split's seed alone, so that a resumed run finds the same."""
        draw = epoch // self.resample_every if self.resample_every else 0
        return self if draw == self.draw or self.redraw is None else self.redraw(draw)

    @property
    def device(self) -> torch.device:
        return self.train.store.device

    def sizes(self) -> dict[str, dict[str, int]]:
        roles = {"train": self.train, "reward": self.reward, "selection": self.selection, "test": self.test}
        return {name: {"images": len(view), "classes": view.num_classes} for name, view in roles.items()}


@dataclass(frozen=True)
class Images:
    """A data set, decoded."""

    benchmark: Benchmark
    train: ImageStore
    test: ImageStore
    selection: ImageStore | None = None
    manifest: Manifest | None = None
    """What the look found."""


def deal_roles(config: Config, images: Images, watch: Watch, draw: int = 0) -> Views:
    """Deal the training images out to their roles; another draw gives train and reward other images of the same pool."""
    data, preprocessing = config.data, Preprocessing.of(config.data, config.network, config.compiled)
    train = images.train
    usable_N = drop_singletons(train, watch)
    selection_share = 0.0 if data.paper_protocol or images.benchmark.selection else data.selection_share
    roles = assign_roles(data, train.labels_N.cpu().numpy()[usable_N], selection_share, draw)
    watch("note", 0, {"notes": roles.notes})
    # one size for all, since the network is compiled for it: that of the split that is measured most often
    size = even_batches(len(roles.reward)) if train.device.type == "cuda" else None
    if images.selection is not None:
        usable_selection = drop_singletons(images.selection, watch)
        selection = View(images.selection, usable_selection, preprocessing, batch_size=size)
    else:
        selection = View(train, usable_N[roles.selection], preprocessing, batch_size=size)
    # a class keeps its label, and so its boundary in the margin loss, from draw to draw
    pool_N = usable_N[np.concatenate([roles.train, roles.reward])] if data.reward_resample_every else None
    return Views(
        View(train, usable_N[roles.train], preprocessing, among=pool_N),
        View(train, usable_N[roles.reward], preprocessing, batch_size=size),
        selection,
        make_test_view(images.benchmark.test, images.test, preprocessing, watch, size),
        (*images.benchmark.notes, *roles.notes),
        draw,
        functools.partial(deal_roles, config, images, nobody),  # the notes of later draws are those of the first
        data.reward_resample_every,
    )


def even_batches(num_images: int) -> int:
    """Return the size of the fewest equal batches on a GPU, in multiples of 16: 798 images are two of 400."""
    most = EVALUATION_BATCH["cuda"]
    num_batches = max(1, math.ceil(num_images / most))
    return 16 * math.ceil(num_images / num_batches / 16) or most


def assign_roles(data: Data, labels_N: np.ndarray, selection_share: float, draw: int = 0) -> Roles:
    return split_roles(
        labels_N,
        selection_share=selection_share,
        reward_share=data.reward_share,
        reward_split=data.reward_split,
        reward_pick=data.reward_pick,
        seed=data.split_seed,
        draw=draw,
    )


def all_images(test: ImageList | QueryGallery) -> ImageList:
    return test if isinstance(test, ImageList) else test.images


def make_test_view(
    test: ImageList | QueryGallery,
    store: ImageStore,
    preprocessing: Preprocessing,
    watch: Watch,
    batch_size: int | None = None,
) -> View:
    if isinstance(test, ImageList):
        return View(store, drop_singletons(store, watch), preprocessing, batch_size=batch_size)
    kept = test.subset(store.kept)
    is_query = find_answerable(kept) if store.bad_images else kept.is_query
    return View(
        store,
        np.arange(len(store)),
        preprocessing,
        batch_size=batch_size,
        is_query_N=torch.as_tensor(is_query).to(store.device),
        is_gallery_N=torch.as_tensor(kept.is_gallery).to(store.device),
    )


def drop_singletons(store: ImageStore, watch: Watch) -> np.ndarray:
    """Return the images of the store to be used: where bad images left a class with a single one, that has no positive."""
    if not store.bad_images:
        return np.arange(len(store))
    sizes_C = np.bincount(store.images.labels)
    if (sizes_C == 1).all():
        raise UserError("the images that cannot be read leave no class with two images: mend or replace them.")
    if (sizes_C == 1).any():
        names = [store.images.class_names[label] for label in np.flatnonzero(sizes_C == 1)]
        what = count(len(names), "class that they leave", "classes that they leave")
        watch("note", 0, {"notes": (f"Left out {what} with a single image: {list_few(names)}.",)})
    return np.flatnonzero(sizes_C[store.images.labels] > 1)
