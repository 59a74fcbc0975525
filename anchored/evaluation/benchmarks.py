"""The settings of an evaluation, and the cells they make."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import anchored.data as sources
from anchored import corruptions
from anchored.corruptions import readers
from anchored.data import photos
from anchored.data import published as named
from anchored.data.base import Data, ImageSet, Listing, Options
from anchored.data.checks import check_range, some
from anchored.data.class_maps import Target, match, read_mapping, target
from anchored.data.decode import fit_arrays
from anchored.data.test_listings import held, joined, rows_of, whole
from anchored.evaluation import cell_images as cells
from anchored.evaluation.cell_images import CellImages, streamed
from anchored.evaluation.evaluated_models import Candidate, Input
from anchored.evaluation.rows import Cell
from anchored.system.errors import InputError, unknown

PARTS = ("test", "all")
SETS = ("folder:PATH", "parquet:PATH", "npz:PATH")
OFFICIAL = ("c", "c-bar")
SUITE_NAMES = {
    "c": corruptions.suite("c"),
    "c-bar": tuple(
        dict.fromkeys(corruptions.suite("c-bar", table="cifar") + corruptions.suite("c-bar", table="imagenet"))
    ),
}
HELD = 2**30  # bytes of images that are decoded once and kept, for the corruptions made of them


@dataclass(frozen=True)
class Assessment:
    """The settings of one evaluation; see `anchored evaluate --help` for their meaning."""

    models: tuple[str, ...]
    data: str | None = None
    weights: tuple[str, ...] = ("default",)
    on: tuple[str, ...] = ("clean",)
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    anomalies: tuple[str, ...] = ()
    part: str = "test"
    limit: int | None = None
    protocol: str = "one_random"
    k: int = 10
    seed: int = 0
    root: str | None = None
    classes: str | None = None
    exclude_classes: tuple[str, ...] = ()
    baseline: str | None = None
    input: Input = field(default_factory=Input)
    strict: bool = False

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("evaluate takes at least one run or model; got none.")
        for name in ("on", "severities", "anomalies"):
            values = getattr(self, name)
            if len(set(values)) != len(values) or (name != "anomalies" and not values):
                raise InputError(f"{name} takes different values; got {list(values)}.")
        for severity in self.severities:
            if severity not in range(1, 6):
                raise InputError(f"severities are 1 to 5; got {severity}.")
        for name in ("limit", "k"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name} is at least 1; got {value}.")
        if self.part not in PARTS:
            raise unknown("part of the data", self.part, PARTS)
        for benchmark in self.on:
            kind, _, path = benchmark.partition(":")
            known = [*corruptions.SUITES, *corruptions.NAMES, *named.SHIFTS]
            if not (
                benchmark == "clean" or benchmark in known or (kind in (*OFFICIAL, "folder", "parquet", "npz") and path)
            ):
                raise unknown("benchmark", benchmark, ["clean", *known, "c:PATH", "c-bar:PATH", *SETS])


@dataclass(frozen=True)
class TestSet:
    """A test set: what it is called, its images, and the classes it is scored in (anomalies: those of `clean`).

    archive: corrupted images on disk, where that is what it is; `listing` is then that of the clean images.
    """

    __test__ = False  # none of pytest's

    benchmark: str
    kind: str
    listing: Listing
    target: Target
    archive: readers.Archive | None = None


@dataclass(frozen=True)
class Planned:
    """A cell to be evaluated: how many images it has, the set it belongs to, how to have them, and their source."""

    cell: Cell
    count: int
    of: TestSet
    make: Callable[[], CellImages]
    source: str | None = None


def clean_listing(settings: Assessment, name: str) -> Listing:
    """The test part of the data set `name`, or all of it where the settings say so."""
    test = sources.listing(name, part="test", root=settings.root)
    if settings.part == "test":
        return test
    return joined([sources.listing(name, part="train", root=settings.root), test])


def test_sets(settings: Assessment, clean: Listing, candidates: Sequence[Candidate], notes: list[str]) -> list[TestSet]:
    """The clean test set, the shifts and the anomalies of the settings, each with the classes it is scored in."""
    models = {candidate.name: candidate.classes for candidate in candidates}
    given = read_mapping(Path(settings.classes)) if settings.classes else {}

    def add(benchmark: str, kind: str, listing: Listing, **more: Any) -> None:
        chosen = found[0].target if kind == "anomaly" else aim(benchmark, listing, **more)
        notes.extend(f"{benchmark}: {note}" for note in (*listing.notes, *([chosen.note] if chosen.note else [])))
        if any(benchmark == other.benchmark for other in found):
            raise InputError(f"two test sets are called {benchmark}; give their files or folders different names.")
        found.append(TestSet(benchmark, kind, listing, chosen))

    def aim(
        what: str, listing: Listing, mapping: Mapping[str, Sequence[str]] | None = None, numbered: bool = False
    ) -> Target:
        if not listing.classes:
            raise InputError(f"{what}: its images are in no class folders, so they have no labels.")
        return target(what, listing.classes, models, given={**(mapping or {}), **given}, numbered=numbered)

    found: list[TestSet] = []
    add("clean", "id", clean)
    for benchmark in settings.on:
        kind, _, path = benchmark.partition(":")
        if benchmark in named.SHIFTS:
            there = named.shift(benchmark, settings.root)
            add(benchmark, "shift", there.listing, mapping=there.mapping, numbered=there.numbered)
        elif kind in ("folder", "parquet", "npz"):
            listing = whole(benchmark, root=settings.root)
            add(listing.name, "shift", listing)
        elif kind in OFFICIAL and path:
            found.append(_official(kind, path, clean, found[0].target, settings.strict, notes))
    unused = set(settings.exclude_classes) - {"known", "none"}
    for spec in settings.anomalies:
        if spec == "photos":
            continue
        listing = named.anomalies(spec, settings.root) if spec in named.ANOMALIES else whole(spec, root=settings.root)
        unused -= set(listing.classes)
        add(listing.name, "anomaly", _without_known(listing, settings, models, notes))
    if unused:
        raise InputError(f"--exclude-classes: no anomaly set has a class {some(sorted(unused))}.")
    return found


def _without_known(
    listing: Listing, settings: Assessment, models: Mapping[str, Sequence[str]], notes: list[str]
) -> Listing:
    """The anomalies as images of no class, without those of excluded classes.

    Raises InputError where a class is one of the models' own and the settings do not say what to do with it.
    """
    excluded = set(settings.exclude_classes)
    named_classes = [name for name in listing.classes if not name.isdecimal()]
    known = {
        name
        for classes in models.values()
        for name, columns in zip(named_classes, match(named_classes, classes), strict=True)
        if columns
    }
    if "known" in excluded:
        excluded |= known
    elif known - excluded and "none" not in excluded:
        raise InputError(
            f"{listing.name}: anomalies belong to no known class, but {len(known - excluded)} of its classes are "
            f"classes of the models: {some(sorted(known - excluded))}. --exclude-classes known leaves them out, names "
            "leave out those, none keeps them."
        )
    gone = [number for number, name in enumerate(listing.classes) if name in excluded]
    if gone:
        notes.append(f"{listing.name}: classes left out: {', '.join(listing.classes[number] for number in gone)}")
    kept = ~torch.isin(listing.labels, torch.tensor(gone, dtype=torch.int64))
    rows = kept.nonzero()[:, 0].numpy()
    if not len(rows):
        raise InputError(f"{listing.name}: an anomaly set needs at least one image; all are of excluded classes.")
    return dataclasses.replace(
        listing,
        labels=no_labels(len(rows)),
        classes=(),
        pictures=lambda wanted: listing.pictures(rows[wanted]),
        called=lambda row: listing.called(int(rows[row])),
    )


def _official(kind: str, path: str, clean: Listing, chosen: Target, strict: bool, notes: list[str]) -> TestSet:
    """Corrupted images on disk, of the classes and in the order of the clean test set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its notes say the same
        archive = readers.read_archive(path, classes=clean.classes, strict=strict)
    notes.extend(f"{kind}: {note}" for note in archive.notes)
    if not set(archive.names) & set(SUITE_NAMES[kind]):
        raise InputError(f"{kind}:{path} has no corruption of {kind}; it has {', '.join(archive.names)}.")
    first = archive.cell(archive.names[0], archive.severities[0])
    check_range(f"{kind}:{path}", first.labels, clean.classes)
    if len(first.labels) != len(clean.labels) or not torch.equal(first.labels, clean.labels[first.index]):
        notes.append(f"{kind}: its labels are not those of the clean test set in its order, so images are not paired")
    return TestSet(kind, "shift", clean, chosen, archive)


