"""PADS as a miner of pytorch-metric-learning, with a loss of theirs, and with a memory of past batches after a warm-up."""

import torch
from made_up import network, splits
from pytorch_metric_learning.losses import CrossBatchMemory, MarginLoss
from torch.utils.data import DataLoader

import pads
from pads.adapters import AdaptiveController, AdaptiveMiner, ClassBalancedBatchSampler

train, reward, test = splits()
batches = ClassBalancedBatchSampler(train.tensors[1], classes_per_batch=16, samples_per_class=4)
loader, held_out, unseen = DataLoader(train, batch_sampler=batches), DataLoader(reward, 64), DataLoader(test, 64)
model, num_epochs, warm_up = network(), 8, 6
miner, loss_fn = AdaptiveMiner(), MarginLoss(beta=0.6)
memory = CrossBatchMemory(loss_fn, embedding_size=32, memory_size=256, miner=miner)
controller = AdaptiveController(miner, every=10, num_steps=num_epochs * len(loader))
optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(num_epochs):
    for images, labels in loader:
        embeddings = model(images)
        if epoch < warm_up:
            indices = miner(embeddings, labels)
            loss = loss_fn(embeddings, labels, indices)
        else:
            loss = memory(embeddings, labels)  # calls the miner itself: never give it indices of the batch
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        controller.step(model, held_out)
    print(f"epoch {epoch + 1}: Recall@1 on unseen classes {pads.evaluate(model, unseen, ['recall@1'])['recall@1']:.3f}")

torch.save({"model": model.state_dict(), "miner": miner.state_dict()}, "pml_loop.pt")  # the miner goes on to the bit
print(f"adapted {miner.sampler.num_steps // controller.every} times; last reward {miner.sampler.log['reward']:+.0f}")
