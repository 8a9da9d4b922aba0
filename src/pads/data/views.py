"""What the network sees: images of one role, cropped, resampled and normalised on their device.

Dimensions: B batch, M batches, N images, C channels, H height, W width.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pads.config import Config, Data, Network, lookup
from pads.data.augment import AUGMENTATIONS, centre_crops, normalise, resample
from pads.data.benchmark import Benchmark, ImageList, QueryGallery, counted, listed
from pads.data.prepare import Prepared, read_data
from pads.data.splits import Roles, split_roles
from pads.data.store import ImageStore, are_turned, decoded_once, kept_sizes, load_store, place_store
from pads.errors import UserError
from pads.runtime.team import ALONE, Team

Watch = Callable[[str, int, Mapping[str, Any]], None]
"""See `pads.train.Watch`."""
Inspect = Callable[[Benchmark, Prepared | None], None]
EVALUATION_BATCH = {"cpu": 128, "cuda": 448}
"""The most images at once."""
NUM_SEEN = 400
"""Of the training images that a curriculum may look at."""
CUT_AT_ONCE = 128
"""The most images whose centres are cut out at once: one of 384 x 512 pixels takes 10 MB meanwhile."""
KEPT_CENTRES = 2**28
"""Bytes of evaluation crops up to which a view keeps them: 1,783 images of 224 pixels."""


@dataclass(frozen=True)
class Preprocessing:
    """From stored pixels to the network's input; a trained model carries its own."""

    image_size: int
    resize: int
    store_size: int
    store_ratio: float
    augmentation: str
    flip: bool
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    compiled: bool = False
    """On a GPU: by compiled kernels."""

    @classmethod
    def of(cls, data: Data, network: Network, compiled: bool = False) -> Preprocessing:
        lookup(AUGMENTATIONS, data.augmentation, "augmentation")
        return cls(
            data.image_size,
            data.resize,
            data.store_size,
            data.store_ratio,
            data.augmentation,
            data.flip,
            network.mean,
            network.std,
            compiled,
        )

    def for_training(
        self, pixels_bCHW: Tensor, sizes_B2: Tensor, generator: torch.Generator, own: slice = slice(None)
    ) -> Tensor:
        """A random crop and a random flip in one resampling; drawn for the whole batch, of which the pixels are the own part."""
        boxes_B4 = AUGMENTATIONS[self.augmentation](
            sizes_B2, resize=self.resize, crop=self.image_size, generator=generator
        )
        flips_B = None
        if self.flip:
            flips_B = torch.rand(len(sizes_B2), device=sizes_B2.device, generator=generator) < 0.5
        turned_b, kept_b2 = are_turned(sizes_B2[own], pixels_bCHW.shape), kept_sizes(sizes_B2[own], pixels_bCHW.shape)
        flips_b = None if flips_B is None else flips_B[own]
        cut_out = as_compiled(cut_out_boxes) if self.compiled and pixels_bCHW.is_cuda else cut_out_boxes
        return cut_out(pixels_bCHW, boxes_B4[own], kept_b2, turned_b, flips_b, self.image_size, self.mean, self.std)

    def for_evaluation(self, pixels_BCHW: Tensor, sizes_B2: Tensor) -> Tensor:
        """The centre of the picture."""
        return self.scaled(self.centres(pixels_BCHW, sizes_B2))

    def centres(self, pixels_BCHW: Tensor, sizes_B2: Tensor) -> Tensor:
        """The centres of the pictures in bytes."""
        turned_B, kept_B2 = are_turned(sizes_B2, pixels_BCHW.shape), kept_sizes(sizes_B2, pixels_BCHW.shape)
        return centre_crops(
            pixels_BCHW, sizes_B2, resize=self.resize, crop=self.image_size, kept_B2=kept_B2, turned_B=turned_B
        )

    def scaled(self, crops_BCHW: Tensor) -> Tensor:
        """Bytes as the network takes them."""
        scale = as_compiled(scale_bytes) if self.compiled and crops_BCHW.is_cuda else scale_bytes
        return scale(crops_BCHW, self.mean, self.std)


