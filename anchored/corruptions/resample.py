"""Bilinear samples at given positions, black outside, and cubic B-spline weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_MARGIN = 2


def planes(x: Tensor, margin: int = 0) -> Tensor:
    """uint8 [n, H, W, C] as float32 planes [C, n, H', W'] with a black margin: gathers are fastest by channel."""
    count, height, width, channels = x.shape
    out = torch.zeros(channels, count, height + 2 * margin, width + 2 * margin, device=x.device)
    out[:, :, margin : margin + height, margin : margin + width] = x.movedim(3, 0)
    return out


def interleave(y: Tensor) -> Tensor:
    """[C, n, H, W] as [n, H, W, C]."""
    return torch.stack(list(y), dim=-1)


def pick(plane: Tensor, index: Tensor) -> Tensor:
    """plane (any shape) at flat positions `index`, in the shape of `index`."""
    return plane.view(-1).index_select(0, index.view(-1)).view(index.shape)


def image_starts(count: int, size: int, device: torch.device) -> Tensor:
    """Flat position of the first pixel of every image, int32 [n, 1, 1]."""
    return torch.arange(0, count * size, size, dtype=torch.int32, device=device).view(-1, 1, 1)


def sample(
    x: Tensor, rows: Tensor, columns: Tensor, divisor: float = 1.0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Bilinear samples of uint8 [n, H, W, C] at (rows, columns) [n, H, W], zero outside; planes [C, n, H, W].

    divisor: pixels are divided by it first, in float32 (255 for images in [0, 1]).
    Positions in float64 are the exact mode: the order of operations is that of the reference, along a row first, then
    between rows, in `dtype`. Positions in float32 are the fast one, all in float32.
    """
    count, height, width, _ = x.shape
    source = planes(x, _MARGIN)
    if divisor != 1:
        source /= torch.full((), divisor, device=x.device)
    row, column = rows.floor(), columns.floor()
    span = width + 2 * _MARGIN
    index = (
        (row.clamp(-_MARGIN, height) + _MARGIN).int().mul_(span).add_((column.clamp(-_MARGIN, width) + _MARGIN).int())
    )
    index += image_starts(count, source[0, 0].numel(), x.device)
    corners = [index, index + 1, index + span, index + (span + 1)]
    exact = rows.dtype == torch.float64
    if exact:
        right, down = (1.0 - (column + 1)).add_(columns), (1.0 - (row + 1)).add_(rows)
        left, up = (1.0 - columns).add_(column), (1.0 - rows).add_(row)
        left, right, up, down = (weight.to(dtype) for weight in (left, right, up, down))
    else:
        right, down = columns - column, rows - row
    out = torch.empty(len(source), *rows.shape, dtype=dtype if exact else rows.dtype, device=x.device)
    for plane, target in zip(source, out, strict=True):
        a, b, c, d = (pick(plane, corner) for corner in corners)
        if exact:
            upper = (left * a).add_(right * b)
            lower = (left * c).add_(right * d)
            torch.add(upper.mul_(up), lower.mul_(down), out=target)
        else:
            torch.lerp(a.lerp_(b, right), c.lerp_(d, right), down, out=target)
    return out


def cubic_taps(position: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Source pixels (mirrored at the edges) and cubic B-spline weights of positions, both [..., 4]."""
    base = np.floor(position)
    y = position - base
    z = 1.0 - y
    first = z * z * z / 6.0
    second = (y * y * (y - 2.0) * 3.0 + 4.0) / 6.0
    third = (z * z * (z - 2.0) * 3.0 + 4.0) / 6.0
    weights = np.stack([first, second, third, ((1.0 - first) - second) - third], axis=-1)
    index = base.astype(np.int64)[..., None] + np.arange(-1, 3)
    period = max(2 * size - 2, 1)
    index = np.abs(index) % period
    return np.minimum(index, period - index), weights
