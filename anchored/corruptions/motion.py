"""Motion blur along a random direction: a one-sided half-Gaussian of nearest-pixel taps."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from anchored.corruptions.filters import pad
from anchored.corruptions.job import Job

# In fast mode the tail of the kernel that cannot move a value by 1 / 257 of a level is left out.
_NEGLIGIBLE = 1e-6


def motion_taps(radius: float, sigma: float) -> np.ndarray:
    """Weights of the 2 * ceil(radius) + 1 taps, the first one at the pixel itself."""
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(steps**2) / (2.0 * sigma * sigma))
    return weights / weights.sum()


def motion(x: Tensor, radius: float, sigma: float, angles: np.ndarray, exact: bool) -> Tensor:
    """Blur image i of uint8 [n, H, W, C] along angles[i] (degrees), edges replicated; levels, not yet truncated.

    The sum passes through 16 bits (257 steps a level), rounded there; the 8-bit level is the floor.
    """
    weights = motion_taps(radius, sigma)
    if not exact:
        weights = weights[: int((weights > _NEGLIGIBLE).sum())]
    count, height, width, channels = x.shape
    radians = np.deg2rad(angles)[:, None]
    steps = np.arange(len(weights))
    columns = np.ceil(steps * np.cos(radians) - 0.5).astype(int)
    rows = np.ceil(steps * np.sin(radians) - 0.5).astype(int)
    top, left = max(0, -rows.min()), max(0, -columns.min())
    wide = pad(pad(x, top, max(0, rows.max()), 1), left, max(0, columns.max()), 2)
    wide = wide.to(torch.float64 if exact else torch.float32)
    # One strided view a tap: as_strided costs a third of two slicings, and at 32 px such calls are all the time.
    image_stride, row_stride = wide.stride(0), wide.stride(1)
    offsets = (rows + top) * row_stride + (columns + left) * channels + np.arange(count)[:, None] * image_stride
    out = torch.zeros(count, height, width * channels, dtype=wide.dtype, device=x.device)
    size, stride = (height, width * channels), (row_stride, 1)
    for target, places in zip(out, offsets.tolist(), strict=True):
        for weight, place in zip(weights.tolist(), places, strict=True):
            target.add_(wide.as_strided(size, stride, place), alpha=weight)
    return out.view(x.shape).add_(0.5 / 257)


def motion_blur(x: Tensor, job: Job) -> Tensor:
    """Blur along an angle of U(-45, 45) degrees."""
    radius, sigma = job.params
    angles = job.draws.uniform().double().cpu().numpy() * 90 - 45
    return motion(x, radius, sigma, angles, job.exact).clamp_(0, 255).to(torch.uint8)
