"""The images of one cell of an evaluation, made in parts when they are asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from anchored import corruptions
from anchored.data import limit as limited_positions
from anchored.data.base import Images, Listing, Options
from anchored.data.decode import Failure, Source, pictures
from anchored.evaluation.rows import Cell
from anchored.system.errors import InputError

CORRUPTION_SEED = 0  # the corrupted images are the same for every run, whatever its seed
CORRUPTED_LIMIT = 1000  # test images a corrupted cell, where no limit is given


@dataclass(frozen=True)
class CellImages:
    """The images of one cell.

    labels: int64 [N], -1 for anomalies. index: int64 [N], positions in the data set they come from. take: uint8
    [n, H, W, 3] of positions int64 [n] in [0, N); the images of a position are always the same, whichever others
    are asked for with it. source: where corrupted images come from, for the record.
    """

    cell: Cell
    labels: Tensor
    index: Tensor
    take: Callable[[Tensor], Tensor]
    source: str | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def parts(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(positions, images), `size` images at a time."""
        for positions in torch.arange(len(self)).split(size):
            yield positions, self.take(positions)


def plain(cell: Cell, images: Images, limit: int | None = None) -> CellImages:
    """Images as they are, or a seeded stratified part of at most `limit` of them."""
    index = _positions(images, limit)
    return CellImages(cell, images.labels[index], index, lambda positions: images.take(index[positions]))


def corrupted(
    benchmark: str, name: str, severity: int, images: Images, limit: int | None = None, *, exact: bool = True
) -> CellImages:
    """Images corrupted as they are asked for, each by its position in the data set."""
    index = _positions(images, limit)
    corrupt = corrupting(name, severity, exact=exact)

    def take(positions: Tensor) -> Tensor:
        rows = index[positions]
        return corrupt(images.take(rows), rows)

    cell = Cell(benchmark, name, severity, "shift")
    return CellImages(cell, images.labels[index], index, take, corruptions.source(name))


def suites(
    benchmarks: Iterable[str], severities: Iterable[int], images: Images, limit: int | None
) -> Iterator[CellImages]:
    """The corrupted test sets of `benchmarks` ("c", "c-bar" or names of corruptions; others are passed over).

    Without a limit they have 1,000 images each. Names given one by one make up one benchmark, `corruptions`.
    """
    for cell in corrupted_cells(benchmarks, severities, images.side):
        assert cell.corruption is not None and cell.severity is not None
        yield corrupted(cell.benchmark, cell.corruption, cell.severity, images, limit or CORRUPTED_LIMIT)


def corrupted_cells(benchmarks: Iterable[str], severities: Iterable[int], side: int) -> Iterator[Cell]:
    """The cells of corrupted images of `side` pixels that benchmarks stand for; other benchmarks are passed over."""
    table = "cifar" if side <= 96 else "imagenet"  # which of the two lists of c-bar
    benchmarks, severities = tuple(benchmarks), tuple(severities)
    for benchmark in benchmarks:
        if benchmark == "c-mce":
            if "c" in benchmarks:
                continue  # they are among those of c
            group = "c"
        elif benchmark in corruptions.SUITES:
            group = benchmark
        elif benchmark in corruptions.NAMES:
            group = "corruptions"
        else:
            continue
        for name in corruptions.suite(benchmark, table=table):
            for severity in severities:
                yield Cell(group, name, severity, "shift")


def _positions(images: Images, limit: int | None) -> Tensor:
    return torch.arange(len(images)) if limit is None else limited_positions(images, limit, seed=0)


@dataclass(frozen=True, kw_only=True)
class StreamedCell(CellImages):
    """A cell whose images are decoded when they are asked for, so that memory does not grow with their number.

    listing: where the pictures are; `index` are rows of it, in ascending order. options: with a size. corrupt: from
    decoded images and their rows to those of the cell, None where it has the images as they are. left_out gathers the
    rows of images that could not be read: they come out of no part. With `options.strict` they raise InputError, as
    does a cell of which none can be read.
    """

    listing: Listing
    options: Options
    corrupt: Callable[[Tensor, Tensor], Tensor] | None = None
    left_out: set[int] = field(default_factory=set)

    def parts(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        stream = iter(self.listing.pictures(self.index.numpy()))
        readable = 0
        for positions in torch.arange(len(self)).split(size):
            kept, images = self.decoded(positions, islice(stream, len(positions)))
            readable += len(kept)
            if len(kept):
                yield kept, images
        if not readable:
            raise InputError(f"{self.cell.name}: none of the {len(self):,} images is readable.")

    def decoded(self, positions: Tensor, sources: Iterable[Source]) -> tuple[Tensor, Tensor]:
        """Those of `positions` that can be read (int64 [M]), and their images (uint8 [M, H, W, 3])."""
        rows, side = self.index[positions], self.options.size
        assert side is not None
        images = np.empty((len(rows), side, side, 3), np.uint8)
        kept: list[int] = []
        with warnings.catch_warnings(), closing(pictures(sources, self.options)) as results:
            warnings.simplefilter("ignore")  # broken metadata of sound pictures
            for number, (picture, _) in enumerate(results):
                if not isinstance(picture, Failure):
                    images[len(kept)] = picture
                    kept.append(number)
                elif self.options.strict:
                    name = self.listing.called(int(rows[number]))
                    raise InputError(f"{name} is not a readable image ({picture.reason}).")
                else:
                    self.left_out.add(int(rows[number]))
        readable = torch.from_numpy(images[: len(kept)])
        if kept and self.corrupt is not None:
            readable = self.corrupt(readable, rows[kept])
        return positions[kept], readable


def streamed(
    cell: Cell,
    listing: Listing,
    labels: Tensor,
    index: Tensor,
    options: Options,
    *,
    corrupt: Callable[[Tensor, Tensor], Tensor] | None = None,
    source: str | None = None,
) -> StreamedCell:
    """The rows `index` (int64, ascending) of `listing`, with `labels` (int64, one each), as a cell."""

    def take(positions: Tensor) -> Tensor:
        ascending = positions.sort().values
        kept, images = streamed_cell.decoded(ascending, listing.pictures(index[ascending].numpy()))
        found = {position: number for number, position in enumerate(kept.tolist())}
        wanted = [found[position] for position in positions.tolist() if position in found]
        return images[torch.tensor(wanted, dtype=torch.int64)]

    streamed_cell = StreamedCell(cell, labels, index, take, source, listing=listing, options=options, corrupt=corrupt)
    return streamed_cell


def corrupting(name: str, severity: int, *, exact: bool = True) -> Callable[[Tensor, Tensor], Tensor]:
    """From images and their rows to the same images corrupted, each by its row."""

    def corrupt(images: Tensor, rows: Tensor) -> Tensor:
        return corruptions.corrupt(images, name, severity, seed=CORRUPTION_SEED, index=rows.numpy(), exact=exact)

    return corrupt
