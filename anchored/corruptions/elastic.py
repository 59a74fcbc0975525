"""Elastic transform: a random affine map, then a smooth random displacement of every pixel."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from anchored.corruptions.filters import border_index, gaussian_weights
from anchored.corruptions.job import Job, levels, near_truncate
from anchored.corruptions.resample import image_starts, interleave, pick, planes

# From this fraction of the side on, a Gaussian's matrix has a low rank.
_WIDE = 0.04
# Almost singular maps (large shifts on tiny images) must not overflow 32 bits.
_FAR = 2**29


def affine_maps(height: int, width: int, shifts: np.ndarray) -> np.ndarray:
    """Maps from output to source positions (x, y), float64 [n, 2, 3].

    Three corners of a square about the centre, a third of the shorter side away along both axes, move by shifts
    [n, 3, 2] (float32); the map is the inverse.
    """
    # The reference takes (height, width) for (x, y), which is the centre of square images only.
    centre = np.array((width, height), np.float32) // 2
    reach = min(height, width) // 3
    corners = np.stack([centre + reach, centre + np.array((reach, -reach), np.float32), centre - reach])
    moved = (corners + shifts).astype(np.float64)
    plane = np.concatenate([corners.astype(np.float64), np.ones((3, 1))], axis=1)
    forward = np.linalg.solve(np.broadcast_to(plane, (len(shifts), 3, 3)), moved).transpose(0, 2, 1)
    a, b, tx = forward[:, 0].T
    c, d, ty = forward[:, 1].T
    scale = 1 / (a * d - b * c)
    inverse = np.stack([np.stack([d * scale, -b * scale], -1), np.stack([-c * scale, a * scale], -1)], 1)
    offset = -(inverse @ np.stack([tx, ty], -1)[..., None])
    return np.concatenate([inverse, offset], axis=2)


def affine(image: Tensor, maps: np.ndarray, exact: bool) -> Tensor:
    """Bilinear warp of float32 planes [C, n, H, W], edges mirrored; source positions are multiples of 1 / 32 px.

    The quantisation is that of the library the benchmark was made with: 10-bit products, rounded to 5 bits.
    """
    height, width = image.shape[2:]
    matrix = torch.from_numpy(maps).to(image.device)
    x = torch.arange(width, dtype=torch.float64, device=image.device)
    y = torch.arange(height, dtype=torch.float64, device=image.device)
    whole, fraction = [], []
    for row in (1, 0):
        along = (matrix[:, row, :1] * x * 1024).round_().clamp_(-_FAR, _FAR).int()[:, None, :]
        across = ((matrix[:, row, 1:2] * y + matrix[:, row, 2:]) * 1024).round_().clamp_(-_FAR, _FAR).int()[:, :, None]
        fine = (along + (across + 16)) >> 5
        whole.append(fine >> 5)
        fraction.append((fine & 31).float().mul_(1 / 32))
    rows, columns = (
        [_mirror(base, size), _mirror(base + 1, size)] for base, size in zip(whole, (height, width), strict=True)
    )
    return _bilinear(image, rows, columns, fraction[0], fraction[1], torch.float32, exact)


def _mirror(position: Tensor, size: int) -> Tensor:
    """Integer positions reflected into 0..size-1 about the edge pixels."""
    last = size - 1
    low, high = (int(bound) for bound in position.aminmax())
    if low < -last or high > 2 * last:
        position = position.remainder(2 * last)
    # |p| folds at the first pixel, last - |last - p| at the last one.
    return last - (last - position.abs()).abs_()


def _bilinear(
    image: Tensor,
    rows: list[Tensor],
    columns: list[Tensor],
    down: Tensor,
    right: Tensor,
    dtype: torch.dtype,
    exact: bool,
) -> Tensor:
    """Weighted sums of the pixels at rows[i], columns[j] (int32 [n, H, W]) of planes [C, n, H, W], computed in `dtype`.

    down, right: fractions in [0, 1]. exact: the sum of four products, as the references have it.
    """
    _, count, height, width = image.shape
    starts = [row * width + image_starts(count, height * width, image.device) for row in rows]
    index = [start + column for start in starts for column in columns]
    out = torch.empty(*image.shape[:2], *down.shape[1:], dtype=dtype, device=image.device)
    if not exact:
        for plane, target in zip(image, out, strict=True):
            a, b, c, d = (pick(plane, where) for where in index)
            torch.lerp(a.lerp_(b, right), c.lerp_(d, right), down, out=target)
        return out
    up, left = 1 - down, 1 - right
    weights = [up * left, up * right, down * left, down * right]
    for plane, target in zip(image, out, strict=True):
        torch.mul(pick(plane, index[0]), weights[0], out=target)
        for where, weight in zip(index[1:], weights[1:], strict=True):
            target.add_(pick(plane, where) * weight)
    return out


@lru_cache(maxsize=64)
def _smoothing_matrix(size: int, sigma: float) -> Tensor:
    """The Gaussian filter of one axis with half-sample reflection, truncated at 3 sigma, as a float64 matrix."""
    weights = np.array(gaussian_weights(sigma, 3.0))
    radius = len(weights) // 2
    matrix = np.zeros((size, size))
    source = border_index(size, radius, radius, "reflect")
    for k, weight in enumerate(weights):
        np.add.at(matrix, (np.arange(size), source[k : k + size]), weight)
    return torch.from_numpy(matrix)


@lru_cache(maxsize=64)
def _smoothing_factors(size: int, sigma: float) -> tuple[Tensor, Tensor]:
    """The smoothing matrix as a product [size, rank] [rank, size], float32: a wide Gaussian has a low rank."""
    left, values, right = torch.linalg.svd(_smoothing_matrix(size, sigma))
    rank = int((values > 1e-9).sum())
    return (left[:, :rank] * values[:rank]).float().contiguous(), right[:rank].float().contiguous()


def smooth_field(uniform: Tensor, sigma: float, exact: bool) -> Tensor:
    """U(-1, 1) fields from uniform [..., H, W], smoothed by a Gaussian of `sigma` pixels."""
    field = (uniform.double() if exact else uniform.float()) * 2 - 1
    if sigma == 0:
        return field
    height, width = field.shape[-2:]
    if not exact and sigma > _WIDE * max(height, width):
        (up, down), (far, near) = (_smoothing_factors(size, sigma) for size in (height, width))
        core = (down.to(field) @ field) @ near.T.to(field)
        return up.to(field) @ core @ far.T.to(field)
    rows, columns = (_smoothing_matrix(size, sigma).to(field) for size in (height, width))
    return rows @ field @ columns.T


def _reflect(position: Tensor, size: int) -> tuple[list[Tensor], Tensor]:
    """Two source pixels and the weight of the second for real positions, by the border rule of scipy before 1.6.

    Positions reflect about the half-sample, except within one pixel outside: there the rule folds to the other side
    of the edge pixel and meets the mirror rule of the taps. The published benchmark has this border.
    """
    low, high = (float(bound) for bound in position.aminmax())
    if low < 0:
        below = position
        if low < -size:
            below = torch.where(position < -2 * size, position + 2 * size * (-position / (2 * size)).trunc(), position)
            below = torch.where(below < -size, below + 2 * size, -below - 1)
        else:
            below = -position - 1
        position = torch.where(position < 0, below, position)
    if high > size - 1:
        above = position
        if high >= 2 * size:
            above = position - 2 * size * (position / (2 * size)).trunc()
        position = torch.where(above >= size, 2 * size - 1 - above, above)
    base = position.floor()
    first = base.int()
    return [_mirror(first, size), _mirror(first + 1, size)], position - base


def displace(image: Tensor, down: Tensor, right: Tensor, exact: bool) -> Tensor:
    """Bilinear samples of planes [C, n, H, W] at (y + down, x + right), computed in float64 or, not exact, float32."""
    height, width = image.shape[2:]
    dtype = torch.float64 if exact else torch.float32
    y = torch.arange(height, dtype=dtype, device=image.device)[:, None] + down
    x = torch.arange(width, dtype=dtype, device=image.device) + right
    rows, fraction_down = _reflect(y, height)
    columns, fraction_right = _reflect(x, width)
    return _bilinear(image, rows, columns, fraction_down, fraction_right, dtype, exact)


def elastic_transform(x: Tensor, job: Job) -> Tensor:
    """An affine map from three points shifted by U(-a, a), then displacements alpha * smoothed U(-1, 1), in pixels.

    The points lie about the centre of the image; see `affine_maps`.
    """
    alpha, sigma, shift = job.params
    height, width = x.shape[1:3]
    corners = job.draws.uniform(3, 2).cpu().double().numpy()
    shifts = (corners * (2 * shift) - shift).astype(np.float32)
    image = planes(x)
    if job.exact:
        image = image / torch.full((), 255.0, device=x.device)
    image = affine(image, affine_maps(height, width, shifts), job.exact)
    if alpha > 0:
        if job.draws.peer:
            uniform = torch.stack([job.draws.uniform(height, width) for _ in range(2)], 1)
        else:
            uniform = job.draws.uniform(2, height, width)
        right, down = (smooth_field(uniform, sigma, job.exact) * alpha).float().unbind(1)
        image = displace(image, down, right, job.exact).float()
    return interleave(levels(image) if job.exact else near_truncate(image))
