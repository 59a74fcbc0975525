"""The four noises of -C: Gaussian, shot (Poisson), impulse (salt and pepper) and speckle."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from scipy.special import pdtr
from torch import Tensor

from anchored.corruptions.job import Job, levels, truncate, unit
from anchored.corruptions.rng import PeerStreams

_CELLS = 4096


def gaussian_noise(x: Tensor, job: Job) -> Tensor:
    """x + sigma * N(0, 1), independent for every value."""
    noise = job.draws.normal(*x.shape[1:])
    if job.exact:
        return levels(noise.double().mul_(job.params).add_(unit(x)))
    return truncate(noise.mul_(255 * job.params).add_(x))


def speckle_noise(x: Tensor, job: Job) -> Tensor:
    """x + x * sigma * N(0, 1), independent for every value."""
    noise = job.draws.normal(*x.shape[1:])
    if job.exact:
        value = unit(x)
        return levels(noise.double().mul_(job.params).mul_(value).add_(value))
    return truncate(noise.mul_(job.params).add_(1).mul_(x))


def impulse_noise(x: Tensor, job: Job) -> Tensor:
    """With probability `amount` a value becomes 1 or 0, with equal chances; channels are independent."""
    amount, draws = job.params, job.draws
    first = draws.uniform(*x.shape[1:])
    flipped = first < amount
    salt = draws.uniform(*x.shape[1:]) < 0.5 if draws.peer else first < amount / 2
    out = torch.where(flipped, torch.zeros_like(x), x)
    return out.masked_fill_(flipped & salt, 255)


@lru_cache(maxsize=16)
def _poisson_tables(rate: float) -> tuple[Tensor, Tensor, Tensor, int]:
    """Inverse of the 256 Poisson distributions of means level / 255 * rate.

    Returns the first count of every cell of width 1 / 4096 of the distribution function (flat, int64), the
    distribution functions (flat, float32), the level that a count becomes (uint8), and the length of a row.
    """
    counts = int(rate + 10 * np.sqrt(rate) + 30)
    mean = np.arange(256)[:, None] / 255.0 * rate
    cdf = pdtr(np.arange(counts)[None, :], mean)
    cdf[:, -1] = 1.0
    edges = np.arange(_CELLS) / _CELLS
    guide = np.stack([np.searchsorted(row, edges, side="right") for row in cdf])
    level = (np.clip(np.arange(counts) / rate, 0, 1) * 255).astype(np.uint8)
    return (
        torch.from_numpy(guide.astype(np.int64).ravel()),
        torch.from_numpy(cdf.astype(np.float32).ravel()),
        torch.from_numpy(level),
        counts,
    )


def _poisson(x: Tensor, rate: float, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Counts ~ Poisson(x / 255 * rate) by inversion of `uniform`, int64, and the level of every count."""
    guide, cdf, level, counts = _poisson_tables(rate)
    guide, cdf, level = guide.to(x.device), cdf.to(x.device), level.to(x.device)
    row = x.long()
    count = guide.take((uniform * _CELLS).long().add_(row * _CELLS))
    row *= counts
    # Inside a cell the distribution function is climbed; only the two outermost cells hold more than a few counts.
    below = cdf.take(row + count) <= uniform
    count += below
    rest = below.nonzero(as_tuple=True)
    while len(rest[0]):
        still = cdf.take(row[rest] + count[rest]) <= uniform[rest]
        rest = tuple(axis[still] for axis in rest)
        count[rest] += 1
    return count, level


def shot_noise(x: Tensor, job: Job) -> Tensor:
    """Poisson(x * c) / c, independent for every value."""
    draws = job.draws
    if isinstance(draws, PeerStreams):
        means = (unit(x) * job.params).cpu().numpy()
        counts = draws.stack([state.poisson(mean) for state, mean in zip(draws.states, means, strict=True)])
        return levels(counts.double() / job.params)
    count, level = _poisson(x, float(job.params), draws.uniform(*x.shape[1:]))
    return level.take(count)
