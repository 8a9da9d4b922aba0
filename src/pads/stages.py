"""The stages of a run: one Config after the other, each from the best network of the one before. Most runs have one."""

from __future__ import annotations

from dataclasses import dataclass

from pads.config import Config, split_stages
from pads.data.roles import Views


@dataclass(frozen=True)
class Stage:
    """A part of a run with a config of its own; steps are counted through all of them."""

    config: Config
    number: int
    num_stages: int
    first_step: int
    steps_per_epoch: int

    @property
    def is_last(self) -> bool:
        return self.number == self.num_stages - 1

    @property
    def last_step(self) -> int:
        return self.first_step + self.config.num_epochs * self.steps_per_epoch

    @property
    def marks(self) -> dict[str, int]:
        """Return what its events carry: its number, where there are several."""
        return {"stage": self.number} if self.num_stages > 1 else {}

    def progress(self, step: int) -> float:
        """Return how much of the stage is over at a step, from 0 to 1."""
        return (step - self.first_step) / (self.last_step - self.first_step)

    def locate(self, step: int) -> tuple[int, int]:
        """Return how many epochs of the stage are over at a step, and how many steps of the next."""
        return divmod(step - self.first_step, self.steps_per_epoch)


def plan_stages(config: Config, views: Views) -> list[Stage]:
    """Return the stages of a run on these images."""
    configs, stages, step = split_stages(config), [], 0
    for number, each in enumerate(configs):
        stages.append(Stage(each, number, len(configs), step, max(1, len(views.train) // each.data.batch_size)))
        step = stages[-1].last_step
    return stages
