"""What a corruption function is given, and the conversions that all of them share.

A corruption is a function `f(x, job) -> y` of uint8 images [n, H, W, C] to uint8 images of the same shape.
In exact mode it computes in the dtypes of the reference codes and in their order of operations, because the final
conversion truncates: where a true value is an integer, the last bit decides between two levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anchored.corruptions.rng import Draws

# Fast mode works in float32 levels 0..255; a value this close below an integer counts as that integer.
TIE = 1e-3


@dataclass(frozen=True)
class Job:
    """One corruption of one chunk: its parameters, its random streams, and how exactly to compute."""

    params: Any
    draws: Draws
    exact: bool = True
    textures: tuple[Tensor, ...] = ()


def real(job: Job) -> torch.dtype:
    """The floating type of exact or fast mode."""
    return torch.float64 if job.exact else torch.float32


Corruption = Callable[[Tensor, Job], Tensor]


def unit(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """uint8 images as value / 255, correctly rounded."""
    # A divisor on the device: by a Python number CUDA would multiply with the rounded reciprocal.
    return x.to(dtype) / torch.full((), 255.0, dtype=dtype, device=x.device)


def levels(y: Tensor) -> Tensor:
    """Values in units of 1 as uint8, as the references do it: clip to [0, 1], times 255, truncate. Overwrites `y`."""
    return y.clamp_(0, 1).mul_(255).to(torch.uint8)


def truncate(y: Tensor) -> Tensor:
    """Values in units of levels as uint8: clip to [0, 255], truncate. Overwrites `y`."""
    return y.clamp_(0, 255).to(torch.uint8)


def near_truncate(y: Tensor) -> Tensor:
    """`truncate` for float32 sums whose exact value is often an integer. Overwrites `y`."""
    return y.add_(TIE).clamp_(0, 255).to(torch.uint8)
