"""The model card: what a stranger must know of a network, in Markdown, from the run's own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pads.config import Config
from pads.data.benchmark import counted
from pads.export.formats import FORMATS
from pads.model import Model
from pads.runs import RunFolder

PROTOCOLS = {
    "selected": "epoch {epoch}, picked on a selection split of classes that are neither trained nor tested on",
    "test-selected": "epoch {epoch}, picked **on the test split itself** (test-selected): the figures are too good",
    "last": "the last epoch; nothing was picked",
}
NAMES = {"map@r": "MAP@R", "r-precision": "R-precision", "nmi": "NMI"}


def model_card(run: RunFolder, model: Model, exported: Mapping[str, Any], labels: Sequence[str] | None) -> str:
    config, metrics = model.config, run.metrics
    title = config.recipe or run.path.name
    parts = [
        f"# {title}: images to vectors that are near when the images look alike",
        summary(model, labels),
        files(exported),
        figures(metrics, exported["checkpoint"]),
        training(config, metrics),
        usage(exported, model),
        limits(run.config, metrics),
    ]
    return "\n\n".join(parts) + "\n"


def summary(model: Model, labels: Sequence[str] | None) -> str:
    config = model.config
    num_weights = sum(weights.numel() for weights in model.network.parameters())
    length = "unit length" if config.network.normalise else "any length"
    classes = "" if labels is None else f" Trained on {counted(len(labels), 'class', 'classes')} (`labels.json`)."
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


def figures(metrics: Mapping[str, Any] | None, checkpoint: str) -> str:
    if metrics is None:
        return "## Figures\n\nThe run was not finished when this was exported: there are none."
    shown = ("raw pixels", "untrained", "trained" if checkpoint == "selected" else "last")
    columns = [name for name in metrics["test"]["trained"] if name.startswith("recall@") or name in NAMES]
    names = [NAMES.get(name, name.replace("recall@", "R@")) for name in columns]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "--:|" * len(columns)]
    for row in shown:
        name = "**this network**" if row == shown[-1] else row
        lines.append(f"| {name} | " + " | ".join(f"{100 * metrics['test'][row][c]:.1f}" for c in columns) + " |")
    selection = metrics["selection"] or {}
    stamp = PROTOCOLS["last" if checkpoint == "last" else metrics["protocol"]].format(epoch=selection.get("epoch"))
    test = metrics["splits"]["test"]
    return "\n".join(
        [
            "## Figures\n",
            f"On the test split, {test['images']:,} images of {test['classes']:,} classes, in percent. Network of {stamp}.\n",
            *lines,
        ]
    )


def training(config: Config, metrics: Mapping[str, Any] | None) -> str:
    root = f", folder `{Path(config.data.root).name}`" if config.data.root else ""
    lines = [
        f"- data: `{config.data.name}`{root}",
        f"- loss `{config.loss.name}`, negatives by `{config.curriculum.name}`, {config.num_epochs} epochs, seed {config.seed}",
    ]
    if metrics is not None:
        splits = ", ".join(
            f"{name} {size['images']:,} images of {size['classes']:,} classes"
            for name, size in metrics["splits"].items()
        )
        lines.insert(1, f"- splits: {splits}")
        lines.append(f"- protocol: **{metrics['protocol']}**, {metrics['steps']:,} steps")
    lines.append(f"- backbone started from: {started_from(metrics, config)}")
    return "\n".join(["## Training\n", *lines])


def started_from(metrics: Mapping[str, Any] | None, config: Config) -> str:
    weights = metrics and metrics["weights"]
    if weights:
        return f"`{weights['file']}` (SHA-256 `{weights['sha256']}`)"
    return "random weights" if config.network.weights is None else f"`{Path(config.network.weights).name}`"


def usage(exported: Mapping[str, Any], model: Model) -> str:
    snippets = [USAGE[name] for name in USAGE if name in exported["formats"]]
    if exported["formats"].keys() & {"onnx", "torch-export"}:
        snippets.insert(0, READING.format(side=model.preprocessing.store_size))
    about = "What has to be done to a picture, and which of it the graphs do themselves, is in `preprocessing.json`."
    return "\n\n".join(["## Use", about, *(f"```python\n{snippet}```" for snippet in snippets)])


def limits(config: Config, metrics: Mapping[str, Any] | None) -> str:
    lines = [
        "- What is alike was learnt from the classes above; on other kinds of pictures, measure before you rely on it.",
        '- Distances mean something within this network only, and a threshold for "the same" has to be calibrated.',
        "- One square crop of the centre is seen: what lies at the edge of a long picture is not.",
    ]
    if config.precision != "float32":
        lines.append(f"- Trained in {config.precision}; exported, and compared with the original, in float32.")
    if metrics is not None and metrics["protocol"] == "test-selected":
        lines.append("- The epoch was picked on the test split, so expect less on new images than the figures say.")
    return "\n".join(["## Limits\n", *lines])


READING = """import numpy as np
from PIL import Image, ImageOps


def read(path):
    with Image.open(path) as file:
        image = ImageOps.exif_transpose(file)
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    square = image.convert("RGB").resize(({side}, {side}), Image.Resampling.LANCZOS)
    return np.asarray(square), image.size


pixels, sizes = map(np.stack, zip(*map(read, ["a.jpg", "b.jpg"])))
"""
USAGE = {
    "onnx": """import onnxruntime

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
