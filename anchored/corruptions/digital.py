"""Pixelate and JPEG compression."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from anchored.corruptions.job import Job

_BITS = 22  # the fixed-point precision of Pillow's resampling weights


@lru_cache(maxsize=256)
def box_taps(size: int, target: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Source positions and 22-bit weights, one pair of arrays [target] a tap, of Pillow's BOX resampling."""
    scale = size / target
    width = max(scale, 1.0)
    rows = []
    for out in range(target):
        centre = (out + 0.5) * scale
        first = max(int(centre - width / 2 + 0.5), 0)
        last = min(int(centre + width / 2 + 0.5), size)
        inside = [s for s in range(first, last) if -0.5 < (s - centre + 0.5) / width <= 0.5]
        weight = int(0.5 + 1.0 / len(inside) * (1 << _BITS))
        rows.append([(s, weight) for s in inside])
    taps = max(len(row) for row in rows)
    padded = np.array([row + [(row[0][0], 0)] * (taps - len(row)) for row in rows], dtype=np.int64)
    return tuple((padded[:, k, 0], padded[:, k, 1].astype(np.int32)) for k in range(taps))


def _box_axis(x: Tensor, target: int, dim: int) -> Tensor:
    """BOX resampling of uint8 images along one axis, rounded to uint8."""
    size = x.shape[dim]
    if size == target:
        return x
    taps = box_taps(size, target)
    shape = [1] * x.ndim
    shape[dim] = target
    total: Tensor | int = 1 << (_BITS - 1)
    for index, weight in taps:
        picked = x.index_select(dim, torch.from_numpy(index).to(x.device))
        if len(taps) == 1:
            return picked
        total = picked.int().mul_(torch.from_numpy(weight).to(x.device).view(shape)).add_(total)
    assert isinstance(total, Tensor)
    return (total >> _BITS).clamp_(0, 255).to(torch.uint8)


def pixelate(x: Tensor, job: Job) -> Tensor:
    """Box-average to int(height * c) x int(width * c) pixels, and back."""
    height, width = x.shape[1:3]
    small = _box_axis(_box_axis(x, int(width * job.params), 2), int(height * job.params), 1)
    return _box_axis(_box_axis(small, width, 2), height, 1)


def jpeg_compression(x: Tensor, job: Job) -> Tensor:
    """JPEG at the given quality by the installed Pillow (4:2:0), one image at a time on the CPU."""
    out = np.empty(x.shape, dtype=np.uint8)
    for image, target in zip(x.cpu().numpy(), out, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(buffer, "JPEG", quality=job.params)
        buffer.seek(0)
        target[:] = np.asarray(Image.open(buffer)).reshape(image.shape)
    return torch.from_numpy(out).to(x.device)
