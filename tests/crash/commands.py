"""The commands that write, on an input so small that each takes a fraction of a second."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from crash.trial import Command, begin, run
from PIL import Image

SETTINGS = (
    "network.weights=none",
    "data.image_size=16",
    "data.resize=16",
    "data.store_size=16",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.selection_share=0.2",
    "data.reward_share=0.15",
    "data.augmentation=none",
    "network.embedding_dim=8",
    "recall_at=[1, 2]",
    "num_epochs=2",
    "adapt_every=2",
    "log_every=2",
    "test_curve_every=1",
    "threads=1",
    "device=cpu",
)
SET = tuple(word for setting in SETTINGS for word in ("--set", setting))
QUIET = ("--plain", "--no-report", "--no-index")


def draw_photos(root: Path, num_classes: int = 10, num_images: int = 6) -> Path:
    """A folder of classes, each a colour under much noise."""
    noise = np.random.default_rng(0)
    for label in range(num_classes):
        (root / f"class-{label:02d}").mkdir(parents=True)
        colour = noise.integers(0, 255, (1, 1, 3))
        for number in range(num_images):
            pixels = np.clip(colour + noise.normal(0, 60, (16, 20, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class-{label:02d}" / f"{number}.png")
    return root


def make_commands(place: Path) -> dict[str, Command]:
    """All commands; what they start from is made here once, in `place`."""
    import_all()
    photos, more, work = draw_photos(place / "photos"), draw_photos(place / "more", 4, 4), place / "work"
    train = ("train", "folder-pads", "--data", str(photos), "--run", str(work / "run"), *QUIET, *SET)
    prepare = ("prepare", "folder", "--data", str(photos), "--out", str(work / "store"), "--size", "16")
    finished = Command("a finished run", train)
    expect_done(finished, work)
    trained = Path(shutil.copytree(work / "run", place / "trained"))
    index = ("index", str(trained), str(photos), "--out", str(work / "index"), "--device", "cpu")
    update = ("index", str(trained), str(more), "--out", str(work / "index"), "--device", "cpu")
    restore = ("prepare", "folder", "--data", str(more), "--out", str(work / "store"), "--size", "16")
    arms = ("--arms", "udist", "pads", "--seeds", "0", "--commit", "abc1234", "--plain")
    study = ("study", "controls", "--recipe-base", "folder", "--data", str(photos), "--out", str(work / "study"), *arms)
    once = ("--set", "num_epochs=1", "--set", "test_curve_every=null")  # what an epoch writes is tried in train
    commands = [
        Command("train", train, then=lambda work: go_on_training(train, work)),
        Command("resume", ("train", "--resume", str(work / "run"), *QUIET), start=half_trained(train, work, place)),
        Command("prepare", prepare),
        Command("prepare again", restore, start=done_before(restore, work, place / "store-before")),
        Command("index", index, normalise=without_generation),
        Command(
            "index again",
            update,
            start=done_before(update, work, place / "index-before"),
            normalise=without_generation,
            probe=("search", str(work / "index"), str(more / "class-00" / "0.png")),
        ),
        Command("study", (*study, *SET, *once), normalise=without_seconds),
        Command("export", ("export", str(trained), "--to", "safetensors", "--out", str(work / "export"))),
    ]
    change_photos(more)
    return {command.name: command for command in commands}


def import_all() -> None:
    """Imports before the first fork what the commands would import each time."""
    import matplotlib.figure  # noqa: F401
    import torch

    import pads.data.prepare
    import pads.publish.export
    import pads.reports.figures
    import pads.search.search
    import pads.studies.claims
    import pads.train  # noqa: F401

    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1)])  # which imports a lot when the first is made


def expect_done(command: Command, work: Path) -> None:
    begin(command, work)
    ended = run(command.arguments, work)
    assert ended.code == 0, ended.err


def half_trained(train: Sequence[str], work: Path, place: Path) -> Path:
    """A run that was killed after its first checkpoint."""
    command = Command("train", train)
    begin(command, work)
    log = run(train, work).log
    at = 1 + next(n for n, (what, path) in enumerate(log) if what == "replace" and "step-" in path)
    begin(command, work)
    run(train, work, "kill", at + 3)
    return Path(shutil.copytree(work, place / "half-trained"))


def done_before(arguments: Sequence[str], work: Path, kept: Path) -> Path:
    expect_done(Command("before", arguments), work)
    return Path(shutil.copytree(work, kept))


def change_photos(root: Path) -> None:
    """One image changes, one goes, one comes."""
    (root / "class-00" / "1.png").unlink()
    Image.new("RGB", (16, 20), "red").save(root / "class-01" / "0.png")
    Image.new("RGB", (20, 16), "blue").save(root / "class-02" / "9.png")


def go_on_training(train: Sequence[str], work: Path) -> Sequence[str]:
    """As the message of a killed run says: `--resume` as soon as there is a run."""
    if (work / "run" / "config.json").exists():
        return ("train", "--resume", str(work / "run"), *QUIET)
    return train


def without_generation(name: str, content: bytes) -> tuple[str, bytes]:
    """An index counts how often it was written, a time that failed included; its checksum counts along."""
    pattern = r"(rows|vectors)-\d+"
    name = re.sub(pattern, r"\1-G", name)
    if name.endswith("index.json"):
        content = re.sub(pattern.encode(), rb"\1-G", content)
        content = re.sub(rb'"sha256": "\w+"', b"", content)
    return name, content


def without_seconds(name: str, content: bytes) -> tuple[str, bytes]:
    """seeds.csv tells how long a run took, unless it was resumed, and the tables drawn from it say so too.

    Its rows are in the order in which the runs ended: one that failed at first comes last.
    """
    if name.startswith("study/table."):
        return name, b""
    if not name.endswith("seeds.csv"):
        return name, content
    header, *rows = [line.split(",") for line in content.decode().splitlines()]
    with contextlib.suppress(ValueError):
        at = header.index("seconds")
        rows = [[*row[:at], "", *row[at + 1 :]] for row in rows]
    return name, "\n".join(",".join(row) for row in [header, *sorted(rows)]).encode()