def cut_out_boxes(
    pixels_BCHW: Tensor,
    boxes_B4: Tensor,
    kept_B2: Tensor,
    turned_B: Tensor | None,
    flips_B: Tensor | None,
    size: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Tensor:
    crops_BCSS = resample(pixels_BCHW, boxes_B4, size, kept_B2=kept_B2, turned_B=turned_B, flips_B=flips_B)
    return normalise(crops_BCSS, mean, std)


def scale_bytes(crops_BCHW: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    return normalise(crops_BCHW.float() / 255, mean, std)


@functools.cache
def as_compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compiled, what surrounds the two matrix products is one kernel each, and so is what makes numbers of bytes."""
    return torch.compile(function, dynamic=False)


@dataclass(frozen=True)
class View:
    """The images of one role. Iterating gives evaluation batches of (images, labels)."""

    store: ImageStore
    indices_N: Tensor
    labels_N: Tensor
    preprocessing: Preprocessing
    is_query_N: Tensor | None = None
    is_gallery_N: Tensor | None = None
    num_labels: int = 0
    """All labels are below this: the classes of the role, or more where other draws of it have other classes."""
    batch_size: int | None = None
    """Of evaluation; the most that the device likes, if none is given."""
    centres: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)
    """The bytes of the evaluation batches, once they have been cut out: they are the same every time."""

    @classmethod
    def of(
        cls,
        store: ImageStore,
        indices: np.ndarray,
        preprocessing: Preprocessing,
        among: np.ndarray | None = None,
        batch_size: int | None = None,
        **flags: Tensor,
    ) -> View:
        """Labels are counted anew, 0 .. C - 1 within the role, or among these images."""
        indices_N = torch.as_tensor(indices, dtype=torch.int64, device=store.device)
        among_N = indices_N if among is None else torch.as_tensor(among, dtype=torch.int64, device=store.device)
        classes_C = store.labels_N[among_N].unique()
        labels_N = torch.searchsorted(classes_C, store.labels_N[indices_N])
        return cls(store, indices_N, labels_N, preprocessing, **flags, num_labels=len(classes_C), batch_size=batch_size)

    def __len__(self) -> int:
        return len(self.indices_N)

    @property
    def team(self) -> Team:
        return self.store.team

    @property
    def num_classes(self) -> int:
        return len(self.labels_N.unique())

    def stored_batches(self, picked_MB: Tensor, own: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Pixels of the own part of each batch, sizes and labels of all of it; not augmented yet.

        One batch ahead if the pixels are not on the device.
        """
        indices_MB = self.indices_N[picked_MB]
        stored = self.store.batches(indices_MB[:, own])
        whole = zip(self.store.sizes_N2[indices_MB], self.labels_N[picked_MB], strict=True)
        for (pixels_bCHW, _), (sizes_B2, labels_B) in zip(stored, whole, strict=True):
            yield pixels_bCHW, sizes_B2, labels_B

    @staticmethod
    def filled(at_B: Tensor, size: int) -> Tensor:
        """On a GPU every batch has the same shape, so that a compiled network is compiled once; `embed` drops the rest."""
        return torch.cat([at_B, at_B[:1].expand(size - len(at_B))]) if at_B.is_cuda else at_B

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Of several processes, each gets its part of the batches."""
        size = self.batch_size or EVALUATION_BATCH.get(self.store.device.type, 128)
        indices, labels = self.indices_N.split(size), self.labels_N.split(size)
        own = self.team.share(len(indices))
        if own.start == own.stop:  # nothing is left for this one: a batch without labels, which `embed` leaves out
            indices, labels, own = indices[:1], (labels[0][:0],), slice(0, 1)
        centres = self.centres or self.cut_out([self.filled(at_B, size) for at_B in indices[own]])
        for crops_BCHW, labels_B in zip(centres, labels[own], strict=True):
            yield self.preprocessing.scaled(crops_BCHW), labels_B

    def cut_out(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """The centres of the images of each batch, which are kept if there is room for all."""
        num_bytes = 3 * self.preprocessing.image_size**2 * sum(map(len, indices))
        cut = []
        for pixels_BCHW, sizes_B2 in self.store.batches(indices):
            parts = zip(pixels_BCHW.split(CUT_AT_ONCE), sizes_B2.split(CUT_AT_ONCE), strict=True)
            crops_BCHW = torch.cat([self.preprocessing.centres(*part) for part in parts])
            if num_bytes <= KEPT_CENTRES:
                cut.append(crops_BCHW)
            yield crops_BCHW
        self.centres[:] = cut  # not before the last: whoever stops early finds no half of them


@dataclass(frozen=True)
class Views:
    """Four roles, never mixed: train, reward (what the policy sees), selection (picks the epoch), test."""

    train: View
    reward: View
    selection: View
    test: View
    seen: View
    """Some of the training images, as evaluation sees them."""
    notes: tuple[str, ...]
    draw: int = 0
    """The how-manieth draw of train and reward from their common pool this is."""
    dealt: Callable[[int], Views] | None = None
    """The same images with another draw."""
    resample_every: int | None = None

    def at(self, epoch: int) -> Views:
        """The roles of an epoch: a function of it and of the split's seed alone, so that a resumed run finds the same."""
        draw = epoch // self.resample_every if self.resample_every else 0
        return self if draw == self.draw or self.dealt is None else self.dealt(draw)

    @property
    def device(self) -> torch.device:
        return self.train.store.device

    @property
    def team(self) -> Team:
        return self.train.team

    def sizes(self) -> dict[str, dict[str, int]]:
        roles = {"train": self.train, "reward": self.reward, "selection": self.selection, "test": self.test}
        return {name: {"images": len(view), "classes": view.num_classes} for name, view in roles.items()}


@dataclass(frozen=True)
class Images:
    """A data set, decoded."""

    benchmark: Benchmark
    train: ImageStore
    selection: ImageStore | None
    test: ImageStore


def load_views(
    config: Config, device: torch.device, watch: Watch, team: Team = ALONE, inspect: Inspect | None = None
) -> Views:
    """Reads the data set, decodes every image once, and deals the training images out to their roles.

    inspect: looks at what was read before anything is decoded, and may refuse it.
    """
    return deal_roles(config, load_images(config.data, device, watch, team, inspect), watch)


def load_images(
    data: Data, device: torch.device, watch: Watch, team: Team = ALONE, inspect: Inspect | None = None
) -> Images:
    benchmark, prepared = read_data(data)
    if inspect is not None:
        inspect(benchmark, prepared)
    watch("note", 0, {"notes": benchmark.notes})
    decoded = decoder(data, prepared, device, watch, team)
    train = decoded(benchmark.train, "training images")
    given = None if data.paper_protocol else benchmark.selection
    selection = decoded(given, "selection images") if given else None
    return Images(benchmark, train, selection, decoded(all_of(benchmark.test), "test images"))


def deal_roles(config: Config, images: Images, watch: Watch, draw: int = 0) -> Views:
    """The training images dealt out to their roles; another draw gives train and reward other images of the same pool."""
    data, preprocessing = config.data, Preprocessing.of(config.data, config.network, config.compiled)
    train = images.train
    usable_N = in_pairs(train, watch)
    selection_share = 0.0 if data.paper_protocol or images.benchmark.selection else data.selection_share
    roles = roles_of(data, train.labels_N.cpu().numpy()[usable_N], selection_share, draw)
    watch("note", 0, {"notes": roles.notes})
    # one size for all, since the network is compiled for it: that of the split that is measured most often
    size = even_batches(len(roles.reward)) if train.device.type == "cuda" else None
    if images.selection is not None:
        selection = View.of(images.selection, in_pairs(images.selection, watch), preprocessing, batch_size=size)
    else:
        selection = View.of(train, usable_N[roles.selection], preprocessing, batch_size=size)
    # a class keeps its label, and so its boundary in the margin loss, from draw to draw
    pool_N = usable_N[np.concatenate([roles.train, roles.reward])] if data.reward_resample_every else None
    trained = View.of(train, usable_N[roles.train], preprocessing, among=pool_N)
    return Views(
        trained,
        View.of(train, usable_N[roles.reward], preprocessing, batch_size=size),
        selection,
        replace(view_of_test(images.benchmark.test, images.test, preprocessing, watch), batch_size=size),
        some_of(trained, size),
        (*images.benchmark.notes, *roles.notes),
        draw,
        functools.partial(deal_roles, config, images, silent),
        data.reward_resample_every,
    )


def even_batches(num_images: int) -> int:
    """The size of the fewest equal batches on a GPU, in multiples of 16: 798 images are two of 400."""
    most = EVALUATION_BATCH["cuda"]
    num_batches = max(1, math.ceil(num_images / most))
    return 16 * math.ceil(num_images / num_batches / 16) or most


def some_of(view: View, batch_size: int | None) -> View:
    """About NUM_SEEN of the images, or one batch of a GPU: as many of each class, at least two, of classes evenly spaced."""
    num = batch_size or NUM_SEEN
    labels_N = view.labels_N.cpu().numpy()
    classes_C = np.unique(labels_N)
    per_class = max(2, num // len(classes_C))
    kept_C = classes_C[np.unique(np.linspace(0, len(classes_C) - 1, max(1, num // per_class)).astype(np.int64))]
    picked = np.concatenate([np.flatnonzero(labels_N == label)[:per_class] for label in kept_C])
    picked_N = torch.as_tensor(picked, device=view.labels_N.device)
    return replace(view, indices_N=view.indices_N[picked_N], labels_N=view.labels_N[picked_N], batch_size=batch_size)


def silent(kind: str, step: int, values: Mapping[str, Any]) -> None:
    """The notes of later draws are those of the first."""


def load_selection(config: Config, device: torch.device, watch: Watch) -> View:
    """The selection split alone, without decoding the images of the other roles where that can be known beforehand."""
    data = config.data
    benchmark, prepared = read_data(data)
    if prepared is not None or data.skip_bad_images or data.paper_protocol:
        return load_views(config, device, watch).selection
    images = benchmark.selection
    if images is None:
        images = benchmark.train.subset(roles_of(data, benchmark.train.labels, data.selection_share).selection)
    store = load_store(
        images,
        data.store_size,
        data.store_ratio,
        progress=lambda done, total: watch("decoding", done, {"total": total, "what": "selection images"}),
    )
    preprocessing = Preprocessing.of(data, config.network, config.compiled)
    return View.of(store.to(device), np.arange(len(store)), preprocessing)


def training_classes(config: Config) -> list[str]:
    """The names of the classes that a network of this config learns from, without decoding an image."""
    data = config.data
    benchmark, _ = read_data(data)
    selection_share = 0.0 if data.paper_protocol or benchmark.selection else data.selection_share
    return list(benchmark.train.subset(roles_of(data, benchmark.train.labels, selection_share).train).class_names)


def roles_of(data: Data, labels_N: np.ndarray, selection_share: float, draw: int = 0) -> Roles:
    return split_roles(
        labels_N,
        selection_share=selection_share,
        reward_share=data.reward_share,
        reward_split=data.reward_split,
        reward_pick=data.reward_pick,
        seed=data.split_seed,
        draw=draw,
    )


def load_test_view(
    config: Config,
    device: torch.device,
    watch: Watch,
    choose: Callable[[Benchmark, Prepared | None], Benchmark] | None = None,
) -> View:
    """The test split as `load_views` has it; the other images are not decoded.

    choose: returns the benchmark with those test images that are wanted, or as it is.
    """
    benchmark, prepared = read_data(config.data)
    benchmark = benchmark if choose is None else choose(benchmark, prepared)
    preprocessing = Preprocessing.of(config.data, config.network, config.compiled)
    store = decoder(config.data, prepared, device, watch)(all_of(benchmark.test), "test images")
    return view_of_test(benchmark.test, store, preprocessing, watch)


def decoder(
    data: Data, prepared: Prepared | None, device: torch.device, watch: Watch, team: Team = ALONE
) -> Callable[[ImageList, str], ImageStore]:
    """Makes the store of a list of images, on its device: from what was prepared, else by decoding them."""

    def decoded(images: ImageList, what: str) -> ImageStore:
        if prepared is not None:
            store = prepared.store(images, skip_bad_images=data.skip_bad_images)
        else:
            load = functools.partial(
                load_store,
                images,
                data.store_size,
                data.store_ratio,
                skip_bad_images=data.skip_bad_images,
                progress=lambda done, total: watch("decoding", done, {"total": total, "what": what}),
            )
            store = decoded_once(load, team)
        if store.bad_images:
            watch("note", 0, {"notes": (bad_images_note(store.bad_images),)})
        placed, sentence = place_store(store, device, data.store_on, what=what)
        if device.type != "cpu" or prepared is not None:
            watch("note", 0, {"notes": (sentence,)})
        return replace(placed, team=team)

    return decoded


def all_of(test: ImageList | QueryGallery) -> ImageList:
    return test if isinstance(test, ImageList) else test.images


def view_of_test(test: ImageList | QueryGallery, store: ImageStore, preprocessing: Preprocessing, watch: Watch) -> View:
    if isinstance(test, ImageList):
        return View.of(store, in_pairs(store, watch), preprocessing)
    kept = test.subset(store.kept)
    is_query = with_answer(kept) if store.bad_images else kept.is_query
    return View.of(
        store,
        np.arange(len(store)),
        preprocessing,
        is_query_N=torch.as_tensor(is_query).to(store.device),
        is_gallery_N=torch.as_tensor(kept.is_gallery).to(store.device),
    )


def with_answer(test: QueryGallery) -> np.ndarray:
    """The queries that bad images have left something to find: another image of the class in the gallery."""
    labels_N = test.images.labels
    in_gallery_C = np.bincount(labels_N, weights=test.is_gallery)
    is_query = test.is_query & (in_gallery_C[labels_N] > test.is_gallery)
    if not is_query.any():
        raise UserError("the test images that cannot be read leave no query with an answer: mend or replace them.")
    return is_query


def in_pairs(store: ImageStore, watch: Watch) -> np.ndarray:
    """The images of the store to be used: where bad images left a class with a single one, that has no positive."""
    if not store.bad_images:
        return np.arange(len(store))
    sizes_C = np.bincount(store.images.labels)
    if (sizes_C == 1).all():
        raise UserError("the images that cannot be read leave no class with two images: mend or replace them.")
    if (sizes_C == 1).any():
        names = [store.images.class_names[label] for label in np.flatnonzero(sizes_C == 1)]
        what = counted(len(names), "class that they leave", "classes that they leave")
        watch("note", 0, {"notes": (f"Left out {what} with a single image: {listed(names)}.",)})
    return np.flatnonzero(sizes_C[store.images.labels] > 1)


def bad_images_note(names: tuple[str, ...]) -> str:
    return f"Left out {counted(len(names), 'image', 'images')} that cannot be read: {listed(names)}."
