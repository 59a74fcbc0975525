"""Snow, frost and fog."""

from __future__ import annotations

import torch
from torch import Tensor

from anchored.corruptions.blur import clipped_zoom, zoom_crop
from anchored.corruptions.job import Job, levels, near_truncate, truncate, unit
from anchored.corruptions.motion import motion


def snow(x: Tensor, job: Job) -> Tensor:
    """Flakes from thresholded noise, zoomed and blurred along a steep direction, over a whitened image.

    Both axes are zoomed alike, and the flakes are laid over the image a second time, turned by 180 degrees.
    """
    loc, scale, zoom, threshold, radius, sigma, mix = job.params
    count, height, width, _ = x.shape
    if job.draws.peer:
        noise = job.draws.normal(height, width)
    else:
        # Only the centre survives the zoom.
        (deep, top), (wide, left) = zoom_crop(height, zoom), zoom_crop(width, zoom)
        noise = torch.zeros(count, height, width, device=x.device)
        noise[:, top : top + deep, left : left + wide] = job.draws.normal(deep, wide)
    layer = clipped_zoom(noise.double().mul_(scale).add_(loc).permute(1, 2, 0).contiguous(), zoom)
    layer = layer.permute(2, 0, 1).unsqueeze(-1).contiguous()
    layer = layer.masked_fill(layer < threshold, 0).clamp_(0, 1).mul_(255).to(torch.uint8)
    angles = job.draws.uniform().double().cpu().numpy() * 90 - 135
    flakes = motion(layer, radius, sigma, angles, job.exact).clamp_(0, 255).to(torch.uint8)
    value = unit(x, torch.float32)
    weights = torch.tensor([0.299, 0.587, 0.114], device=x.device)
    grey = (value[..., :1] * weights[0]).add_(value[..., 1:2] * weights[1]).add_(value[..., 2:] * weights[2])
    white = torch.maximum(value, grey.mul_(1.5).add_(0.5)).mul_(1 - mix)
    white.add_(value.mul_(mix))
    if job.exact:
        flake = unit(flakes)
        return levels(white + flake + flake.flip(1, 2))
    both = flakes.int() + flakes.flip(1, 2)
    return near_truncate(white.mul_(255).add_(both))


def frost(x: Tensor, job: Job) -> Tensor:
    """a * image + b * a random crop of a random frost texture (enlarged, not stretched, where it is too small)."""
    weight, strength = job.params
    height, width = x.shape[1:3]
    draws, textures = job.draws, job.textures
    if draws.peer:
        which = draws.integers(0, len(textures)).tolist()
        # The ranges depend on the texture drawn, so every image draws on its own.
        rows, columns = [], []
        for state, texture in zip(draws.states, which, strict=True):  # type: ignore[union-attr]
            rows.append(int(state.randint(0, textures[texture].shape[0] - height)))
            columns.append(int(state.randint(0, textures[texture].shape[1] - width)))
    else:
        unit_draws = draws.uniform(3).cpu().double()
        which = (unit_draws[:, 0] * len(textures)).long().tolist()
        shapes = torch.tensor([textures[texture].shape[:2] for texture in which])
        room = shapes - torch.tensor([height, width])
        rows, columns = (unit_draws[:, 1:] * room).long().T.tolist()
    crops = torch.stack(
        [
            textures[texture][row : row + height, column : column + width]
            for texture, row, column in zip(which, rows, columns, strict=True)
        ]
    ).to(x.device)
    if job.exact:
        return truncate(x.double().mul_(weight).add_(crops.double().mul_(strength)))
    return near_truncate(x.float().mul_(weight).add_(crops, alpha=strength))


def plasma(uniform: Tensor, side: int, decay: float) -> Tensor:
    """Diamond-square maps on a torus, [n, side, side] in [0, 1]; side: a power of two; uniform: [n, side^2 - 1]."""
    count = len(uniform)
    heights = torch.zeros(count, side, side, dtype=uniform.dtype, device=uniform.device)
    step, amplitude, used = side, 100.0, 0

    def wobble(total: Tensor) -> Tensor:
        nonlocal used
        size = total.shape[1] * total.shape[2]
        noise = uniform[:, used : used + size].view(total.shape)
        used += size
        # U(-w, w) times w, as in the reference: the amplitude falls with the square of the decay.
        return noise.mul(2 * amplitude).sub_(amplitude).mul_(amplitude).add_(total.div_(4))

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        centres = wobble(pairs + pairs.roll(-1, 2))
        heights[:, half::step, half::step] = centres
        rows = (centres + centres.roll(1, 1)) + (corners + corners.roll(-1, 2))
        heights[:, ::step, half::step] = wobble(rows)
        columns = (centres + centres.roll(1, 2)) + (corners + corners.roll(-1, 1))
        heights[:, half::step, ::step] = wobble(columns)
        step, amplitude = half, amplitude / decay
    flat = heights.view(count, -1)
    low = flat.amin(1, keepdim=True)
    flat.sub_(low)
    return flat.div_(flat.amax(1, keepdim=True)).view(heights.shape)


def fog(x: Tensor, job: Job) -> Tensor:
    """A fractal cloud added, and the whole scaled back to the image's maximum.

    The cloud is made on a square whose side is a power of two, the longer side or more; its upper left part is used.
    """
    amount, decay = job.params
    height, width = x.shape[1:3]
    side = 1 << (max(height, width) - 1).bit_length()
    uniform = job.draws.uniform(side * side - 1)
    cloud = plasma(uniform.double() if job.exact else uniform.float(), side, decay)[:, :height, :width, None]
    value = unit(x) if job.exact else x.float()
    one = 1.0 if job.exact else 255.0
    largest = value.amax((1, 2, 3), keepdim=True)
    total = (value + cloud * (amount * one)).mul_(largest).div_(largest + amount * one)
    return levels(total) if job.exact else near_truncate(total)