def planned(settings: Assessment, sets: Sequence[TestSet], size: int, interpolation: str, crop: float) -> list[Planned]:
    """The cells for models that take images of `size` pixels: clean, shifts, corruptions, anomalies."""
    options = Options(size, 0, settings.root, interpolation, crop, settings.strict)
    found: list[Planned] = []
    for one in sets:
        if one.archive is not None:
            found += _stored(settings, one, size, interpolation)
            continue
        labels = (
            one.target.labels(one.listing.labels, len(one.listing.classes))
            if one.listing.classes
            else one.listing.labels
        )
        rows = rows_of(one.listing, settings.limit, labels)
        if not len(rows):
            raise InputError(f"{one.benchmark}: there is no image of a class that the models have.")
        cell = Cell(one.benchmark, kind=one.kind)
        found.append(Planned(cell, len(rows), one, partial(streamed, cell, one.listing, labels[rows], rows, options)))
        if one.kind == "id":
            found += _generated(settings, one, labels, rows, options)
    if "photos" in settings.anomalies:
        nothing = ImageSet(torch.zeros((0, 1, 1, 3), dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))
        crops = photos.load(Data(sets[0].listing.name, nothing, nothing, ()), size)
        cell = Cell("photos", kind="anomaly")
        one = TestSet("photos", "anomaly", sets[0].listing, sets[0].target)
        count = min(len(crops), settings.limit or len(crops))
        found.append(Planned(cell, count, one, partial(cells.plain, cell, crops, settings.limit)))
    return found


