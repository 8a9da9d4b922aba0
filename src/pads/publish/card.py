"""The model card of a run, in Markdown: what a stranger must know before they use it. For the Hub and for exports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pads
from pads.config import Config
from pads.runs import RunFolder
from pads.verdict import judge

COLUMNS = {"map@r": "MAP@R", "r-precision": "R-precision", "nmi": "NMI"}
PROTOCOLS = {
    "selected": "**selected**: {epoch} was picked on held-out training classes; the test split was measured once, at the end.",
    "test-selected": "**test-selected**: {epoch} was picked on the test split itself, so expect less on new images.",
    "last": "**last**: the last epoch, nothing was picked; the test split was measured once, at the end.",
}
LICENCE = """## Licence

The code of pads is under the MIT licence. These weights were learned from images, and perhaps from the weights of others: what
their licences ask for holds here too. Whoever shares this model states its licence."""


def model_card(run: RunFolder) -> str:
    """README.md for the Hub; `pads export` puts the same sections beside its files."""
    config, figures, dim = run.config, run.metrics, run.config.network.embedding_dim
    title = f"# {config.recipe or config.data.name}: {config.network.backbone}, {dim} dimensions"
    intro = (
        f"Images in, vectors of {dim} numbers out: a small distance means similar. "
        f"Trained with pads {pads.__version__} (`pip install pads-dml`)."
    )
    sections = [HEADER, title, intro, USE, how_good(figures), how_made(config, figures), limits(config)]
    return "\n\n".join([*sections, LICENCE]) + "\n"


HEADER = """---
library_name: pads
pipeline_tag: image-feature-extraction
tags:
- metric-learning
- image-retrieval
- pads
---"""

USE = """## How to use it

```python
import pads

model = pads.load("FOLDER")  # the folder of these files, or hf://USER/NAME on the Hugging Face Hub
vectors = model.embed(["a.jpg", "b.jpg"])
distance = (vectors[0] - vectors[1]).norm()
```"""


def how_good(figures: Mapping[str, Any] | None, checkpoint: str = "selected") -> str:
    """The table of the test split and what picked the epoch."""
    head = "## How good it is\n\n"
    if figures is None:
        return head + "The run is not finished, so nothing was measured."
    test, size = figures["test"], figures["splits"]["test"]
    own = "trained" if checkpoint == "selected" else "last"
    names = [name for name in test["trained"] if name.startswith("recall@") or name in COLUMNS]
    heads = [COLUMNS.get(name, "R@" + name.partition("@")[2]) for name in names]
    lines = [f"| | {' | '.join(heads)} |", "|---" + "|--:" * len(heads) + "|"]
    for row in ("raw pixels", "pretrained features", "untrained", own):
        if row not in test:  # random weights have no features worth a row
            continue
        lines.append(f"| {row} | {' | '.join(f'{100 * test[row][name]:.1f}' for name in names)} |")
    picked = (figures.get("selection") or {}).get("epoch")
    protocol = PROTOCOLS["last" if own == "last" else figures["protocol"]]
    stamp = protocol.format(epoch=f"epoch {picked}" if picked else "the epoch")
    of_what = f"On {size['images']:,} test images of {size['classes']:,} classes, in percent:"
    changed = [f"Data changed: {figures['data_changed']}"] if "data_changed" in figures else []
    worth = [" ".join(judge(figures.get("compared", {})))] if own == "trained" and "compared" in figures else []
    return head + "\n\n".join([of_what, "\n".join(lines), *worth, f"Protocol: {stamp}", *changed])


def how_made(config: Config, figures: Mapping[str, Any] | None) -> str:
    """The settings that change what the model is; no path of the machine that trained it."""
    weights = (figures or {}).get("weights")
    start = "random weights" if config.network.weights is None else Path(config.network.weights).name
    made = {
        "data": config.data.name,
        "network": f"{config.network.backbone}, images of {config.data.image_size} pixels",
        "started from": f"{weights['file']} (sha256 {weights['sha256']})" if weights else start,
        "loss": config.loss.name,
        "sampling of negatives": config.curriculum.name,
        "batch": f"{config.data.classes_per_batch} classes of {config.data.samples_per_class} images",
        "epochs": str(config.num_epochs),
        "seed": str(config.seed),
    }
    if figures:
        sizes = figures["splits"].items()
        made["splits"] = ", ".join(f"{name} {n['images']:,} images of {n['classes']:,} classes" for name, n in sizes)
    return "## How it was made\n\n" + "\n".join(f"- {name}: {value}" for name, value in made.items())


def limits(config: Config) -> str:
    lines = [
        "- What is alike was learnt from other pictures than yours: measure on your own before you rely on it.",
        '- Distances mean something within this network only, and a threshold for "the same" has to be calibrated.',
        "- One square crop of the centre is seen: what lies at the edge of a long picture is not.",
    ]
    if config.precision != "float32":
        lines.append(f"- Trained in {config.precision}; exported, and compared with the original, in float32.")
    return "\n".join(["## Limits\n", *lines])
