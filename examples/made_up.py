"""What the examples learn on: made-up textures, so that nothing needs to be downloaded. Put your own data in its place."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset


def textures(num_classes: int, per_class: int, seed: int, first_label: int = 0) -> TensorDataset:
    """A class is a smooth random texture; its images are shifted, mirrored, tinted and a little noisy."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(num_classes, 3, 4, 4, generator=generator)
    patterns = F.interpolate(patterns, size=16, mode="bicubic", align_corners=False)
    images, labels = [], torch.arange(num_classes).repeat_interleave(per_class)
    for label in labels.tolist():
        shift = torch.randint(-3, 4, (2,), generator=generator).tolist()
        image = patterns[label].roll(shift, dims=(1, 2))
        if torch.rand((), generator=generator) < 0.5:
            image = image.flip(2)
        tint = 0.4 * torch.randn(3, 1, 1, generator=generator)
        images.append(image + tint + 0.1 * torch.randn(image.shape, generator=generator))
    return TensorDataset(torch.stack(images), labels + first_label)


def splits() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """train; reward, other images of the same classes, which the policy is rewarded by; test, of classes never seen."""
    both = textures(60, 10, seed=0)
    held_out = torch.arange(len(both)) % 10 >= 8
    train, reward = (TensorDataset(*(part[rows] for part in both.tensors)) for rows in (~held_out, held_out))
    return train, reward, textures(40, 8, seed=1, first_label=60)


def network(dim: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten()),
        nn.Linear(48 * 4, dim),
    )
