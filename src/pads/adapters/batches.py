"""Batches of P classes x S images for any PyTorch DataLoader: `DataLoader(dataset, batch_sampler=...)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Sampler

from pads.adapters.sampler import rank as own_rank
from pads.adapters.sampler import world_size as number_of_processes
from pads.data.batches import class_batches, rank_share
from pads.errors import UserError


class ClassBalancedBatchSampler(Sampler[list[int]]):
    """Yield batches of P classes with S images each, as `pads train` does: a function of seed and epoch.

    It can be resumed, and it shares batches out to the processes by whole classes. Every iteration is an epoch of its own,
    also after one that was broken off; `set_epoch` goes to any.
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray | Tensor,
        classes_per_batch: int,
        samples_per_class: int,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """
        labels: the class of each image of the data set, in its order.
        classes_per_batch, samples_per_class: P and S of the batch of all processes together.
        batches_per_epoch: as many as the images fill, unless told.
        rank, world_size: those of torch.distributed, unless told.
        """
        self.labels_N = np.asarray(labels)
        self.classes_per_batch, self.samples_per_class, self.seed = classes_per_batch, samples_per_class, seed
        self.rank = own_rank() if rank is None else rank
        self.world_size = number_of_processes() if world_size is None else world_size
        batch_size = classes_per_batch * samples_per_class
        filled = max(1, len(self.labels_N) // max(1, batch_size))
        self.batches_per_epoch = filled if batches_per_epoch is None else batches_per_epoch
        self.check()
        self.epoch = self.begun = self.num_given = 0
        self.was_broken_off = False

    def check(self) -> None:
        """Refuse arguments that make no batches."""
        if self.labels_N.ndim != 1 or not len(self.labels_N):
            raise UserError("labels must be a list with the class of each image, and not empty.")
        if min(self.classes_per_batch, self.samples_per_class, self.batches_per_epoch) < 1:
            raise UserError("classes_per_batch, samples_per_class and batches_per_epoch must be at least 1.")
        num_classes = len(np.unique(self.labels_N))
        if num_classes < self.classes_per_batch:
            raise UserError(f"classes_per_batch is {self.classes_per_batch}, but there are {num_classes} classes.")
        if not 0 <= self.rank < self.world_size:
            raise UserError(f"rank is {self.rank}: it must be at least 0 and below world_size, {self.world_size}.")
        any_batch = np.empty(self.classes_per_batch * self.samples_per_class)
        rank_share(any_batch, self.rank, self.world_size, self.samples_per_class)  # refuses what cannot be shared out

    def batches(self, epoch: int) -> np.ndarray:
        """Return the indices of all processes' batches in an epoch."""
        return class_batches(
            self.labels_N,
            self.classes_per_batch,
            self.samples_per_class,
            seed=self.seed,
            epoch=epoch,
            num_batches=self.batches_per_epoch,
        )

    def __len__(self) -> int:
        return self.batches_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        if self.was_broken_off:
            self.set_epoch(self.epoch + 1)
        self.begun, self.was_broken_off = self.epoch, True
        batches = rank_share(self.batches(self.epoch), self.rank, self.world_size, self.samples_per_class)
        for batch in batches[self.num_given :].tolist():
            self.num_given += 1
            if self.num_given == len(self):
                self.set_epoch(self.epoch + 1)  # already: who knows the length does not come back for the end
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Begin that epoch with the next iteration."""
        self.load_state_dict({"epoch": epoch, "num_given": 0})

    @property
    def sampler(self) -> ClassBalancedBatchSampler:
        """Return itself: Lightning looks here for `set_epoch`."""
        return self

    def state_dict(self, num_seen: int | None = None) -> dict[str, int]:
        """Return the epoch and how many of its batches were given out.

        num_seen: the batches of the last epoch begun that training has seen. Workers of a DataLoader take them in advance,
            so without it the state is right only if there are none, or at the end of an epoch.
        """
        if num_seen is None:
            return {"epoch": self.epoch, "num_given": self.num_given}
        is_over = num_seen == len(self)
        return {"epoch": self.begun + is_over, "num_given": 0 if is_over else num_seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, with the seed of its own."""
        self.epoch, self.num_given = state["epoch"], state["num_given"]
        self.was_broken_off = False
