"""Recipe: how one run trains, with the rule of every field."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from anchored.arms.setting import MASKING, setting, typed, words
from anchored.augment.spec import parse
from anchored.system.errors import InputError, unknown

CHOICES = {
    "optimiser": ("sgd", "adamw"),
    "schedule": ("one_cycle", "multistep", "cosine"),
    "trainable": ("all", "head", "stem_head"),
}


@dataclass(frozen=True)
class Recipe:
    """Optimiser, schedule and augmentation of one run. Every field can be overridden.

    Raises InputError for a value out of range, naming the rule.

    batch_size: of the whole step, over all processes; accumulate: parts it is taken in. schedule: "one_cycle" (linear
    up to `lr` over `warmup` epochs, linear down to 0), "multistep" (times `gamma` at each of `milestones`, in epochs)
    or "cosine" (linear warm-up from `warmup_start` x lr, then cosine to `min_lr`). weight_decay: of norm layers, biases
    (and other vectors) and embeddings their own where it is not None. layer_decay: the learning rate of a layer is that
    of the next one times this. trainable: "all", "head" (the last layer; unmasked tuples then stay blind to their
    reference, as the stem is) or "stem_head" (the stem as well). clip: largest gradient norm, or None.

    augmentation: a policy of `anchored.augment.parse`; random_erasing (probability), mixup_alpha and cutmix_alpha
    (0: off) are added to it. repeats: appearances of an image in a batch, augmented anew. ema_decay: of the average of
    the weights taken every `ema_steps` steps (None: no average), see `ema_keep`. alpha: rate of masked batches of the
    masking method. model, image_size (pixels): what the recipe is for, used where nothing else is given.
    """

    name: str
    epochs: int
    batch_size: int = 128
    accumulate: int = 1
    optimiser: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    norm_weight_decay: float | None = None
    bias_weight_decay: float | None = None
    embedding_weight_decay: float | None = None
    layer_decay: float = 1.0
    trainable: str = "all"
    schedule: str = "multistep"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.2
    warmup: float = 0.0
    warmup_start: float = 0.0
    min_lr: float = 0.0
    label_smoothing: float = 0.0
    augmentation: str = "crop_flip"
    random_erasing: float = 0.0
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    repeats: int = 1
    clip: float | None = None
    ema_decay: float | None = None
    ema_steps: int = 32
    alpha: float = setting(
        0.25, help="rate of masked batches, in [0, 1] (the recipe's)", of="method", methods=MASKING, hashed=True
    )
    model: str | None = None
    image_size: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, typed(field.name, str(field.type), getattr(self, field.name)))
        for holds, message in self._rules():
            if not holds:
                raise InputError(message)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        parse(self.policy)

    def _rules(self) -> Iterator[tuple[bool, str]]:
        yield self.epochs >= 1, f"epochs is at least 1; got {self.epochs}."
        yield self.batch_size >= 2, f"batch size is at least 2 (batch normalisation); got {self.batch_size}."
        even = self.accumulate >= 1 and self.batch_size % self.accumulate == 0
        whole = "accumulate is the number of equal parts a batch is taken in"
        yield even, f"{whole}; got {self.accumulate} for a batch size of {self.batch_size}."
        yield self.lr > 0 and math.isfinite(self.lr), f"lr is a positive number; got {self.lr}."
        yield 0 <= self.momentum < 1, f"momentum lies in [0, 1); got {self.momentum}."
        sgd = self.optimiser == "sgd"
        yield not self.nesterov or self.momentum > 0 or not sgd, "nesterov needs a momentum above 0; got momentum 0."
        for name in ("weight_decay", "norm_weight_decay", "bias_weight_decay", "embedding_weight_decay"):
            value = getattr(self, name)
            rule = f"{words(name)} is a number of at least 0{'' if name == 'weight_decay' else ' or none'}"
            yield value is None or (value >= 0 and math.isfinite(value)), f"{rule}; got {value}."
        decay = "layer decay is the learning rate of a layer over that of the next, in (0, 1]"
        yield 0 < self.layer_decay <= 1, f"{decay}; got {self.layer_decay}."
        stones = list(self.milestones)
        ordered = stones == sorted(stones) and all(stone >= 0 for stone in stones)
        yield ordered, f"milestones are epochs from 0 in increasing order; got {stones}."
        yield 0 < self.gamma <= 1, f"gamma, the factor at each milestone, lies in (0, 1]; got {self.gamma}."
        yield self.warmup >= 0 and math.isfinite(self.warmup), f"warmup is epochs from 0; got {self.warmup}."
        start = "warmup start is the part of lr that warm-up begins with, in [0, 1]"
        yield 0 <= self.warmup_start <= 1, f"{start}; got {self.warmup_start}."
        yield 0 <= self.min_lr <= self.lr, f"min lr lies in [0, lr = {self.lr}]; got {self.min_lr}."
        yield 0 <= self.label_smoothing < 1, f"label smoothing lies in [0, 1); got {self.label_smoothing}."
        yield 0 <= self.random_erasing <= 1, f"random erasing is a probability in [0, 1]; got {self.random_erasing}."
        for name in ("mixup_alpha", "cutmix_alpha"):
            value = getattr(self, name)
            yield value >= 0 and math.isfinite(value), f"{words(name)} is a positive number, 0 for none; got {value}."
        repeats = f"repeats, the appearances of an image in a batch, lie in 1..{self.batch_size}, the batch size"
        yield 1 <= self.repeats <= self.batch_size, f"{repeats}; got {self.repeats}."
        yield (
            self.clip is None or self.clip > 0,
            f"clip is the largest gradient norm, above 0, or none; got {self.clip}.",
        )
        ema = self.ema_decay is None or 0 <= self.ema_decay < 1
        yield ema, f"ema decay lies in [0, 1), or none; got {self.ema_decay}."
        yield self.ema_steps >= 1, f"ema steps is at least 1; got {self.ema_steps}."
        masking = "alpha is the probability of masking a step and lies in [0, 1]"
        yield 0 <= self.alpha <= 1, f"{masking}; got {self.alpha}."
        sized = self.image_size is None or self.image_size >= 1
        yield sized, f"image size is at least 1 pixel, or none; got {self.image_size}."

    def without_effect(self, name: str) -> str | None:
        """What the field `name` needs to have an effect in this recipe, in words; None where it has one."""
        for names, holds, needs in (
            (("milestones", "gamma"), self.schedule == "multistep", "the schedule multistep"),
            (("warmup",), self.schedule != "multistep", "the schedule one_cycle or cosine"),
            (("min_lr",), self.schedule == "cosine", "the schedule cosine"),
            (("warmup_start",), self.schedule != "multistep" and self.warmup > 0, "a warmup"),
            (("momentum", "nesterov"), self.optimiser == "sgd", "the optimiser sgd"),
            (("ema_steps",), self.ema_decay is not None, "an ema_decay"),
        ):
            if name in names and not holds:
                return needs
        return None

    @property
    def policy(self) -> str:
        """The whole augmentation, for `anchored.augment.Pipeline`: `augmentation` with erasing and mixing added."""
        added = (
            (self.random_erasing, "random_erasing(p={})"),
            (self.mixup_alpha, "mixup(alpha={})"),
            (self.cutmix_alpha, "cutmix(alpha={})"),
        )
        return "+".join([self.augmentation, *(text.format(value) for value, text in added if value)])

    @property
    def ema_keep(self) -> float:
        """What the average of the weights keeps of itself at each of its updates.

        As torchvision's reference has it: 1 - (1 - ema_decay) x batch size x ema_steps / epochs, so that an average of
        0.99998 forgets over the same number of images whatever the batch; at least 0.
        """
        if self.ema_decay is None:
            raise InputError("this recipe has no ema decay; pass one, e.g. 0.99998.")
        return 1 - min(1.0, (1 - self.ema_decay) * self.batch_size * self.ema_steps / self.epochs)

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


FIELDS = tuple(field.name for field in dataclasses.fields(Recipe))
