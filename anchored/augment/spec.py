"""Augmentation policies as text and as values: names, parameters, ranges and the order in which they act.

Defaults are those of torchvision, PixMix's those of its paper.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from anchored.data.base import title
from anchored.system.errors import InputError, unknown

GEOMETRY, PICTURE, ERASING, MIXING = range(4)  # the order in which parts act
STAGES = (
    "cropping (none, crop, crop_flip, resized_crop, resized_crop_flip)",
    "what changes a picture (randaugment, trivialaugment, autoaugment, augmix, pixmix)",
    "random_erasing",
    "what mixes a batch (mixup, cutmix)",
)


@dataclass(frozen=True)
class Part:
    """One part of a policy. Raises InputError for a parameter out of its range."""

    name: ClassVar[str]
    stage: ClassVar[int]

    def _rule(self, field: str, holds: bool, text: str) -> None:
        if not holds:
            raise InputError(f"{self.name}: {field} {text}; got {getattr(self, field)!r}.")

    def _whole(self, field: str, low: int, high: float = math.inf) -> None:
        value = getattr(self, field)
        text = f"is a whole number of at least {low}" if high == math.inf else f"is a whole number in {low}..{high}"
        self._rule(field, isinstance(value, int) and not isinstance(value, bool) and low <= value <= high, text)

    def _positive(self, field: str) -> None:
        value = getattr(self, field)
        self._rule(field, value > 0 and math.isfinite(value), "is a positive number")

    def __str__(self) -> str:
        """The part as it is written, with the parameters that are not the defaults."""
        changed = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return self.name + (f"({','.join(changed)})" if changed else "")


@dataclass(frozen=True)
class Whole(Part):
    """The image as it is."""

    name, stage = "none", GEOMETRY


@dataclass(frozen=True)
class Crop(Part):
    """A crop at a random offset of the image padded with black by an eighth of its side."""

    name, stage = "crop", GEOMETRY


@dataclass(frozen=True)
class CropFlip(Crop):
    """`Crop`, mirrored with probability 1/2."""

    name = "crop_flip"


@dataclass(frozen=True)
class ResizedCrop(Part):
    """torchvision's RandomResizedCrop: a crop of `scale`..1 of the area and 3/4..4/3 in shape, resized."""

    name, stage = "resized_crop", GEOMETRY
    scale: float = 0.08

    def __post_init__(self) -> None:
        self._rule("scale", 0 < self.scale <= 1, "is the smallest part of the area kept, in (0, 1]")


@dataclass(frozen=True)
class ResizedCropFlip(ResizedCrop):
    """`ResizedCrop`, mirrored with probability 1/2."""

    name = "resized_crop_flip"


@dataclass(frozen=True)
class RandAugment(Part):
    """`num_ops` random operations of one magnitude (Cubuk et al. 2020)."""

    name, stage = "randaugment", PICTURE
    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        self._whole("num_ops", 1)
        self._whole("num_magnitude_bins", 2)
        self._whole("magnitude", 0, self.num_magnitude_bins - 1)


@dataclass(frozen=True)
class TrivialAugment(Part):
    """One random operation of a random magnitude: TrivialAugmentWide (Müller & Hutter 2021)."""

    name, stage = "trivialaugment", PICTURE
    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        self._whole("num_magnitude_bins", 2)


@dataclass(frozen=True)
class AutoAugment(Part):
    """One of 25 learned pairs of operations (Cubuk et al. 2019); policy: imagenet, cifar10 or svhn."""

    name, stage = "autoaugment", PICTURE
    policy: str = "imagenet"

    def __post_init__(self) -> None:
        if self.policy not in ("imagenet", "cifar10", "svhn"):
            raise unknown("policy of autoaugment", self.policy, ["imagenet", "cifar10", "svhn"])


@dataclass(frozen=True)
class AugMix(Part):
    """A mixture of `mixture_width` chains of operations and the image (Hendrycks et al. 2020).

    chain_depth -1: 1 to 3 at random. all_ops adds brightness, contrast, colour and sharpness, of which the
    corruptions of -C test the first two; the paper leaves them out, torchvision has them by default.
    """

    name, stage = "augmix", PICTURE
    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True

    def __post_init__(self) -> None:
        self._whole("severity", 1, 10)
        self._whole("mixture_width", 1)
        depth = self.chain_depth
        self._rule("chain_depth", isinstance(depth, int) and (depth == -1 or depth >= 1), "is at least 1, or -1")
        self._positive("alpha")


@dataclass(frozen=True)
class PixMix(Part):
    """Mixed up to `k` times with a fractal or with itself (Hendrycks et al. 2022): see `anchored.augment.pixmix`.

    mixing: fractals, folder:PATH or parquet:PATH. all_ops: see `AugMix`; the paper leaves them out.
    """

    name, stage = "pixmix", PICTURE
    k: int = 4
    beta: float = 3.0
    severity: int = 3
    all_ops: bool = False
    mixing: str = "fractals"

    def __post_init__(self) -> None:
        self._whole("k", 0)
        self._positive("beta")
        self._whole("severity", 1, 10)
        kind, _, path = self.mixing.partition(":")
        known = self.mixing == "fractals" or (kind in ("folder", "parquet") and bool(path))
        self._rule("mixing", known, "is fractals, folder:PATH or parquet:PATH")

    def __str__(self) -> str:
        kind, _, path = self.mixing.partition(":")
        named = dataclasses.replace(self, mixing=f"{kind}:{title(path)}") if path else self  # no machine's paths
        return Part.__str__(named)


