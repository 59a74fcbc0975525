"""Corruptions of C-bar that draw over the image: checkerboard, sparkles, inverse sparkles and lines."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from anchored.corruptions.job import Job, real, truncate
from anchored.corruptions.rng import Draws, PeerStreams

_MAX_RAYS = 200


def checkerboard_cutout(x: Tensor, job: Job) -> Tensor:
    """Grey tiles of a rotated checkerboard, each present with probability s / 10; 0.1 to 0.25 shorter sides wide."""
    count, height, width, _ = x.shape
    shorter, draws = min(height, width), job.draws
    angle, scale = (draws.uniform().double() for _ in range(2)) if draws.peer else draws.uniform(2).double().unbind(1)
    angle = (angle * (2 * math.pi)).view(-1, 1, 1)
    tile = (scale * (0.25 - 0.1) + 0.1).mul_(shorter).clamp_(min=1).view(-1, 1, 1)
    rows, columns = (torch.arange(size, dtype=torch.float64, device=x.device) for size in (height, width))
    cosine, sine = angle.cos(), angle.sin()
    down = (cosine * rows[:, None] + sine * columns).div_(tile)
    right = (-sine * rows[:, None] + cosine * columns).div_(tile)
    chance = job.params / 10
    if isinstance(draws, PeerStreams):
        cells = ((4 * max(height, width)) // tile).long().flatten().tolist()
        grids = torch.zeros(count, max(cells), max(cells), dtype=torch.bool)
        for grid, cell, state in zip(grids, cells, draws.child().states, strict=True):
            grid[:cell, :cell] = torch.from_numpy(state.random_sample((cell, cell)) < chance)
        size = torch.tensor(cells, device=x.device).view(-1, 1, 1)
        grids = grids.to(x.device)
    else:
        # No pixel lies more than the diagonal from the corner, and no tile is smaller than a tenth of the shorter
        # side: sqrt(2) * 10 tiles at most in a square.
        most = max(30, math.ceil(10 * math.hypot(height, width) / shorter) + 2)
        size = torch.full((1, 1, 1), most, device=x.device)
        grids = draws.uniform(most, most) < chance
    row, column = down.long().remainder_(size), right.long().remainder_(size)
    wide = grids.shape[1]
    base = (torch.arange(count, device=x.device) * (wide * wide)).view(-1, 1, 1)
    present = grids.reshape(-1).take(row.mul_(wide).add_(column).add_(base))
    same = down.remainder_(2).long() == right.remainder_(2).long()
    return torch.where((same & present).unsqueeze(-1), torch.full_like(x[:1, :1, :1, :1], 128), x)


def ray_lengths(draws: Draws, rays: Tensor) -> Tensor:
    """Standard normal deviations of the lengths of `rays` [n] rays, [n, 200]; the entries beyond are not used."""
    if isinstance(draws, PeerStreams):
        out = np.zeros((draws.n, _MAX_RAYS))
        for row, state, count in zip(out, draws.states, rays.tolist(), strict=True):
            row[:count] = state.standard_normal(count)
        return torch.from_numpy(out).to(rays.device)
    return draws.normal(_MAX_RAYS)


def star(height: int, width: int, centre: Tensor, rays: Tensor, lengths: Tensor, power: float) -> Tensor:
    """The light of a star in [0, 1], [n, height, width], in the dtype of `centre`.

    centre: [n, 2] (row, column); rays: int64 [n]; lengths: [n, 200], of which the first `rays` count.
    """
    rows, columns = (torch.arange(size, dtype=centre.dtype, device=centre.device) for size in (height, width))
    down = (rows - centre[:, :1])[:, :, None]
    right = (columns - centre[:, 1:])[:, None, :]
    number = rays.to(centre.dtype).view(-1, 1, 1)
    turn = torch.atan2(right, down).add_(math.pi).div_(2 * math.pi).mul_(number)
    ray = turn.floor()
    fraction = turn.sub_(ray)
    # At an angle of exactly 2 pi the index wraps.
    ray = torch.where(ray >= number, ray - number, ray).long()
    # A cyclic table: entry `rays` is the first ray again.
    cyclic = torch.cat([lengths, lengths[:, :1]], dim=1)
    cyclic.scatter_(1, rays[:, None], lengths[:, :1])
    flat = ray.view(len(ray), -1)
    here = cyclic.gather(1, flat).view(turn.shape)
    length = here + fraction * (cyclic[:, 1:].gather(1, flat).view(turn.shape) - here)
    squared = (down * down + right * right).add_(1e-4)
    glow = length.square_().div_(squared)
    if power != 1:
        glow.pow_(power)
    return fraction.sub_(0.5).square_().neg_().add_(1).mul_(glow).clamp_(0, 1)


def inverse_sparkles(x: Tensor, job: Job) -> Tensor:
    """The image inside one large star of 1/4 sqrt(H * W) px radius, white around it."""
    height, width, draws, dtype = *x.shape[1:3], job.draws, real(job)
    if draws.peer:
        place = draws.uniform(2)
        child = draws.child()
        rays = draws.integers(50, 200)
    else:
        unit = draws.uniform(3)
        place, child, rays = unit[:, :2], draws, (unit[:, 2] * 150).long().clamp_(max=149).add_(50)
    size = torch.tensor([height, width], dtype=torch.float64, device=x.device)
    centre = (place.double() * 0.5 + 0.25).mul_(size).to(dtype)
    # The star covers the same part of the image whatever its shape.
    radius = 0.25 * math.sqrt(height * width)
    lengths = ray_lengths(child, rays).to(dtype).mul_(0.25 * radius).add_(radius)
    light = star(height, width, centre, rays, lengths, job.params * 6.5 / 50).unsqueeze(-1)
    return truncate((x.to(dtype) - 255).mul_(light).add_(255))


def sparkles(x: Tensor, job: Job) -> Tensor:
    """Five bright stars, one after the other, of s / 100 sqrt(H * W) px radius."""
    height, width, draws, dtype = *x.shape[1:3], job.draws, real(job)
    if draws.peer:
        places = draws.uniform(5, 2)
        child = draws.child()
        rays = draws.integers(50, 200, 5)
    else:
        unit = draws.uniform(5, 3)
        places, child, rays = unit[..., :2], draws, (unit[..., 2] * 150).long().clamp_(max=149).add_(50)
    radius = 0.01 * job.params * math.sqrt(height * width)
    centres = places.double() * torch.tensor([height, width], dtype=torch.float64, device=x.device)
    value = x.to(dtype)
    darkness = torch.ones(1, dtype=dtype, device=x.device)
    for k in range(5):
        lengths = ray_lengths(child, rays[:, k]).to(dtype).mul_(0.25 * radius).add_(radius).clamp_(min=1)
        light = star(height, width, centres[:, k].to(dtype), rays[:, k], lengths, 1)
        if job.exact:
            # The reference holds the image in float32 between the stars.
            value = value.float().double()
            value = value + light.unsqueeze(-1) * (255 - value)
        else:
            darkness = light.neg_().add_(1) * darkness
    if job.exact:
        return truncate(value)
    return truncate((value - 255).mul_(darkness.unsqueeze(-1)).add_(255))


def lines(x: Tensor, job: Job) -> Tensor:
    """Anti-aliased grey lines about a common direction; the image is truncated to uint8 after every line.

    There are s / 10 sqrt(H * W) of them, through random points, and each reaches a longer side both ways.
    The coverage of a pixel is 1 - its distance to the line (Zingl's anti-aliased Bresenham): of the pixel on the
    path, of its neighbour ahead on the minor axis, and, where the path steps, of the one behind.
    """
    count, height, width, channels = x.shape
    # Drawn on the square of the longer side, of which the image is the upper left part.
    draws, side = job.draws, max(height, width)
    number = int(job.params / 10 * math.sqrt(height * width))
    if draws.peer:
        angle = draws.uniform().double()
        variation = draws.uniform().double()
        unit = draws.child().uniform(number, 3).double()
    else:
        drawn = draws.uniform(2 + 3 * number).double()
        angle, variation, unit = drawn[:, 0], drawn[:, 1], drawn[:, 2:].reshape(count, number, 3)
    angle, variation = (angle * (2 * math.pi))[:, None], (variation * (1 - 0.1) + 0.1)[:, None]
    place = unit[..., :2] * torch.tensor([height, width], dtype=torch.float64, device=x.device)
    turned = angle + 2 * math.pi * variation * (unit[..., 2] - 0.5)
    reach = torch.stack([turned.cos(), turned.sin()], -1) * side
    # Conversion to an integer truncates towards zero, as in the reference. Components: row, column.
    start, end = (place - reach).long(), (place + reach).long()
    length, sign = (end - start).abs(), torch.where(start < end, 1, -1)
    canvas = x.new_zeros(count, side, side, channels)
    canvas[:, :height, :width] = x
    out = canvas.view(count, side * side, channels)
    along = torch.arange(side, device=x.device)
    for k in range(number):
        size, first, step = length[:, k], start[:, k], sign[:, k]
        steep = size[:, 0] > size[:, 1]  # the major axis is the rows'
        major = torch.where(steep, 0, 1)[:, None]
        long, short = size.gather(1, major), size.gather(1, 1 - major)
        steps = (along - first.gather(1, major)) * step.gather(1, major)
        inside = (steps >= 0) & (steps <= long)
        level = ((2 * steps + 1) * short).div(2 * long, rounding_mode="floor")
        before = ((2 * steps - 1) * short).div(2 * long, rounding_mode="floor")
        distance_unit = (long * long + short * short).double().sqrt()
        for shift, allowed in (
            (0, inside),
            (1, inside & (steps < long)),
            (-1, inside & (steps > 0) & (before < level)),
        ):
            minor_step = level + shift
            coverage = 1 - (long * minor_step - short * steps).abs() / distance_unit
            minor = first.gather(1, 1 - major) + minor_step * step.gather(1, 1 - major)
            drawn_here = allowed & (coverage > 0) & (minor >= 0) & (minor < side)
            coverage = coverage.masked_fill_(~drawn_here, 0).unsqueeze(-1)
            minor = minor.clamp_(0, side - 1)
            index = torch.where(steep[:, None], along * side + minor, minor * side + along)
            index = index.unsqueeze(-1).expand(-1, -1, channels)
            mixed = (1 - coverage) * out.gather(1, index) + coverage * 128
            out.scatter_(1, index, mixed.to(torch.uint8))
    return canvas[:, :height, :width]
