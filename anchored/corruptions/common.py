"""The 19 corruptions of -C by name, in the official order (the first 15 make the mean corruption error)."""

from __future__ import annotations

from anchored.corruptions.blur import defocus_blur, gaussian_blur, zoom_blur
from anchored.corruptions.color import brightness, contrast, saturate
from anchored.corruptions.digital import jpeg_compression, pixelate
from anchored.corruptions.elastic import elastic_transform
from anchored.corruptions.glass import glass_blur
from anchored.corruptions.job import Corruption
from anchored.corruptions.motion import motion_blur
from anchored.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from anchored.corruptions.spatter import spatter
from anchored.corruptions.weather import fog, frost, snow

COMMON: dict[str, Corruption] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "spatter": spatter,
    "saturate": saturate,
}
# Defined by colours: grey images pass through them as RGB and come back as luma.
COLOUR = frozenset({"brightness", "saturate", "snow", "frost", "spatter"})
