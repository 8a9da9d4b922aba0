"""More than one process: those that `torchrun` started train one run together, as one process would.

Each process embeds its own classes of the batch, gathers the embeddings of the others, and computes the whole loss: what it
divides by (the active pairs, say) is then right whatever the loss. The gradient by the weights is a sum over the images, and
each process holds the part of its own ones, so their sum, not their mean, is the gradient that one process would have.

The first process decides and writes; the others follow. Alone, nothing here does anything.

Dimensions: B batch, b the own part of it, D embedding, C channels.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pads.errors import UserError

TIMEOUT = timedelta(minutes=30)
"""After which a process that does not answer is taken for dead; one that has ended is noticed at once."""
PATIENCE = timedelta(days=1)
"""For what the first process does while the others wait: decoding images, measuring a large split, writing."""

T = TypeVar("T")


class Deserted(KeyboardInterrupt):
    """Another process of the run has ended, so that this one cannot go on: an interrupt, but not by its user."""


@dataclass(frozen=True)
class Team:
    """The processes of one run, as one of them sees them."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number on its machine."""
    patient: Any = None
    """The process group of those who wait for the first."""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, num: int) -> slice:
        """Its part of `num` things in a row."""
        return slice(num * self.rank // self.size, num * (self.rank + 1) // self.size)

    # -- the training step ---------------------------------------------------------------------------------------------

    def gather(self, own_bD: Tensor) -> Tensor:
        """Return the rows of all processes in their order; gradients flow back into the own ones."""
        if self.size == 1:
            return own_bD
        parts = [torch.empty_like(own_bD) for _ in range(self.size)]
        with expect_answers():
            dist.all_gather(parts, own_bD.detach().contiguous())
        parts[self.rank] = own_bD
        return torch.cat(parts)

    def sum_gradients(self, network: nn.Module, loss_fn: nn.Module) -> None:
        """Of the network: the sum. Of the loss, which everybody has whole: the first's, so that all keep the same."""
        if self.size == 1:
            return
        of_network = [weights.grad for weights in network.parameters() if weights.grad is not None]
        of_loss = [weights.grad for weights in loss_fn.parameters() if weights.grad is not None]
        for gradient in of_loss:
            gradient.mul_(self.leads)
        gradients = of_network + of_loss
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with expect_answers():
            dist.all_reduce(flat)
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def any(self, flag: bool) -> bool:
        """Whether it is so for one of them: all hear the same, at the same step."""
        if self.size == 1:
            return flag
        flags = torch.tensor([int(flag)])
        with expect_answers():
            dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags.item())

    @contextlib.contextmanager
    def saving(self, save: Callable[[], str], generator: torch.Generator, *modules: nn.Module) -> Iterator[None]:
        """Around a step: if another process ends in the middle of it, it is undone, and the run saved as it was before.

        What came after the last exchange of a step has not happened; before it only random numbers and buffers change: the
        statistics of batch norms, a self-paced boundary of the loss. On a GPU nothing is saved: one that waits for a dead
        neighbour cannot be read any more.
        """
        if self.size == 1 or generator.device.type != "cpu":
            yield
            return
        random_state, buffers = generator.get_state(), [buffer for module in modules for buffer in module.buffers()]
        before = [buffer.clone() for buffer in buffers]
        try:
            yield
        except Deserted as deserted:
            generator.set_state(random_state)
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)
            raise Deserted(f"{deserted}; {save()}") from deserted

    # -- the first process leads -----------------------------------------------------------------------------------------

    def lead(self, function: Callable[[], T]) -> T:
        """What the first process makes of function(), for all; the others wait for it."""
        if self.size == 1:
            return function()
        said = [function()] if self.leads else [None]
        with expect_answers():
            dist.broadcast_object_list(said, src=0, group=self.patient)
        return said[0]  # type: ignore[return-value]

    def match(self, *modules: nn.Module) -> None:
        """Weights and buffers as the first process has them."""
        if self.size > 1:
            with torch.no_grad(), expect_answers():
                for module in modules:
                    for tensor in (*module.parameters(), *module.buffers()):
                        dist.broadcast(tensor.data, src=0)

    def on_first(self, *own: Tensor) -> list[Tensor]:
        """The rows of all processes, however many each has, on the first; the others keep their own."""
        return [self._rows_on_first(rows) for rows in own] if self.size > 1 else [*own]

    def _rows_on_first(self, own: Tensor) -> Tensor:
        counts = torch.zeros(self.size, dtype=torch.int64, device=own.device)
        counts[self.rank] = len(own)
        with expect_answers():
            dist.all_reduce(counts)
            longest = own.new_zeros(int(counts.max()), *own.shape[1:])
            longest[: len(own)] = own
            parts = [torch.empty_like(longest) for _ in range(self.size)] if self.leads else None
            dist.gather(longest, parts, dst=0)
        return own if parts is None else torch.cat([part[:n] for part, n in zip(parts, counts.tolist(), strict=True)])

    def once_per_machine(self, make: Callable[[], T]) -> T:
        """What the first process of this machine makes, for all on it; it must be possible to send it."""
        made = [make() if self.local_rank == 0 else None]
        everyones: list[list[T]] = [[] for _ in range(self.size)]
        with expect_answers():
            dist.all_gather_object(everyones, made, group=self.patient)
        return everyones[self.rank - self.local_rank][0]


