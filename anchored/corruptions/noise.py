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


@lru_cache(maxsize=8)
def _poisson_tables(rate: float) -> tuple[Tensor, Tensor, Tensor]:
    """Tables that turn (level, uniform number) into the level of Poisson(level / 255 * rate) / rate.

    Returns the new level for every cell of width 1 / 4096 of the uniform number, -1 where it changes within the cell
    (int16 [256 * 4096]); the distribution functions of all levels as one rising sequence, that of level l plus l
    (float64 [256 * counts]); and the new level of every count (uint8 [counts]).
    """
    counts = int(rate + 10 * np.sqrt(rate) + 30)
    cdf = pdtr(np.arange(counts)[None, :], np.arange(256)[:, None] / 255.0 * rate)
    cdf[:, -1] = 1.0
    level = (np.clip(np.arange(counts) / rate, 0, 1) * 255).astype(np.uint8)
    first = np.stack([np.searchsorted(row, np.arange(_CELLS) / _CELLS, side="right") for row in cdf])
    last = np.concatenate([first[:, 1:], np.full((256, 1), counts - 1)], axis=1)
    cells = np.where(level[first] == level[last], level[first].astype(np.int16), np.int16(-1))
    rising = (cdf + np.arange(256)[:, None]).ravel()
    return torch.from_numpy(cells.ravel()), torch.from_numpy(rising), torch.from_numpy(level)


def poisson_levels(x: Tensor, rate: float, uniform: Tensor) -> Tensor:
    """trunc(255 * min(Poisson(x / 255 * rate) / rate, 1)) by inversion of `uniform` in [0, 1), uint8."""
    cells, rising, level = (table.to(x.device) for table in _poisson_tables(rate))
    cell = (uniform * _CELLS).int().add_(x.int().mul_(_CELLS))
    found = cells.index_select(0, cell.view(-1))
    out = found.to(torch.uint8)
    open_cells = (found < 0).nonzero().squeeze(1)
    row = x.reshape(-1)[open_cells].long()
    count = torch.searchsorted(rising, uniform.reshape(-1)[open_cells] + row.double(), right=True)
    out[open_cells] = level[(count - row * len(level)).clamp_(0, len(level) - 1)]
    return out.view(x.shape)


def shot_noise(x: Tensor, job: Job) -> Tensor:
    """Poisson(x * c) / c, independent for every value."""
    draws = job.draws
    if isinstance(draws, PeerStreams):
        means = (unit(x) * job.params).cpu().numpy()
        counts = draws.stack([state.poisson(mean) for state, mean in zip(draws.states, means, strict=True)])
        return levels(counts.double() / job.params)
    return poisson_levels(x, float(job.params), draws.uniform(*x.shape[1:]))
