"""What the contracts of several registries share."""

import pytest
import torch


@pytest.fixture
def same():
    """Whether two nested states hold the same bits; a list and a tuple of the same values are the same."""

    def same_bits(a, b):
        if isinstance(a, torch.Tensor):
            return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(same_bits(a[key], b[key]) for key in a)
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(same_bits, a, b))
        return type(a) is type(b) and a == b

    return same_bits


@pytest.fixture
def awkward_batches(generator):
    """Batches in which some or all anchors have no suitable candidate, whatever the rule calls suitable."""

    def unit(rows):
        return torch.nn.functional.normalize(rows, dim=1)

    spread = unit(torch.randn(6, 16, generator=generator))
    axes = torch.eye(16)
    return {
        "collapsed": (axes[:1].repeat(6, 1), torch.tensor([0, 0, 1, 1, 2, 2])),
        "perfect": (axes[[0, 0, 1, 1, 2, 2]], torch.tensor([0, 0, 1, 1, 2, 2])),
        "positives are the farthest": (torch.cat([axes[:3], -axes[:3]]), torch.tensor([0, 1, 2, 0, 1, 2])),
        "the only negative is at the antipode": (torch.stack([axes[0], axes[0], -axes[0]]), torch.tensor([0, 0, 1])),
        "nobody has a positive": (spread, torch.arange(6)),
        "one has no positive": (spread, torch.tensor([0, 0, 1, 1, 1, 7])),
        "two images": (spread[:2], torch.tensor([0, 1])),
    }
