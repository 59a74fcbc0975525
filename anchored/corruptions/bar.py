"""The 15 corruptions of the two C-bar lists (CIFAR-10-C-bar and ImageNet-C-bar share five) and their severities.

The references are for square images, with lengths in fractions of the side. Here lengths are fractions of the shorter
side, and patterns are the same on both axes, so that the centre of a long image looks like a square one; what is
counted or sized by the image (stars, lines) goes by sqrt(height * width).
"""

from __future__ import annotations

from anchored.corruptions.bar_noise import (
    blue_noise_sample,
    brownish_noise,
    cocentric_sine_waves,
    perlin_noise,
    plasma_noise,
    single_frequency_greyscale,
)
from anchored.corruptions.bar_overlay import checkerboard_cutout, inverse_sparkles, lines, sparkles
from anchored.corruptions.bar_warp import (
    caustic_refraction,
    circular_motion_blur,
    pinch_and_twirl,
    ripple,
    transverse_chromatic_abberation,
)
from anchored.corruptions.job import Corruption

# The spellings are those of the published folders.
BAR: dict[str, Corruption] = {
    "blue_noise_sample": blue_noise_sample,
    "brownish_noise": brownish_noise,
    "checkerboard_cutout": checkerboard_cutout,
    "inverse_sparkles": inverse_sparkles,
    "sparkles": sparkles,
    "circular_motion_blur": circular_motion_blur,
    "lines": lines,
    "pinch_and_twirl": pinch_and_twirl,
    "ripple": ripple,
    "transverse_chromatic_abberation": transverse_chromatic_abberation,
    "caustic_refraction": caustic_refraction,
    "cocentric_sine_waves": cocentric_sine_waves,
    "perlin_noise": perlin_noise,
    "plasma_noise": plasma_noise,
    "single_frequency_greyscale": single_frequency_greyscale,
}

CIFAR: dict[str, tuple[float, ...]] = {
    "blue_noise_sample": (0.7, 1.4, 2.1, 3.5, 4.2),
    "brownish_noise": (2.5, 4, 5.5, 6.5, 7),
    "checkerboard_cutout": (1, 2, 3, 4, 5),
    "inverse_sparkles": (1, 1.5, 2.5, 4.5, 5),
    "sparkles": (0.7, 3.5, 5.6, 6.3, 7),
    "circular_motion_blur": (2.8, 3.6, 4.4, 5.2, 6),
    "lines": (0.5, 1, 1.5, 2, 2.5),
    "pinch_and_twirl": (5.5, 6, 6.5, 8.5, 10),
    "ripple": (5.5, 6, 6.5, 7.5, 8),
    "transverse_chromatic_abberation": (1, 2, 5, 9, 10),
}
IMAGENET: dict[str, tuple[float, ...]] = {
    "blue_noise_sample": (0.8, 1.6, 2.4, 4.0, 5.6),
    "brownish_noise": (1, 2, 3, 4, 5),
    "checkerboard_cutout": (2, 3, 4, 5, 6),
    "inverse_sparkles": (1, 2, 4, 9, 10),
    "sparkles": (1, 2, 3, 5, 6),
    "caustic_refraction": (2.35, 3.2, 4.9, 6.6, 9.15),
    "cocentric_sine_waves": (3, 5, 8, 9, 10),
    "perlin_noise": (4.6, 5.2, 5.8, 7.6, 8.8),
    "plasma_noise": (4.75, 7, 8.5, 9.25, 10),
    "single_frequency_greyscale": (1, 1.5, 2, 4.5, 5),
}
# The list that goes with each table of -C.
LISTS = {"cifar": CIFAR, "tiny": CIFAR, "imagenet": IMAGENET, "inception": IMAGENET}
# Defined by colours: grey images pass through them as RGB and come back as luma.
COLOUR = frozenset({"plasma_noise", "transverse_chromatic_abberation"})


def strength(name: str, severity: int, table: str) -> float:
    """The strength at `severity` 1..5; a corruption of the other list only keeps that list's strengths."""
    chosen = LISTS[table]
    return (chosen if name in chosen else CIFAR | IMAGENET)[name][severity - 1]
