"""Images decoded as they are asked for: data sets larger than memory, of image files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from anchored.data.base import Listing, Options
from anchored.data.decode import FORMATS
from anchored.data.images import fit, to_rgb
from anchored.system.errors import InputError

TRIES = 10  # images after an unreadable one that may take its place


@dataclass(frozen=True)
class Streamed:
    """Labelled images in files; like an ImageSet, but nothing is in memory except names and labels.

    files: bytes [N] (a numpy array, which worker processes share). labels: int64 [N]. options: how images are fitted;
    `options.size` is their side. lenient: an unreadable picture is replaced by the next one, label and all, the same in
    every run (for training; what is measured must be what was asked for).
    """

    files: NDArray[np.bytes_]
    labels: Tensor
    options: Options
    lenient: bool = False

    @classmethod
    def of(cls, listing: Listing, options: Options, *, lenient: bool = False) -> Streamed:
        """The pictures of a listing. Raises InputError where they are not files, or without a size."""
        if listing.files is None:
            raise InputError(f"only images in files can be streamed (folder:PATH, csv:FILE); got {listing.name}.")
        if options.size is None:
            raise InputError("streamed images need a size; pass --image-size.")
        paths = [os.fsencode(str(path)) for path in listing.pictures(np.arange(len(listing)))]
        return cls(np.array(paths), listing.labels, options, lenient)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.take(torch.tensor([index]))[0], int(self.labels[index])

    @property
    def side(self) -> int:
        """Side of the images in pixels."""
        assert self.options.size is not None
        return self.options.size

    def path(self, index: int) -> Path:
        """The file of an image."""
        return Path(os.fsdecode(bytes(self.files[index])))

    def with_labels(self, labels: Tensor) -> Streamed:
        """The same images with other labels (int64 [N])."""
        return replace(self, labels=labels)

    def subset(self, indices: Tensor) -> Streamed:
        """The images and labels at `indices` (int64 [M]), in that order."""
        return replace(self, files=self.files[indices.numpy()], labels=self.labels[indices])

    def take(self, indices: Tensor) -> Tensor:
        """uint8 [M, side, side, 3] of the images at `indices` (int64 [M]), decoded on all cores.

        Raises InputError for an unreadable one, where not lenient.
        """

        def one(index: int) -> NDArray[np.uint8]:
            return fit(self.readable(index)[0], self.side, self.options.interpolation, self.options.crop)

        with ThreadPoolExecutor(_cores()) as pool:
            images = list(pool.map(one, indices.tolist()))
        return torch.from_numpy(np.stack(images))

    def readable(self, index: int) -> tuple[Image.Image, int, tuple[str, ...]]:
        """(picture as RGB, its position, what was wrong with those before it): of the first readable one from `index`.

        Raises InputError for an unreadable one, where not lenient, and for many in a row.
        """
        failures: list[str] = []
        for position in _next(index, len(self)):
            try:
                return to_rgb(self._open(position)), position, tuple(failures)
            except MemoryError:
                raise
            except Exception as error:  # what a damaged file raises depends on its format
                reason = "no known image format" if isinstance(error, UnidentifiedImageError) else str(error)
                failures.append(f"{self.path(position)} ({reason})")
                if not self.lenient:
                    raise InputError(f"{self.path(position)} is not a readable image ({reason}).") from error
        raise InputError(f"{len(failures)} images in a row are not readable: {', '.join(failures[:3])} ...")

    def checked(self, progress: Callable[[int, int], None]) -> tuple[Streamed, tuple[str, ...]]:
        """(the images that can be read, what was wrong with the others); progress: called with (done, total).

        Decodes every one. Raises InputError for the first unreadable one, where options.strict.
        """

        def wrong(index: int) -> str:
            try:
                replace(self, lenient=False).readable(index)
            except InputError as error:
                if self.options.strict:
                    raise
                return str(error)
            return ""

        reasons = []
        with ThreadPoolExecutor(_cores()) as pool:
            for reason in pool.map(wrong, range(len(self))):
                reasons.append(reason)
                progress(len(reasons), len(self))
        kept = torch.tensor([index for index, reason in enumerate(reasons) if not reason], dtype=torch.int64)
        return self.subset(kept), tuple(filter(None, reasons))

    def fingerprint(self) -> Iterator[bytes]:
        """What identifies the images: the ends of their paths, their sizes on disk and the labels."""
        for index in range(len(self)):
            path = self.path(index)
            yield f"{path.parent.name}/{path.name} {path.stat().st_size}\n".encode("utf-8", "surrogateescape")
        yield self.labels.numpy().tobytes()

    def _open(self, index: int) -> Image.Image:
        image = Image.open(self.path(index), formats=FORMATS)
        image.load()
        return image


def _next(index: int, n: int) -> Iterator[int]:
    return ((index + more) % n for more in range(min(TRIES, n)))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
