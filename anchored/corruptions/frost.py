"""Frost textures: the six official ones from a folder, or procedural ones of our own."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy import fft
from torch import Tensor

from anchored.system.errors import InputError

# The sixth texture is shipped with the official code but never drawn.
FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
PROCEDURAL = "procedural"
# Mean and standard deviation of red, green and blue, and how much of the contrast is crystals: the tones of frosted
# glass, from a bright rime to dark glass with few crystals.
_TONES = (
    ((78, 149, 166), (27, 17, 15), 0.35),
    ((201, 205, 214), (21, 22, 23), 0.75),
    ((196, 203, 210), (23, 23, 23), 0.6),
    ((138, 153, 165), (28, 28, 30), 0.9),
    ((112, 123, 135), (44, 43, 42), 0.75),
)
_SHAPE = (400, 600)


def find(frost_dir: str | os.PathLike[str] | None) -> str:
    """The folder of the official textures, or `procedural`: `frost_dir`, else the data of `imagecorruptions`.

    Raises InputError if `frost_dir` lacks one of the textures. The package is looked up, never imported.
    """
    if frost_dir is not None:
        missing = [name for name in FILES if not (Path(frost_dir) / name).is_file()]
        if missing:
            raise InputError(f"frost_dir must hold {', '.join(FILES)}; {frost_dir} lacks {', '.join(missing)}")
        return str(frost_dir)
    found = importlib.util.find_spec("imagecorruptions")
    for place in (found.submodule_search_locations or ()) if found else ():
        folder = Path(place) / "frost"
        if all((folder / name).is_file() for name in FILES):
            return str(folder)
    return PROCEDURAL


@lru_cache(maxsize=1)
def _procedural() -> tuple[np.ndarray, ...]:
    """Five textures, uint8 [400, 600, 3]: oriented needles in patches over clouds, the same on every call."""
    rng = np.random.Generator(np.random.PCG64(20190708))
    rows, columns = _SHAPE
    fy, fx = np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None, :]
    radius = np.hypot(fy, fx)
    clouds = np.where(radius > 0, np.maximum(radius, 1e-9) ** -1.3, 0).astype(np.float32)
    patches = np.exp(-((radius * 22) ** 2)).astype(np.float32)

    def shaped(spectrum: np.ndarray, density: float = 1.0) -> np.ndarray:
        noise = rng.standard_normal(_SHAPE, dtype=np.float32)
        if density < 1:
            noise *= rng.random(_SHAPE, dtype=np.float32) < density
        field = fft.irfft2(fft.rfft2(noise) * spectrum, s=_SHAPE)
        return (field - field.mean()) / field.std()

    textures = []
    for mean, deviation, share in _TONES:
        needles = np.zeros(_SHAPE, np.float32)
        turn = rng.random() * np.pi
        for k in range(7):
            angle = turn + k * np.pi / 7
            along, across = fx * np.cos(angle) + fy * np.sin(angle), fy * np.cos(angle) - fx * np.sin(angle)
            # A streak about 12 px long and 1 px wide, where one of seven patches lets it.
            streak = np.exp(-2 * (np.pi * along * 12) ** 2 - 2 * (np.pi * across * 0.7) ** 2).astype(np.float32)
            needles += np.abs(shaped(streak, 0.02)) * np.maximum(shaped(patches), 0)
        needles = np.log1p(needles)
        needles = (needles - needles.mean()) / needles.std()
        layer = share**0.5 * needles + (1 - share) ** 0.5 * shaped(clouds)
        layer = (layer / layer.std())[..., None] * np.array(deviation) + np.array(mean)
        textures.append(np.clip(layer + 0.5, 0, 255).astype(np.uint8))
    return tuple(textures)


def _resize(texture: np.ndarray, scale: float) -> np.ndarray:
    """Bilinear samples at (i + 1/2) / scale - 1/2, rounded; at 0.2 this is every fifth pixel."""
    axes = []
    for size in texture.shape[:2]:
        position = ((np.arange(round(size * scale)) + 0.5) * (1 / scale) - 0.5).clip(0, size - 1)
        low = np.floor(position + 1e-9).astype(int)
        axes.append((low, np.minimum(low + 1, size - 1), position - low))
    (top, bottom, down), (left, far, right) = axes
    wide = texture.astype(np.float64)
    columns = wide[:, left] * (1 - right)[:, None] + wide[:, far] * right[:, None]
    out = columns[top] * (1 - down)[:, None, None] + columns[bottom] * down[:, None, None]
    return np.rint(out).clip(0, 255).astype(np.uint8)


@lru_cache(maxsize=8)
def textures(place: str, scale: float, height: int, width: int) -> tuple[Tensor, ...]:
    """The five textures at `scale`, uint8 [rows, columns, 3], each enlarged if a crop of height x width needs it."""
    if place == PROCEDURAL:
        sources = list(_procedural())
    else:
        sources = []
        for name in FILES:
            with Image.open(Path(place) / name) as file:
                sources.append(np.asarray(file.convert("RGB")))
    out = []
    for source in sources:
        needed = max((height + 1) / source.shape[0], (width + 1) / source.shape[1])
        fitted = max(scale, needed)
        resized = source if fitted == 1 else _resize(source, fitted)
        out.append(torch.from_numpy(np.array(resized)))
    return tuple(out)
