"""What a store costs: R@k of a network that was not trained for CUB200-2011, by Pillow from the files and from a store.

    python tools/store_recall.py --data CUB --weights resnet50_he_imagenet1k.safetensors [--size 320 --ratio 1.3333] [--every 10]

Pooled features of `resnet50-he`, unit length, shorter side 256 and centre crop 224, on the test half of the classes. About
ten minutes on one core for each of the two rows; --every 10 takes every tenth class.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from pads.config import Data, Network
from pads.data import DATASETS
from pads.data.augment import normalise
from pads.data.benchmark import ImageList
from pads.data.preprocessing import Preprocessing
from pads.data.roles import View
from pads.data.store import load_store
from pads.evaluate import evaluate
from pads.networks import build_backbone, load_weights

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--size", type=int, default=Data.store_size, help="pixels of the shorter side of the store")
    parser.add_argument("--ratio", type=float, default=Data.store_ratio, help="the longer side over the shorter")
    parser.add_argument("--every", type=int, default=1, help="take every n-th class")
    options = parser.parse_args()
    test = DATASETS["cub200"](options.data).test
    assert isinstance(test, ImageList)
    test = test.subset(np.flatnonzero(test.labels % options.every == 0))
    backbone = build_backbone("resnet50-he").eval()
    print(load_weights(backbone, options.weights))

    def features(images_BCHW: Tensor) -> Tensor:
        return F.normalize(backbone(images_BCHW), dim=1)

    print(f"{len(test):,} images by Pillow:", evaluate(features, by_pillow(test), METRICS), flush=True)
    preprocessing = Preprocessing.of(Data(store_size=options.size, store_ratio=options.ratio), Network())
    view = View(load_store(test, options.size, options.ratio), np.arange(len(test)), preprocessing)
    print(f"from a store of {options.size} pixels, ratio {options.ratio:.3g}:", evaluate(features, view, METRICS))


def by_pillow(images: ImageList, batch: int = 32) -> Iterator[tuple[Tensor, Tensor]]:
    network = Network()
    for at in range(0, len(images), batch):
        pixels = torch.stack([cropped(path) for path in images.paths[at : at + batch]])
        yield normalise(pixels, network.mean, network.std), torch.as_tensor(images.labels[at : at + batch])


def cropped(path: Path) -> Tensor:
    """Shorter side 256 (bilinear with smoothing, as Pillow does it), centre 224."""
    image = Image.open(path).convert("RGB")
    width, height = image.size
    scale = 256 / min(width, height)
    image = image.resize((max(256, int(width * scale)), max(256, int(height * scale))), Image.Resampling.BILINEAR)
    left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255


if __name__ == "__main__":
    with torch.no_grad():
        main()
