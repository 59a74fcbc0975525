"""What every data source gives: images in memory as uint8, labels, class names and how it was split."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchored.system.errors import InputError, unknown

TRAIN_WORDS = ("train", "training")
TEST_WORDS = (("test", "testing"), ("validation", "val", "valid"))  # the first that is there is used
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


@dataclass(frozen=True)
class ImageSet:
    """Labelled images in memory.

    images: uint8 [N, H, W, 3], all of one size. labels: int64 [N] in [0, classes), or -1 throughout for
    images of no known class. Indexing gives one (image, label); `len` is N.
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[3] != 3:
            raise InputError(f"images must be uint8 [N, H, W, 3]; got {self.images.dtype} {list(self.images.shape)}.")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise InputError(
                f"labels must be int64 [{self.images.shape[0]}], one an image; "
                f"got {self.labels.dtype} {list(self.labels.shape)}."
            )

    def __len__(self) -> int:
        return self.images.shape[0]

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.labels[index])

    @property
    def side(self) -> int:
        """Height of the images in pixels."""
        return self.images.shape[1]

    def take(self, indices: Tensor) -> Tensor:
        """uint8 [M, H, W, 3] of the images at `indices` (int64 [M])."""
        return self.images.index_select(0, indices.to(self.images.device))

    def fingerprint(self) -> Iterator[Any]:
        """What identifies the images: their bytes and the labels'."""
        for part in (self.images, self.labels):
            yield part.contiguous().cpu().numpy().data

    def with_labels(self, labels: Tensor) -> ImageSet:
        """The same images with other labels (int64 [N])."""
        return ImageSet(self.images, labels)

    def subset(self, indices: Tensor) -> ImageSet:
        """The images and labels at `indices` (int64 [M]), in that order."""
        return ImageSet(self.images[indices], self.labels[indices])


class Images(Protocol):
    """Labelled images wherever they are: an `ImageSet`, or a `Streamed` one that decodes them when asked."""

    @property
    def labels(self) -> Tensor: ...
    @property
    def side(self) -> int: ...
    def __len__(self) -> int: ...
    def take(self, indices: Tensor) -> Tensor: ...
    def subset(self, indices: Tensor) -> Images: ...
    def with_labels(self, labels: Tensor) -> Images: ...
    def fingerprint(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Data:
    """A data set ready to train on.

    `name` is the spec it was loaded from without machine paths (e.g. `cifar10`, `folder:flowers`);
    `flip` says whether a mirrored image keeps its class (false for digits); `split` says in words how
    train and test were made; `notes` lists what a reader of the results must know (skipped files, ...).
    """

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    flip: bool = True
    split: str = "as given"
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Listing:
    """One part of a data set before its pictures are decoded, for work on more of them than fit into memory.

    `name`, `classes`, `split` and `notes` are those of Data; labels: int64 [N]. `pictures(rows)` gives the pictures at
    `rows` (sorted int64) one after another: encoded, as files, or as uint8 arrays; `called(row)` is what a message
    calls one. `files`: for pictures that are files, a name of each below a folder of its class.
    """

    name: str
    labels: Tensor
    classes: tuple[str, ...]
    split: str
    notes: tuple[str, ...]
    pictures: Callable[[NDArray[np.int64]], Iterator[bytes | Path | NDArray[np.uint8] | None]]
    called: Callable[[int], str]
    files: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Options:
    """How a source loads its images; the same for every source.

    size: side in pixels of the images that come out (None: as stored, all of one size). seed: of the split, where a
    source has none of its own. root: folder of downloaded archives (None: `$ANCHORED_DATA`, else ~/.cache/anchored).
    interpolation, crop: see `anchored.data.images.fit`. strict: an unreadable image is an error, not a note.
    memory_limit: bytes the images may take (None: half of the machine's memory). progress: called with
    (done, total) while images are decoded, part by part. Raises InputError on values outside these.
    """

    size: int | None = None
    seed: int = 0
    root: str | None = None
    interpolation: str = "bilinear"
    crop: float = 1.0
    strict: bool = False
    memory_limit: int | None = None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise InputError(f"the image size is at least 1 pixel; got {self.size}.")
        if self.interpolation not in INTERPOLATIONS:
            raise unknown("interpolation", self.interpolation, INTERPOLATIONS)
        if not 0 < self.crop <= 1:
            raise InputError(f"crop is the centre part of the resized image, in (0, 1]; got {self.crop}.")


def unlabelled(images: Tensor) -> ImageSet:
    """`images` (uint8 [N, H, W, 3]) as an ImageSet of no known class (labels -1)."""
    return ImageSet(images, torch.full((len(images),), -1, dtype=torch.int64))


def unused(parts: Sequence[str]) -> tuple[str, ...]:
    """The note of parts of a data set that are neither trained nor tested on."""
    if not parts:
        return ()
    verb = "are" if len(parts) > 1 else "is"
    return (f"{', '.join(parts)} {verb} not used (--val-fraction holds out a part of the training images)",)


def place(path: str) -> Path:
    """The path with ~ expanded, which shells leave alone after a colon."""
    return Path(os.path.expanduser(path))


def title(path: str) -> str:
    """What a file or folder is called in results: its name without suffix, or its folder's where it is just a part."""
    whole = Path(os.path.abspath(place(path)))
    name = whole.name if whole.is_dir() else whole.stem
    words = {*TRAIN_WORDS, *TEST_WORDS[0], *TEST_WORDS[1]}
    return (whole.parent.name if name.lower() in words else name) or "images"


def pair_title(path: str, train: Path, test: Path) -> str:
    """What data in one file or folder, or in two files written TRAIN,TEST, is called.

    Two files are named by both, unless their names say no more than the part.
    """
    if os.path.exists(place(path)):
        return title(path)
    first, second = title(str(train)), title(str(test))
    return first if first == second else f"{first},{second}"
