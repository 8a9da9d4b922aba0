from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

torch.set_num_threads(1)


@pytest.fixture
def save_image(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small picture of random noise to a path below tmp_path."""
    rng = np.random.default_rng(0)

    def save(name: str, width: int = 12, height: int = 8) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
        return path

    return save
