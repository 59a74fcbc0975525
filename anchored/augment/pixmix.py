"""PixMix (Hendrycks et al., CVPR 2022): a training image mixed with fractals and with changed copies of itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from anchored.augment.fractals import fractals
from anchored.data import folder, parquet
from anchored.data.base import Options
from anchored.system.errors import InputError

if TYPE_CHECKING:
    from anchored.augment.spec import PixMix

Picture = NDArray[np.uint8]
Unit = NDArray[np.floating]  # float32, 0 to 1
Draw = Callable[[float, float], float]  # a uniform number between two bounds
FRACTALS = 300  # generated, where no mixing images are given
MARGIN = 9 / 8  # mixing images are this much larger and cropped at random (36 for 32 px, as in the paper's code)


@functools.lru_cache(maxsize=2)  # the methods of a comparison mix in the same images
def mixing_images(mixing: str, size: int, interpolation: str = "bilinear") -> Picture:
    """The images to mix in, uint8 [M, S, S, 3] with S = 9/8 size: "fractals", folder:PATH or parquet:PATH.

    Of a folder or parquet with several parts the test part. Raises InputError where there are no images.
    """
    side = round(size * MARGIN)
    if mixing == "fractals":
        return fractals(FRACTALS, side).numpy()
    kind, _, path = mixing.partition(":")
    if kind not in ("folder", "parquet") or not path:
        raise InputError(f"images to mix in are fractals, folder:PATH or parquet:PATH; got {mixing!r}.")
    source = {"folder": folder, "parquet": parquet}[kind]
    images = source.load_unlabelled(path, Options(side, interpolation=interpolation)).images
    if not len(images):
        raise InputError(f"{mixing}: there are no images to mix in.")
    return images.numpy()


def pixmix(part: PixMix, mixing: Picture, picture: Picture, generator: torch.Generator) -> Picture:
    """`picture` (uint8 [H, W, 3]) mixed 0 to k times (as likely each) with one of `mixing` or a copy of itself.

    It starts as it is or changed by one operation; each time it is mixed with, as likely, a changed copy of the
    picture or the mixing image, by addition or multiplication. Algorithm 1 of the paper.
    """

    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))

    def changed() -> Unit:
        return _unit(change(picture, part.severity, part.all_ops, draw))

    other = _cropped(mixing[int(draw(0, len(mixing)))], picture.shape, draw)
    rounds = int(draw(0, part.k + 1))
    mixed = changed() if draw(0, 1) < 0.5 else _unit(picture)
    for _ in range(rounds):
        second = changed() if draw(0, 1) < 0.5 else _unit(other)
        a, b = weights(part.beta, draw)
        mixed = (add if draw(0, 1) < 0.5 else multiply)(mixed, second, a, b).clip(0, 1)
    return (mixed * 255).round().astype(np.uint8)


def weights(beta: float, draw: Draw) -> tuple[float, float]:
    """(a, b) of a mixing: Beta(beta, 1) and Beta(1, beta), or as likely 1 + Beta(1, beta) and -Beta(1, beta)."""
    blend = draw(0, 1) < 0.5
    # Beta(beta, 1) is U^(1/beta), its mirror image Beta(1, beta).
    first, second = draw(0, 1) ** (1 / beta), draw(0, 1) ** (1 / beta)
    return (first, 1 - second) if blend else (2 - first, second - 1)


def add(x: Unit, y: Unit, a: float, b: float) -> Unit:
    """a x + b y of images scaled to [-1, 1]; in and out in [0, 1], before clipping."""
    return (a * (2 * x - 1) + b * (2 * y - 1) + 1) / 2


def multiply(x: Unit, y: Unit, a: float, b: float) -> Unit:
    """x^a y^b of images scaled to [0, 2]; in and out in [0, 1], before clipping."""
    return (2 * x) ** np.float32(a) * (2 * y).clip(1e-37) ** np.float32(b) / 2  # b may be negative


def change(picture: Picture, severity: int, all_ops: bool, draw: Draw) -> Picture:
    """`picture` after one operation at random, the weaker the lower `severity` (1 to 10).

    The nine of AugMix; all_ops adds the four that resemble corruptions of -C.
    """
    operations = OPERATIONS + SIMILAR if all_ops else OPERATIONS
    operation = operations[int(draw(0, len(operations)))]
    level = draw(0.1, severity) / 10
    sign = -1 if draw(0, 1) < 0.5 else 1
    return np.asarray(operation(Image.fromarray(picture), level, sign))


def _affine(image: Image.Image, across: float = 0, right: float = 0, down: float = 0, below: float = 0) -> Image.Image:
    matrix = (1, across, right, down, 1, below)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


def _rotate(image: Image.Image, level: float, sign: int) -> Image.Image:
    return image.rotate(sign * int(level * 30), resample=Image.Resampling.BILINEAR)


Operation = Callable[[Image.Image, float, int], Image.Image]  # (image, level in (0, 1], sign)
OPERATIONS: tuple[Operation, ...] = (
    lambda image, level, sign: ImageOps.autocontrast(image),
    lambda image, level, sign: ImageOps.equalize(image),
    lambda image, level, sign: ImageOps.posterize(image, max(1, 4 - int(level * 4))),
    _rotate,
    lambda image, level, sign: ImageOps.solarize(image, 256 - int(level * 256)),
    lambda image, level, sign: _affine(image, across=sign * level * 0.3),
    lambda image, level, sign: _affine(image, down=sign * level * 0.3),
    lambda image, level, sign: _affine(image, right=sign * int(level * image.width / 3)),
    lambda image, level, sign: _affine(image, below=sign * int(level * image.height / 3)),
)
SIMILAR: tuple[Operation, ...] = (
    lambda image, level, sign: ImageEnhance.Color(image).enhance(level * 1.8 + 0.1),
    lambda image, level, sign: ImageEnhance.Contrast(image).enhance(level * 1.8 + 0.1),
    lambda image, level, sign: ImageEnhance.Brightness(image).enhance(level * 1.8 + 0.1),
    lambda image, level, sign: ImageEnhance.Sharpness(image).enhance(level * 1.8 + 0.1),
)


def _unit(picture: Picture) -> Unit:
    return picture.astype(np.float32) / 255


def _cropped(image: Picture, shape: tuple[int, ...], draw: Draw) -> Picture:
    """A part of a mixing image, of the size of the picture, at random."""
    top, left = (int(draw(0, whole - part + 1)) for whole, part in zip(image.shape, shape[:2], strict=False))
    return image[top : top + shape[0], left : left + shape[1]]
