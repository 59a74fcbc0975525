"""The 19 corruptions of -C by name, in the official order (the first 15 make the mean corruption error)."""

from __future__ import annotations

from anchored.corruptions.blur import defocus_blur, gaussian_blur, zoom_blur
from anchored.corruptions.color import brightness, contrast, saturate
from anchored.corruptions.digital import jpeg_compression, pixelate
from anchored.corruptions.job import Corruption
from anchored.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise

COMMON: dict[str, Corruption] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "zoom_blur": zoom_blur,
    "brightness": brightness,
    "contrast": contrast,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "saturate": saturate,
}
# The definition uses one side length only.
SQUARE = frozenset({"zoom_blur", "snow"})
# Defined by colours: grey images pass through them as RGB and come back as luma.
COLOUR = frozenset({"brightness", "saturate", "snow", "frost", "spatter"})