def _generated(settings: Assessment, one: TestSet, labels: Tensor, rows: Tensor, options: Options) -> Iterator[Planned]:
    """The corruptions made of the clean images: these are decoded once if they fit into memory."""
    side = options.size or 0
    memory: dict[str, Any] = {}

    def make(cell: Cell) -> CellImages:
        assert cell.corruption is not None and cell.severity is not None
        change = cells.change(cell.corruption, cell.severity)
        source = corruptions.source(cell.corruption)
        if len(rows) * side * side * 3 > HELD:
            return streamed(cell, one.listing, labels[rows], rows, options, change=change, source=source)
        if "images" not in memory:
            memory["images"], memory["rows"], _ = held(one.listing, rows, options)
        images, kept = memory["images"], memory["rows"]
        return CellImages(
            cell, labels[kept], kept, lambda positions: change(images.images[positions], kept[positions]), source
        )

    for cell in cells.corrupted_cells(settings.on, settings.severities, side):
        yield Planned(cell, len(rows), one, partial(make, cell), corruptions.source(str(cell.corruption)))


def _stored(settings: Assessment, one: TestSet, size: int, interpolation: str) -> Iterator[Planned]:
    """The cells of corrupted images on disk: never resized where they have the size, else straight to it."""
    archive = one.archive
    assert archive is not None
    straight = Options(size, interpolation=interpolation)

    stored = archive.cell(archive.names[0], archive.severities[0]).load(part=slice(0, 1)).images.shape[1]
    source = f"{archive.source}, on disk" + ("" if stored == size else f", resized from {stored} px")

    def make(cell: Cell, rows: Tensor, labels: Tensor) -> CellImages:
        there = archive.cell(str(cell.corruption), int(cell.severity or 0))

        def take(positions: Tensor) -> Tensor:
            images = there.load(part=rows[positions]).images
            return fit_arrays(images.numpy(), straight, name=cell.name).images

        return CellImages(cell, labels[rows], there.index[rows], take, source)

    for name in archive.names:
        if name not in SUITE_NAMES[one.benchmark]:
            continue
        for severity in settings.severities:
            if severity not in archive.severities:
                continue
            cell = Cell(one.benchmark, name, severity, "shift")
            labels = one.target.labels(archive.cell(name, severity).labels, len(one.listing.classes))
            rows = rows_of(one.listing, settings.limit, labels)
            yield Planned(cell, len(rows), one, partial(make, cell, rows, labels), source)


def no_labels(count: int) -> Tensor:
    """int64 [count] of -1: images of no known class."""
    return torch.full((count,), -1, dtype=torch.int64)
