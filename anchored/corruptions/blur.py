"""Gaussian, defocus and zoom blur: the deterministic blurs of -C."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from anchored.corruptions.filters import border_index, gaussian, pad_both
from anchored.corruptions.job import TIE, Job, levels, near_truncate, truncate, unit
from anchored.corruptions.sparse import MAX_PIXELS, apply, axis_matrix, csr

_SMALL_KERNEL = 16


def gaussian_blur(x: Tensor, job: Job) -> Tensor:
    """Gaussian blur of standard deviation sigma pixels, edges replicated."""
    if job.exact:
        return levels(gaussian(unit(x), job.params))
    return near_truncate(gaussian(x.float(), job.params))


def _filled(radius: float) -> np.ndarray:
    """The pixels of a disk on a grid of 17 x 17 or, beyond radius 8, of 2 * radius + 1; bool."""
    reach = 8 if radius <= 8 else math.ceil(radius)
    grid = np.arange(-reach, reach + 1)
    return grid[:, None] ** 2 + grid[None, :] ** 2 <= radius**2


def _alias_weights(radius: float, alias: float) -> np.ndarray:
    """Float32 weights of the small Gaussian that smooths the disk's edge: 3 taps or, beyond radius 8, 5."""
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    weights = np.exp(-(taps**2) / (2.0 * alias * alias))
    return (weights / weights.sum()).astype(np.float32)


@lru_cache(maxsize=64)
def disk(radius: float, alias: float) -> np.ndarray:
    """An anti-aliased disk of `radius` pixels, float32 [k, k], k odd."""
    kernel = _filled(radius).astype(np.float32)
    kernel /= kernel.sum()
    weights = _alias_weights(radius, alias)
    margin = len(weights) // 2
    size = len(kernel)
    # The reflected border of this small blur makes the kernels of radius 8 and 10 sum to more than one; kept.
    for axis in (1, 0):
        padded = kernel.take(border_index(size, margin, margin, "mirror"), axis=axis)
        shifts = [padded.take(range(k, k + size), axis=axis) for k in range(2 * margin + 1)]
        kernel = shifts[margin] * weights[margin]
        for k in range(1, margin + 1):
            kernel = kernel + (shifts[margin + k] + shifts[margin - k]) * weights[margin + k]
        kernel = kernel.astype(np.float32)
    return kernel


def defocus_blur(x: Tensor, job: Job) -> Tensor:
    """Correlation with an anti-aliased disk, edges mirrored."""
    kernel = disk(*job.params)
    # A small kernel meets integers often, and rounding decides them: it stays exact in fast mode.
    if not job.exact and (np.abs(kernel) > 1e-9).sum() > _SMALL_KERNEL:
        return _defocus_fast(x, *job.params)
    used = kernel != 0
    reach = len(kernel) // 2
    margin = int(max(np.abs(axis - reach).max() for axis in used.nonzero()))
    source = unit(x)
    padded = pad_both(source, margin, "mirror")
    out = torch.zeros_like(source)
    for row, column in zip(*used.nonzero(), strict=True):
        tap = padded[:, row - reach + margin :, column - reach + margin :][:, : x.shape[1], : x.shape[2]]
        out.add_(tap, alpha=float(kernel[row, column]))
    return levels(out)


def _defocus_fast(x: Tensor, radius: float, alias: float) -> Tensor:
    """The disk as a stack of horizontal runs, each the difference of two running sums; then the small Gaussian.

    The runs are summed in integers. Where the kernel is not their blur (its border, see `disk`), single taps follow.
    """
    kernel, filled, weights = disk(radius, alias), _filled(radius), _alias_weights(radius, alias)
    reach, edge = len(filled) // 2, len(weights) // 2
    height, width = x.shape[1:3]
    pixels = x.movedim(3, 1).reshape(-1, height, width).to(torch.int32)
    margin = reach + edge
    padded = pad_both(pixels, margin, "mirror")
    sums = torch.zeros(len(pixels), height + 2 * margin, width + 2 * margin + 1, dtype=torch.int32, device=x.device)
    torch.cumsum(padded, 2, dtype=torch.int32, out=sums[:, :, 1:])
    total = torch.zeros(len(pixels), height + 2 * edge, width + 2 * edge, dtype=torch.int32, device=x.device)
    for row in np.flatnonzero(filled.any(axis=1)).tolist():
        half = int(filled[row].sum()) // 2
        band = sums[:, row : row + height + 2 * edge]
        total += band[:, :, reach + half + 1 :][:, :, : width + 2 * edge]
        total -= band[:, :, reach - half :][:, :, : width + 2 * edge]
    out = total.float()
    for dim, size in ((1, height), (2, width)):
        smooth = out.narrow(dim, edge, size) * float(weights[edge])
        for k in range(1, edge + 1):
            pair = out.narrow(dim, edge - k, size) + out.narrow(dim, edge + k, size)
            smooth.add_(pair, alpha=float(weights[edge + k]))
        out = smooth
    out.div_(int(filled.sum()))
    blurred = np.pad(filled.astype(float) / filled.sum(), edge)
    for axis in (0, 1):
        blurred = sum(w * np.roll(blurred, k - edge, axis) for k, w in enumerate(weights.astype(float)))
    rest = np.pad(kernel.astype(float), edge) - blurred
    for row, column in zip(*(np.abs(rest) > 1e-6).nonzero(), strict=True):
        out.add_(padded[:, row:, column:][:, :height, :width], alpha=float(rest[row, column]))
    # A kernel whose rounded weights sum to less than one puts flat regions below the integer.
    side = 1 if kernel.astype(float).sum() >= 1 else -1
    return truncate(out.add_(side * TIE)).view(len(x), -1, height, width).movedim(1, 3)


