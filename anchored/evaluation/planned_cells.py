"""The cells of an evaluation before their images are made: how many there are, and how to have them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from anchored import corruptions
from anchored.data import photos
from anchored.data.base import Data, ImageSet, Options
from anchored.data.decode import fit_arrays
from anchored.data.listings import decode_rows, limited_rows
from anchored.evaluation.benchmarks import SUITE_NAMES, Benchmark
from anchored.evaluation.cell_images import CellImages, corrupted_cells, corrupting, plain, streamed
from anchored.evaluation.rows import Cell
from anchored.evaluation.settings import EvaluationSettings
from anchored.system.errors import InputError

IN_MEMORY = 2**30  # bytes of images that are decoded once and kept, for the corruptions made of them


@dataclass(frozen=True)
class PlannedCell:
    """A cell to be evaluated, of `benchmark`: `make()` gives its images, `count` is how many they are.

    source: where corrupted images come from, for the record.
    """

    cell: Cell
    count: int
    benchmark: Benchmark
    make: Callable[[], CellImages]
    source: str | None = None


def plan_cells(
    settings: EvaluationSettings, benchmarks: Sequence[Benchmark], size: int, interpolation: str, crop: float
) -> list[PlannedCell]:
    """The cells for models that take images of `size` pixels: clean, corruptions, shifts, anomalies.

    benchmarks: those of the settings, the clean test set first. interpolation, crop: as of `Options`. Raises InputError
    for a benchmark without an image of the models' classes.
    """
    options = Options(size, 0, settings.root, interpolation, crop, settings.strict)
    found: list[PlannedCell] = []
    for benchmark in benchmarks:
        if benchmark.archive is not None:
            found += _stored(settings, benchmark, size, interpolation)
            continue
        listing = benchmark.listing
        labels = listing.labels
        if listing.classes:
            labels = benchmark.scored.relabelled(labels, len(listing.classes))
        rows = limited_rows(listing, settings.limit, labels)
        if not len(rows):
            raise InputError(f"{benchmark.name}: there is no image of a class that the models have.")
        cell = Cell(benchmark.name, kind=benchmark.kind)
        make = partial(streamed, cell, listing, labels[rows], rows, options)
        found.append(PlannedCell(cell, len(rows), benchmark, make))
        if benchmark.kind == "id":
            found += _generated(settings, benchmark, labels, rows, options)
    if "photos" in settings.anomalies:
        found.append(_photos(benchmarks[0], size, settings.limit))
    return found


def _photos(clean: Benchmark, size: int, limit: int | None) -> PlannedCell:
    """Crops of photographs, which are anomalies for most data sets."""
    no_images = ImageSet(torch.zeros((0, 1, 1, 3), dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))
    crops = photos.load(Data(clean.listing.name, no_images, no_images, ()), size)
    cell = Cell("photos", kind="anomaly")
    benchmark = Benchmark("photos", "anomaly", clean.listing, clean.scored)
    return PlannedCell(cell, min(len(crops), limit or len(crops)), benchmark, partial(plain, cell, crops, limit))


def _generated(
    settings: EvaluationSettings, clean: Benchmark, labels: Tensor, rows: Tensor, options: Options
) -> Iterator[PlannedCell]:
    """The corruptions made of the clean images at `rows`: these are decoded once if they fit into memory."""
    side = options.size or 0

    @functools.cache
    def decoded() -> tuple[ImageSet, Tensor]:
        return decode_rows(clean.listing, rows, options)

    def make(cell: Cell) -> CellImages:
        assert cell.corruption is not None and cell.severity is not None
        corrupt = corrupting(cell.corruption, cell.severity)
        source = corruptions.source(cell.corruption)
        if len(rows) * side * side * 3 > IN_MEMORY:
            return streamed(cell, clean.listing, labels[rows], rows, options, corrupt=corrupt, source=source)
        images, readable = decoded()

        def take(positions: Tensor) -> Tensor:
            return corrupt(images.images[positions], readable[positions])

        return CellImages(cell, labels[readable], readable, take, source)

    for cell in corrupted_cells(settings.on, settings.severities, side):
        yield PlannedCell(cell, len(rows), clean, partial(make, cell), corruptions.source(str(cell.corruption)))


def _stored(settings: EvaluationSettings, benchmark: Benchmark, size: int, interpolation: str) -> Iterator[PlannedCell]:
    """The cells of corrupted images on disk: never resized where they have the size, else straight to it."""
    archive = benchmark.archive
    assert archive is not None
    straight = Options(size, interpolation=interpolation)
    height, width = archive.cell(archive.names[0], archive.severities[0]).load(part=slice(0, 1)).images.shape[1:3]
    stored = f"{height}" if height == width else f"{height} x {width}"
    source = f"{archive.source}, on disk" + ("" if (height, width) == (size, size) else f", resized from {stored} px")

    def make(cell: Cell, rows: Tensor, labels: Tensor) -> CellImages:
        stored = archive.cell(str(cell.corruption), int(cell.severity or 0))

        def take(positions: Tensor) -> Tensor:
            images = stored.load(part=rows[positions]).images
            return fit_arrays(images.numpy(), straight, name=cell.name).images

        return CellImages(cell, labels[rows], stored.index[rows], take, source)

    for name in archive.names:
        if name not in SUITE_NAMES[benchmark.name]:
            continue
        for severity in settings.severities:
            if severity not in archive.severities:
                continue
            cell = Cell(benchmark.name, name, severity, "shift")
            stored_labels = archive.cell(name, severity).labels
            labels = benchmark.scored.relabelled(stored_labels, len(benchmark.listing.classes))
            rows = limited_rows(benchmark.listing, settings.limit, labels)
            yield PlannedCell(cell, len(rows), benchmark, partial(make, cell, rows, labels), source)
