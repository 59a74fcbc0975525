"""Recipes: how one run trains. A function a recipe, each headed by its command and what to expect of it.

Values of the paper's recipes: table 5, its appendix B and the released code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from anchored.errors import InputError, unknown


@dataclass(frozen=True)
class Recipe:
    """Optimiser, schedule and augmentation of one run. Every field can be overridden.

    schedule: "one_cycle" (linear up to `lr` over `warmup` epochs, linear down to 0), "multistep" (times `gamma`
    at each of `milestones`, in epochs) or "cosine" (linear warm-up from `warmup_start` x lr, then cosine to
    `min_lr`). augmentation: a name of `anchored.augment`. clip: largest gradient norm, or None. alpha: rate of
    masked batches of the masking method.
    """

    name: str
    epochs: int
    batch_size: int = 128
    optimiser: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: str = "multistep"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.2
    warmup: float = 0.0
    warmup_start: float = 0.0
    min_lr: float = 0.0
    label_smoothing: float = 0.0
    augmentation: str = "crop_flip"
    clip: float | None = None
    alpha: float = 0.25

    def __post_init__(self) -> None:
        rules = [
            (self.epochs >= 1, f"epochs is at least 1; got {self.epochs}."),
            (self.batch_size >= 2, f"batch size is at least 2 (batch normalisation); got {self.batch_size}."),
            (self.lr > 0 and math.isfinite(self.lr), f"lr is a positive number; got {self.lr}."),
            (0 <= self.alpha <= 1, f"alpha is the probability of masking a step and lies in [0, 1]; got {self.alpha}."),
            (0 <= self.label_smoothing < 1, f"label smoothing lies in [0, 1); got {self.label_smoothing}."),
        ]
        for holds, message in rules:
            if not holds:
                raise InputError(message)
        if self.optimiser not in ("sgd", "adamw"):
            raise unknown("optimiser", self.optimiser, ["sgd", "adamw"])
        if self.schedule not in ("one_cycle", "multistep", "cosine"):
            raise unknown("schedule", self.schedule, ["one_cycle", "multistep", "cosine"])

    def lr_at(self, epoch: float) -> float:
        """The learning rate at a point of training, in epochs from 0 to `epochs`."""
        if self.schedule == "multistep":
            return self.lr * self.gamma ** sum(epoch >= milestone for milestone in self.milestones)
        # A run shorter than its recipe keeps the shape of the schedule.
        warmup = min(self.warmup, self.epochs / 2)
        if epoch < warmup:
            return self.lr * (self.warmup_start + (1 - self.warmup_start) * epoch / warmup)
        done = min(1.0, (epoch - warmup) / (self.epochs - warmup))
        if self.schedule == "one_cycle":
            return self.lr * (1 - done)
        return self.min_lr + (self.lr - self.min_lr) * (1 + math.cos(math.pi * done)) / 2


def cpu_quick() -> Recipe:
    """anchored compare --model resnet9 --recipe cpu_quick

    A small network on a CPU in minutes: one-cycle SGD. On CIFAR-10 expect about 90 % clean for the standard
    method with --epochs 20 (docs/example-cifar10.md).
    """
    return Recipe(
        "cpu_quick",
        epochs=12,
        lr=0.2,
        nesterov=True,
        schedule="one_cycle",
        warmup=4,
    )


def finetune() -> Recipe:
    """anchored compare --data folder:PATH --model timm:NAME --weights default --recipe finetune

    Fine-tuning of a pretrained classifier, anchored without changing its function: AdamW, cosine.
    """
    return Recipe(
        "finetune",
        epochs=10,
        batch_size=32,
        optimiser="adamw",
        lr=3e-4,
        weight_decay=0.05,
        schedule="cosine",
        warmup=1,
        min_lr=1e-6,
        clip=1.0,
    )


def cifar_resnet18() -> Recipe:
    """anchored compare --data cifar10 --model resnet18 --recipe cifar_resnet18

    Table 1 of the paper, CIFAR-10: standard 95.15 clean / 58.72 at severity 5 of CIFAR-10-C, masking 95.72 / 67.26;
    CIFAR-100: 77.6 / 34.13 and 77.89 / 38.66.
    """
    return Recipe("cifar_resnet18", epochs=200, milestones=(60, 120, 160))


def cifar_wrn40_2() -> Recipe:
    """anchored compare --data cifar100 --model wrn40_2 --recipe cifar_wrn40_2

    Table 1 of the paper, CIFAR-100: standard 75.48 clean / 30.05 at severity 5 of CIFAR-100-C, masking 77.03 / 35.52.
    """
    return Recipe("cifar_wrn40_2", epochs=200, milestones=(60, 120, 160))


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe for recipe in (cpu_quick, finetune, cifar_resnet18, cifar_wrn40_2)
}


def recipe(name: str, **overrides: Any) -> Recipe:
    """The recipe `name` with the fields in `overrides` that are not None replaced.

    Milestones move with the number of epochs. Raises InputError for an unknown recipe or a field out of range.
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    base = RECIPES[name]()
    given = {key: value for key, value in overrides.items() if value is not None}
    epochs = given.get("epochs", base.epochs)
    if epochs != base.epochs and base.milestones and "milestones" not in given:
        given["milestones"] = tuple(round(milestone * epochs / base.epochs) for milestone in base.milestones)
    return replace(base, **given)