def zoom_crop(side: int, zoom: float) -> tuple[int, int]:
    """Size and first position of the centre that a clipped zoom enlarges."""
    crop = math.ceil(side / zoom)
    return crop, (side - crop) // 2


def _zoom_axis(side: int, zoom: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Two source positions and weights, both [2, side], of a clipped zoom; None where it is the identity."""
    crop, top = zoom_crop(side, zoom)
    size = round(crop * zoom)
    if size == crop:
        return None
    step = (crop - 1) / (size - 1)
    position = np.arange(size)[(size - side) // 2 :][:side] * step
    low = np.floor(position).astype(np.int64)
    first = 1.0 - (position - low)
    high = np.minimum(low + 1, crop - 1)
    return np.stack([low + top, high + top]), np.stack([first, 1.0 - first])


@lru_cache(maxsize=256)
def _zoom_axes(height: int, width: int, zoom: float) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """`_zoom_axis` down and across; None where both are the identity, as the shorter one alone may be."""
    axes = [_zoom_axis(size, zoom) for size in (height, width)]
    if axes == [None, None]:
        return None
    same = [(np.stack([np.arange(size)] * 2), np.stack([np.ones(size), np.zeros(size)])) for size in (height, width)]
    return [axis or identity for axis, identity in zip(axes, same, strict=True)]


def clipped_zoom(x: Tensor, zoom: float) -> Tensor:
    """Zoom into the centre of [h, w, ...] by `zoom` on both axes, bilinear with aligned corners; dtype of `x`.

    The image axes come first, because then a sample is one block of memory.
    """
    axes = _zoom_axes(x.shape[0], x.shape[1], zoom)
    if axes is None:
        return x
    (rows, row_weights), (columns, column_weights) = (
        [torch.from_numpy(part).to(x.device) for part in axis] for axis in axes
    )
    wide = x.double().flatten(2)
    total: Tensor | None = None
    # The products and their order are those of the reference's interpolation.
    for row, row_weight in zip(rows, row_weights, strict=True):
        part = wide.index_select(0, row).mul_(row_weight[:, None, None])
        for column, column_weight in zip(columns, column_weights, strict=True):
            tap = part.index_select(1, column).mul_(column_weight[:, None])
            total = tap if total is None else total.add_(tap)
    assert total is not None
    return total.to(x.dtype).view(x.shape)


@lru_cache(maxsize=4)
def _zoom_operator(height: int, width: int, zooms: tuple[float, ...]) -> Tensor:
    """The whole of `zoom_blur` as a sparse matrix [H * W, H * W], float32."""
    identity = sparse.identity(height * width, format="csr")
    total = identity.copy()
    for zoom in zooms:
        axes = _zoom_axes(height, width, zoom)
        if axes is None:
            total = total + identity
        else:
            down, across = (axis_matrix(index.T, weights.T, index.shape[1]) for index, weights in axes)
            total = total + sparse.kron(down, across, format="csr")
    return csr(total / (len(zooms) + 1), torch.float32)


def zoom_blur(x: Tensor, job: Job) -> Tensor:
    """The mean of an image and of its zooms about the centre by all factors (1 is among them), in float32."""
    height, width = x.shape[1:3]
    if not job.exact and height * width <= MAX_PIXELS:
        return near_truncate(apply(_zoom_operator(height, width, job.params).to(x.device), x))
    # Image axes first, then all channels of all images.
    value = unit(x.permute(1, 2, 0, 3).contiguous()).float()
    total = torch.zeros_like(value)
    for zoom in job.params:
        total += clipped_zoom(value, zoom)
    mean = (value + total) / torch.full((), len(job.params) + 1.0, device=x.device)
    return levels(mean).permute(2, 0, 1, 3)
