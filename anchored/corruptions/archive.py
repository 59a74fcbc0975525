"""A folder of corrupted images, as `anchored.corruptions.readers` found it: cells, whose images are read on demand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anchored.data import ImageSet, Options
from anchored.data.checks import some
from anchored.data.decode import decode
from anchored.data.folder import class_files
from anchored.system.errors import InputError, unknown


@dataclass(frozen=True)
class CorruptedSet:
    """One corruption at one severity: labels (int64 [N]), positions in the test set (int64 [N]), images on demand."""

    labels: Tensor
    index: Tensor
    _rows: np.ndarray | None = None
    _files: tuple[Path, ...] = ()
    _root: Path = Path()

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, *, size: int | None = None, part: slice | Tensor | None = None) -> ImageSet:
        """The images (uint8 [M, H, W, 3]) and labels, of `part` of them (a slice, or int64 [M]) or of all.

        size: side in pixels of images that come as files (None: as stored, all of one size, square or not). Raises
        InputError for unreadable ones.
        """
        chosen = torch.arange(len(self))[slice(None) if part is None else part]
        if self._rows is not None:
            return ImageSet(torch.from_numpy(np.array(self._rows[chosen.numpy()])), self.labels[chosen])
        files = [self._files[row] for row in chosen.tolist()]
        options = Options(size=size, strict=True)
        named = [file.relative_to(self._root).as_posix() for file in files]
        decoded = decode(files, len(files), options, name=lambda i: named[i], square=False)
        return ImageSet(decoded.images, self.labels[chosen])

    def batches(self, count: int, *, size: int | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(images, labels, index) of `count` images at a time, so that memory holds no more."""
        for start in range(0, len(self), count):
            part = slice(start, start + count)
            images = self.load(size=size, part=part)
            yield images.images, images.labels, self.index[part]


@dataclass(frozen=True)
class Archive:
    """A folder of corrupted images. Iterating gives every (corruption, severity) there is.

    names: corruptions in official order; missing: those of its suites that are not there; notes: what a reader of
    results must know (missing corruptions, unofficial files); source: `official`, or how it was generated.
    """

    path: Path
    layout: str
    names: tuple[str, ...]
    severities: tuple[int, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    source: str
    _places: dict[tuple[str, int], Path] = field(repr=False)
    _labels: Tensor | None = field(default=None, repr=False)
    _classes: tuple[str, ...] | None = field(default=None, repr=False)
    _positions: Tensor | None = field(default=None, repr=False)
    _order: dict[str, int] | None = field(default=None, repr=False)
    _expected: list[str] = field(default_factory=list, repr=False)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter((name, severity) for name in self.names for severity in self.severities)

    def cell(self, name: str, severity: int) -> CorruptedSet:
        """One corruption at one severity. Raises InputError for one that is not there or differs from the others."""
        if name not in self.names:
            raise unknown("corruption of this archive", name, self.names)
        if severity not in self.severities:
            raise InputError(f"{self.path} has severities {', '.join(map(str, self.severities))}; got {severity}.")
        place = self._places[name, severity]
        if self._labels is not None:
            n = len(self._labels)
            start = self.severities.index(severity) * n
            rows = mapped_images(place, n * len(self.severities))[start : start + n]
            return CorruptedSet(self._labels, self._index(n), rows)
        files, labels = _files_by_class(place, self._classes or ())
        stems = [_without_suffix(file, place) for file in files]
        if not self._expected:
            self._expected.extend(stems if self._order is None else sorted(self._order))
        if sorted(stems) != sorted(self._expected):
            odd = sorted(set(stems) ^ set(self._expected))
            raise InputError(
                f"{place}: every corruption and severity has the same images; this has {len(stems):,}, the others "
                f"{len(self._expected):,}. They differ in {some(odd)}."
            )
        rank = list(range(len(files)))
        if self._order is not None:
            order = self._order
            rank.sort(key=lambda i: order[stems[i]])
        sorted_labels = torch.tensor([labels[i] for i in rank])
        return CorruptedSet(sorted_labels, self._index(len(files)), None, tuple(files[i] for i in rank), self.path)

    def _index(self, n: int) -> Tensor:
        return torch.arange(n) if self._positions is None else self._positions


def mapped_images(path: Path, rows: int) -> np.ndarray:
    """The images of a .npy file, mapped, uint8 [rows, H, W, 3]."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable .npy file: {error}") from error
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3 or len(array) != rows:
        raise InputError(f"{path}: images are uint8 [{rows}, H, W, 3]; got {array.dtype} {list(array.shape)}.")
    return array


def _files_by_class(place: Path, classes: tuple[str, ...]) -> tuple[list[Path], list[int]]:
    """Files and labels below the class folders of `place`, in the order of labels and then of names."""
    found = class_files(place)
    strangers = [name for name in found if name not in classes]
    if strangers:
        raise InputError(f"{place}: there is no class {some(strangers)}. Classes: {some(classes)}.")
    files, labels = [], []
    for label, name in enumerate(classes):
        here = found.get(name, [])
        files += here
        labels += [label] * len(here)
    if not files:
        raise InputError(f"{place}: there are no images in class folders.")
    return files, labels


def _without_suffix(file: Path, place: Path) -> str:
    return file.relative_to(place).with_suffix("").as_posix()
