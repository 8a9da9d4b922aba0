"""Run by test_two_processes.py in each of two processes: RANK, the file they meet at, and where to write what came out."""

import sys

import torch
from pytorch_metric_learning import losses
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper, DistributedMinerWrapper
from torch import distributed

from pads.adapters import AdaptiveController, AdaptiveMiner, ClassBalancedBatchSampler, EmbeddingRetrieval
from pads.errors import UserError

WORLD_SIZE = 2
LABELS = torch.arange(12).repeat_interleave(6)


def images(seed=0, labels=LABELS):
    """Noisy pictures of as many classes, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(12, 20, generator=torch.Generator().manual_seed(99))
    return centres[labels] + 1.5 * torch.randn(len(labels), 20, generator=generator), labels


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 8))


def loader(seed):
    pictures, labels = images(seed)
    return list(zip(pictures.split(18), labels.split(18), strict=True))


def mined(rank, efficient):
    """The tuples of a wrapped miner on this rank's half of the batch, and the gradient of a wrapped loss."""
    pictures, labels = images()
    own = slice(rank * 36, rank * 36 + 36)  # whole classes on a rank
    model = torch.nn.parallel.DistributedDataParallel(network(), broadcast_buffers=False)
    embeddings = model(pictures[own])
    miner = DistributedMinerWrapper(AdaptiveMiner(collect_stats=True), efficient=efficient)
    tuples = miner(embeddings, labels[own])
    loss = DistributedLossWrapper(losses.TripletMarginLoss(), efficient=efficient)(embeddings, labels[own], tuples)
    loss.backward()
    return {
        "tuples": tuples,
        "num_triplets": miner.miner.num_triplets,
        "loss": loss.detach(),
        "grad": model.module[0].weight.grad,
    }


def adapted(rank):
    """Three adaptations; the loaders of the ranks differ, and the first one's counts."""
    model = torch.nn.parallel.DistributedDataParallel(network())
    miner = AdaptiveMiner()
    controller = AdaptiveController(miner, every=2, num_steps=6)
    logs = [controller.step(model, loader(rank)) for _ in range(6)]
    return {"logs": logs, "state": miner.state_dict(), "training": [m.training for m in model.modules()]}


def refused(rank):
    """An error on the first rank must end all, not leave them waiting."""
    controller = AdaptiveController(AdaptiveMiner(), every=1)
    try:
        controller.step(network(), [])
    except UserError as error:
        return str(error)


def measured(rank):
    """Uneven halves; then with the two images that a DistributedSampler would repeat."""
    pictures, labels = images()
    plain, by_id = EmbeddingRetrieval(), EmbeddingRetrieval()
    half = range(0, 40) if rank == 0 else range(40, 72)
    for part in torch.tensor(list(half)).split(7):
        plain.update(pictures[part], labels[part])
    shuffled = torch.randperm(72, generator=torch.Generator().manual_seed(1))
    filled = torch.cat([shuffled, shuffled[:4]])[rank::2]
    for part in filled.split(9):
        by_id.update(pictures[part], labels[part], part)
    return {"plain": plain.compute(), "by_id": by_id.compute()}


def main(rank, meeting_point, out):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=WORLD_SIZE)
    result = {
        "mined": {efficient: mined(rank, efficient) for efficient in (False, True)},
        "adapted": adapted(rank),
        "refused": refused(rank),
        "measured": measured(rank),
        "batches": list(ClassBalancedBatchSampler(LABELS, 6, 3, seed=5)),
    }
    torch.save(result, out)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
