"""From a config to the images of its roles: reads the data set, decodes it, and places it on the device."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch

from pads.config import Config, Data
from pads.data.benchmark import Benchmark, ImageList, count, list_few
from pads.data.prepare import Prepared, read_data
from pads.data.preprocessing import Preprocessing
from pads.data.roles import Images, View, Views, all_images, assign_roles, deal_roles, make_test_view
from pads.data.store import ImageStore, decode_once, load_store, place_store
from pads.runs.watch import Watch
from pads.runtime.team import ALONE, Team

Inspect = Callable[[Benchmark, Prepared | None], None]


def load_views(
    config: Config, device: torch.device, watch: Watch, team: Team = ALONE, inspect: Inspect | None = None
) -> Views:
    """Read the data set, decode every image once, and deal the training images out to their roles.

    inspect: looks at what was read before anything is decoded, and may refuse it.
    """
    return deal_roles(config, load_images(config.data, device, watch, team, inspect), watch)


def load_images(
    data: Data, device: torch.device, watch: Watch, team: Team = ALONE, inspect: Inspect | None = None
) -> Images:
    """Decode every image of the data set; of several processes, the first of each machine does it for the others."""
    benchmark, prepared = read_data(data)
    if inspect is not None:
        inspect(benchmark, prepared)
    watch("note", 0, {"notes": benchmark.notes})
    decode = make_decoder(data, prepared, device, watch, team)
    train = decode(benchmark.train, "training images")
    given = None if data.paper_protocol else benchmark.selection
    selection = decode(given, "selection images") if given else None
    return Images(benchmark, train, selection, decode(all_images(benchmark.test), "test images"))


def load_selection(config: Config, device: torch.device, watch: Watch) -> View:
    """Load the selection split alone, without decoding the images of the other roles where that can be known beforehand."""
    data = config.data
    benchmark, prepared = read_data(data)
    if prepared is not None or data.skip_bad_images or data.paper_protocol:
        return load_views(config, device, watch).selection
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
    return View(store.to(device), np.arange(len(store)), preprocessing)


def load_test_view(
    config: Config,
    device: torch.device,
    watch: Watch,
    choose: Callable[[Benchmark, Prepared | None], Benchmark] | None = None,
) -> View:
    """Load the test split as `load_views` has it; the other images are not decoded.

    choose: returns the benchmark with those test images that are wanted, or as it is.
    """
    benchmark, prepared = read_data(config.data)
    benchmark = benchmark if choose is None else choose(benchmark, prepared)
    preprocessing = Preprocessing.of(config.data, config.network, config.compiled)
    store = make_decoder(config.data, prepared, device, watch)(all_images(benchmark.test), "test images")
    return make_test_view(benchmark.test, store, preprocessing, watch)


def find_training_classes(config: Config) -> list[str]:
    """Find the names of the classes that a network of this config learns from, without decoding an image."""
    data = config.data
    benchmark, _ = read_data(data)
    selection_share = 0.0 if data.paper_protocol or benchmark.selection else data.selection_share
    return list(benchmark.train.subset(assign_roles(data, benchmark.train.labels, selection_share).train).class_names)


def make_decoder(
    data: Data, prepared: Prepared | None, device: torch.device, watch: Watch, team: Team = ALONE
) -> Callable[[ImageList, str], ImageStore]:
    """Return what makes the store of a list of images, on its device: from what was prepared, else by decoding them."""

    def decode(images: ImageList, what: str) -> ImageStore:
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
            store = decode_once(load, team)
        if store.bad_images:
            watch("note", 0, {"notes": (describe_bad_images(store.bad_images),)})
        placed, sentence = place_store(store, device, data.store_on, what=what)
        if device.type != "cpu" or prepared is not None:
            watch("note", 0, {"notes": (sentence,)})
        return placed

    return decode


def describe_bad_images(names: tuple[str, ...]) -> str:
    return f"Left out {count(len(names), 'image', 'images')} that cannot be read: {list_few(names)}."
