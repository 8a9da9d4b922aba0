"""Recall@k, MAP@R and NMI of embeddings as a torchmetrics metric, batch by batch."""

import torch
from made_up import network, splits
from torch.utils.data import DataLoader

from pads.adapters import EmbeddingRetrieval

model = network().eval()
metric = EmbeddingRetrieval(("recall@1", "recall@8", "map@r", "nmi"))
with torch.no_grad():
    for first, (images, labels) in zip(range(0, 10_000, 64), DataLoader(splits()[2], 64), strict=False):
        ids = first + torch.arange(len(labels))  # with several processes, an image that comes twice then counts once
        metric.update(torch.nn.functional.normalize(model(images), dim=1), labels, ids)
for name, value in metric.compute().items():
    print(f"{name:9} {value.item():.3f}")
