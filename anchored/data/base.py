"""What every data source gives: images in memory as uint8, labels, class names and how it was split."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from anchored.errors import InputError


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

    def subset(self, indices: Tensor) -> ImageSet:
        """The images and labels at `indices` (int64 [M]), in that order."""
        return ImageSet(self.images[indices], self.labels[indices])


@dataclass(frozen=True)
class Data:
    """A data set ready to train on.

    `name` is the spec it was loaded from without machine paths (e.g. `cifar10`, `folder:flowers`);
    `flip` says whether a mirrored image keeps its class (false for digits); `split` says in words how
    train and test were made; `notes` lists what a reader of the results must know (skipped files, ...).
    """

    name: str
    train: ImageSet
    test: ImageSet
    classes: tuple[str, ...]
    flip: bool = True
    split: str = "as given"
    notes: tuple[str, ...] = field(default=())