ALONE = Team()


@contextlib.contextmanager
def join_team() -> Iterator[Team]:
    """Connect the processes that torchrun started; without it, one process is alone."""
    if num_processes() == 1:
        yield ALONE
        return
    if dist.is_initialized():
        raise UserError(
            "torch.distributed is in use already, and pads connects the processes itself: call it before "
            "init_process_group, or unset WORLD_SIZE to train in one process."
        )
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend, timeout=TIMEOUT)
    try:
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield Team(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")), patient)
    finally:
        dist.destroy_process_group()


def num_processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextlib.contextmanager
def expect_answers() -> Iterator[None]:
    """Raise `Deserted` where an exchange fails: torch says in many ways that somebody does not take part any more."""
    try:
        yield
    except RuntimeError as error:
        message = re.sub(r"^\[\S+\] ", "", str(error))  # gloo begins with the place in its source
        why = message.partition("\n")[0].partition(". ")[0]
        raise Deserted(f"another process of this run has ended or does not answer ({why})") from error


def first_to_speak() -> bool:
    """Whether this process is the first to have something to say at its end: an error of all is told once."""
    try:
        store, *_ = next(dist.rendezvous("env://", timeout=timedelta(seconds=10)))
        return store.add("pads/spoken", 1) == 1
    except (RuntimeError, ValueError):  # nobody keeps count, or the variables of torchrun are not all there
        return True


# -- what is led -------------------------------------------------------------------------------------------------------


class LedCurriculum:
    """A curriculum that the first process advances; the others take over what became of it."""

    def __init__(self, curriculum: Any, team: Team) -> None:
        self.curriculum, self.team = curriculum, team

    @property
    def rule(self) -> Any:
        return self.curriculum.rule

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.curriculum.metrics

    def advance(self, metrics: Mapping[str, Any], progress: float) -> dict[str, Any]:
        def advance_and_tell() -> tuple[dict[str, Any], dict[str, Any]]:
            return self.curriculum.advance(metrics, progress), self.curriculum.state_dict()

        adjustment, state = self.team.lead(advance_and_tell)
        if not self.team.leads:
            self.curriculum.load_state_dict(state)
        return adjustment

    def state_dict(self) -> dict[str, Any]:
        return self.curriculum.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.curriculum.load_state_dict(state)


# -- batch norm over the whole batch -----------------------------------------------------------------------------------


def share_batch_norms(modules: Iterable[nn.Module]) -> None:
    """Batch norms that learn their statistics take them from the images of all processes."""
    forward = torch.compiler.disable(apply_shared_batch_norm)  # a compiled network leaves the exchange to torch
    for module in modules:
        if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            module.forward = partial(forward, module)


def apply_shared_batch_norm(norm: nn.BatchNorm2d, own: Tensor) -> Tensor:
    """Normalise the own part as `norm` would in the whole batch."""
    if not norm.training:
        return type(norm).forward(norm, own)
    dims, shape = [0, *range(2, own.ndim)], [1, -1, *[1] * (own.ndim - 2)]
    values = own.to(torch.promote_types(own.dtype, torch.float32))
    num = dist.get_world_size() * own.numel() // own.shape[1]  # all have equal parts of the batch
    mean_C = Summed.apply(values.sum(dims)) / num
    centred = values - mean_C.view(shape)
    variance_C = Summed.apply(centred.square().sum(dims)) / num
    remember(norm, mean_C.detach(), variance_C.detach() * num / (num - 1))
    normalised = centred * (variance_C + norm.eps).rsqrt().view(shape)
    if norm.affine:
        normalised = normalised * norm.weight.view(shape) + norm.bias.view(shape)
    return normalised.to(own.dtype)


def remember(norm: nn.BatchNorm2d, mean_C: Tensor, variance_C: Tensor) -> None:
    """The running statistics, moved as torch moves them."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked += 1
    rate = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean_C, rate)
    norm.running_var.lerp_(variance_C, rate)


class Summed(torch.autograd.Function):
    """The sum over the processes. What flows back is summed too: each has the part that came through its own images."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return sum_over_team(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return sum_over_team(gradient)


def sum_over_team(value: Tensor) -> Tensor:
    total = value.clone()
    with expect_answers():
        dist.all_reduce(total)
    return total
