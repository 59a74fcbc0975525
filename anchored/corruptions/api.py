"""`corrupt`: one corruption of a batch of uint8 images; `suite`: the names of a benchmark's corruptions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from anchored.corruptions import bar, common, frost, tables
from anchored.corruptions.job import Corruption, Job
from anchored.corruptions.rng import Draws, PeerStreams, Streams
from anchored.system.errors import InputError, unknown

Images = TypeVar("Images", np.ndarray, Tensor)

FUNCTIONS = common.COMMON | bar.BAR
NAMES = tuple(FUNCTIONS)
SUITES = ("c", "c-mce", "c-bar")
COLOUR = common.COLOUR | bar.COLOUR
MIN_SIDE = 8
# Values a chunk: its float64 temporaries stay in a core's second-level cache, or fill a GPU.
_CPU_VALUES, _GPU_VALUES = 200_000, 16_000_000


def suite(name: str, *, table: str | None = None) -> tuple[str, ...]:
    """The corruptions of a benchmark, in its official order.

    name: `c` (19), `c-mce` (the 15 of the mean corruption error), `c-bar` (10), or one corruption's name.
    table: `c-bar` has two lists, one for `cifar` and `tiny`, one for `imagenet` and `inception`.
    Raises InputError for another name, or for `c-bar` without a table.
    """
    groups = {"c": tuple(common.COMMON), "c-mce": tuple(common.COMMON)[:15]}
    if table is not None and table not in bar.LISTS:
        raise unknown("corruption table", table, bar.LISTS)
    if name == "c-bar":
        if table is None:
            raise InputError(f"the suite c-bar needs a table, because its lists differ: {', '.join(bar.LISTS)}")
        return tuple(bar.LISTS[table])
    if name in groups:
        return groups[name]
    if name in NAMES:
        return (name,)
    raise unknown("corruption or suite", name, [*SUITES, *NAMES])


def source(name: str, frost_dir: str | os.PathLike[str] | None = None) -> str:
    """How a corruption is produced, for rows and manifests: `generated`, and for frost with which textures."""
    if name not in NAMES:
        raise unknown("corruption", name, NAMES)
    if name != "frost":
        return "generated"
    return "generated, procedural frost" if frost.find(frost_dir) == frost.PROCEDURAL else "generated, official frost"


def _check_images(images: Any) -> None:
    kind = "uint8 numpy array or torch tensor of shape [N, H, W, C]"
    if not isinstance(images, (np.ndarray, Tensor)):
        raise InputError(f"images must be a {kind}, not {type(images).__name__}")
    if images.dtype not in (np.uint8, torch.uint8):
        raise InputError(f"images must be a {kind} with values 0..255, not of dtype {images.dtype}")
    shape = tuple(images.shape)
    if len(shape) != 4:
        raise InputError(f"images must be a {kind}, not of shape {list(shape)}")
    if shape[0] == 0:
        raise InputError("there are no images to corrupt: the batch has length 0")
    if shape[3] not in (1, 3):
        hint = " (channels come last)" if shape[1] in (1, 3) else ""
        raise InputError(f"images must have 1 or 3 channels [N, H, W, C], not shape {list(shape)}{hint}")
    if min(shape[1:3]) < MIN_SIDE:
        raise InputError(f"images must have sides of at least {MIN_SIDE} px, not {shape[1]} x {shape[2]}")


def _positions(index: int | Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Positions in the data set, int64 [count], from the first one or from all of them."""
    array = np.asarray(index)
    if array.dtype.kind not in "iu" or array.ndim > 1 or (array.ndim == 1 and len(array) != count):
        raise InputError(f"index must be an integer or one integer an image ({count}), not {index!r}")
    if (array < 0).any():
        raise InputError(f"index must not be negative, got {array.min()}")
    return array.astype(np.int64) + np.arange(count) if array.ndim == 0 else array.astype(np.int64)


