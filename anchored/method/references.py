"""References: the set they come from, which ones a training step uses, and when they are masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anchored.system.errors import InputError
from anchored.system.rng import generator

Take = Callable[[Tensor], Tensor]


class ReferenceSet:
    """The images R that references are drawn from, as positions in a data set.

    Holds indices and a way to load images, never the images: memory does not grow with the size of the set.
    `indices` (int64 [R]) are the rows of the data set, in the nested order in which a smaller set of the same
    seed is a prefix of a larger one. `take` maps positions 0..R-1 (int64 [n]) to normalised images
    [n, C, H, W]. Made by `from_dataset` or `from_images`.
    """

    def __init__(self, take: Take, indices: Tensor, *, mean: Tensor | None = None) -> None:
        if len(indices) == 0:
            raise InputError("a reference set needs at least one image; got none.")
        self.take = take
        self.indices = indices
        self._mean = mean

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        size: int | None = None,
        *,
        seed: int,
        stratified: bool = True,
        transform: Callable[[Any], Tensor] | None = None,
    ) -> ReferenceSet:
        """A reference set of `size` images of `dataset` (None: all of them, R = D).

        dataset: anything indexable giving (image, label). transform: image -> [C, H, W] in the network's input
        space, the one used for evaluation (no augmentation). stratified: classes take turns (round-robin over
        seeded orders within each class), so that a set of any size is as balanced as it can be. Where the data
        set has `take(indices)` and the transform an attribute `batched = True`, whole batches are transformed at once.
        Raises InputError for a size outside 1..len(dataset).
        """
        n = len(dataset)
        size = n if size is None else size
        if not 1 <= size <= n:
            raise InputError(f"the size of a reference set must be in 1..{n}, the size of the data set; got {size}.")
        if size == n:
            indices = torch.arange(n)
        else:
            order = torch.randperm(n, generator=generator(seed, "reference set"))
            indices = (_round_robin(order, _labels(dataset)) if stratified else order)[:size]
        if getattr(transform, "batched", False) and hasattr(dataset, "take"):

            def take(positions: Tensor) -> Tensor:
                assert transform is not None
                return transform(dataset.take(indices[positions]))
        else:

            def take(positions: Tensor) -> Tensor:
                images = (dataset[int(index)][0] for index in indices[positions])
                return torch.stack([transform(image) if transform else image for image in images])

        return cls(take, indices)

    @classmethod
    def from_images(cls, images: Tensor, *, indices: Tensor | None = None, mean: Tensor | None = None) -> ReferenceSet:
        """A reference set of given normalised images [R, C, H, W]; `mean` [1, C, H, W] if it is not theirs."""
        return cls(images.__getitem__, torch.arange(len(images)) if indices is None else indices, mean=mean)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def mean(self) -> Tensor:
        """The mean image [1, C, H, W] of the set (summed in float64, in one pass, then kept)."""
        if self._mean is None:
            total: Tensor | float = 0.0
            for positions in torch.arange(len(self)).split(512):
                images = self.take(positions)
                total = total + images.double().sum(0, keepdim=True)
            assert isinstance(total, Tensor)
            self._mean = (total / len(self)).to(images.dtype)
        return self._mean

    def share(self, rank: int, world: int) -> Tensor:
        """The sum [1, C, H, W], float64, of every `world`-th image from `rank` on; all shares over R are the mean.

        rank: below R, so that there is one.
        """
        total: Tensor | float = 0.0
        for positions in torch.arange(rank, len(self), world).split(512):
            total = total + self.take(positions).double().sum(0, keepdim=True)
        assert isinstance(total, Tensor)
        return total

    def keep_mean(self, mean: Tensor) -> None:
        """Take `mean` [1, C, H, W] as the mean image, for sets it takes long to compute for."""
        self._mean = mean

    def sample(self, k: int, seed: int) -> Tensor:
        """k references [k, C, H, W] drawn without replacement from the whole set, by the seed alone."""
        if not 1 <= k <= len(self):
            raise InputError(f"k references are drawn without replacement from a set of {len(self)}; got k = {k}.")
        return self.take(torch.randperm(len(self), generator=generator(seed, "k references"))[:k])


def _labels(dataset: Any) -> Tensor:
    for name in ("labels", "targets"):
        labels = getattr(dataset, name, None)
        if labels is not None:
            return torch.as_tensor(labels)
    return torch.tensor([int(dataset[index][1]) for index in range(len(dataset))])


def _round_robin(order: Tensor, labels: Tensor) -> Tensor:
    """`order` rearranged so that classes take turns; the sequence within a class is kept."""
    turn = torch.zeros(len(order), dtype=torch.int64)
    shuffled = labels[order]
    for label in shuffled.unique():
        members = shuffled == label
        turn[members] = torch.arange(int(members.sum()))
    return order[torch.argsort(turn, stable=True)]


@dataclass(frozen=True)
class Anchoring:
    """Which references a training step uses and whether they are masked: a function of (seed, step) alone.

    alpha: probability in [0, 1] that a step is masked. schedule: "bernoulli" draws per step, "periodic" masks
    every 1/alpha-th. source: "set" draws from `references` for the whole global batch; "batch" permutes the
    batch itself without fixed points (R = D, no extra loading). Raises InputError on values outside these.
    """

    alpha: float
    seed: int
    references: ReferenceSet | None = None
    source: str = "set"
    schedule: str = "bernoulli"

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise InputError(f"alpha is the probability of masking a step and lies in [0, 1]; got {self.alpha}.")
        if self.schedule not in ("bernoulli", "periodic"):
            raise InputError(f"schedule is 'bernoulli' or 'periodic'; got {self.schedule!r}.")
        if self.source not in ("set", "batch"):
            raise InputError(f"reference source is 'set' or 'batch'; got {self.source!r}.")
        if self.source == "set" and self.references is None:
            raise InputError("reference source 'set' needs a ReferenceSet; got none.")

    def masked(self, step: int) -> bool:
        """Whether the whole (global) batch of this step is masked."""
        if self.schedule == "periodic":
            return int((step + 1) * self.alpha + 1e-9) > int(step * self.alpha + 1e-9)
        return bool(torch.rand((), generator=generator(self.seed, "mask", step), dtype=torch.float64) < self.alpha)

    def positions(self, n: int, step: int, *, rank: int = 0, world: int = 1) -> Tensor:
        """Where in the reference set (int64 [n]) the references of this rank's n images at this step are."""
        assert self.references is not None
        stream = generator(self.seed, "references", step)
        drawn = torch.randint(len(self.references), (n * world,), generator=stream)
        return drawn[rank * n : (rank + 1) * n]

    def draw(self, x: Tensor, step: int, *, rank: int = 0, world: int = 1) -> Tensor:
        """The references [B, C, H, W] of this rank's batch x [B, C, H, W] at this step."""
        n = len(x)
        if self.source == "set":
            assert self.references is not None
            return self.references.take(self.positions(n, step, rank=rank, world=world)).to(x.device, x.dtype)
        if n < 2:
            raise InputError("references from the batch need at least 2 images in it; got 1. Use source 'set'.")
        stream = generator(self.seed, "references", step, rank)
        order = torch.randperm(n, generator=stream)
        partner = torch.empty_like(order)
        partner[order] = order.roll(1)  # one cycle through the batch: nobody is its own reference
        return x[partner.to(x.device)]
