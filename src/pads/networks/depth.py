"""How deep in a network each parameter lies, read off its name: for learning rates that fall towards the input."""

from __future__ import annotations

import re
from collections.abc import Sequence

BLOCK = re.compile(r"_?(?:blocks|layers|stages|features|layer|s)\.?(\d+)(?:\.(?:blocks\.|b)?(\d+)(?=\.))?\.")
"""blocks.3. (ViT), layers.2.blocks.1. (Swin), stages.2.blocks.5. (ConvNeXt), blocks.2.1. (EfficientNet), layer3.2. (ResNet),
_blocks.3. (EfficientNet-Lite)."""


def layer_numbers(names: Sequence[str]) -> list[int]:
    """For each parameter, in the order of the network: 0 before the blocks, 1..n in them, n after; all 0 without blocks."""
    blocks = [block_of(name) for name in names]
    number = {block: index for index, block in enumerate(sorted(set(filter(None, blocks))), start=1)}
    numbers, is_after = [], False
    for block in blocks:
        is_after = is_after or block is not None
        numbers.append(number[block] if block is not None else len(number) * is_after)
    return numbers


def block_of(name: str) -> tuple[int, ...] | None:
    """Stage and block, or the block alone; None outside of blocks."""
    found = BLOCK.match(name)
    return tuple(int(part) for part in found.groups() if part is not None) if found else None


def rate_scales(numbers: Sequence[int], decay: float) -> list[float]:
    """`decay` to the power of how many layers lie above; above the last block lies the embedding, which has the full rate."""
    top = max(numbers) + 1
    return [decay ** (top - number) for number in numbers]
