"""Recipes: how one run trains. A function a recipe, each headed by its command and what to expect of it.

Values of the paper's recipes: table 5, its appendix B, the released code and torchvision's documented recipes.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from anchored.augment.spec import parse
from anchored.errors import InputError, unknown

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
    masking method.
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
    alpha: float = 0.25

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _typed(field.name, str(field.type), getattr(self, field.name)))
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
            rule = f"{_words(name)} is a number of at least 0{'' if name == 'weight_decay' else ' or none'}"
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
            yield value >= 0 and math.isfinite(value), f"{_words(name)} is a positive number, 0 for none; got {value}."
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


def _words(name: str) -> str:
    return name.replace("_", " ")


def _typed(name: str, kind: str, value: Any) -> Any:
    """`value` as the type of its field; numbers may come as text (YAML reads 1e-3 as such)."""
    if "None" in kind and (value is None or str(value).lower() == "none"):
        return None
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
    base = kind.split(" |")[0]
    try:
        if base.startswith("tuple"):
            return tuple(_typed(name, "int", item) for item in value)
        if isinstance(value, bool) == (base == "bool"):
            if base == "int" and (isinstance(value, str) or int(value) == value):
                return int(value)
            if base == "float":
                return float(value)
            if isinstance(value, {"bool": bool, "str": str}.get(base, ())):
                return value
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{_words(name)} is {words.get(base, 'a list of whole numbers')}; got {value!r}.")


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

    Fine-tuning of a pretrained classifier, anchored without changing its function: AdamW, cosine. Layer-wise with
    --set layer_decay=0.75, only the last layer with --set trainable=head, the stem as well with
    --set trainable=stem_head. Expect the function of the pretrained classifier at the start, whatever the reference.
    """
    return Recipe(
        "finetune",
        epochs=10,
        batch_size=32,
        optimiser="adamw",
        lr=3e-4,
        weight_decay=0.05,
        norm_weight_decay=0.0,
        bias_weight_decay=0.0,
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


def imagenet_swin_v2_t() -> Recipe:
    """anchored compare --data folder:PATH --model torchvision:swin_v2_t --recipe imagenet_swin_v2_t

    Tables 2 and 6 of the paper, ImageNet: standard 82.07 clean / 35.66 at severity 5 of ImageNet-C / 40.84 on
    ImageNet-R, masking 82.03 / 38.58 / 41.17. Batches of 1,024 over all GPUs, 256 px; the paper trains its standard
    models 300 epochs and the anchored ones 330 (--epochs 330).
    """
    return _swin_v2("imagenet_swin_v2_t")


def imagenet_swin_v2_s() -> Recipe:
    """anchored compare --data folder:PATH --model torchvision:swin_v2_s --recipe imagenet_swin_v2_s

    Tables 2 and 6 of the paper, ImageNet: standard 83.71 clean / 42.85 at severity 5 of ImageNet-C / 45.17 on
    ImageNet-R, masking 83.68 / 44.33 / 46.63. Otherwise as `imagenet_swin_v2_t`.
    """
    return _swin_v2("imagenet_swin_v2_s")


def imagenet_swin_v2_b() -> Recipe:
    """anchored compare --data folder:PATH --model torchvision:swin_v2_b --recipe imagenet_swin_v2_b

    Tables 2 and 6 of the paper, ImageNet: standard 84.11 clean / 41.87 at severity 5 of ImageNet-C / 45.7 on
    ImageNet-R, masking 84.09 / 45.19 / 48.16. Otherwise as `imagenet_swin_v2_t`. The script released for this model
    differs: --lr 1e-4 --batch-size 512 --epochs 400, no warm-up, down to 1e-6.
    """
    return _swin_v2("imagenet_swin_v2_b")


def _swin_v2(name: str) -> Recipe:
    return Recipe(
        name,
        epochs=300,
        batch_size=1024,
        optimiser="adamw",
        lr=1e-3,
        weight_decay=0.05,
        norm_weight_decay=0.0,
        bias_weight_decay=0.0,
        embedding_weight_decay=0.0,
        schedule="cosine",
        warmup=20,
        warmup_start=0.01,
        min_lr=1e-5,
        label_smoothing=0.1,
        augmentation="resized_crop_flip+trivialaugment",
        random_erasing=0.25,
        mixup_alpha=0.8,
        cutmix_alpha=1.0,
        repeats=4,
        clip=5.0,
        ema_decay=0.99998,
        alpha=0.2,
    )


def imagenet_vit_b_16() -> Recipe:
    """anchored compare --data folder:PATH --model torchvision:vit_b_16 --recipe imagenet_vit_b_16

    Tables 2 and 6 of the paper, ImageNet: standard 81.07 clean / 41.09 at severity 5 of ImageNet-C / 44.06 on
    ImageNet-R, masking 80.76 / 44.52 / 46.39. Batches of 4,096 over all GPUs, 224 px; the paper trains its standard
    models 300 epochs and the anchored ones 330 (--epochs 330).
    """
    return Recipe(
        "imagenet_vit_b_16",
        epochs=300,
        batch_size=4096,
        optimiser="adamw",
        lr=3e-3,
        weight_decay=0.3,
        schedule="cosine",
        warmup=30,
        warmup_start=0.033,
        label_smoothing=0.11,
        augmentation="resized_crop_flip+randaugment",
        mixup_alpha=0.2,
        cutmix_alpha=1.0,
        repeats=3,
        clip=1.0,
        ema_decay=0.99998,
        alpha=0.2,
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (
        *(cpu_quick, finetune, cifar_resnet18, cifar_wrn40_2),
        *(imagenet_swin_v2_t, imagenet_swin_v2_s, imagenet_swin_v2_b, imagenet_vit_b_16),
    )
}
FIELDS = tuple(field.name for field in dataclasses.fields(Recipe))


def recipe(name: str | dict[str, Any], *, fields: dict[str, Any] | None = None, **overrides: Any) -> Recipe:
    """The recipe `name`, or that of a file (see `recipe_from`), with the fields in `overrides` that are not None.

    name: or a mapping as in such a file. fields: more of them, in which None is a value (no clipping). Milestones
    move with the number of epochs. Raises InputError for an unknown recipe or field and a value out of range.
    """
    if isinstance(name, dict):
        base = _written(name, "--recipe")
    elif name in RECIPES:
        base = RECIPES[name]()
    elif name.endswith((".json", ".yaml", ".yml")) or Path(name).is_dir():
        base = recipe_from(name)
    else:
        raise unknown("recipe", name, RECIPES)
    return _changed(base, {key: value for key, value in overrides.items() if value is not None} | (fields or {}))


def recipe_from(path: str | Path) -> Recipe:
    """The recipe a run was trained with, to train so again, or one written by hand.

    path: a run or its run.json, a comparison or its config.json, or a JSON or YAML file of fields, in which `name` (or
    `recipe`) is the recipe whose values hold for the fields that are left out. Raises InputError where there is none.
    """
    path = Path(path)
    if path.is_dir():
        file = next((path / part for part in ("run.json", "config.json") if (path / part).is_file()), None)
        if file is None:
            raise InputError(f"{path} holds no recipe: it has neither run.json (a run) nor config.json (a comparison).")
        path = file
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise InputError(f"the recipe {path} cannot be read: {reason}.") from error
    for key in ("config", "settings", "recipe"):  # run.json, config.json, and what is in both
        if isinstance(values, dict) and isinstance(values.get(key), dict):
            values = values[key]
    return _written(values, str(path), path.stem)


def _written(values: Any, where: str, stem: str = "own") -> Recipe:
    """The recipe of a mapping of fields, in which None is a value."""
    if not isinstance(values, dict):
        raise InputError(
            f"{where} holds no recipe: a mapping of fields to values is needed. Fields: {', '.join(FIELDS)}."
        )
    values = {"name" if key == "recipe" else str(key).replace("-", "_"): value for key, value in values.items()}
    name = values.pop("name", None)
    if name in RECIPES:
        return _changed(RECIPES[name](), values)
    if "epochs" not in values:
        raise InputError(f"{where} needs the number of epochs, or the name of a recipe. Names: {', '.join(RECIPES)}.")
    return _changed(Recipe(str(name or stem), epochs=1), values)


def _changed(base: Recipe, values: dict[str, Any]) -> Recipe:
    for key in values:
        if key not in FIELDS:
            raise unknown("field of a recipe", key, FIELDS)
    given = dict(values)
    if "epochs" in given and base.milestones and "milestones" not in given:
        epochs = _typed("epochs", "int", given["epochs"])
        given["milestones"] = tuple(round(milestone * epochs / base.epochs) for milestone in base.milestones)
    return replace(base, **given)
