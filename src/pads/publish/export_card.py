"""The model card of an export: that of the run, with the files and how to use each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pads.data.benchmark import count
from pads.model import Model
from pads.publish.card import LICENCE, how_good, how_made, limits
from pads.publish.formats import FORMATS
from pads.runs import RunFolder


def model_card(run: RunFolder, model: Model, exported: Mapping[str, Any], labels: Sequence[str] | None) -> str:
    config, metrics = model.config, run.metrics
    title = config.recipe or run.path.name
    parts = [
        f"# {title}: images to vectors that are near when the images look alike",
        summary(model, labels),
        files(exported),
        usage(exported),
        how_good(metrics, exported["checkpoint"]),
        how_made(config, metrics),
        limits(run.config),
        LICENCE,
    ]
    return "\n\n".join(parts) + "\n"


def backbone_card(name: str, model: Model, exported: Mapping[str, Any]) -> str:
    """The card of `backbone:NAME`, of which nothing was trained here."""
    weights = model.network.weights_used
    assert weights is not None
    made = [
        f"- network: {model.config.network.backbone}, images of {model.config.data.image_size} pixels",
        f"- weights: {weights.record()['file']} (sha256 {weights.sha256})",
        "- vectors: the pooled features of the network, scaled to unit length; nothing was trained by pads",
    ]
    parts = [
        f"# {model.config.network.backbone}: images to vectors that are near when the images look alike",
        summary(model, None),
        files(exported),
        usage(exported),
        f"## How good it is\n\nNothing was measured here: `pads evaluate {plain_name(name)} --data DIR` does it on your images.",
        "\n".join(["## How it was made\n", *made]),
        limits(model.config),
        LICENCE,
    ]
    return "\n\n".join(parts) + "\n"


def plain_name(name: str) -> str:
    """The name of a backbone without the folder of its file: a card tells nothing of the machine."""
    backbone, equals, file = name.partition("=")
    return backbone + equals + Path(file).name


def summary(model: Model, labels: Sequence[str] | None) -> str:
    config = model.config
    num_weights = sum(weights.numel() for weights in model.network.parameters())
    length = "unit length" if config.network.normalise else "any length"
    classes = "" if labels is None else f" Trained on {count(len(labels), 'class', 'classes')} (`labels.json`)."
    return (
        f"`{config.network.backbone}` with {num_weights:,} weights; {config.data.image_size} x {config.data.image_size} pixels in, "
        f"{config.network.embedding_dim} numbers of {length} out. Made with pads (policy-adapted sampling for visual "
        f"similarity learning, CVPR 2020).{classes}"
    )


def files(exported: Mapping[str, Any]) -> str:
    head = "| file | what | size | largest difference to the original | SHA-256 |\n|---|---|--:|--:|---|"
    rows = []
    for name, each in exported["formats"].items():
        size, difference = f"{each['bytes'] / 1e6:.1f} MB", f"{each['difference']:.0e}"
        rows.append(f"| `{each['file']}` | {FORMATS[name].summary} | {size} | {difference} | `{each['sha256']}` |")
    return "\n".join(["## Files\n", head, *rows])


def usage(exported: Mapping[str, Any]) -> str:
    snippets = [USAGE[name] for name in USAGE if name in exported["formats"]]
    if exported["formats"].keys() & {"onnx", "torch-export"}:
        snippets = [READING, *snippets]
    about = (
        "`preprocess.py` reads pictures of any kind as pads does, with numpy and Pillow alone. What it does, and what the "
        "graphs do themselves, is in `preprocessing.json`."
    )
    return "\n\n".join(["## Use", about, *(f"```python\n{snippet}```" for snippet in snippets)])


READING = """from preprocess import read  # preprocess.py lies beside this card

pixels, sizes = read(["a.jpg", "b.jpg"])
"""
USAGE = {
    "onnx": """import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
vectors = session.run(None, {"pixels": pixels, "sizes": sizes})[0]
distance = np.linalg.norm(vectors[0] - vectors[1])
""",
    "torch-export": """import torch

program = torch.export.load("model.pt2").module()
vectors = program(torch.from_numpy(pixels), torch.from_numpy(sizes))
distance = (vectors[0] - vectors[1]).norm()
""",
    "safetensors": """import pads

vectors = pads.load("model.safetensors").embed(["a.jpg", "b.jpg"])  # reads the pictures itself
distance = (vectors[0] - vectors[1]).norm()
""",
}
"""For each format, after READING where it has a graph; only the last needs pads."""
