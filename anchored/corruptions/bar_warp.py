"""Corruptions of C-bar that move pixels: pinches, ripples, lenses, colour fringes and rotation blur."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from anchored.corruptions.filters import gaussian, pad_both
from anchored.corruptions.job import TIE, Job, levels, real, truncate
from anchored.corruptions.resample import cubic_taps, interleave, sample
from anchored.corruptions.rng import PeerStreams
from anchored.corruptions.sparse import axis_matrix, csr


def _cells(height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """How many cells there are along each axis, and their height and width in pixels.

    The shorter side has 5 at 224 px and 3 otherwise, as in the references; a rest at the bottom or right stays. The
    longer one has as many as keep the cells nearly square and whole, and leave the smallest rest.
    """
    shorter, longer = sorted((height, width))
    few = 5 if shorter == 224 else 3
    small, large = shorter // few, longer // round(longer * few / shorter)
    many = longer // large if longer > shorter else few
    return ((few, many), (small, large)) if height <= width else ((many, few), (large, small))


@lru_cache(maxsize=32)
def _twirled(height: int, width: int, strength: float, dtype: torch.dtype) -> Tensor:
    """Positions for both signs of the angle, [sign, row | column, height, width]; what no cell covers stays."""
    number, size = _cells(height, width)
    radius = size[0] / 2
    # A cell that is not square is computed as if it were: its disc is an ellipse.
    squeeze = size[0] / size[1]
    amount = strength * 0.4 / 10 + 0.1
    down, right = np.meshgrid(np.arange(size[0]) - radius, (np.arange(size[1]) - size[1] / 2) * squeeze, indexing="ij")
    distance = np.sqrt(down**2 + right**2)
    inside = (distance <= radius) & (np.round(distance, 3) != 0)
    share = np.where(inside, distance, radius) / radius
    pull = np.sin(np.pi * 0.5 * share) ** (-amount)
    positions = np.empty((2, 2, height, width))
    positions[:, 0], positions[:, 1] = np.arange(height)[:, None], np.arange(width)
    for which, sign in enumerate((1, -1)):
        angle = sign * (strength * (np.pi / 2) / 10) * (1 - share) ** 2
        cosine, sine = np.cos(angle), np.sin(angle)
        moved = (down * pull * cosine - right * pull * sine, (down * pull * sine + right * pull * cosine) / squeeze)
        for axis, (shift, straight) in enumerate(zip(moved, (down, right / squeeze), strict=True)):
            for cell in np.ndindex(number):
                centre = cell[axis] * size[axis] + size[axis] / 2
                rows, columns = (slice(i * step, (i + 1) * step) for i, step in zip(cell, size, strict=True))
                positions[which, axis][rows, columns] = np.where(inside, centre + shift, centre + straight)
    return torch.from_numpy(positions).to(dtype)


def pinch_and_twirl(x: Tensor, job: Job) -> Tensor:
    """Discs in a grid of cells, pinched and twirled, each in a random sense; see `_cells`."""
    count, height, width, _ = x.shape
    (down, right), (deep, wide) = _cells(height, width)
    places = _twirled(height, width, job.params, real(job)).to(x.device)
    # The reference numbers the cells column by column.
    flipped = job.draws.integers(0, 2, right, down).transpose(1, 2)
    sense = torch.zeros(count, height, width, dtype=torch.bool, device=x.device)
    grown = flipped.bool().repeat_interleave(deep, 1).repeat_interleave(wide, 2)
    sense[:, : down * deep, : right * wide] = grown
    rows, columns = (torch.where(sense, places[1, axis], places[0, axis]) for axis in (0, 1))
    # The reference holds the image in float32 here, and numpy then casts the weights to it.
    out = sample(x, rows, columns, dtype=torch.float32)
    return interleave(truncate(out if job.exact else out.add_(TIE)))


def ripple(x: Tensor, job: Job) -> Tensor:
    """Sine waves of displacement along both axes; lengths and amplitude in shorter sides."""
    count, height, width, _ = x.shape
    shorter, draws = min(height, width), job.draws
    if draws.peer:
        length, phase = draws.uniform(2).double(), draws.uniform(2).double()
    else:
        length, phase = draws.uniform(2, 2).double().unbind(1)
    length = ((length * (0.3 - 0.1) + 0.1) * shorter).unsqueeze(-1)
    phase = (phase * (2 * math.pi)).unsqueeze(-1)
    amplitude = job.params * 0.025 / 10 * shorter
    places = []
    for k, size in enumerate((height, width)):
        axis = torch.arange(size, dtype=torch.float64, device=x.device)
        wave = (2 * math.pi * axis / length[:, k] + phase[:, k]).sin()
        places.append((axis + amplitude * wave).to(real(job)))
    rows = places[0][:, :, None].expand(count, height, width)
    columns = places[1][:, None, :].expand(count, height, width)
    out = sample(x, rows, columns)
    return interleave(truncate(out if job.exact else out.add_(TIE)))


def _caustics(height: int, width: int, time: Tensor, size: Tensor) -> Tensor:
    """Light on the floor of a pool in [0, 1], [n, height, width]; float64 because its gradients are magnified.

    It repeats after `size` [n, 1, 1] pixels.
    """
    turn = 6.28318530718
    down, right = (
        (torch.arange(pixels, dtype=torch.float64, device=time.device) / size).remainder_(1).mul_(turn).sub_(250)
        for pixels in (height, width)
    )
    down = down.transpose(1, 2)
    row, column = down.expand(-1, -1, width), right.expand(-1, height, -1)
    light = torch.ones_like(row)
    for n in range(5):
        t = time * (1 - 3.5 / (n + 1))
        row, column = (
            down + (t - row).cos_().add_((t + column).sin_()),
            right + (t - column).sin_().add_((t + row).cos_()),
        )
        first = down / ((row + t).sin_() / 0.005)
        second = right / ((column + t).cos_() / 0.005)
        light = light + first.square_().add_(second.square_()).rsqrt_()
    light = light.div_(5).pow_(1.4).neg_().add_(1.17)
    return light.abs_().pow_(8).clamp_(0, 1)


def caustic_refraction(x: Tensor, job: Job) -> Tensor:
    """The image seen through water with caustics: refracted by their slopes and lit by them; in shorter sides."""
    height, width, draws, dtype = *x.shape[1:3], job.draws, real(job)
    shorter = min(height, width)
    time, size = (draws.uniform().double() for _ in range(2)) if draws.peer else draws.uniform(2).double().unbind(1)
    time = (time * 1.5 + 0.5).view(-1, 1, 1)
    size = (size * 0.5 + 0.75).mul_(shorter).view(-1, 1, 1)
    field = gaussian(_caustics(height, width, time, size), 1.0, "reflect")
    frame = pad_both(field, 1, "zero")
    slope_down = frame[:, 2:, 1:-1] - frame[:, :-2, 1:-1]
    slope_right = frame[:, 1:-1, 2:] - frame[:, 1:-1, :-2]
    upright = (slope_down.square() + slope_right.square()).add_(1).rsqrt_()
    eta = 4.0
    # Snell's law about the normal (slope_down, slope_right, 1) * upright, for light that comes straight down.
    bend = ((upright.square() - 1) / (eta * eta) + 1).sqrt_().sub_(upright / eta).mul_(upright)
    bend.masked_fill_(upright >= 1 - 1e-3, 0).mul_(job.params * 0.5 * shorter / 10)
    down, right = (torch.arange(pixels, dtype=torch.float64, device=x.device) for pixels in (height, width))
    rows = (bend * slope_down).round_(decimals=3).add_(down[:, None]).to(dtype)
    columns = (bend * slope_right).round_(decimals=3).add_(right).to(dtype)
    light_right, light_down = ((slope * (job.params * 2.0 / 10)).float() for slope in (slope_right, slope_down))
    if job.exact:
        return interleave(levels(sample(x, rows, columns, 255.0, torch.float32).sub_(light_right).add_(light_down)))
    return interleave(truncate(sample(x, rows, columns).add_((light_down - light_right).mul_(255))))


@lru_cache(maxsize=64)
def _fringe_taps(side: int, scale: float) -> tuple[Tensor, Tensor]:
    """Source pixels and weights [4, side] along one axis of a zoom about the centre."""
    size = round(side * scale)
    step = (side - 1) / (size - 1)
    first = (size - side) // 2
    index, weights = cubic_taps(np.arange(first, first + side) * step, side)
    return torch.from_numpy(index.T.copy()), torch.from_numpy(weights.T.copy())


@lru_cache(maxsize=64)
def _fringe_matrix(side: int, scale: float) -> Tensor:
    index, weights = _fringe_taps(side, scale)
    return torch.zeros(side, side, dtype=torch.float64).scatter_add_(1, index.T, weights.T).float()


def transverse_chromatic_abberation(x: Tensor, job: Job) -> Tensor:
    """Every channel enlarged about the centre by its own factor, smoothed by a cubic B-spline, rounded.

    Which channel has which factor is random; both axes have the same.
    """
    draws = job.draws
    count, height, width, _ = x.shape
    widest = job.params * 0.5 / 10
    scales = (1.0, 1.0 + widest / 2, 1.0 + widest)
    if isinstance(draws, PeerStreams):
        order = draws.stack([state.permutation(3) for state in draws.states])
    else:
        order = draws.uniform(3).argsort(1)
    # order[c] is the scale of channel c; its inverse the channel of every scale.
    channel = order.argsort(1).view(count, 1, 1, 3).expand(count, height, width, 3)
    planes = x.gather(3, channel).movedim(3, 1)
    done = []
    for k, scale in enumerate(scales):
        if not job.exact:
            down, across = (_fringe_matrix(size, scale).to(x.device) for size in (height, width))
            done.append((down @ planes[:, k].float() @ across.T).add_(0.5 + TIE))
            continue
        above, heavy = (part.to(x.device) for part in _fringe_taps(height, scale))
        index, weights = (part.to(x.device) for part in _fringe_taps(width, scale))
        plane = planes[:, k].double()
        total = torch.zeros_like(plane)
        for i in range(4):
            rows = plane.index_select(1, above[i]).mul_(heavy[i][:, None])
            for j in range(4):
                total.add_(rows.index_select(2, index[j]).mul_(weights[j]))
        done.append(total.add_(0.5))
    moved = truncate(torch.stack(done, -1))
    return moved.gather(3, order.view(count, 1, 1, 3).expand(count, height, width, 3))


@lru_cache(maxsize=16)
def _spline_prefilter(side: int) -> Tensor:
    """The inverse of sampling a cubic B-spline at its knots, mirrored at the edges, float64 [side, side]."""
    matrix = np.zeros((side, side))
    for i in range(side):
        for offset, weight in ((-1, 1 / 6), (0, 4 / 6), (1, 1 / 6)):
            j = abs(i + offset)
            matrix[i, 2 * side - 2 - j if j >= side else j] += weight
    return torch.from_numpy(np.linalg.inv(matrix))


def _spline_coefficients(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The cubic B-spline coefficients of every channel of [n, H, W, C], [n * C, H, W]."""
    height, width = x.shape[1:3]
    # Rows of whole 64-byte lines and one product an image: the last bits of a product depend on where in memory its
    # matrices start and on their size, and an image's result must not depend on its place in the batch.
    line = 64 // dtype.itemsize
    wide = -(-width // line) * line
    planes = F.pad(x.movedim(3, 1).to(dtype).reshape(-1, height, width), (0, wide - width))
    above, across = (_spline_prefilter(size).to(x.device, dtype) for size in (height, width))
    across = F.pad(across.T, (0, wide - width, 0, wide - width)).expand(len(planes), -1, -1)
    return torch.bmm(torch.bmm(above.expand(len(planes), -1, -1), planes), across)[:, :, :width]


_TURNS = 21
# 80 MB of matrix; larger images take the rotations one after the other.
_MAX_TURNED_PIXELS = 224 * 224


def _rotation(height: int, width: int, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Flat source pixels and weights [height * width, 16] of a rotation about the centre; weights 0 outside."""
    radians = np.deg2rad(degrees)
    matrix = np.array([[np.cos(radians), np.sin(radians)], [-np.sin(radians), np.cos(radians)]])
    middle = np.array([(height - 1) / 2, (width - 1) / 2])
    offset = middle - matrix @ middle
    down, right = np.arange(height, dtype=np.float64)[:, None], np.arange(width, dtype=np.float64)
    rows = matrix[0, 0] * down + matrix[0, 1] * right + offset[0]
    columns = matrix[1, 0] * down + matrix[1, 1] * right + offset[1]
    inside = (rows >= 0) & (rows <= height - 1) & (columns >= 0) & (columns <= width - 1)
    row_index, row_weight = cubic_taps(rows.clip(0, height - 1), height)
    column_index, column_weight = cubic_taps(columns.clip(0, width - 1), width)
    index = row_index[..., :, None] * width + column_index[..., None, :]
    weight = row_weight[..., :, None] * column_weight[..., None, :] * inside[..., None, None]
    return index.reshape(height * width, 16), weight.reshape(height * width, 16)


def _rotations(amount: float) -> list[tuple[float, float]]:
    """Angles in degrees and weights of the 21 rotations."""
    turns = [2 * i / (_TURNS - 1) - 1 for i in range(_TURNS)]
    factors = [math.exp(-2 * turn**2) for turn in turns]
    return [(turn * amount, factor / sum(factors)) for turn, factor in zip(turns, factors, strict=True)]


@lru_cache(maxsize=1)  # at 224 px it has 100 MB
def _rotation_blur(height: int, width: int, amount: float, dtype: torch.dtype) -> Tensor:
    """The weighted mean of all rotations as one sparse matrix [H * W, H * W] on spline coefficients."""
    pixels = height * width
    return csr(sum(axis_matrix(*_rotation(height, width, d), pixels) * f for d, f in _rotations(amount)), dtype)


def circular_motion_blur(x: Tensor, job: Job) -> Tensor:
    """The mean of 21 rotations by up to 1.5 * s degrees either way, Gaussian weights, dark outside; cubic splines.

    The centre is that of the image, and angles are angles on its pixels whatever its shape.
    """
    count, height, width, channels = x.shape
    dtype, amount = real(job), job.params * 15 / 10
    coefficients = _spline_coefficients(x, dtype).reshape(count * channels, height * width).T.contiguous()
    if height * width <= _MAX_TURNED_PIXELS:
        blurred = _rotation_blur(height, width, amount, dtype).to(x.device) @ coefficients
    else:
        blurred = torch.zeros_like(coefficients)
        for degrees, factor in _rotations(amount):
            index, weight = (torch.from_numpy(part).to(x.device) for part in _rotation(height, width, degrees))
            for tap in range(index.shape[1]):
                blurred += coefficients.index_select(0, index[:, tap]) * (weight[:, tap, None] * factor).to(dtype)
    blurred = blurred.T.reshape(count, channels, height, width).movedim(1, 3)
    return truncate(blurred.contiguous() if job.exact else blurred + TIE)
