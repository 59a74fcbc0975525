"""The severity tables of -C, by image size, and the rule for sizes between them.

Sources: the generating scripts of CIFAR-10-C (`cifar`, 32 px), Tiny-ImageNet-C (`tiny`, 64 px), ImageNet-C
(`imagenet`, 224 px) and its Inception form (`inception`, 299 px).

Rule for other sizes (`table=None`): the table whose side is nearest in ratio, by the shorter image side; lengths in
pixels are multiplied by side / table side, so that a 96 px image gets the 64 px strengths 1.5 times as wide. Fractions,
amounts and amplitudes do not change. A table given by name is used as printed, whatever the size of the image.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anchored.system.errors import InputError, unknown

SIDES = {"cifar": 32, "tiny": 64, "imagenet": 224, "inception": 299}


def _spread(cifar: Any, tiny: Any, imagenet: Any, inception: Any) -> dict[str, tuple]:
    return dict(zip(SIDES, (cifar, tiny, imagenet, inception), strict=True))


def _factors(*ends_and_steps: tuple[float, float]) -> tuple[tuple[float, ...], ...]:
    """Zoom factors as `arange` gives them: their rounding decides crop sizes, so i * step would not do."""
    return tuple(tuple(float(z) for z in np.arange(1, end, step)) for end, step in ends_and_steps)


_ZOOM_SMALL = _factors((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))
_ZOOM_LARGE = _factors((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
# (loc, scale, zoom, threshold, radius, sigma, mix)
_SNOW_SMALL = (
    (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
    (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)
_SNOW_TINY = tuple((*row[:6], mix) for row, mix in zip(_SNOW_SMALL, (0.8, 0.8, 0.7, 0.65, 0.6), strict=True))
_SNOW_LARGE = (
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)
_FROST_LARGE = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))
_CONTRAST_LARGE = (0.4, 0.3, 0.2, 0.1, 0.05)
_BRIGHTNESS_LARGE = (0.1, 0.2, 0.3, 0.4, 0.5)
_SATURATE_LARGE = ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2))


def _elastic(side: int, *rows: tuple[float, float, float]) -> tuple[tuple[float, ...], ...]:
    """(alpha, sigma, affine) in pixels, from fractions of `side`."""
    return tuple(tuple(side * value for value in row) for row in rows)


# 244 instead of 224 is a slip of the reference that belongs to the benchmark.
_ELASTIC_LARGE = ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))

TABLES: dict[str, dict[str, tuple]] = {
    "gaussian_noise": _spread(
        (0.04, 0.06, 0.08, 0.09, 0.10),
        (0.04, 0.08, 0.12, 0.15, 0.18),
        (0.08, 0.12, 0.18, 0.26, 0.38),
        (0.09, 0.13, 0.19, 0.27, 0.40),
    ),
    "shot_noise": _spread((500, 250, 100, 75, 50), (250, 100, 50, 30, 15), (60, 25, 12, 5, 3), (50, 20, 10, 5, 3)),
    "impulse_noise": _spread(
        (0.01, 0.02, 0.03, 0.05, 0.07),
        (0.01, 0.02, 0.05, 0.08, 0.14),
        (0.03, 0.06, 0.09, 0.17, 0.27),
        (0.04, 0.07, 0.10, 0.18, 0.28),
    ),
    "speckle_noise": _spread(
        (0.06, 0.10, 0.12, 0.16, 0.20),
        (0.15, 0.20, 0.25, 0.30, 0.35),
        (0.15, 0.20, 0.35, 0.45, 0.60),
        (0.16, 0.21, 0.36, 0.46, 0.61),
    ),
    "gaussian_blur": _spread(
        (0.4, 0.6, 0.7, 0.8, 1.0), (0.5, 0.75, 1.0, 1.25, 1.5), (1, 2, 3, 4, 6), (1.5, 2.5, 3.5, 4.5, 6.5)
    ),
    # (sigma, largest offset, passes)
    "glass_blur": _spread(
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        ((0.8, 1, 3), (1, 3, 1), (1.1, 2, 4), (1.2, 4, 2), (1.6, 5, 2)),
    ),
    # (radius, sigma of the anti-aliasing)
    "defocus_blur": _spread(
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        ((4, 0.1), (5, 0.5), (7, 0.5), (10, 0.5), (12, 0.5)),
    ),
    # (radius, sigma)
    "motion_blur": _spread(
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        ((12, 4), (17, 6), (17, 9), (17, 13), (22, 16)),
    ),
    "zoom_blur": _spread(_ZOOM_SMALL, _ZOOM_SMALL, _ZOOM_LARGE, _ZOOM_LARGE),
    "snow": _spread(_SNOW_SMALL, _SNOW_TINY, _SNOW_LARGE, _SNOW_LARGE),
    # (weight of the image, weight of the texture)
    "frost": _spread(
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
        _FROST_LARGE,
        _FROST_LARGE,
    ),
    # (amount, decay of the amplitude from octave to octave)
    "fog": _spread(
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        ((1.5, 2), (2, 2), (2.5, 1.8), (2.5, 1.6), (3, 1.5)),
    ),
    "brightness": _spread((0.05, 0.1, 0.15, 0.2, 0.3), _BRIGHTNESS_LARGE, _BRIGHTNESS_LARGE, _BRIGHTNESS_LARGE),
    "contrast": _spread((0.75, 0.5, 0.4, 0.3, 0.15), _CONTRAST_LARGE, _CONTRAST_LARGE, _CONTRAST_LARGE),
    "elastic_transform": _spread(
        _elastic(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        _elastic(64, (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
        _elastic(244, *_ELASTIC_LARGE),
        _elastic(360, *_ELASTIC_LARGE),
    ),
    "pixelate": _spread(
        (0.95, 0.9, 0.85, 0.75, 0.65), (0.9, 0.8, 0.7, 0.6, 0.5), (0.6, 0.5, 0.4, 0.3, 0.25), (0.5, 0.4, 0.3, 0.25, 0.2)
    ),
    "jpeg_compression": _spread((80, 65, 58, 50, 40), (65, 58, 50, 40, 25), (25, 18, 15, 10, 7), (23, 16, 13, 8, 5)),
    # (loc, scale, sigma, threshold, amount, 0 water | 1 mud)
    "spatter": _spread(
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        (
            (0.62, 0.1, 0.7, 0.7, 0.6, 0),
            (0.65, 0.1, 0.8, 0.7, 0.6, 0),
            (0.65, 0.3, 1, 0.69, 0.6, 0),
            (0.65, 0.1, 0.7, 0.68, 0.6, 1),
            (0.65, 0.1, 0.5, 0.67, 0.6, 1),
        ),
        (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
        (
            (0.65, 0.3, 4, 0.69, 0.9, 0),
            (0.65, 0.3, 3.5, 0.68, 0.9, 0),
            (0.65, 0.3, 3, 0.68, 0.8, 0),
            (0.65, 0.3, 1.2, 0.65, 1.8, 1),
            (0.67, 0.4, 1.2, 0.65, 1.8, 1),
        ),
    ),
    # (factor, addend) of the saturation
    "saturate": _spread(
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
        _SATURATE_LARGE,
        _SATURATE_LARGE,
    ),
}

# The scale of the frost textures that goes with each table.
FROST_SCALE = {"cifar": 0.2, "tiny": 0.3, "imagenet": 1.0, "inception": 1.0}


def choose(table: str | None, height: int, width: int) -> tuple[str, float]:
    """The table for an image size and the factor of its lengths in pixels (1 for a table given by name)."""
    if table is not None:
        if table not in SIDES:
            raise unknown("corruption table", table, SIDES)
        return table, 1.0
    side = min(height, width)
    nearest = min(SIDES, key=lambda name: abs(math.log(side / SIDES[name])))
    return nearest, side / SIDES[nearest]


def check_severity(severity: Any) -> int:
    """The severity as an int, or an InputError if it is none of 1..5."""
    if isinstance(severity, (int, np.integer)) and not isinstance(severity, bool) and 1 <= severity <= 5:
        return int(severity)
    raise InputError(f"severity must be an integer from 1 to 5, not {severity!r}")


def _scaled(name: str, row: Any, factor: float) -> Any:
    """A table entry with its lengths in pixels multiplied by `factor`."""
    if factor == 1.0:
        return row
    if name == "gaussian_blur":
        return row * factor
    if name == "glass_blur":
        return row[0] * factor, max(1, round(row[1] * factor)), row[2]
    if name in ("defocus_blur", "motion_blur", "elastic_transform"):
        return tuple(value * factor for value in row)
    if name == "snow":
        return (*row[:4], row[4] * factor, row[5] * factor, row[6])
    if name == "spatter":
        # The mud's amount is the sigma of a blur, the water's a strength.
        amount = row[4] * factor if row[5] == 1 else row[4]
        return (*row[:2], row[2] * factor, row[3], amount, row[5])
    return row


def parameters(name: str, severity: int, table: str, factor: float = 1.0) -> Any:
    """The parameters of one -C corruption at `severity` 1..5, lengths multiplied by `factor`."""
    return _scaled(name, TABLES[name][table][severity - 1], factor)
