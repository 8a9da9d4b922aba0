"""A callback for Lightning: adapts a miner of the module every M batches, and goes into the checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pads.adapters.sampler import AdaptiveController
from pads.errors import UserError

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError as error:
    raise UserError("lightning is not installed; install it with: pip install lightning") from error


class AdaptiveSampling(Callback):
    """Adapt a miner after every M training batches. `forward` of the module must give embeddings."""

    def __init__(self, miner: Any, loader: Iterable[Any], every: int = 30) -> None:
        """
        miner: an AdaptiveMiner or a TripletSampler, which the module uses in its training step.
        loader: batches of (images, labels) that the network is not trained on, nor its epoch selected by.
        """
        self.controller = AdaptiveController(miner, every=every)
        self.loader = loader

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        num_steps = trainer.estimated_stepping_batches * trainer.accumulate_grad_batches
        if 0 < num_steps < math.inf:  # else nobody knows how long it will train
            self.controller.num_steps = int(num_steps)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *unused: Any) -> None:
        log = self.controller.step(pl_module, self.loader)
        if log:
            numbers = {f"pads/{name}": float(value) for name, value in log.items() if isinstance(value, int | float)}
            pl_module.log_dict(numbers, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        return self.controller.sampler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.controller.sampler.load_state_dict(state_dict)
