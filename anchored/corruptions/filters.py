"""Separable Gaussian filters and small correlations on [n, H, W, C] images, as scipy.ndimage computes them."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from anchored.system.errors import InputError


@lru_cache(maxsize=256)
def gaussian_weights(sigma: float, truncate: float = 4.0) -> tuple[float, ...]:
    """The normalised weights exp(-k^2 / 2 sigma^2), k = -r..r, r = int(truncate * sigma + 0.5)."""
    radius = int(truncate * sigma + 0.5)
    scale = -0.5 / (sigma * sigma)
    # math.exp and numpy's pairwise sum: the weights of the reference to the last bit.
    weights = np.array([math.exp((scale * k) * k) for k in range(-radius, radius + 1)])
    return tuple(float(w) for w in weights / weights.sum())


@lru_cache(maxsize=256)
def border_index(size: int, before: int, after: int, mode: str) -> np.ndarray:
    """Source positions of an axis of `size` extended on both sides: `nearest`, `mirror` (no edge repeat), `reflect`."""
    position = np.arange(-before, size + after)
    if mode == "nearest":
        return position.clip(0, size - 1)
    if mode == "mirror":
        period = max(2 * size - 2, 1)
        position = np.abs(position) % period
        return np.minimum(position, period - position) if size > 1 else np.zeros_like(position)
    if mode == "reflect":
        position = position % (2 * size)
        return np.minimum(position, 2 * size - 1 - position)
    raise InputError(f"border mode must be nearest, mirror or reflect, not {mode!r}")


def pad(x: Tensor, before: int, after: int, dim: int, mode: str = "nearest") -> Tensor:
    """`x` extended along `dim` by the border rule `mode` (`zero` too)."""
    size = x.shape[dim]
    repeat = 1 if mode == "reflect" else 0
    if mode in ("mirror", "reflect") and max(before, after) > size - 1 + repeat:
        index = torch.from_numpy(border_index(size, before, after, mode)).to(x.device)
        return x.index_select(dim, index)
    # Block copies: a gather of single pixels would take as long as the filter that follows.
    shape = list(x.shape)
    shape[dim] += before + after
    out = x.new_empty(shape)
    out.narrow(dim, before, size).copy_(x)
    for start, length, edge in ((0, before, 0), (before + size, after, size - 1)):
        if length:
            border = out.narrow(dim, start, length)
            if mode == "zero":
                border.zero_()
            elif mode == "nearest":
                border.copy_(x.narrow(dim, edge, 1).expand_as(border))
            else:
                first = 1 - repeat if edge == 0 else size - 1 + repeat - length
                border.copy_(x.narrow(dim, first, length).flip(dim))
    return out


def pad_both(x: Tensor, margin: int, mode: str = "nearest") -> Tensor:
    """`x` [n, H, W, ...] extended by `margin` on all four sides."""
    return pad(pad(x, margin, margin, 1, mode), margin, margin, 2, mode)


def symmetric_filter(x: Tensor, weights: tuple[float, ...], dim: int, mode: str = "nearest") -> Tensor:
    """Correlation with symmetric weights along an axis: centre first, then pairs from the outside in, as scipy adds."""
    radius = len(weights) // 2
    if radius == 0:
        return x * weights[0]
    size = x.shape[dim]
    padded = pad(x, radius, radius, dim, mode)
    out = padded.narrow(dim, radius, size) * weights[radius]
    buffer = torch.empty_like(out)
    for k in range(radius, 0, -1):
        torch.add(padded.narrow(dim, radius - k, size), padded.narrow(dim, radius + k, size), out=buffer)
        # Two roundings, not a fused one: the references were compiled without.
        out.add_(buffer.mul_(weights[radius - k]))
    return out


def gaussian(x: Tensor, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Tensor:
    """Gaussian filter of the two spatial axes (1, then 2) of [n, H, W, ...]."""
    if int(truncate * sigma + 0.5) == 0:
        return x
    weights = gaussian_weights(sigma, truncate)
    return symmetric_filter(symmetric_filter(x, weights, 1, mode), weights, 2, mode)
