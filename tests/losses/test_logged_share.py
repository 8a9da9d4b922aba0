"""The share of triplets that cost something, as it is logged, belongs to the loss beside it."""

import json
import math

import pytest
import torch

from pads.config import with_settings
from pads.losses import LOSSES, MarginLoss, TripletLoss, value_and_share
from pads.recipes import RECIPES
from pads.sampling import DrawnTriplets, draw_triplets
from pads.sampling.rules import Random
from pads.train import train

SETTINGS = [
    "network.weights=none",
    "data.image_size=16",
    "data.resize=18",
    "data.store_size=18",
    "data.classes_per_batch=4",
    "data.samples_per_class=2",
    "data.reward_share=0",
    "data.selection_share=0",
    "optimiser.learning_rate=0.01",
    "optimiser.loss_learning_rate=0.1",
    "num_epochs=2",
    "log_every=1",
    "threads=1",
]


@pytest.fixture
def train_with(noisy_photos, tmp_path, monkeypatch):
    """Train a few steps with this loss; return the records of the training."""

    def train_steps(loss_fn_maker):
        monkeypatch.setitem(LOSSES, "mine", loss_fn_maker)
        settings = [f"data.root={noisy_photos(8)}", "loss.name=mine", *SETTINGS]
        run = train(with_settings(RECIPES["folder"](), settings), tmp_path / "run")
        events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
        return [event for event in events if event["event"] == "training"]

    return train_steps


def recorded(kind, calls, **options):
    """The loss, which writes down what it is called with, and by which boundaries, before anything has moved."""

    class Recorded(kind):
        def value_and_share(self, embeddings, labels, triplets):
            boundaries = self.boundaries(labels, triplets).tolist() if kind is MarginLoss else None
            calls.append((embeddings.tolist(), [index.tolist() for index in triplets], boundaries))
            return super().value_and_share(embeddings, labels, triplets)

    return lambda num_classes: Recorded(**({"num_classes": num_classes} if kind is MarginLoss else {}), **options)


def costs_of(embeddings, triplets, boundaries, margin=0.2):
    """Of each triplet what it costs: the two terms of the margin loss, or the one of the triplet loss."""
    for number, (a, p, n) in enumerate(zip(*triplets, strict=True)):
        near, far = (math.dist(embeddings[a], embeddings[other]) for other in (p, n))
        if boundaries is None:
            yield [max(0.0, near**2 - far**2 + margin)]
        else:
            yield [max(0.0, near - boundaries[number] + margin), max(0.0, boundaries[number] - far + margin)]


@pytest.mark.parametrize(
    ("kind", "options"),
    [(MarginLoss, {"beta": 0.5, "rise": 0.9, "pace": 0.3}), (TripletLoss, {})],
    ids=["margin", "triplet"],
)
def test_the_logged_share_is_that_of_the_loss_beside_it(train_with, kind, options):
    calls = []
    events = train_with(recorded(kind, calls, **options))
    assert len(events) == len(calls) > 5  # one computation a step
    for event, call in zip(events, calls, strict=True):
        costs = list(costs_of(*call))
        active = [cost for terms in costs for cost in terms if cost > 0]
        loss = sum(active) / (len(costs) if kind is TripletLoss else max(1, len(active)))
        assert event["loss"] == pytest.approx(loss, rel=1e-4)
        assert event["violation_share"] == pytest.approx(sum(any(terms) for terms in costs) / len(costs))
    assert len({event["violation_share"] for event in events}) > 2  # that of another moment would be another


def test_the_forward_of_a_subclass_is_not_passed_over(batch, generator):
    class Doubled(MarginLoss):
        def forward(self, *arguments):
            return 2 * super().forward(*arguments)

    triplets = draw_triplets(*batch, Random(), generator=generator)
    loss, share = value_and_share(Doubled(), *batch, triplets)
    assert loss == 2 * MarginLoss()(*batch, triplets)
    assert share.isnan()


def test_a_loss_that_does_not_say_its_share_logs_none(train_with):
    class Mine(torch.nn.Module):
        def forward(self, embeddings, labels, triplets):
            return (embeddings[triplets.anchors] - embeddings[triplets.positives]).square().mean()

    events = train_with(Mine)
    assert len(events) > 5
    assert all("violation_share" not in event and event["loss"] > 0 for event in events)


@pytest.mark.parametrize(
    "loss_fn",
    [MarginLoss(8), MarginLoss(8, beta=0.6, rise=0.6, pace=0.05), TripletLoss()],
    ids=["margin", "paced", "triplet"],
)
def test_a_step_of_our_losses_waits_for_nothing_on_the_host(batch, generator, loss_fn):
    """So that a CUDA graph can hold it: no value is read, and no shape follows from values."""
    asked = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            asked.add(func.overloadpacket)
            return func(*args, **(kwargs or {}))

    embeddings, labels = batch
    triplets, drawn = draw_triplets(*batch, Random(), generator=generator), DrawnTriplets(Random(), labels.device)
    with Watch():
        loss, share = value_and_share(loss_fn, embeddings.clone().requires_grad_(), labels, triplets)
        loss.backward()
        drawn.add(loss.detach(), share.detach(), embeddings, labels, triplets)
    aten = torch.ops.aten
    assert aten.relu in asked
    assert not asked & {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.unique_dim, aten._unique2}