def corrupt(
    images: Images,
    name: str,
    severity: int,
    *,
    seed: int,
    index: int | Sequence[int] | np.ndarray = 0,
    table: str | None = None,
    exact: bool = True,
    frost_dir: str | os.PathLike[str] | None = None,
    peer_seeds: Sequence[int] | None = None,
) -> Images:
    """Corrupt a batch of images; the result has the type, shape, dtype and device of `images`.

    images: uint8 [N, H, W, C], numpy or torch, C 1 or 3, sides of at least 8 px, square or not. Of images that are not
        square the shorter side decides about strengths and lengths (docs/corruptions.md says it of each corruption).
    name: one of `NAMES`; severity: 1..5.
    seed, index: an image's random numbers depend on (seed, name, severity, its position in the data set) alone;
        `index` is the position of the first image, or an array of all positions.
    table: `cifar`, `tiny`, `imagenet` or `inception` strengths; None chooses by size (see `tables`).
    exact: the dtypes and roundings of the reference codes; False is float32 and faster (1 level off on a few values).
    frost_dir: folder of the official frost textures; None looks for an installed `imagecorruptions`, whose data it
        reads, and else uses procedural ones (`source` tells which).
    peer_seeds: draw from numpy's legacy RandomState(peer_seeds[i]) for image i, in the order of the reference codes.
    Raises InputError on bad input, before any work.
    """
    _check_images(images)
    if name not in NAMES:
        raise unknown("corruption", name, NAMES)
    severity = tables.check_severity(severity)
    count, height, width, channels = images.shape
    positions = _positions(index, count)
    _check_seeds(seed, peer_seeds, count)
    parameters, textures = _strength(name, severity, table, height, width, frost_dir)

    device = images.device if isinstance(images, Tensor) else torch.device("cpu")
    out: Any = torch.empty_like(images) if isinstance(images, Tensor) else np.empty(images.shape, np.uint8)
    size = max(1, (_CPU_VALUES if device.type == "cpu" else _GPU_VALUES) // (height * width * channels))
    with torch.inference_mode():
        for start in range(0, count, size):
            part = slice(start, start + size)
            draws: Draws
            if peer_seeds is None:
                draws = Streams(int(seed), name, severity, positions[part], device)
            else:
                draws = PeerStreams(peer_seeds[part], device)
            job = Job(parameters, draws, exact, textures)
            chunk = images[part]
            # Copied, because the array may be read-only, a view or on disk.
            pixels = chunk.contiguous() if isinstance(chunk, Tensor) else torch.from_numpy(np.array(chunk, order="C"))
            done = _grey_or_colour(FUNCTIONS[name], name, pixels, job)
            out[part] = done if isinstance(out, Tensor) else done.numpy()
    return out


def _check_seeds(seed: Any, peer_seeds: Sequence[int] | None, count: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise InputError(f"seed must be an integer, not {seed!r}")
    if peer_seeds is not None and len(peer_seeds) != count:
        raise InputError(f"peer_seeds must have one seed an image ({count}), not {len(peer_seeds)}")


def _strength(
    name: str, severity: int, table: str | None, height: int, width: int, frost_dir: str | os.PathLike[str] | None
) -> tuple[Any, tuple[Tensor, ...]]:
    """The parameters of a corruption for images of this size, and the textures it needs."""
    chosen, factor = tables.choose(table, height, width)
    if name in bar.BAR:
        return bar.strength(name, severity, chosen), ()
    parameters = tables.parameters(name, severity, chosen, factor)
    if name != "frost":
        return parameters, ()
    return parameters, frost.textures(frost.find(frost_dir), tables.FROST_SCALE[chosen] * factor, height, width)


def _grey_or_colour(function: Corruption, name: str, x: Tensor, job: Job) -> Tensor:
    """Apply `function`; grey images go through corruptions defined by colours as RGB and return as luma."""
    if x.shape[-1] == 3 or name not in COLOUR:
        return function(x, job)
    colour = function(x.expand(-1, -1, -1, 3).contiguous(), job).float()
    luma = colour @ torch.tensor([0.299, 0.587, 0.114], device=x.device)
    return luma.round_().to(torch.uint8).unsqueeze(-1)
