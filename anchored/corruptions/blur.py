"""Gaussian, defocus and zoom blur: the deterministic blurs of -C."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from anchored.corruptions.filters import border_index, gaussian, pad_both
from anchored.corruptions.job import Job, levels, near_truncate, unit
from anchored.corruptions.sparse import MAX_SIDE, apply, axis_matrix, csr

_SMALL_KERNEL = 16


def gaussian_blur(x: Tensor, job: Job) -> Tensor:
    """Gaussian blur of standard deviation sigma pixels, edges replicated."""
    if job.exact:
        return levels(gaussian(unit(x), job.params))
    return near_truncate(gaussian(x.float(), job.params))


@lru_cache(maxsize=64)
def disk(radius: float, alias: float) -> np.ndarray:
    """An anti-aliased disk of `radius` pixels, float32, on a grid of 17 x 17 or, beyond radius 8, 2 * radius + 1."""
    reach = 8 if radius <= 8 else math.ceil(radius)
    grid = np.arange(-reach, reach + 1)
    kernel = (grid[:, None] ** 2 + grid[None, :] ** 2 <= radius**2).astype(np.float32)
    kernel /= kernel.sum()
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    weights = np.exp(-(taps**2) / (2.0 * alias * alias))
    weights = (weights / weights.sum()).astype(np.float32)
    margin = len(taps) // 2
    # The reflected border of this small blur makes the kernel of radius 8 and 10 sum to more than one; kept.
    for axis in (1, 0):
        index = border_index(kernel.shape[axis], margin, margin, "mirror")
        padded = kernel.take(index, axis=axis)
        size = kernel.shape[axis]
        centre = padded.take(range(margin, margin + size), axis=axis) * weights[margin]
        for k in range(1, margin + 1):
            pair = padded.take(range(margin + k, margin + k + size), axis=axis) + padded.take(
                range(margin - k, margin - k + size), axis=axis
            )
            centre = centre + pair * weights[margin + k]
        kernel = centre.astype(np.float32)
    return kernel


def defocus_blur(x: Tensor, job: Job) -> Tensor:
    """Correlation with an anti-aliased disk, edges mirrored."""
    kernel = disk(*job.params)
    reach = len(kernel) // 2
    used = np.abs(kernel) > (0 if job.exact else 1e-9)
    margin = int(max(np.abs(axis - reach).max() for axis in used.nonzero()))
    # A small kernel meets integers often, and rounding decides them: it stays in float64.
    exact = job.exact or used.sum() <= _SMALL_KERNEL
    source = unit(x) if exact else x.float()
    height, width = x.shape[1:3]
    padded = pad_both(source, margin, "mirror")
    out = torch.zeros_like(source)
    for row, column in zip(*used.nonzero(), strict=True):
        tap = padded.narrow(1, int(row) - reach + margin, height).narrow(2, int(column) - reach + margin, width)
        out.add_(tap, alpha=float(kernel[row, column]))
    return levels(out) if exact else near_truncate(out)


def zoom_crop(side: int, zoom: float) -> tuple[int, int]:
    """Size and first position of the centre that a clipped zoom enlarges."""
    crop = math.ceil(side / zoom)
    return crop, (side - crop) // 2


@lru_cache(maxsize=256)
def _zoom_axis(side: int, zoom: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Two source positions and weights for each of `side` outputs of a clipped zoom; None where it is the identity."""
    crop, top = zoom_crop(side, zoom)
    size = round(crop * zoom)
    if size == crop:
        return None
    step = (crop - 1) / (size - 1)
    position = np.arange(size)[(size - side) // 2 :][:side] * step
    low = np.floor(position).astype(np.int64)
    first = 1.0 - (position - low)
    high = np.minimum(low + 1, crop - 1)
    return low + top, high + top, first, 1.0 - first


def clipped_zoom(x: Tensor, zoom: float) -> Tensor:
    """Zoom into the centre of [h, h, ...] by `zoom`, bilinear with aligned corners; dtype of `x`.

    The image axes come first, because then a sample is one block of memory.
    """
    axis = _zoom_axis(len(x), zoom)
    if axis is None:
        return x
    low, high, first, second = (torch.from_numpy(part).to(x.device) for part in axis)
    wide = x.double().flatten(2)
    total: Tensor | None = None
    # The products and their order are those of the reference's interpolation.
    for rows, row_weight in ((low, first), (high, second)):
        part = wide.index_select(0, rows).mul_(row_weight[:, None, None])
        for columns, column_weight in ((low, first), (high, second)):
            tap = part.index_select(1, columns).mul_(column_weight[:, None])
            total = tap if total is None else total.add_(tap)
    assert total is not None
    return total.to(x.dtype).view(x.shape)


@lru_cache(maxsize=8)
def _zoom_operator(side: int, zooms: tuple[float, ...]) -> Tensor:
    """The whole of `zoom_blur` as a sparse matrix [side^2, side^2], float32."""
    identity = sparse.identity(side * side, format="csr")
    total = identity.copy()
    for zoom in zooms:
        axis = _zoom_axis(side, zoom)
        if axis is None:
            total = total + identity
        else:
            one = axis_matrix(np.stack(axis[:2], 1), np.stack(axis[2:], 1), side)
            total = total + sparse.kron(one, one, format="csr")
    return csr(total / (len(zooms) + 1), torch.float32)


def zoom_blur(x: Tensor, job: Job) -> Tensor:
    """The mean of an image and of its zooms by all factors (the factor 1 is among them), in float32."""
    if not job.exact and x.shape[1] <= MAX_SIDE:
        return near_truncate(apply(_zoom_operator(x.shape[1], job.params).to(x.device), x))
    # Image axes first, then all channels of all images.
    value = unit(x.permute(1, 2, 0, 3).contiguous()).float()
    total = torch.zeros_like(value)
    for zoom in job.params:
        total += clipped_zoom(value, zoom)
    mean = (value + total) / torch.full((), len(job.params) + 1.0, device=x.device)
    return levels(mean).permute(2, 0, 1, 3)
