"""A trained network with its own preprocessing: `pads.load(RUN).embed(images)`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pads.config import Config, lookup
from pads.data.store import read_stored
from pads.data.views import Preprocessing, load_views
from pads.errors import UserError
from pads.evaluate import evaluate
from pads.networks import EmbeddingNetwork
from pads.parts import build_network, pick_device
from pads.runs import RunFolder
from pads.speed import float32_rounding
from pads.train import fixed_threads, nobody, reported

BATCH = 128
SPLITS = ("test", "selection", "reward", "train")


class Model:
    """Images in, unit vectors out."""

    def __init__(self, network: EmbeddingNetwork, preprocessing: Preprocessing, config: Config) -> None:
        self.network, self.preprocessing, self.config = network.eval(), preprocessing, config

    @torch.no_grad()
    def embed(self, images: Any) -> Tensor:
        """One row for each image: a path, a Pillow image or an array (height, width, 3), or an iterable of these."""
        single = isinstance(images, str | Path | np.ndarray) or hasattr(images, "convert")
        listed = [images] if single else list(images)
        device = next(self.network.parameters()).device
        vectors = [self._embed_batch(listed[at : at + BATCH], device) for at in range(0, len(listed), BATCH)]
        return torch.cat(vectors) if vectors else torch.empty(0, self.config.network.embedding_dim)

    def _embed_batch(self, images: Iterable[Any], device: torch.device) -> Tensor:
        size, ratio = self.preprocessing.store_size, self.preprocessing.store_ratio
        stored, sizes = zip(*(read_stored(image, size, ratio) for image in images), strict=True)
        pixels_BCHW = torch.stack([torch.as_tensor(pixels) for pixels in stored]).to(device)
        return self.network(self.preprocessing.for_evaluation(pixels_BCHW, torch.tensor(sizes, device=device))).cpu()


def evaluate_run(run: RunFolder | Path | str, *, split: str = "test", checkpoint: str = "selected") -> dict[str, float]:
    """The figures of a trained run on one of its splits: test, selection, reward or train."""
    lookup(dict.fromkeys(SPLITS), split, "split")
    model = load(run, checkpoint=checkpoint)
    with fixed_threads(model.config.threads), float32_rounding(model.config.precision):  # as in training: the same bits
        view = getattr(load_views(model.config, pick_device("auto"), nobody), split)
        if len(view) == 0:
            raise UserError(f"the {split} split of this run is empty; take another with --split.")
        return evaluate(model.network, view, reported(model.config))


def load(run: RunFolder | Path | str, *, checkpoint: str = "selected", device: str = "auto") -> Model:
    """The network of a run folder at its `selected` epoch, or at its `last` checkpoint."""
    folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
    config = folder.config
    network = build_network(config)
    state = folder.load_network(checkpoint)
    with folder.fitting():
        network.load_state_dict(state)
    return Model(network.to(pick_device(device)), Preprocessing.of(config.data, config.network), config)
