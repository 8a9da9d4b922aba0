"""A trained network with its own preprocessing: `pads.load(RUN).embed(images)`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import torch
from torch import Tensor

from pads.autoconfig import apply_choices, choose_model_input
from pads.build import build_network, pick_device, start_network
from pads.config import MODEL_INPUT, AutoConfig, Config, Data, Network, drop_auto, from_json, lookup, to_json
from pads.data.benchmark import Benchmark
from pads.data.loading import load_views
from pads.data.manifest import check_unchanged, list_data, read_manifest
from pads.data.prepare import Prepared
from pads.data.preprocessing import Preprocessing
from pads.data.store import Source, read_stored
from pads.errors import UserError
from pads.evaluate import Figures, compare_rows, evaluate, metrics_to_report, raw_pixels
from pads.networks import EmbeddingNetwork, Head, PooledFeatures, check_backbone, find_num_features
from pads.runs import RunFolder
from pads.runs.backbone import BACKBONE, is_backbone
from pads.runs.checkpoint import to_safetensors
from pads.runs.hub import HUB, pull
from pads.runs.watch import nobody
from pads.runtime.files import write_atomically
from pads.runtime.precision import float32_rounding, use_threads
from pads.runtime.reading import check_regular

BATCH = 128
CPU_PIXELS = 8 * 224 * 224
"""Of the images that a CPU embeds at once: more of them wait for memory, and need a lot of it."""
SPLITS = ("test", "selection", "reward", "train")


class Model:
    """Embed images with a trained network and its own preprocessing."""

    def __init__(self, network: EmbeddingNetwork, preprocessing: Preprocessing, config: Config) -> None:
        self.network, self.preprocessing, self.config = network.eval(), preprocessing, config

    @torch.no_grad()
    def embed(self, images: Any) -> Tensor:
        """Return one unit vector for each image: a path, a Pillow image or an array (height, width, 3), or an iterable of these."""
        single = isinstance(images, str | Path | np.ndarray) or hasattr(images, "convert")
        listed = [images] if single else list(images)
        vectors = [self._embed_batch(listed[at : at + BATCH]) for at in range(0, len(listed), BATCH)]
        return torch.cat(vectors) if vectors else torch.empty(0, self.config.network.embedding_dim)

    def _embed_batch(self, images: Iterable[Any]) -> Tensor:
        stored, sizes = zip(*map(self.read, images), strict=True)
        return self.embed_stored(stored, sizes)

    def read(self, image: Source) -> tuple[np.ndarray, tuple[int, int]]:
        """Return one image as `embed_stored` takes it: its pixels as a store keeps them, and its width and height."""
        return read_stored(image, self.preprocessing.store_size, self.preprocessing.store_ratio)

    @torch.no_grad()
    def embed_stored(self, stored: Sequence[np.ndarray], sizes: Sequence[tuple[int, int]]) -> Tensor:
        """Return one unit vector for each image that `read` has read."""
        device = next(self.network.parameters()).device
        most = len(stored) if device.type != "cpu" else max(1, CPU_PIXELS // self.preprocessing.image_size**2)
        parts = []
        for at in range(0, len(stored), max(1, most)):
            pixels_BCHW = torch.stack([torch.as_tensor(pixels) for pixels in stored[at : at + most]]).to(device)
            sizes_B2 = torch.tensor(sizes[at : at + most], device=device)
            parts.append(self.network(self.preprocessing.for_evaluation(pixels_BCHW, sizes_B2)).cpu())
        return torch.cat(parts)


class Evaluation(NamedTuple):
    """A network beside what one has without it, on the same images."""

    rows: dict[str, Figures]
    """The baselines that there are, then the network itself, as `own` calls it."""
    own: str
    num_images: int
    num_classes: int

    @property
    def compared(self) -> dict[str, Any]:
        """Of `compare_rows`."""
        return compare_rows(self.rows, self.own)


def evaluate_run(run: RunFolder | Path | str, **options: Any) -> dict[str, float]:
    """The figures of a trained run on one of its splits; options are those of `evaluate_rows`."""
    evaluation = evaluate_rows(run, with_baselines=False, **options)
    return evaluation.rows[evaluation.own]


def evaluate_rows(
    run: RunFolder | Path | str,
    *,
    split: str = "test",
    checkpoint: str = "selected",
    data: str | None = None,
    data_changed: bool = False,
    note: Callable[[str], None] | None = None,
    with_baselines: bool = True,
) -> Evaluation:
    """Measure a trained run, and the baselines beside it, on one of its splits: test, selection, reward or train.

    data: where its images are now; for `backbone:NAME`, the images to measure it on, of which the same are held out to test
    on as `pads train folder` would. Images that are not those that the run began with are refused, unless `data_changed`
    says that this is known; `note` is then told how they differ, and also of changes that were known while it was trained.
    """
    lookup(dict.fromkeys(SPLITS), split, "split")
    if is_backbone(run) and data is None:
        raise UserError(f"{run} has no images of its own: say what to measure it on with --data DIR.")
    model = load(run, checkpoint=checkpoint)
    if data is not None:
        model.config = replace(model.config, data=find_data(model.config.data, data))
    config, folder = model.config, run.path if isinstance(run, RunFolder) else Path(run)

    before = read_manifest(RunFolder(folder).manifest_path)

    def compare(benchmark: Benchmark, prepared: Prepared | None) -> None:
        if before is None:  # of an earlier version, or pulled from the Hub
            return
        now = list_data(config.data, benchmark, prepared, before)
        changes = check_unchanged(before, now, folder, is_known=data_changed)
        added = [f"The images are not those of the training: {changes.count()}."] if changes else []
        if note is not None and (sentence := " ".join([*before.changed, *added])):
            note(sentence)

    with use_threads(config.threads), float32_rounding(config.precision):  # as in training: the same bits
        device = pick_device("auto")
        view = getattr(load_views(config, device, nobody, inspect=compare, known=before), split)
        if len(view) == 0:
            raise UserError(f"the {split} split of this run is empty; take another with --split.")
        measure = partial(evaluate, images=view, metrics=metrics_to_report(config), each_query=with_baselines)
        rows: dict[str, Figures] = {}
        if with_baselines:
            rows["raw pixels"] = measure(raw_pixels, num_restarts=1)
            if not is_backbone(run) and (plain := find_plain(config)) is not None:
                rows["pretrained features"] = measure(plain.to(device), num_restarts=1)
        own = "pretrained features" if is_backbone(run) else "trained" if checkpoint == "selected" else "last"
        rows[own] = measure(model.network)
        return Evaluation(rows, own, len(view), len(view.labels_N.unique()))


def find_plain(config: Config) -> PooledFeatures | None:
    """Return the backbone that a run started from, without a head; None where it had no weights, or they are gone."""
    if config.network.weights is None:
        return None
    with suppress(UserError):
        return PooledFeatures(start_network(config), normalise=True)
    return None


def find_data(data: Data, place: str) -> Data:
    """Return the data of a config at another place; a plain backbone, which has none, reads a folder or a table."""
    is_table = data.name == "folder" and Path(place).suffix.lower() == ".csv" and Path(place).is_file()
    return replace(data, root=place, name="csv" if is_table else data.name)


def load(run: RunFolder | Path | str, *, checkpoint: str = "selected", device: str = "auto") -> Model:
    """Load the network of a run folder, or of `hf://USER/NAME` on the Hub, at its `selected` epoch or `last` checkpoint.

    It also takes a network that was exported, the file `model.safetensors`, and a pretrained one that needs no training:
    `backbone:NAME`.
    """
    if is_backbone(run):
        return load_backbone(str(run), device)
    run = pull(run) if isinstance(run, str) and run.startswith(HUB) else run
    if not isinstance(run, RunFolder) and Path(run).is_file():
        return load_file(Path(run), device)
    folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
    state, config = folder.load_network(checkpoint), folder.config
    with folder.fitting():
        network = build_network(config)
        network.load_state_dict(state)
    return Model(network.to(pick_device(device)), Preprocessing.of(config.data, config.network), config)


# -- a backbone without training ---------------------------------------------------------------------------------------


def load_backbone(name: str, device: str = "auto") -> Model:
    """Load a pretrained backbone as it is: its vectors are its pooled features, of unit length.

    `backbone:NAME` takes the weights that are published for it, `backbone:NAME=FILE` those of a file.
    """
    backbone, _, file = name.removeprefix(BACKBONE).partition("=")
    check_backbone(backbone)
    size = find_num_features(backbone)
    network = Network(backbone, embedding_dim=size, weights=file or "pretrained", head="plain")
    data = Data("folder", selection_share=0.0, reward_share=0.0)
    left = AutoConfig(Config(data=data, network=network), frozenset(MODEL_INPUT))
    config = drop_auto(apply_choices(left, choose_model_input(left)))
    try:
        # a head that changes nothing, but a matrix like any other: whatever saves, loads or exports it need not know
        started = start_network(config, Head(torch.eye(size), torch.zeros(size)))
    except UserError as error:  # the sentences on weights are those of a training
        raise UserError(str(error).replace("with --weights FILE", f"as {BACKBONE}{backbone}=FILE")) from error
    return Model(started.to(pick_device(device)), Preprocessing.of(config.data, config.network), config)


# -- a model as one file -----------------------------------------------------------------------------------------------


def save_file(path: Path, model: Model, **about: str) -> None:
    """Weights by their own names, with the config, preprocessing included, as text beside them; nothing is pickled."""
    tensors = {name: weights.cpu().contiguous() for name, weights in model.network.state_dict().items()}
    metadata = {"format": "pt", "config": to_json(model.config), **about}
    write_atomically(path, to_safetensors(tensors, metadata))


def load_file(path: Path, device: str = "auto") -> Model:
    try:
        check_regular(path)
        with safetensors.safe_open(path, framework="pt") as file:
            config = from_json((file.metadata() or {})["config"])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        network = build_network(config)
        network.load_state_dict(state)
    except (UserError, FileNotFoundError):
        raise
    except (
        OSError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
        AttributeError,
        safetensors.SafetensorError,
    ) as error:
        raise UserError(
            f"{path} is not a whole model of pads: give a run folder, or what `pads export` made."
        ) from error
    return Model(network.to(pick_device(device)), Preprocessing.of(config.data, config.network), config)


BEFORE_TRAINING = ("head", "shrinkage", "freeze")
"""Settings of the network that its weights do not need any more."""


def fingerprint(model: Model) -> str:
    """A digest of all that a vector depends on, apart from the image."""
    digest = hashlib.sha256()
    seen = replace(model.preprocessing, augmentation="none", flip=False, compiled=False)
    settings = asdict(replace(model.config.network, weights=None))
    network = {name: value for name, value in settings.items() if name not in BEFORE_TRAINING}
    digest.update(json.dumps([asdict(seen), network, model.config.precision]).encode())
    for name, weights in sorted(model.network.state_dict().items()):
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}".encode())
        digest.update(weights.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
