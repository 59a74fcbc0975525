"""Spatter: drops of water (severities 1-3) or mud (4-5) on the lens."""

from __future__ import annotations

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from anchored.corruptions.filters import gaussian, gaussian_weights, pad_both, symmetric_filter
from anchored.corruptions.job import Job, levels, unit

_WATER = (175.0, 238.0, 238.0)
_MUD = (63.0, 42.0, 20.0)
_LOW, _HIGH = 50, 150
_TAN_22 = 13573  # tan(22.5 degrees) * 2^15
_FAR = 20 << 16
# Steps of the 5 x 5 chamfer distance in units of 2^-16 px, one of each pair of opposite ones.
_STEPS = (
    *((dy, dx, 65536) for dy, dx in ((0, 1), (1, 0))),
    *((dy, dx, 91750) for dy, dx in ((1, 1), (1, -1))),
    *((dy, dx, 143976) for dy, dx in ((1, 2), (2, 1), (2, -1), (1, -2))),
)


def canny(image: Tensor) -> Tensor:
    """Canny edges of uint8 [n, H, W]: 3 x 3 Sobel, L1 norm, thresholds 50 and 150; bool."""
    height, width = image.shape[1:]
    padded = pad_both(image.to(torch.int16), 1)
    vertical = (padded[:, :-2] + padded[:, 2:]).add_(padded[:, 1:-1], alpha=2)
    horizontal = (padded[:, :, :-2] + padded[:, :, 2:]).add_(padded[:, :, 1:-1], alpha=2)
    dx, dy = vertical[:, :, 2:] - vertical[:, :, :-2], horizontal[:, 2:] - horizontal[:, :-2]
    size = dx.abs() + dy.abs()
    frame = pad_both(size, 1, "zero")

    def near(row: int, column: int) -> Tensor:
        return frame[:, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    wide = dx.abs().int()
    across, along = wide * _TAN_22, dy.abs().int() << 15
    steep = along > across + (wide << 16)
    flat = along < across
    falling = (dx ^ dy) < 0
    horizontal_peak = (size > near(0, -1)) & (size >= near(0, 1))
    vertical_peak = (size > near(-1, 0)) & (size >= near(1, 0))
    falling_peak = (size > near(-1, 1)) & (size > near(1, -1))
    rising_peak = (size > near(-1, -1)) & (size > near(1, 1))
    diagonal_peak = (falling & falling_peak) | (~falling & rising_peak)
    peak = (flat & horizontal_peak) | (steep & vertical_peak) | (~(flat | steep) & diagonal_peak)
    weak = peak & (size > _LOW)
    strong = weak & (size > _HIGH)
    return _connected(weak, strong)


def _connected(weak: Tensor, strong: Tensor) -> Tensor:
    """The 8-connected parts of `weak` [n, H, W] that hold a pixel of `strong`."""
    joined = np.zeros((3, 3, 3), dtype=bool)
    joined[1] = True  # images of the batch do not touch
    parts, count = ndimage.label(weak.cpu().numpy(), structure=joined)
    keep = np.zeros(count + 1, dtype=bool)
    keep[parts[strong.cpu().numpy()]] = True
    return torch.from_numpy(keep[parts]).to(weak.device)


def chamfer(edges: Tensor) -> Tensor:
    """Distance to the nearest edge, at most 20 px, in units of 2^-16 px: int32 [n, H, W]; 20 without edges."""
    height, width = edges.shape[1:]
    distance = torch.where(edges, 0, _FAR).to(torch.int32)
    # The distance is a sum of steps in two neighbouring directions, so one sweep a direction suffices, and the
    # multiples of a step come by doubling.
    farthest = _FAR
    for dy, dx, cost in _STEPS:
        times = 1
        while times * cost < farthest and times * dy < height and times * abs(dx) < width:
            down, right = times * dy, times * abs(dx)
            here, there = slice(0, height - down), slice(down, height)
            left, far = (slice(0, width - right), slice(right, width))
            first, second = ((here, left), (there, far)) if dx >= 0 else ((here, far), (there, left))
            one, two = distance[:, first[0], first[1]], distance[:, second[0], second[1]]
            forward, backward = one + times * cost, two + times * cost
            torch.minimum(two, forward, out=two)
            torch.minimum(one, backward, out=one)
            times *= 2
        # No step longer than the largest distance left can shorten anything.
        farthest = int(distance.max())
    return distance


def _box_sum(x: Tensor) -> Tensor:
    """Sums over 3 x 3 pixels, edges mirrored."""
    padded = pad_both(x, 1, "mirror")
    rows = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]


def equalise(x: Tensor) -> Tensor:
    """Histogram equalisation of every image of uint8 levels, int64 [n, H, W]."""
    count, total = len(x), x[0].numel()
    flat = x.reshape(count, -1)
    histogram = torch.zeros(count, 256, dtype=torch.int64, device=x.device).scatter_add_(1, flat, torch.ones_like(flat))
    lowest = flat.amin(1, keepdim=True)
    first = histogram.gather(1, lowest)
    scale = 255.0 / (total - first).clamp(min=1).float()
    rank = histogram.cumsum(1) - first
    table = (rank.float() * scale).round_().long()
    # A constant image keeps its level.
    table = torch.where(first == total, lowest, table)
    return table.gather(1, flat).view(x.shape)


def water(layer: Tensor) -> Tensor:
    """The mask of water drops from uint8 layers [n, H, W], float32 with maximum 1 (NaN where there is no drop)."""
    distance = chamfer(canny(layer))
    near = (_box_sum(distance).double() * (1 / 9 / 65536)).float().long()
    level = equalise(near).int()
    padded = pad_both(level, 1, "mirror")
    height, width = level.shape[1:]

    def tap(row: int, column: int) -> Tensor:
        return padded[:, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    relief = tap(0, 0) + tap(0, 1) + tap(1, 0) + 2 * tap(1, 1) - 2 * tap(-1, -1) - tap(-1, 0) - tap(0, -1)
    smooth = (_box_sum(relief.clamp_(0, 255)).float() / 9).round_()
    mask = layer.float() * smooth
    return mask / mask.amax((1, 2), keepdim=True)


def spatter(x: Tensor, job: Job) -> Tensor:
    """Thresholded smooth noise as drops; without any drop of water the reference's 0 / 0 makes the image black."""
    loc, scale, sigma, threshold, amount, mud = job.params
    value = unit(x, torch.float32)
    noise = job.draws.normal(*x.shape[1:3])
    layer = gaussian(noise.double().mul_(scale).add_(loc), sigma)
    colour = torch.tensor(_MUD if mud else _WATER, dtype=torch.float64, device=x.device).div_(255).float()
    if mud:
        drops = (layer > threshold).to(torch.float64)
        weights = gaussian_weights(amount)
        # float32 between the two axes, as the filter stores it.
        mask = symmetric_filter(symmetric_filter(drops, weights, 1).float().double(), weights, 2).float()
        mask = mask.masked_fill_(mask < 0.8, 0).unsqueeze(-1)
        return levels(value.mul_(1 - mask).add_(colour * mask))
    layer = layer.masked_fill_(layer < threshold, 0).mul_(255).long().bitwise_and_(255).to(torch.uint8)
    mask = water(layer).mul_(amount).unsqueeze(-1)
    return levels(value.add_(mask * colour).nan_to_num_(nan=0.0))
