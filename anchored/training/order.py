"""Which training images a step sees: a function of (seed, step) alone, the same on every process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from anchored.arms.run_config import RunConfig
from anchored.augment import repeated
from anchored.system.rng import generator


class Part(NamedTuple):
    """A part of a step's batch: positions in the data set and which of its appearances each is (int64 [B])."""

    positions: Tensor
    repeat: Tensor


@dataclass
class Order:
    """Steps of `batch` of `n` images, shuffled anew every epoch; the rest of an epoch that fills no batch is left out.

    repeats: appearances of an image in a batch (repeated augmentation).
    """

    n: int
    batch: int
    seed: int
    repeats: int = 1

    def __post_init__(self) -> None:
        self._epoch = -1
        self._whole = Part(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))

    @property
    def steps(self) -> int:
        """Steps an epoch."""
        return self.n // self.batch

    def step(self, step: int, rank: int = 0, world: int = 1, parts: int = 1) -> list[Part]:
        """The parts one of `world` processes takes this step in; `batch` is a multiple of world x parts."""
        epoch, position = divmod(step, self.steps)
        if epoch != self._epoch:
            shuffled = torch.randperm(self.n, generator=generator(self.seed, "order", epoch))
            self._epoch, self._whole = epoch, Part(*repeated(shuffled, self.batch, self.repeats))
        here = slice(position * self.batch, (position + 1) * self.batch)
        index, repeat = (whole[here].chunk(world)[rank].chunk(parts) for whole in self._whole)
        return [Part(*pair) for pair in zip(index, repeat, strict=True)]


def order_of(config: RunConfig, images: int) -> Order:
    """The order of a run on so many training images; fewer than a batch are one batch."""
    return Order(images, min(config.recipe.batch_size, images), config.seed, config.recipe.repeats)


def passes(config: RunConfig, images: int) -> float:
    """Forward passes of the network per training image, in all training steps of a run on so many `images`.

    Somewhat fewer than the epochs where the last images of an epoch fill no batch.
    """
    order = order_of(config, images)
    return config.recipe.epochs * order.steps * order.batch / images
