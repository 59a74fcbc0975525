"""Elastic transform: a random affine map, then a smooth random displacement of every pixel."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from anchored.corruptions.filters import border_index, gaussian_weights
from anchored.corruptions.job import Job, levels, near_truncate, unit


def affine_maps(height: int, width: int, shifts: np.ndarray) -> np.ndarray:
    """Maps from output to source positions (x, y), float64 [n, 2, 3].

    Three corners of a square about the centre move by shifts [n, 3, 2] (float32); the map is the inverse.
    """
    centre = np.array((height, width), np.float32) // 2
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


def affine(value: Tensor, maps: np.ndarray) -> Tensor:
    """Bilinear warp of float32 [n, H, W, C], edges mirrored; source positions are multiples of 1 / 32 px.

    The quantisation is that of the library the benchmark was made with: 10-bit products, rounded to 5 bits.
    """
    height, width = value.shape[1:3]
    matrix = torch.from_numpy(maps).to(value.device)
    x = torch.arange(width, dtype=torch.float64, device=value.device)
    y = torch.arange(height, dtype=torch.float64, device=value.device)
    fine = []
    for row in (1, 0):
        along = (matrix[:, row, :1] * x * 1024).round_()[:, None, :]
        across = ((matrix[:, row, 1:2] * y + matrix[:, row, 2:]) * 1024).round_()[:, :, None]
        fine.append((along + across + 16).div_(32).floor_())
    whole = [(part / 32).floor() for part in fine]
    fraction = [((part - base * 32) / 32).float() for part, base in zip(fine, whole, strict=True)]
    taps = [[_mirror(base.long() + k, size) for k in (0, 1)] for base, size in zip(whole, (height, width), strict=True)]
    return _bilinear(value, taps[0], taps[1], fraction[0], fraction[1])


def _mirror(position: Tensor, size: int) -> Tensor:
    """Positions reflected into 0..size-1 about the edge pixels."""
    period = 2 * size - 2
    position = position.abs().remainder_(period)
    return torch.minimum(position, period - position)


def _bilinear(value: Tensor, rows: list[Tensor], columns: list[Tensor], down: Tensor, right: Tensor) -> Tensor:
    """Weighted sum of the pixels at rows[i], columns[j], each [n, H, W]; fractions `down`, `right` in [0, 1]."""
    count, height, width, channels = value.shape
    flat = value.reshape(-1, channels)
    base = torch.arange(count, device=value.device).view(-1, 1, 1) * (height * width)
    total: Tensor | None = None
    for i, weight_row in enumerate((1 - down, down)):
        start = base + rows[i] * width
        for j, weight_column in enumerate((1 - right, right)):
            picked = flat.index_select(0, (start + columns[j]).view(-1)).view(value.shape)
            part = picked * (weight_row * weight_column).unsqueeze(-1)
            total = part if total is None else total.add_(part)
    assert total is not None
    return total


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


def smooth_field(uniform: Tensor, sigma: float, exact: bool) -> Tensor:
    """U(-1, 1) fields from uniform [n, H, W], smoothed by a Gaussian of `sigma` pixels."""
    field = uniform.double() if exact else uniform.float()
    field = field * 2 - 1
    if sigma == 0:
        return field
    rows, columns = (_smoothing_matrix(size, sigma).to(field) for size in field.shape[1:])
    return rows @ field @ columns.T


def _reflect(position: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two source pixels and the weight of the second for float64 positions, by the border rule of scipy before 1.6.

    Positions reflect about the half-sample, except within one pixel outside: there the rule folds to the other side
    of the edge pixel and meets the mirror rule of the taps. The published benchmark has this border.
    """
    length, period = float(size), 2.0 * size
    below = torch.where(position < -period, position + period * (-position / period).trunc(), position)
    below = torch.where(below < -length, below + period, -below - 1)
    above = position - period * (position / period).trunc()
    above = torch.where(above >= length, period - above - 1, above)
    folded = torch.where(position < 0, below, torch.where(position > length - 1, above, position))
    base = folded.floor()
    first = base.long()
    return _mirror(first, size), _mirror(first + 1, size), folded - base


def displace(value: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Bilinear samples of [n, H, W, C] at (y + down, x + right), in float64."""
    _, height, width, _ = value.shape
    y = torch.arange(height, dtype=torch.float64, device=value.device)[:, None] + down
    x = torch.arange(width, dtype=torch.float64, device=value.device) + right
    top, bottom, fraction_down = _reflect(y, height)
    left, far, fraction_right = _reflect(x, width)
    return _bilinear(value, [top, bottom], [left, far], fraction_down, fraction_right)


def elastic_transform(x: Tensor, job: Job) -> Tensor:
    """An affine map from three points shifted by U(-a, a), then displacements alpha * smoothed U(-1, 1)."""
    alpha, sigma, shift = job.params
    height, width = x.shape[1:3]
    if job.draws.peer:
        shifts = (job.draws.uniform(3, 2).cpu().numpy() * (2 * shift) - shift).astype(np.float32)
    else:
        shifts = (job.draws.uniform(3, 2).cpu().numpy() * np.float32(2 * shift) - np.float32(shift)).astype(np.float32)
    value = affine(unit(x, torch.float32), affine_maps(height, width, shifts))
    if alpha > 0:
        right, down = (
            (smooth_field(job.draws.uniform(height, width), sigma, job.exact) * alpha).float() for _ in range(2)
        )
        value = displace(value.double(), down, right).float()
    return levels(value) if job.exact else near_truncate(value.mul_(255))
