"""PADS in a plain PyTorch loop, in ten lines."""

import torch
from made_up import network, splits
from torch.utils.data import DataLoader

import pads
from pads.adapters import AdaptiveController, ClassBalancedBatchSampler, TripletSampler

train, reward, test = splits()
batches = ClassBalancedBatchSampler(train.tensors[1], classes_per_batch=16, samples_per_class=4)
loader, held_out, unseen = DataLoader(train, batch_sampler=batches), DataLoader(reward, 64), DataLoader(test, 64)
model, num_epochs = network(), 8
print(f"Recall@1 on unseen classes, untrained: {pads.evaluate(model, unseen, ['recall@1'])['recall@1']:.3f}")

# -- the ten lines ------------------------------------------------------------------------------------------------------
sampler, loss_fn = TripletSampler(), pads.MarginLoss(beta=0.6)
controller = AdaptiveController(sampler, every=10, num_steps=num_epochs * len(loader))
optimiser = torch.optim.Adam([*model.parameters(), *loss_fn.parameters()], lr=1e-3)
for _ in range(num_epochs):
    for images, labels in loader:
        embeddings = torch.nn.functional.normalize(model(images), dim=1)
        loss = loss_fn(embeddings, labels, sampler(embeddings, labels))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        controller.step(model, held_out)
# ------------------------------------------------------------------------------------------------------------------------

print(f"Recall@1 on unseen classes, trained:   {pads.evaluate(model, unseen, ['recall@1'])['recall@1']:.3f}")
print(
    f"adapted {sampler.num_steps // controller.every} times; the bins are spread over {sampler.log['perplexity']:.1f} of 30"
)
