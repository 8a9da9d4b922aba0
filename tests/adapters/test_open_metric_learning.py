"""The miner for open-metric-learning, which cannot be installed beside current torch: against a stub of what it calls.

The stub has the interface of version 4.0: the abstract miner, the loss that samples by keyword and merges `last_logs`, and
the registry of miners by name.
"""

import io
import sys
import types
from abc import ABC, abstractmethod

import pytest
import torch

from pads.adapters import AdaptiveController, AdaptiveMiner, AdaptiveTripletsMiner
from pads.adapters.open_metric_learning import register
from pads.errors import UserError


class ITripletsMiner(ABC):
    @abstractmethod
    def sample(self, features, labels): ...


class TripletLossWithMiner(torch.nn.Module):
    def __init__(self, margin, miner, need_logs=False):
        super().__init__()
        assert isinstance(miner, ITripletsMiner)
        self.margin, self.miner, self.need_logs, self.last_logs = margin, miner, need_logs, {}

    def forward(self, features, labels):
        anchor, positive, negative = self.miner.sample(features=features, labels=torch.as_tensor(labels).tolist())
        assert anchor.shape == positive.shape == negative.shape
        far, near = ((anchor - other).norm(dim=1) for other in (positive, negative))
        self.last_logs.update(getattr(self.miner, "last_logs", {}))
        return torch.relu(self.margin + far - near).mean()


@pytest.fixture
def oml(monkeypatch):
    modules = {name: types.ModuleType(name) for name in ("oml", "oml.interfaces", "oml.registry")}
    interfaces, registry = types.ModuleType("oml.interfaces.miners"), types.ModuleType("oml.registry.miners")
    interfaces.ITripletsMiner, registry.MINERS_REGISTRY = ITripletsMiner, {}
    for name, module in {**modules, interfaces.__name__: interfaces, registry.__name__: registry}.items():
        monkeypatch.setitem(sys.modules, name, module)
    return registry


def test_their_loss_learns_from_it_and_gets_its_logs(oml, batch):
    register()
    miner = oml.MINERS_REGISTRY["pads"](curriculum="learned", seed=3, need_logs=True)
    criterion = TripletLossWithMiner(0.2, miner, need_logs=True)
    features = batch[0].clone().requires_grad_()
    loss = criterion(features, batch[1])
    loss.backward()
    assert features.grad.abs().sum() > 0
    assert set(criterion.last_logs) == {"negative_distance", "negative_of_class_share"}
    assert all(type(value) is float for value in criterion.last_logs.values())

    held_out = [{"input_tensors": batch[0], "labels": batch[1]}]
    controller = AdaptiveController(miner, every=1)
    for _ in range(2):
        controller.step(torch.nn.Identity(), held_out)
    criterion(features, batch[1])
    assert {"reward", "perplexity"} <= criterion.last_logs.keys()


def test_the_features_are_those_of_the_triplets_of_the_other_miner(batch):
    features, labels = batch
    triplets = AdaptiveMiner(seed=5)(features, labels)
    for given in (labels, labels.tolist(), labels[:, None]):
        sampled = AdaptiveTripletsMiner(seed=5).sample(features, given)
        assert all(torch.equal(rows, features[index]) for rows, index in zip(sampled, triplets, strict=True))


def test_its_state_is_in_the_checkpoint_of_the_loss(oml, batch):
    register("mine")
    first, second = (TripletLossWithMiner(0.2, oml.MINERS_REGISTRY["mine"]()) for _ in range(2))
    first(*batch)
    AdaptiveController(first.miner, every=1).step(torch.nn.Identity(), [batch])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(first(*batch), second(*batch))
    assert torch.equal(second.miner.sampler.bin_probs, first.miner.sampler.bin_probs)


def test_a_batch_without_a_triplet_is_refused_as_theirs_refuse_it(batch):
    with pytest.raises(UserError, match="use a balanced sampler"):
        AdaptiveTripletsMiner().sample(batch[0], torch.arange(32))


def test_without_it_registering_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "oml", None)
    with pytest.raises(UserError, match="pip install open-metric-learning"):
        register()