@dataclass(frozen=True)
class RandomErasing(Part):
    """With probability p a rectangle of `smallest`..`largest` of the area gets the mean colour (Zhong et al. 2020)."""

    name, stage = "random_erasing", ERASING
    p: float = 0.5
    smallest: float = 0.02
    largest: float = 0.33

    def __post_init__(self) -> None:
        self._rule("p", 0 <= self.p <= 1, "is a probability in [0, 1]")
        self._rule("largest", 0 < self.largest <= 1, "is a part of the area in (0, 1]")
        self._rule("smallest", 0 < self.smallest <= self.largest, f"lies in (0, largest = {self.largest}]")


@dataclass(frozen=True)
class MixUp(Part):
    """Images and labels of a batch blended in pairs, weights from Beta(alpha, alpha) (Zhang et al. 2018)."""

    name, stage = "mixup", MIXING
    alpha: float = 1.0

    def __post_init__(self) -> None:
        self._positive("alpha")


@dataclass(frozen=True)
class CutMix(Part):
    """A rectangle of each image taken from another of the batch, labels mixed by area (Yun et al. 2019)."""

    name, stage = "cutmix", MIXING
    alpha: float = 1.0

    def __post_init__(self) -> None:
        self._positive("alpha")


PARTS: dict[str, type[Part]] = {
    part.name: part
    for part in (
        *(Whole, Crop, CropFlip, ResizedCrop, ResizedCropFlip),
        *(RandAugment, TrivialAugment, AutoAugment, AugMix, PixMix),
        *(RandomErasing, MixUp, CutMix),
    )
}
AUGMENTATIONS = tuple(PARTS)


@dataclass(frozen=True)
class Policy:
    """A whole policy, made by `parse`. `str` of it is what results say: defaults and machine paths left out."""

    geometry: Part
    pictures: tuple[Part, ...] = ()
    erasing: RandomErasing | None = None
    mixing: tuple[Part, ...] = ()

    def __str__(self) -> str:
        after = (*self.pictures, *((self.erasing,) if self.erasing else ()), *self.mixing)
        parts = after if after and isinstance(self.geometry, Whole) else (self.geometry, *after)
        return "+".join(map(str, parts))

    @property
    def flips(self) -> bool:
        """Whether images are mirrored, which changes the class of digits and letters."""
        return isinstance(self.geometry, (CropFlip, ResizedCropFlip))


def parse(text: str) -> Policy:
    """The policy written as `text`, e.g. "crop_flip+randaugment(num_ops=2,magnitude=9)".

    Raises InputError for an unknown part or parameter, a value out of range, a part given twice and a wrong order.
    """
    parts = [_part(part) for part in _split(text)]
    for before, after in itertools.pairwise(parts):
        if after.stage < before.stage:
            raise InputError(
                f"an augmentation goes from {' to '.join(STAGES)}; in {text!r} {after.name} comes after {before.name}."
            )
    named = [part.name for part in parts]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"each part of an augmentation is given once; {text!r} has {twice} more than once.")
    staged: list[list[Any]] = [[part for part in parts if part.stage == stage] for stage in range(4)]
    if len(staged[GEOMETRY]) > 1:
        raise InputError(f"an augmentation has one way of cropping; {text!r} has {' and '.join(named[:2])}.")
    geometry = staged[GEOMETRY][0] if staged[GEOMETRY] else Whole()
    return Policy(geometry, tuple(staged[PICTURE]), next(iter(staged[ERASING]), None), tuple(staged[MIXING]))


def without_flips(text: str) -> str:
    """The policy `text` with its mirroring left out, for images whose mirror image is of another class."""
    parts = _split(text)
    return "+".join(re.sub(r"^(resized_crop|crop)_flip\b", r"\1", part) for part in parts)


def _split(text: str) -> list[str]:
    """The parts of a policy: split at + outside brackets."""
    parts = re.findall(r"(?:[^+(]|\([^)]*\)?)+", text)
    return [part.strip() for part in parts] if parts and "+".join(parts) == text else [""]


def _part(text: str) -> Part:
    match = re.fullmatch(r"(\w+)\s*(?:\((.*)\))?", text)
    if match is None:
        raise InputError(
            f"an augmentation is its parts joined by +, e.g. crop_flip+randaugment(magnitude=9); got {text!r} in it. "
            f"Parts: {', '.join(PARTS)}."
        )
    name, inner = match.groups()
    if name not in PARTS:
        raise unknown("augmentation", name, PARTS)
    kinds = {field.name: field.default for field in dataclasses.fields(PARTS[name])}
    given: dict[str, Any] = {}
    for item in re.split(r",\s*(?=\w+\s*=)", inner) if inner else []:
        key, sign, value = (piece.strip() for piece in item.partition("="))
        if key not in kinds or not sign:
            if not kinds:
                raise InputError(f"{name} has no parameters; got {item!r}.")
            raise unknown(f"parameter of {name}", key, kinds)
        given[key] = _value(name, key, value, kinds[key])
    return PARTS[name](**given)


def _value(name: str, key: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise InputError(f"{name}: {key} is true or false; got {text!r}.")
        return text.lower() == "true"
    try:
        return type(default)(text)
    except ValueError as error:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise InputError(f"{name}: {key} is {kind}; got {text!r}.") from error
