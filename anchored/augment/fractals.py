"""Fractals to mix into training images: Julia sets and attractors of random affine maps, by seed."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchored.system.errors import InputError
from anchored.system.rng import generator

STEPS = 64  # of the iteration z -> z^2 + c
JUMPS, SETTLING = 48, 12  # of the chaos game


def fractals(count: int, size: int, seed: int = 0) -> Tensor:
    """uint8 [count, size, size, 3]: Julia sets (even positions) and attractors (odd ones) in random colours.

    Picture i depends on (seed, i, size) alone, so a larger set begins with the smaller one. Raises InputError for
    count or size below 1.
    """
    if count < 1 or size < 1:
        raise InputError(f"fractals: count and size are at least 1; got {count} and {size}.")
    pictures = np.empty((count, size, size, 3), np.uint8)
    for number in range(count):
        stream = generator(seed, "fractal", number)
        pictures[number] = (_attractor if number % 2 else _julia)(size, stream)
    return torch.from_numpy(pictures)


def _uniform(stream: torch.Generator, low: float, high: float, *shape: int) -> NDArray[np.float64]:
    return low + (high - low) * torch.rand(shape, generator=stream, dtype=torch.float64).numpy()


def _colours(phase: NDArray[np.floating], stream: torch.Generator) -> NDArray[np.float64]:
    """float [..., 3] in [0, 1]: each channel a wave of `phase` with a frequency and a shift of its own."""
    frequency, shift = _uniform(stream, 0.4, 2.0, 3), _uniform(stream, 0, 1, 3)
    return 0.5 + 0.5 * np.cos(2 * math.pi * (phase[..., None] * frequency + shift))


def _julia(size: int, stream: torch.Generator) -> NDArray[np.uint8]:
    # c on the edge of the main cardioid of the Mandelbrot set, or just outside: Julia sets with detail at all scales.
    angle, outwards = 2 * math.pi * float(_uniform(stream, 0, 1)), float(_uniform(stream, 1.0, 1.12))
    turn = np.exp(1j * angle)
    c = np.complex64(outwards * (turn / 2 - turn**2 / 4))
    half, rotation = float(_uniform(stream, 0.25, 1.4)), 2 * math.pi * float(_uniform(stream, 0, 1))
    centre = complex(*_uniform(stream, -0.5, 0.5, 2))
    line = np.linspace(-half, half, size)
    z = ((line[None, :] + 1j * line[:, None]) * np.exp(1j * rotation) + centre).astype(np.complex64)
    escaped = np.full(z.shape, np.nan, np.float32)
    nearest = np.full(z.shape, np.inf, np.float32)
    for step in range(STEPS):
        z = z * z + c
        far = np.abs(z)
        leaving = np.isnan(escaped) & (far > 16)
        escaped[leaving] = step + 1 - np.log2(np.log(far[leaving]) / math.log(16))
        nearest = np.fmin(nearest, far)
        z = np.where(far > 16, np.complex64(17), z)  # gone: kept from overflowing
    # Outside by the time to escape, inside by how near the orbit came to 0: no flat areas.
    phase = np.where(np.isnan(escaped), np.sqrt(nearest), np.log1p(np.nan_to_num(escaped).clip(0)))
    return (_colours(phase, stream) * 255).round().astype(np.uint8)


def _attractor(size: int, stream: torch.Generator) -> NDArray[np.uint8]:
    maps = 2 + int(_uniform(stream, 0, 3))
    turns, back = (_rotations(_uniform(stream, 0, 2 * math.pi, maps)) for _ in range(2))
    stretch = _uniform(stream, 0.35, 0.85, maps, 2)  # singular values below 1: every map contracts
    matrices = turns @ (stretch[:, :, None] * back)
    shifts = _uniform(stream, -1, 1, maps, 2)
    tones = _uniform(stream, 0, 1, maps)
    count = min(4096, max(512, size * size // 8))  # points that jump, a few visits a pixel
    chosen = torch.randint(maps, (JUMPS, count), generator=stream).numpy()
    point, tone = _uniform(stream, -1, 1, count, 2), np.zeros(count)
    points, colours = [], []
    for jump, choice in enumerate(chosen):
        point = np.einsum("nij,nj->ni", matrices[choice], point) + shifts[choice]
        tone = (tone + tones[choice]) / 2
        if jump >= SETTLING:
            points.append(point)
            colours.append(tone)
    place = np.concatenate(points)
    low, high = np.quantile(place, [0.01, 0.99], axis=0)
    cell = ((place - low) / np.maximum(high - low, 1e-9) * size).astype(np.int64)
    inside = ((cell >= 0) & (cell < size)).all(1)
    flat = cell[inside, 0] * size + cell[inside, 1]
    hits = np.bincount(flat, minlength=size * size)
    tone_sum = np.bincount(flat, np.concatenate(colours)[inside], minlength=size * size)
    brightness = np.log1p(hits) / math.log1p(max(1, int(hits.max())))
    phase = tone_sum / np.maximum(hits, 1) + 0.5 * brightness
    ground = _uniform(stream, 0, 0.6, 3)
    picture = ground + (_colours(phase, stream) - ground) * (hits > 0)[:, None] * brightness[:, None] ** 0.5
    return (picture.clip(0, 1) * 255).round().astype(np.uint8).reshape(size, size, 3)


def _rotations(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
