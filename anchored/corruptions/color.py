"""Brightness, saturation and contrast."""

from __future__ import annotations

import torch
from torch import Tensor

from anchored.corruptions.job import Job, levels, near_truncate, unit
from anchored.corruptions.resample import interleave, planes


def rgb_to_hsv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value in [0, 1] of RGB images [..., 3] in [0, 1]."""
    red, green, blue = x.unbind(-1)
    value = torch.maximum(torch.maximum(red, green), blue)
    delta = value - torch.minimum(torch.minimum(red, green), blue)
    grey = delta == 0
    # Where two channels tie for the maximum, the later test wins.
    divisor = delta.masked_fill(grey, 1)
    hue = torch.where(green == value, (blue - red) / divisor + 2, (green - blue) / divisor)
    hue = torch.where(blue == value, (red - green) / divisor + 4, hue)
    hue = (hue / 6).remainder_(1).masked_fill_(grey, 0)
    saturation = (delta / value).masked_fill_(grey, 0)
    return hue, saturation, value


def hsv_to_rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """The inverse of `rgb_to_hsv`, [..., 3]."""
    six = hue * 6
    sector = six.floor()
    fraction = six - sector
    low = value * (1 - saturation)
    falling = value * (1 - fraction * saturation)
    rising = value * (1 - (1 - fraction) * saturation)
    sector = sector.remainder_(6)
    even = sector.remainder(2) == 0
    middle = torch.where(even, rising, falling)
    # The sixth of the colour circle says which channel is largest, smallest and in between.
    out = torch.empty(*hue.shape, 3, dtype=hue.dtype, device=hue.device)
    first, second, third = sector < 2, sector >= 4, (sector >= 2) & (sector < 4)
    red_top = (sector == 0) | (sector == 5)
    out[..., 0] = torch.where(red_top, value, torch.where(third, low, middle))
    out[..., 1] = torch.where((sector == 1) | (sector == 2), value, torch.where(second, low, middle))
    out[..., 2] = torch.where((sector == 3) | (sector == 4), value, torch.where(first, low, middle))
    return out


def brightness(x: Tensor, job: Job) -> Tensor:
    """HSV value + c."""
    if not job.exact:
        return _brightness_fast(x, job.params)
    hue, saturation, value = rgb_to_hsv(unit(x))
    return levels(hsv_to_rgb(hue, saturation, (value + job.params).clamp_(0, 1)))


def _brightness_fast(x: Tensor, amount: float) -> Tensor:
    """Every channel times new value / old value, which is what the way over HSV comes to."""
    level = torch.arange(256, dtype=torch.float64, device=x.device)
    raised = (level / 255 + amount).clamp_(0, 1)
    largest = x.amax(-1, keepdim=True)
    row = largest.long()
    # The largest channel's result is known to the last bit; it is an integer for many amounts.
    top = (raised * 255).to(torch.uint8).take(row)
    ratio = (raised * 255 / level.clamp(min=1)).float().take(row)
    return torch.where(x == largest, top, near_truncate(x * ratio))


def saturate(x: Tensor, job: Job) -> Tensor:
    """HSV saturation * factor + addend."""
    factor, addend = job.params
    if not job.exact:
        return _saturate_fast(x, factor, addend)
    hue, saturation, value = rgb_to_hsv(unit(x))
    return levels(hsv_to_rgb(hue, (saturation * factor + addend).clamp_(0, 1), value))


def _saturate_fast(x: Tensor, factor: float, addend: float) -> Tensor:
    """Every channel's distance to the largest one times new saturation / old saturation."""
    channels = planes(x)
    value = channels.amax(0)
    spread = value - channels.amin(0)
    stretch = torch.minimum((spread * factor).add_(value, alpha=addend), value).div_(spread)
    # Grey has no distance to stretch: the addend turns it red.
    grey = spread == 0
    stretch.masked_fill_(grey, 0)
    out = value - (value - channels).mul_(stretch)
    if addend:
        out[1:] -= (value * addend) * grey
    return interleave(near_truncate(out))


def contrast(x: Tensor, job: Job) -> Tensor:
    """(x - m) * c + m, with m the spatial mean of every channel."""
    if not job.exact:
        value = x.float()
        mean = value.mean(dim=(1, 2), keepdim=True)
        return near_truncate((value - mean).mul_(job.params).add_(mean))
    value = unit(x)
    # A running sum adds pixel after pixel, as numpy reduces the two outer axes of an image.
    total = value.flatten(1, 2).cumsum(1)[:, -1]
    mean = (total / torch.full((), float(x.shape[1] * x.shape[2]), dtype=value.dtype, device=x.device))[:, None, None]
    return levels((value - mean).mul_(job.params).add_(mean))
