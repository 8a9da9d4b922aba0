"""The Lightning callback in a real Trainer: it adapts, it is checkpointed, and a resumed training is the same to the bit."""

import lightning
import pytest
import torch
from pytorch_metric_learning import losses
from torch.utils.data import DataLoader, TensorDataset

from pads.adapters import AdaptiveMiner, AdaptiveSampling, ClassBalancedBatchSampler, TripletSampler

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
LABELS = torch.arange(12).repeat_interleave(8)
IMAGES = torch.randn(12, 20, generator=torch.Generator().manual_seed(0))[LABELS] + torch.randn(
    96, 20, generator=torch.Generator().manual_seed(1)
)
TRAIN, HELD_OUT = torch.arange(96) % 8 < 6, torch.arange(96) % 8 >= 6


class Module(lightning.LightningModule):
    def __init__(self, miner=None):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.network = torch.nn.Linear(20, 8)
        self.miner, self.loss = miner or AdaptiveMiner(), losses.MarginLoss()
        self.losses = []

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, index):
        embeddings = self(batch[0])
        loss = self.loss(embeddings, batch[1], self.miner(embeddings, batch[1]))
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def loaders():
    data = TensorDataset(IMAGES[TRAIN], LABELS[TRAIN])
    sampler = ClassBalancedBatchSampler(LABELS[TRAIN], 6, 2, batches_per_epoch=5)
    held_out = DataLoader(TensorDataset(IMAGES[HELD_OUT], LABELS[HELD_OUT]), batch_size=16)
    return DataLoader(data, batch_sampler=sampler), held_out


def fit(max_epochs, module, callback, train, ckpt_path=None):
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=max_epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[callback],
    )
    trainer.fit(module, train, ckpt_path=ckpt_path)
    return trainer


def test_it_adapts_and_a_resumed_training_is_the_same_to_the_bit(tmp_path):
    whole, (train, held_out) = Module(), loaders()
    callback = AdaptiveSampling(whole.miner, held_out, every=3)
    trainer = fit(4, whole, callback, train)
    assert whole.training
    assert trainer.callback_metrics["pads/recall@1"] > 0
    assert callback.controller.sampler.num_steps == 20
    assert callback.controller.num_steps == 20
    assert not torch.equal(whole.miner.bin_probs, AdaptiveMiner().bin_probs)

    first, (train, held_out) = Module(), loaders()
    callback = AdaptiveSampling(first.miner, held_out, every=3)
    callback.on_train_start = lambda trainer, module: setattr(callback.controller, "num_steps", 20)
    fit(2, first, callback, train).save_checkpoint(tmp_path / "half.ckpt")
    second, (train, held_out) = Module(), loaders()
    fit(4, second, AdaptiveSampling(second.miner, held_out, every=3), train, tmp_path / "half.ckpt")
    assert first.losses + second.losses == whole.losses
    assert str(second.miner.state_dict()) == str(whole.miner.state_dict())


def test_a_sampler_that_is_no_module_is_kept_by_the_callback(tmp_path):
    module, (train, held_out) = Module(TripletSampler()), loaders()
    trainer = fit(2, module, AdaptiveSampling(module.miner, held_out, every=3), train)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    saved = torch.load(tmp_path / "half.ckpt", weights_only=True)["callbacks"]
    assert any("AdaptiveSampling" in key for key in saved)
    again, (train, held_out) = Module(TripletSampler()), loaders()
    callback = AdaptiveSampling(again.miner, held_out, every=1000)
    fit(3, again, callback, train, tmp_path / "half.ckpt")
    assert torch.equal(again.miner.bin_probs, module.miner.bin_probs)
    assert again.miner.num_steps == 15
