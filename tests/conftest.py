"""One thread: with busy cores, two OpenMP threads can be slower than one by orders of magnitude."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def batch(generator):
    """Embeddings of 8 classes x 4 samples on the unit sphere, with distances from near to far, and their labels."""
    centres = torch.randn(8, 1, 16, generator=generator)
    embeddings = centres + 0.7 * torch.randn(8, 4, 16, generator=generator)
    labels = torch.arange(8).repeat_interleave(4)
    return torch.nn.functional.normalize(embeddings.flatten(0, 1), dim=1), labels
