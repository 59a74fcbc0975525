"""One optimisation step: the loss of every part of the batch, its gradient, and the checks before weights change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored.arms.run_config import RunConfig
from anchored.method.batchnorm import frozen_statistics
from anchored.method.core import anchored_loss
from anchored.method.references import Anchoring
from anchored.method.stem import logits_of
from anchored.system.devices import autocast
from anchored.system.rng import stream_seed
from anchored.training.distributed import Team
from anchored.training.feed import Batch, Feed


class NotFinite(ArithmeticError):
    """The loss or the gradient of a step is NaN or infinite; `images` (int64 [B]) are those of its batch."""

    def __init__(self, what: str, images: Tensor) -> None:
        super().__init__(what)
        self.images = images


@dataclass(frozen=True)
class Done:
    """A step of all processes: mean loss, images classified right (0 where masked), whether one was asked to stop."""

    loss: float
    masked: bool
    right: int
    stopping: bool
    images: Tensor = field(repr=False)  # of this process


@dataclass
class Step:
    """Takes the steps of one run on `net`; `forward` is the network as it is called (compiled, in DDP).

    scaler: of the loss, where gradients are float16, with a state to keep in checkpoints.
    """

    net: nn.Module
    forward: Any
    optimiser: torch.optim.Optimizer
    config: RunConfig
    feed: Feed
    anchoring: Anchoring | None
    team: Team
    scaler: torch.amp.GradScaler

    def __call__(self, step: int, batches: Iterator[Batch], asked: bool = False) -> Done:
        """Step number `step` on the next parts of `batches`; `asked`: this process was asked to stop after it.

        Raises NotFinite, before weights change, when the loss or the norm of the gradient is not finite. In float16 a
        gradient too large for it skips the step instead and halves the scale, until none is left to halve.
        """
        team, parts, net = self.team, self.config.recipe.accumulate, self.net
        masking = step < self.config.mask_until * self.config.recipe.epochs * self.feed.order.steps
        masked = masking and self.anchoring is not None and self.anchoring.masked(step)
        value, right = 0.0, 0
        taken = []
        for part in range(parts):
            index, x, labels, reference = next(batches)
            taken.append(index)
            number = team.rank * parts + part
            # Dropout, the same when resumed, another in every process and part.
            torch.manual_seed(stream_seed(self.config.seed, "step", step, *((number,) if number else ())))
            x, y = self.feed.pipeline.mix(x, labels, step)
            with team.accumulating(self.forward, part < parts - 1):
                loss, logits = self._loss(x, y, reference, step, part, masked)
                self.scaler.scale(loss / parts if parts > 1 else loss).backward()
            value += float(loss.detach()) / parts
            right += 0 if masked else int((logits.argmax(1) == labels).sum())
        value, right_all, stopping = team.total(value / team.size, right, asked)
        images = torch.cat(taken)
        if not math.isfinite(value):
            raise NotFinite(f"the loss is {value}", images)
        self.scaler.unscale_(self.optimiser)
        norm = float(nn.utils.clip_grad_norm_(net.parameters(), self.config.recipe.clip or math.inf))
        if not math.isfinite(norm) and self.scaler.get_scale() <= 1:
            raise NotFinite(f"the norm of the gradient is {norm}", images)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        return Done(value, masked, int(right_all), bool(stopping), images)

    def _loss(
        self, x: Tensor, y: Tensor, reference: Tensor | None, step: int, part: int, masked: bool
    ) -> tuple[Tensor, Tensor]:
        """The loss of one part of a batch, and the logits it came from."""
        config, seen = self.config, list[Tensor]()

        def criterion(logits: Tensor, target: Tensor) -> Tensor:
            seen.append(logits.detach())
            target = target.float() if target.is_floating_point() else target
            return F.cross_entropy(logits.float(), target, label_smoothing=config.recipe.label_smoothing)

        with autocast(self.team.device, config.precision):
            if self.anchoring is None:
                return criterion(logits_of(self.forward(x)), y), seen[0]
            if reference is None:
                parts = config.recipe.accumulate
                rank, world = self.team.rank * parts + part, self.team.size * parts
                reference = self.anchoring.draw(x, step, rank=rank, world=world)
            target: Any = config.masked_target
            with frozen_statistics(self.net, masked and config.masked_bn == "skip"):
                loss = anchored_loss(
                    self.forward, x, y, reference, masked=masked, masked_target=target, criterion=criterion
                )
            return loss, seen[0]
