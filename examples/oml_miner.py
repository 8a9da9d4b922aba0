"""PADS as a miner of open-metric-learning; without it, one line that says how to get it."""

import torch
from made_up import network, splits
from torch.utils.data import DataLoader

import pads
from pads.adapters import AdaptiveController, AdaptiveTripletsMiner, ClassBalancedBatchSampler
from pads.adapters.open_metric_learning import register


def main() -> None:
    try:
        register()  # from here on, `miner: {name: pads, args: {need_logs: true}}` works in their configs, too
    except pads.UserError as error:
        print(error)
        return
    from oml.losses.triplet import TripletLossWithMiner

    train, reward, test = splits()
    batches = ClassBalancedBatchSampler(train.tensors[1], classes_per_batch=16, samples_per_class=4)
    loader, held_out, unseen = DataLoader(train, batch_sampler=batches), DataLoader(reward, 64), DataLoader(test, 64)
    model, num_epochs = network(), 8
    miner = AdaptiveTripletsMiner(need_logs=True)
    criterion = TripletLossWithMiner(margin=0.2, miner=miner, need_logs=True)
    controller = AdaptiveController(miner, every=10, num_steps=num_epochs * len(loader))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(num_epochs):
        for images, labels in loader:
            loss = criterion(torch.nn.functional.normalize(model(images), dim=1), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            controller.step(model, held_out)
    print(f"Recall@1 on unseen classes: {pads.evaluate(model, unseen, ['recall@1'])['recall@1']:.3f}")
    print(criterion.last_logs)


main()
