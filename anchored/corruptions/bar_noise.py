"""Corruptions of C-bar that add a pattern: shaped Fourier noise, waves, plasma and Perlin noise."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from anchored.corruptions.job import Job, real, truncate
from anchored.corruptions.rng import Draws, PeerStreams


@lru_cache(maxsize=16)
def _radius(height: int, width: int) -> Tensor:
    """Frequencies in cycles a shorter side, frequency 0 in the middle, float64 [height, width].

    For a square these are the distances to its middle. Both axes count alike, so that noise is not stretched.
    """
    shorter = min(height, width)
    down, right = ((torch.arange(size, dtype=torch.float64) - size / 2) * (shorter / size) for size in (height, width))
    return (down[:, None] ** 2 + right**2).sqrt()


def fourier_noise(draws: Draws, planes: int, power: Tensor, exact: bool) -> Tensor:
    """Noise of unit variance with amplitude `power` [H, W] (frequency 0 in the middle), [n, planes, H, W].

    Phases are uniform on the left half and repeated, turned by 180 degrees, on the right one. They are not negated,
    so the spectrum is not that of a real field; its real part is taken.
    """
    height, width = power.shape
    upper, left_half = height // 2, width // 2
    dtype = torch.float64 if exact else torch.float32
    if width % 2 == 0:
        phase = draws.uniform(planes, height, left_half).to(dtype)
        phase = torch.cat([phase, phase.flip(-1, -2)], dim=-1)
    else:
        if draws.peer:
            parts = [(draws.uniform(1, height, left_half), draws.uniform(1, upper, 1)) for _ in range(planes)]
            left, column = (torch.cat(list(part), 1).to(dtype) for part in zip(*parts, strict=True))
        else:
            left = draws.uniform(planes, height, left_half).to(dtype)
            column = draws.uniform(planes, upper, 1).to(dtype)
        # A middle pixel, where there is one, is its own opposite.
        middle = torch.zeros_like(column[:, :, : height % 2])
        centre = torch.cat([column, middle, column.flip(-2)], dim=-2)
        phase = torch.cat([left, centre, left.flip(-1, -2)], dim=-1)
    spectrum = torch.polar(power.to(phase).expand(phase.shape), phase.mul_(2 * math.pi))
    noise = torch.fft.ifft2(spectrum.roll((upper, left_half), (-2, -1))).real
    return noise / noise.std(dim=(-2, -1), keepdim=True, correction=0)


def blue_noise_sample(x: Tensor, job: Job) -> Tensor:
    """Pixels kept where blue noise, made on the whole image, exceeds a threshold, black elsewhere."""
    power = _radius(*x.shape[1:3]).to(x.device)
    noise = fourier_noise(job.draws.child(), 1, power, job.exact)[:, 0]
    return x * (noise > job.params * 0.3 - 2.5).unsqueeze(-1)


def brownish_noise(x: Tensor, job: Job) -> Tensor:
    """Noise with amplitude 1 / (frequency^2 + 1) added, independent in every channel; cycles a shorter side."""
    power = 1 / (_radius(*x.shape[1:3]).to(x.device) ** 2 + 1)
    noise = fourier_noise(job.draws.child(), x.shape[-1], power, job.exact)
    return truncate(noise.mul_(job.params * 6.4).movedim(1, -1).add(x))


def _scalars(draws: Draws, number: int) -> list[Tensor]:
    """`number` uniform scalars an image, one draw after the other, float64 [n, 1, 1] each."""
    if draws.peer:
        return [draws.uniform().double().view(-1, 1, 1) for _ in range(number)]
    return [value.double().view(-1, 1, 1) for value in draws.uniform(number).unbind(1)]


def single_frequency_greyscale(x: Tensor, job: Job) -> Tensor:
    """A plane wave of random direction and frequency, in radians a pixel, added to all channels."""
    draws, dtype = job.draws, real(job)
    if isinstance(draws, PeerStreams):
        first, second = _scalars(draws, 2)
        swap = draws.stack([state.permutation(2) for state in draws.states])[:, 0].view(-1, 1, 1)
        (phase,) = _scalars(draws, 1)
    else:
        first, second, swap, phase = _scalars(draws, 4)
        swap = (swap < 0.5).long()
    first = first * (2 * math.pi) - math.pi
    second = second * (2 * first.abs()) - first.abs()
    horizontal, vertical = torch.where(swap == 0, first, second), torch.where(swap == 0, second, first)
    rows, columns = (torch.arange(size, dtype=torch.float64, device=x.device) for size in x.shape[1:3])
    across, down = columns * horizontal + phase * (2 * math.pi), rows[:, None] * vertical
    # The sine of a sum: two outer products instead of a sine for every pixel.
    wave = torch.cat([down.cos(), down.sin()], 2).to(dtype) @ torch.cat([across.sin(), across.cos()], 1).to(dtype)
    return truncate(wave.mul_(job.params * 19.6).unsqueeze(-1) + x)


def cocentric_sine_waves(x: Tensor, job: Job) -> Tensor:
    """Rings with wavy edges about a random point of the image, a sawtooth across each; widths in shorter sides."""
    # In float64 in both modes: at the sawtooth's jumps the last bits decide between far levels.
    height, width, dtype = *x.shape[1:3], torch.float64
    shorter = min(height, width)
    if job.draws.peer:
        place = job.draws.uniform(2).double()
        scalars = _scalars(job.draws, 3)
    else:
        *centre, frequency, amplitude, ring = _scalars(job.draws, 5)
        place, scalars = torch.cat(centre, 1).squeeze(-1), [frequency, amplitude, ring]
    frequency, amplitude, ring = (
        value.to(dtype) for value in (scalars[0] * 10, *(s * (shorter / 10) for s in scalars[1:]))
    )
    right = (torch.arange(width, dtype=dtype, device=x.device) - place[:, :1] * width)[:, None, :]
    down = (torch.arange(height, dtype=dtype, device=x.device) - place[:, 1:] * height)[:, :, None]
    wave = torch.atan2(right, down).mul_(frequency).sin_().mul_(amplitude)
    wave.add_((right * right + down * down).sqrt_())
    wave = wave.remainder_(ring).div_(ring).sub_(0.5)
    return truncate(wave.mul_(job.params * 12.8).unsqueeze(-1) + x)


def plasma_noise(x: Tensor, job: Job) -> Tensor:
    """Coloured waves on coordinates in shorter sides, bent four to six times by waves of rising frequency."""
    height, width, draws, dtype = *x.shape[1:3], job.draws, real(job)
    if draws.peer:
        (time,) = _scalars(draws, 1)
        bends = draws.integers(4, 7).view(-1, 1, 1)
        sharp, scale = _scalars(draws, 2)
    else:
        time, number, sharp, scale = _scalars(draws, 4)
        bends = (number * 3).long().clamp_(max=2).add_(4)
    time = time * (6 * math.pi)
    falling = (2.25 - (sharp * 0.5 + 0.5)).to(dtype)
    scale = (scale * (0.2 - 0.075) + 0.075) * min(height, width)
    rows, columns = (torch.arange(size, dtype=torch.float64, device=x.device) / scale for size in (height, width))
    across = columns.to(dtype).expand(-1, height, -1).clone()
    down = rows.transpose(1, 2).to(dtype).expand(-1, -1, width).clone()
    frequency, slowing, spread = 1.0, 1.0, torch.ones_like(falling)
    for bend in range(int(bends.max())):
        shift = (time / slowing).to(dtype)
        first = (down * frequency).add_(shift).cos_().div_(spread)
        second = (across * frequency).add_(shift).sin_().div_(spread)
        first, second = first - second * 0.3, second.add(first, alpha=0.3)
        if bend >= 4:
            active = (bends > bend).to(dtype)
            first.mul_(active)
            second.mul_(active)
        across.add_(first)
        down.add_(second)
        frequency, slowing, spread = frequency * 1.93, slowing * 1.15, spread * falling
    time = time.to(dtype)
    colours = torch.stack(
        [(across - time).sin_(), (across + down).add_(time.sin()).mul_(0.5).sin_(), (down + time).sin_()], -1
    )
    strength = job.params * 6.4
    return truncate(colours.mul_(strength).add_(x.to(dtype).mul_(1 - strength / 255)))


_OCTAVES = (1, 2, 4, 8, 16)


@lru_cache(maxsize=16)
def _lattice(size: int, side: int, octave: int) -> tuple[Tensor, Tensor, int]:
    """The lattice along an axis of `size` pixels, seven cells a `side` in the first octave.

    Smooth weights [size, nodes] of the lattice nodes, the same times the signed distance, and the node count.
    """
    position = torch.arange(size, dtype=torch.float64) * (1 / (32 * side / 224)) * octave + 4096
    node = position.floor()
    fraction = position - node
    node = node.long() - 4096
    nodes = int(node.max()) + 2
    rise = fraction**2 * (3 - 2 * fraction)
    weight, slope = torch.zeros(2, size, nodes, dtype=torch.float64)
    row = torch.arange(size)
    weight[row, node], weight[row, node + 1] = 1 - rise, rise
    slope[row, node], slope[row, node + 1] = (1 - rise) * fraction, rise * (fraction - 1)
    return weight, slope, nodes


def _perlin_tables(draws: Draws) -> tuple[Tensor, Tensor]:
    """256 unit gradients [n, 256, 2], float64, and a permutation of 256, int64 [n, 256]."""
    if isinstance(draws, PeerStreams):
        words = draws.stack([state.randint(0, 2**31, size=(514, 2)) for state in draws.states])[:, :256] % 512
        order = torch.arange(256).repeat(draws.n, 1)
        for row, state in zip(order.numpy(), draws.states, strict=True):
            for i, j in zip(range(255, -1, -1), state.randint(0, 2**31, size=256) % 256, strict=True):
                row[i], row[j] = row[j], row[i]
        order = order.to(draws.device)
    else:
        words = draws.integers(0, 512, 256, 2)
        order = draws.uniform(256).argsort(1)
    gradient = (words - 256).double() / 256
    return gradient / gradient.norm(dim=-1, keepdim=True).clamp_(min=1e-9), order


def perlin_noise(x: Tensor, job: Job) -> Tensor:
    """A blend with turbulence: five octaves of the absolute value of Perlin's gradient noise, 1/7 shorter side wide."""
    count, height, width, _ = x.shape
    shorter, dtype = min(height, width), real(job)
    gradient, order = _perlin_tables(job.draws.child())
    gradient = gradient.to(dtype)
    total = torch.zeros(count, height, width, dtype=dtype, device=x.device)
    for octave in _OCTAVES:
        weight, slope, deep = _lattice(height, shorter, octave)
        across, slope_across, wide = _lattice(width, shorter, octave)
        # The gradient of node (i, j) is number order[order[i] + j].
        first = order[:, torch.arange(deep, device=x.device) % 256]
        inner = (first[:, :, None] + torch.arange(wide, device=x.device) % 256) % 256
        number = order.gather(1, inner.view(count, -1))
        node = gradient.gather(1, number.unsqueeze(-1).expand(-1, -1, 2)).view(count, deep, wide, 2)
        # Interpolation is separable, so the noise is two matrix products for each component of the gradients.
        rows = torch.cat([slope.to(total) @ node[..., 0], weight.to(total) @ node[..., 1]], dim=2)
        noise = rows @ torch.cat([across, slope_across], dim=1).to(total).T
        total.add_(noise.mul_(1.5).abs_(), alpha=1 / octave)
    alpha = job.params * 0.05
    level = total.mul_(0.5).add_(0.5).clamp_(0, 1).mul_(255 * alpha)
    return truncate(x.float().mul_(1 - alpha).to(dtype).add_(level.unsqueeze(-1)))
