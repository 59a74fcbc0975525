"""Many encoded pictures to one array, on all cores and within bounds of memory."""

from __future__ import annotations

import io
import os
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from anchored.data.base import Options
from anchored.data.images import fit
from anchored.system.errors import InputError

Source = bytes | Path | NDArray[np.uint8] | None
# Only what photographs come in: Pillow would hand some others to outside programs.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "PPM")
CHUNK = 32  # pictures a task, enough to hide its cost ...
CHUNK_BYTES = 2**23  # ... but not more than this takes, as every core has two tasks waiting
NAMED = 3  # failures named in a note


@dataclass(frozen=True)
class Decoded:
    """What `decode` gives: images uint8 [M, H, W, 3], their positions int64 [M] among the sources, and notes."""

    images: Tensor
    kept: Tensor
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A picture that cannot be read, and why."""

    reason: str


def decode(
    sources: Iterable[Source],
    count: int,
    options: Options,
    *,
    name: Callable[[int], str],
    others: int = 0,
    square: bool = True,
) -> Decoded:
    """The pictures of `sources` (`count` of them: encoded bytes, files or uint8 [H, W, 3] arrays) as one array.

    name: position -> what a message calls that picture. others: how many more images of the same data set will be
    in memory. square: whether other shapes are refused. Pictures that cannot be read are left out and named in a note,
    or with `options.strict` raise InputError, as do pictures of different sizes without `options.size` and arrays above
    `options.memory_limit`.
    """
    if options.size is not None:
        _check_images(count + others, options.size, options.size, options)
    images: NDArray[np.uint8] | None = None
    kept: list[int] = []
    failures: dict[int, str] = {}
    whole = 0
    # Broken metadata of sound pictures warns. The filters belong to the process, so no worker may set them.
    with warnings.catch_warnings(), closing(pictures(sources, options)) as results:
        warnings.simplefilter("ignore")
        for position, (result, exact) in enumerate(results):
            if options.progress is not None:
                options.progress(position + 1, count)
            if isinstance(result, Failure):
                if options.strict:
                    raise InputError(f"{name(position)} is not a readable image ({result.reason}).")
                failures[position] = result.reason
                continue
            if images is None:
                height, width = result.shape[:2]
                if square and height != width:
                    raise InputError(f"{name(position)} is not square ({width}x{height} pixels); pass --image-size.")
                _check_images(count + others, height, width, options)
                images = np.empty((count, *result.shape), np.uint8)
            if result.shape != images.shape[1:]:
                raise InputError(
                    f"the images have different sizes: {images.shape[2]}x{images.shape[1]} ({name(kept[0])}) and "
                    f"{result.shape[1]}x{result.shape[0]} ({name(position)}); pass --image-size."
                )
            images[len(kept)] = result
            kept.append(position)
            whole += exact
    if images is None:
        if failures:
            raise InputError(f"none of the {len(failures):,} images is readable; {_named(failures, name)}.")
        raise InputError("there are no images.")
    notes = []
    if failures:
        notes.append(f"unreadable images, left out: {len(failures):,} of {count:,}: {_named(failures, name)}")
    if options.size is not None and round(options.size / options.crop) > options.size and 0 < whole < len(kept):
        notes.append(
            f"images of {options.size}x{options.size} pixels already, taken whole: {whole:,} of {len(kept):,}; the "
            f"others are cut from the centre of {round(options.size / options.crop)}"
        )
    return Decoded(torch.from_numpy(images[: len(kept)]), torch.tensor(kept, dtype=torch.int64), tuple(notes))


def _named(failures: dict[int, str], name: Callable[[int], str]) -> str:
    first = [f"{name(position)} ({reason})" for position, reason in islice(failures.items(), NAMED)]
    more = len(failures) - len(first)
    return ", ".join(first) + (f" and {more:,} more" if more else "")


def pictures(
    sources: Iterable[Source], options: Options
) -> Generator[tuple[NDArray[np.uint8] | Failure, bool], None, None]:
    """(image or failure, whether it had the size already) of every source, in order, a few at a time in memory."""

    def work(chunk: list[Source]) -> list[tuple[NDArray[np.uint8] | Failure, bool]]:
        return [_one(source, options) for source in chunk]

    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pending: deque[Future[list[tuple[NDArray[np.uint8] | Failure, bool]]]] = deque()
    stream = iter(sources)
    size = 1  # pictures a task, until it is known what one takes
    with ThreadPoolExecutor(workers) as pool:
        try:
            while True:
                while len(pending) < 2 * workers and (chunk := list(islice(stream, size))):
                    pending.append(pool.submit(work, chunk))
                if not pending:
                    return
                done = pending.popleft().result()
                largest = max((image.nbytes for image, _ in done if isinstance(image, np.ndarray)), default=CHUNK_BYTES)
                size = max(1, min(CHUNK, CHUNK_BYTES // largest))
                yield from done
        finally:
            for future in pending:
                future.cancel()


def _one(source: Source, options: Options) -> tuple[NDArray[np.uint8] | Failure, bool]:
    if source is None:
        return Failure("it has no bytes"), False
    try:
        if isinstance(source, np.ndarray):
            opened = Image.fromarray(source)
        else:
            opened = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
        with opened as image:
            exact = options.size is not None and image.size == (options.size, options.size)
            return fit(image, options.size, options.interpolation, options.crop), exact
    except MemoryError:
        raise
    except UnidentifiedImageError:
        return Failure("no known image format"), False
    except Exception as error:  # decoders of damaged files fail in many ways
        return Failure(str(error).rstrip(".") or type(error).__name__), False


def _check_images(count: int, height: int, width: int, options: Options) -> None:
    check_memory(count * height * width * 3, options, f"{count:,} images of {width}x{height} pixels")


def check_memory(size: int, options: Options, what: str) -> None:
    """Raise InputError if `what` of `size` bytes is more than the memory limit."""
    limit = options.memory_limit if options.memory_limit is not None else machine_memory() // 2
    if size > limit:
        of = "the limit given" if options.memory_limit is not None else "half of this machine's memory"
        raise InputError(
            f"images are held in memory: {what} take {_human(size)}, more than {_human(limit)} ({of}). "
            "Pass a smaller --image-size or, for class folders and csv files, --stream; or use fewer images."
        )


def machine_memory() -> int:
    """Bytes of memory this process may use: the machine's, or its container's if that is less."""
    sizes = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            sizes.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # not in a container, or "max"
            continue
    return min(sizes) if sizes else 2**63


def _human(size: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def fit_arrays(images: NDArray[np.uint8], options: Options, *, name: str, others: int = 0) -> Decoded:
    """Images uint8 [N, H, W, C] (C 1 or 3) as RGB of the size asked for; without resizing where they have it.

    Raises InputError for images without pixels, oblong ones without `options.size`, and above the memory limit.
    """
    count, height, width, channels = images.shape
    if 0 in (height, width):
        raise InputError(f"{name}: images of {width}x{height} have no pixels.")
    if options.size is not None and (height, width) != (options.size, options.size):
        squeezed = images[..., 0] if channels == 1 else images
        return decode(iter(squeezed), count, options, name=lambda position: f"{name} image {position}", others=others)
    if height != width:
        raise InputError(f"{name}: images are not square ({width}x{height} pixels); pass --image-size.")
    _check_images(count + others, height, width, options)
    whole = np.repeat(images, 3, axis=3) if channels == 1 else np.require(images, requirements=["C", "W"])
    if options.progress is not None:
        options.progress(count, count)
    return Decoded(torch.from_numpy(whole), torch.arange(count))
