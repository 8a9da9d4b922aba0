"""The torchmetrics metric on one process; test_two_processes.py has it on two."""

import pytest
import torch
from torchmetrics import MetricCollection

from pads.adapters import EmbeddingRetrieval
from pads.errors import UserError
from pads.metrics import compute_metrics


def values(metric):
    return {name: value.item() for name, value in metric.compute().items()}


def test_it_is_compute_metrics_on_all_batches(batch):
    embeddings, labels = batch
    metric = EmbeddingRetrieval()
    for part in torch.randperm(32, generator=torch.Generator().manual_seed(0)).split(7):
        metric.update(embeddings[part], labels[part], part)
    assert values(metric) == compute_metrics(embeddings, labels, metric.names)
    assert set(metric.names) == {"recall@1", "recall@2", "recall@4", "recall@8", "map@r", "nmi"}


def test_an_image_that_comes_twice_counts_once(batch):
    """A DistributedSampler repeats images to even out the ranks; a twin is a neighbour that nobody should find."""
    embeddings, labels = batch[0], torch.arange(32) % 8
    names = ("recall@1", "map@r", "r-precision", "intra")
    once, twice, unaware = (EmbeddingRetrieval(names) for _ in range(3))
    ids = torch.arange(32)
    once.update(embeddings, labels, ids)
    for metric, numbers in ((twice, ids), (unaware, None)):
        metric.update(embeddings, labels, numbers)
        metric.update(embeddings[:10], labels[:10], None if numbers is None else numbers[:10])
    assert values(twice) == values(once)
    assert values(unaware)["recall@1"] > values(once)["recall@1"]


def test_it_starts_anew_after_a_reset_and_works_in_a_collection(batch):
    embeddings, labels = batch
    collection = MetricCollection({"test": EmbeddingRetrieval(("recall@1", "nmi"))})
    collection.update(embeddings.bfloat16(), labels)
    collection.reset()
    collection.update(embeddings, labels)
    expected = compute_metrics(embeddings, labels, ("recall@1", "nmi"))
    assert {name.removeprefix("test_"): value.item() for name, value in collection.compute().items()} == expected


def test_nothing_is_kept_of_the_graph(batch):
    embeddings, labels = batch
    metric = EmbeddingRetrieval()
    metric.update(embeddings.clone().requires_grad_(), labels)
    assert not metric.embeddings[0].requires_grad


def test_mistakes_get_one_sentence(batch):
    embeddings, labels = batch
    with pytest.raises(UserError, match="there is no metric 'recal@1'; did you mean recall@1"):
        EmbeddingRetrieval(("recal@1",))
    metric = EmbeddingRetrieval()
    with pytest.raises(UserError, match=r"update takes embeddings \(B, D\), labels \(B,\)"):
        metric.update(embeddings, labels[:3])
    metric.update(embeddings, labels)
    metric.update(embeddings, labels, torch.arange(32))
    with pytest.raises(UserError, match="some updates had ids and some had none"):
        metric.compute()
