"""PADS in a LightningModule: a callback adapts the miner, and a checkpoint holds both."""

import lightning
import torch
from made_up import network, splits
from pytorch_metric_learning.losses import MarginLoss
from torch.utils.data import DataLoader

from pads.adapters import AdaptiveMiner, AdaptiveSampling, ClassBalancedBatchSampler, EmbeddingRetrieval


class Embedding(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss, self.miner = network(), MarginLoss(beta=0.6), AdaptiveMiner()
        self.retrieval = EmbeddingRetrieval(("recall@1", "map@r", "nmi"))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network(images)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        embeddings = self(batch[0])
        return self.loss(embeddings, batch[1], self.miner(embeddings, batch[1]))

    def test_step(self, batch: list[torch.Tensor], _: int) -> None:
        self.retrieval.update(torch.nn.functional.normalize(self(batch[0]), dim=1), batch[1])

    def on_test_epoch_end(self) -> None:
        self.log_dict(self.retrieval.compute())
        self.retrieval.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


train, reward, test = splits()
batches = ClassBalancedBatchSampler(train.tensors[1], classes_per_batch=16, samples_per_class=4)
module = Embedding()
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=6,
    callbacks=[AdaptiveSampling(module.miner, DataLoader(reward, 64), every=10)],
    use_distributed_sampler=False,  # the batch sampler knows its rank
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module, DataLoader(train, batch_sampler=batches))
print({name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()})
trainer.test(module, DataLoader(test, 64))
