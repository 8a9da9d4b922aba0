"""A trained network with its own preprocessing: `pads.load(RUN).embed(images)`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from torch import Tensor

from pads.build import build_network, pick_device
from pads.config import Config, from_json, lookup, to_json
from pads.data.benchmark import Benchmark
from pads.data.loading import load_views
from pads.data.manifest import check_unchanged, list_data, read_manifest
from pads.data.prepare import Prepared
from pads.data.preprocessing import Preprocessing
from pads.data.store import Source, read_stored
from pads.errors import UserError
from pads.evaluate import evaluate, metrics_to_report
from pads.networks import EmbeddingNetwork
from pads.runs import RunFolder
from pads.runs.checkpoint import to_safetensors
from pads.runs.hub import HUB, pull
from pads.runs.watch import nobody
from pads.runtime.files import write_atomically
from pads.runtime.precision import float32_rounding, use_threads
from pads.runtime.reading import check_regular

BATCH = 128
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
        pixels_BCHW = torch.stack([torch.as_tensor(pixels) for pixels in stored]).to(device)
        return self.network(self.preprocessing.for_evaluation(pixels_BCHW, torch.tensor(sizes, device=device))).cpu()


def evaluate_run(
    run: RunFolder | Path | str,
    *,
    split: str = "test",
    checkpoint: str = "selected",
    data_changed: bool = False,
    note: Callable[[str], None] | None = None,
) -> dict[str, float]:
    """The figures of a trained run on one of its splits: test, selection, reward or train.

    Images that are not those that the run began with are refused, unless `data_changed` says that this is known; `note` is
    then told how they differ, and also of changes that were known while it was trained.
    """
    lookup(dict.fromkeys(SPLITS), split, "split")
    model = load(run, checkpoint=checkpoint)
    folder = run.path if isinstance(run, RunFolder) else Path(run)

    before = read_manifest(RunFolder(folder).manifest_path)

    def compare(benchmark: Benchmark, prepared: Prepared | None) -> None:
        if before is None:  # of an earlier version, or pulled from the Hub
            return
        now = list_data(model.config.data, benchmark, prepared, before)
        changes = check_unchanged(before, now, folder, is_known=data_changed)
        added = [f"The images are not those of the training: {changes.count()}."] if changes else []
        if note is not None and (sentence := " ".join([*before.changed, *added])):
            note(sentence)

    with use_threads(model.config.threads), float32_rounding(model.config.precision):  # as in training: the same bits
        view = getattr(load_views(model.config, pick_device("auto"), nobody, inspect=compare, known=before), split)
        if len(view) == 0:
            raise UserError(f"the {split} split of this run is empty; take another with --split.")
        return evaluate(model.network, view, metrics_to_report(model.config))


def load(run: RunFolder | Path | str, *, checkpoint: str = "selected", device: str = "auto") -> Model:
    """Load the network of a run folder, or of `hf://USER/NAME` on the Hub, at its `selected` epoch or `last` checkpoint.

    It also takes a network that was exported: the file `model.safetensors`.
    """
    run = pull(run) if isinstance(run, str) and run.startswith(HUB) else run
    if not isinstance(run, RunFolder) and Path(run).is_file():
        return load_file(Path(run), device)
    folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
    state, config = folder.load_network(checkpoint), folder.config
    with folder.fitting():
        network = build_network(config)
        network.load_state_dict(state)
    return Model(network.to(pick_device(device)), Preprocessing.of(config.data, config.network), config)


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


def fingerprint(model: Model) -> str:
    """A digest of all that a vector depends on, apart from the image."""
    digest = hashlib.sha256()
    seen = replace(model.preprocessing, augmentation="none", flip=False, compiled=False)
    network = replace(model.config.network, weights=None)
    digest.update(json.dumps([asdict(seen), asdict(network), model.config.precision]).encode())
    for name, weights in sorted(model.network.state_dict().items()):
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}".encode())
        digest.update(weights.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
