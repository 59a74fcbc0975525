"""Glass blur: every pixel takes the value of a near neighbour, between two Gaussian blurs."""

from __future__ import annotations

import torch
from torch import Tensor

from anchored.corruptions.filters import gaussian
from anchored.corruptions.job import Job, levels, near_truncate, unit
from anchored.corruptions.resample import pick
from anchored.corruptions.rng import Draws

# Below this sigma most of a pixel's weight is its own, sums are near integers, and rounding decides them.
_NARROW = 0.5


def displacement(draws: Draws, height: int, width: int, reach: int) -> Tensor:
    """Where every pixel's value comes from after one pass: flat positions in the batch, int32 [n * H * W].

    The pass runs in reverse raster order over the pixels at least `reach` + 1 from the top and left edges and `reach`
    from the others. It means to swap a pixel with a neighbour -reach..reach-1 away on both axes, but the views of the
    reference alias, so that the pixel takes the neighbour's value and the neighbour keeps it. A neighbour further on
    in raster order was overwritten before: its own source is looked up.
    """
    rows, columns, span = height - 2 * reach, width - 2 * reach, 2 * reach
    if draws.peer:
        offset = draws.integers(-reach, reach, rows, columns, 2)
        step = (offset[..., 1] * width + offset[..., 0]).int()
    else:
        cell = draws.uniform(rows, columns).mul_(span * span).floor_()
        down = cell.add(0.5).mul_(1 / span).floor_()
        # down * width + (cell - down * span), both counted from -reach.
        step = down.mul_(width - span).add_(cell).sub_(reach * width + reach).int()
    place = torch.arange(draws.n * height * width, dtype=torch.int32, device=step.device)
    source = place.clone()
    inner = (slice(None), slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1))
    # The fields are drawn in the order of the pass.
    source.view(draws.n, height, width)[inner] += step.flip(1, 2)
    if reach == 1:  # offsets of -1 and 0 never meet an overwritten neighbour
        return source
    written = torch.zeros(draws.n, height, width, dtype=torch.bool, device=step.device)
    written[inner] = True
    waiting = pick(written, source) & (source > place)
    # Pointer doubling: a place is settled once it points to one that waits for no other.
    while waiting.any():
        target = source
        source = torch.where(waiting, pick(source, target), source)
        waiting = waiting & pick(waiting, target)
    return source


def gather_pixels(x: Tensor, source: Tensor) -> Tensor:
    """The pixels of uint8 [n, H, W, C] at flat positions [n * H * W]; RGB moves as one 32-bit word."""
    if x.shape[-1] == 1:
        return pick(x, source).view(x.shape)
    words = torch.zeros(*x.shape[:3], 4, dtype=torch.uint8, device=x.device)
    words[..., :3] = x
    moved = pick(words.view(torch.int32), source)
    return moved.unsqueeze(-1).view(torch.uint8)[:, :3].reshape(x.shape)


def glass_blur(x: Tensor, job: Job) -> Tensor:
    """Gaussian blur, `passes` random displacements of at most `reach` pixels, and the Gaussian blur again."""
    sigma, reach, passes = job.params
    height, width = x.shape[1:3]
    # In float64 in both modes: a level lost to a tie here and one in the second blur would make two.
    moved = gaussian(unit(x), sigma).mul(255).to(torch.uint8)
    # An image too small for the offsets has no pixel that may move.
    for _ in range(passes if min(height, width) > 2 * reach else 0):
        moved = gather_pixels(moved, displacement(job.draws, height, width, reach))
    if job.exact or sigma < _NARROW:
        return levels(gaussian(unit(moved), sigma))
    return near_truncate(gaussian(moved.float(), sigma))
