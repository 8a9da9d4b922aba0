"""From a config to the images of its roles: reads the data set, decodes it, and places it on the device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pads.config import Config, Data
from pads.data.benchmark import Benchmark, ImageList, LeftOut, count, drop_files, list_few, split_lists
from pads.data.emoji import package_folder
from pads.data.look import Looks, check_bad_images, describe_bad_images, find_copies
from pads.data.manifest import FILES, Manifest, add_copies, base_of_data, list_data, list_looks, list_package
from pads.data.prepare import PIXELS, Prepared, find_rows, open_prepared, read_data, read_listing
from pads.data.preprocessing import Preprocessing
from pads.data.roles import Images, View, Views, all_images, assign_roles, deal_roles, drop_singletons, make_test_view
from pads.data.store import ImageStore, decode_once, load_store, look_at, move_rows, place_store
from pads.errors import UserError
from pads.runs.watch import Watch
from pads.runtime.team import ALONE, Team

IN_WORDS = {"train": "training images", "test": "test images", "selection": "selection images"}
Inspect = Callable[[Benchmark, Prepared | None], None]


def load_views(
    config: Config,
    device: torch.device,
    watch: Watch,
    team: Team = ALONE,
    inspect: Inspect | None = None,
    known: Manifest | None = None,
) -> Views:
    """Read the data set, decode every image once, and deal the training images out to their roles.

    inspect: looks at what was read before anything is decoded, and may refuse it. known: what the look of a run found.
    """
    return deal_roles(config, load_images(config.data, device, watch, team, inspect, known), watch)


def load_images(
    data: Data,
    device: torch.device,
    watch: Watch,
    team: Team = ALONE,
    inspect: Inspect | None = None,
    known: Manifest | None = None,
) -> Images:
    """Decode every image of the data set; of several processes, the first of each machine does it for the others.

    This is the look at the data: all images in one pass, of which those that cannot be read are left out before splits are
    drawn. What it found is the manifest of the images, in the first process; there is none where it was known before.
    """
    listed, prepared = read_data(data, known)
    if inspect is not None:
        inspect(listed, prepared)
    benchmark = replace(listed, selection=None) if data.paper_protocol else listed
    if prepared is not None:
        watch("note", 0, {"notes": benchmark.notes})
        check_bad_images([each for each in benchmark.left_out if each.is_bad], count_images(benchmark), data.strict)
        decode = make_decoder(data, prepared, device, watch, team)
        stores = {split: decode(images, IN_WORDS[split]) for split, images in split_lists(benchmark).items()}
        manifest = list_data(data, listed, prepared) if known is None and team.leads else None
        return Images(benchmark, manifest=manifest, **stores)
    looks = Looks.empty(count_images(benchmark)) if known is None and team.leads else None
    store = decode_once(functools.partial(decode_all, benchmark, data, watch, looks), team)
    bad = {each.path: each.reason for each in store.bad_images}
    if bad and known is not None:
        check_still_read(store.bad_images)
    used = drop_files(benchmark, bad)
    watch("note", 0, {"notes": used.notes})
    manifest = None
    if looks is not None:
        manifest = list_what_was_seen(data, benchmark, used, looks, listed.selection)
    return Images(used, manifest=manifest, **divide_store(store, used, data, device, watch))


def decode_all(benchmark: Benchmark, data: Data, watch: Watch, looks: Looks | None) -> ImageStore:
    """Decode the images of all splits into one store, in the order in which they are used: without the bad ones."""
    everything = join_splits(benchmark)
    store = load_store(
        everything,
        data.store_size,
        data.store_ratio,
        strict=data.strict,
        progress=lambda done, total: watch("decoding", done, {"total": total, "what": "images"}),
        looks=looks,
    )
    if not store.bad_images:
        return store
    used = drop_files(benchmark, {each.path: each.reason for each in store.bad_images})
    rows = np.concatenate(list(find_rows(benchmark, used).values()))
    rows = np.searchsorted(store.kept, rows)
    move_rows(store.pixels.numpy(), rows)
    return replace(
        store, pixels=store.pixels[: len(rows)], sizes_N2=store.sizes_N2[rows], labels_N=store.labels_N[rows]
    )


def look_at_data(data: Data, progress: Callable[[int, int], None] | None = None) -> tuple[Benchmark, Manifest]:
    """Look at all images of a data set without keeping any: what is left of it to train on, and all that was found.

    progress: is told how many images are done, and of how many. Of a prepared store, what was found when it was made.
    """
    root = None if data.root is None else Path(data.root).expanduser()
    if root is not None and (root / PIXELS).is_file():
        prepared = open_prepared(root)
        return prepared.benchmark, list_data(data, prepared.benchmark, prepared)
    listed = read_listing(data)
    looks = Looks.empty(count_images(listed))
    bad = look_at(join_splits(listed), looks, progress=progress)
    check_bad_images(bad, count_images(listed) - len(bad), data.strict)
    used = drop_files(listed, {each.path: each.reason for each in bad})
    return used, list_what_was_seen(data, listed, used, looks, None)


def join_splits(benchmark: Benchmark) -> ImageList:
    """Return the images of all splits in one list, whose labels mean nothing."""
    lists = list(split_lists(benchmark).values())
    boxes = [np.full((len(images), 4), np.nan) if images.boxes is None else images.boxes for images in lists]
    return ImageList(
        paths=tuple(path for images in lists for path in images.paths),
        labels=np.zeros(count_images(benchmark), dtype=np.int64),
        class_names=("",),
        boxes=np.concatenate(boxes) if any(images.boxes is not None for images in lists) else None,
    )


def divide_store(
    store: ImageStore, benchmark: Benchmark, data: Data, device: torch.device, watch: Watch
) -> dict[str, ImageStore]:
    """Return the stores of the splits, each placed where there is room."""
    stores, first = {}, 0
    for split, images in split_lists(benchmark).items():
        part = slice(first, first + len(images))
        own = replace(
            store,
            pixels=store.pixels[part],
            sizes_N2=store.sizes_N2[part],
            labels_N=torch.from_numpy(images.labels.copy()),
            images=images,
            kept=np.arange(len(images)),
            bad_images=(),
        )
        stores[split], sentence = place_store(own, device, data.store_on, what=IN_WORDS[split])
        if device.type != "cpu":
            watch("note", 0, {"notes": (sentence,)})
        first = part.stop
    return stores


def list_what_was_seen(
    data: Data, decoded: Benchmark, used: Benchmark, looks: Looks, unused: ImageList | None
) -> Manifest:
    """Return the manifest of the images that are used, by what the look saw of all that were decoded.

    unused: the selection split, where the protocol does without; a manifest lists it all the same.
    """
    rows = np.concatenate(list(find_rows(decoded, used).values()))
    of_used = Looks([looks.samples[row] for row in rows], looks.signatures.subset(rows))
    seen = dict(zip(join_splits(decoded).paths, looks.samples, strict=True))
    copies, listed = find_copies(used, of_used), replace(used, selection=used.selection or unused)
    if data.root is None:
        return add_copies(list_package(listed), copies, package_folder()[0])
    return list_looks(listed, base_of_data(data), FILES, seen, copies)


def check_still_read(bad: Sequence[LeftOut]) -> None:
    """Refuse images that cannot be read now and could be when the run began: to leave them out would be another run."""
    raise UserError(
        f"{count(len(bad), 'image', 'images')} could be read when the run began, and cannot be now: {list_few(bad)}. Put "
        "back what was changed since: the files, or what reads them."
    )


def count_images(benchmark: Benchmark) -> int:
    return sum(len(images) for images in split_lists(benchmark).values())


def load_selection(config: Config, device: torch.device, watch: Watch, known: Manifest | None = None) -> View:
    """Load the selection split alone, without decoding the images of the other roles where that can be known beforehand.

    known: what the look of the run found. Without it, no other image than those of the split is left out.
    """
    data = config.data
    benchmark, prepared = read_data(data, known)
    if prepared is not None or data.paper_protocol:
        return load_views(config, device, watch, known=known).selection
    images = benchmark.selection
    if images is None:
        images = benchmark.train.subset(assign_roles(data, benchmark.train.labels, data.selection_share).selection)
    store = load_store(
        images,
        data.store_size,
        data.store_ratio,
        progress=lambda done, total: watch("decoding", done, {"total": total, "what": "selection images"}),
    )
    preprocessing = Preprocessing.of(data, config.network, config.compiled)
    return View(store.to(device), drop_singletons(store, watch), preprocessing)


def load_test_view(
    config: Config,
    device: torch.device,
    watch: Watch,
    choose: Callable[[Benchmark, Prepared | None], Benchmark] | None = None,
    known: Manifest | None = None,
) -> View:
    """Load the test split as `load_views` has it; the other images are not decoded.

    choose: returns the benchmark with those test images that are wanted, or as it is.
    """
    benchmark, prepared = read_data(config.data, known)
    benchmark = benchmark if choose is None else choose(benchmark, prepared)
    preprocessing = Preprocessing.of(config.data, config.network, config.compiled)
    store = make_decoder(config.data, prepared, device, watch)(all_images(benchmark.test), "test images")
    return make_test_view(benchmark.test, store, preprocessing, watch)


def find_training_classes(config: Config, known: Manifest | None = None) -> list[str]:
    """Find the names of the classes that a network of this config learns from, without decoding an image."""
    data = config.data
    benchmark, _ = read_data(data, known)
    selection_share = 0.0 if data.paper_protocol or benchmark.selection else data.selection_share
    return list(benchmark.train.subset(assign_roles(data, benchmark.train.labels, selection_share).train).class_names)


def make_decoder(
    data: Data, prepared: Prepared | None, device: torch.device, watch: Watch, team: Team = ALONE
) -> Callable[[ImageList, str], ImageStore]:
    """Return what makes the store of a list of images, on its device: from what was prepared, else by decoding them."""

    def decode(images: ImageList, what: str) -> ImageStore:
        if prepared is not None:
            store = prepared.store(images)
        else:
            load = functools.partial(
                load_store,
                images,
                data.store_size,
                data.store_ratio,
                strict=data.strict,
                progress=lambda done, total: watch("decoding", done, {"total": total, "what": what}),
            )
            store = decode_once(load, team)
        if store.bad_images:
            watch("note", 0, {"notes": (describe_bad_images(store.bad_images),)})
        placed, sentence = place_store(store, device, data.store_on, what=what)
        if device.type != "cpu" or prepared is not None:
            watch("note", 0, {"notes": (sentence,)})
        return placed

    return decode
