"""The model card of a run, in Markdown: what a stranger must know before they use it. For the Hub and for exports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pads
from pads.config import Config
from pads.runs import RunFolder

ROWS = ("raw pixels", "untrained", "trained")
COLUMNS = {"map@r": "MAP@R", "r-precision": "R-precision", "nmi": "NMI"}
PROTOCOLS = {
    "selected": "The epoch was picked on held-out training classes; the test split was measured once, at the end.",
    "test-selected": "**Test-selected:** the epoch was picked on the test split itself, so these figures are optimistic.",
    "last": "The last epoch, without any selection; the test split was measured once, at the end.",
}
LICENCE = (
    "The code of pads is under the MIT licence. These weights were learned from images, and perhaps from the weights of "
    "others: what their licences ask for holds here too. Whoever shares this model states its licence."
)


def model_card(run: RunFolder) -> str:
    """README.md for the Hub or an export: numbers, protocol, how to use it, and a note on the licence."""
    config, figures = run.config, run.metrics
    sections = [
        HEADER,
        f"# {title(config)}",
        f"Images in, vectors of {config.network.embedding_dim} numbers out: a small distance means similar. "
        f"Trained with pads {pads.__version__} (`pip install pads-dml`).",
        "## How to use it",
        USE,
        "## How good it is",
        *(measured(figures) if figures else ["The run is not finished, so nothing was measured."]),
        "## How it was made",
        "\n".join(f"- {name}: {value}" for name, value in made_of(config, figures).items()),
        "## Licence",
        LICENCE,
    ]
    return "\n\n".join(sections) + "\n"


HEADER = """---
library_name: pads
pipeline_tag: image-feature-extraction
tags:
- metric-learning
- image-retrieval
- pads
---"""

USE = """```python
import pads

model = pads.load("FOLDER")  # the folder of these files, or hf://USER/NAME on the Hugging Face Hub
vectors = model.embed(["a.jpg", "b.jpg"])
distance = (vectors[0] - vectors[1]).norm()
```"""


def title(config: Config) -> str:
    return f"{config.recipe or config.data.name}: {config.network.backbone}, {config.network.embedding_dim} dimensions"


def measured(figures: Mapping[str, Any]) -> list[str]:
    """The table of the test split and what picked the epoch."""
    test, size = figures["test"], figures["splits"]["test"]
    names = [name for name in test["trained"] if name.startswith("recall@") or name in COLUMNS]
    heads = [COLUMNS.get(name, "R@" + name.partition("@")[2]) for name in names]
    lines = [f"| | {' | '.join(heads)} |", "|---" + "|--:" * len(heads) + "|"]
    for row in ROWS:
        lines.append(f"| {row} | {' | '.join(f'{100 * test[row][name]:.1f}' for name in names)} |")
    of_what = f"On {size['images']:,} test images of {size['classes']:,} classes, in percent:"
    return [of_what, "\n".join(lines), PROTOCOLS[figures["protocol"]]]


def made_of(config: Config, figures: Mapping[str, Any] | None) -> dict[str, str]:
    """The settings that change what the model is; no path of the machine that trained it."""
    weights = (figures or {}).get("weights")
    made = {
        "data": config.data.name,
        "network": f"{config.network.backbone}, images of {config.data.image_size} pixels",
        "started from": f"{weights['file']} (sha256 {weights['sha256']})" if weights else start(config),
        "loss": config.loss.name,
        "sampling of negatives": config.curriculum.name,
        "batch": f"{config.data.classes_per_batch} classes of {config.data.samples_per_class} images",
        "epochs": str(config.num_epochs),
        "seed": str(config.seed),
    }
    if figures:
        train = figures["splits"]["train"]
        made["trained on"] = f"{train['images']:,} images of {train['classes']:,} classes"
    return made


def start(config: Config) -> str:
    return "random weights" if config.network.weights is None else Path(config.network.weights).name
