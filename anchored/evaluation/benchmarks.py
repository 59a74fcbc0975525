"""The benchmarks of an evaluation: its clean test set, shifts and anomalies, and the classes each is scored in."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import anchored.data as sources
from anchored import corruptions
from anchored.corruptions import readers
from anchored.data import published
from anchored.data.base import Listing
from anchored.data.checks import check_range, some
from anchored.data.class_maps import ScoredClasses, matching_outputs, read_class_mapping, scored_classes
from anchored.data.listings import concatenated, whole_listing
from anchored.evaluation.evaluated_models import EvaluatedModel
from anchored.evaluation.settings import SOURCES, STORED_SUITES, EvaluationSettings
from anchored.system.errors import InputError

SUITE_NAMES = {
    "c": corruptions.suite("c"),
    "c-bar": tuple(
        dict.fromkeys(corruptions.suite("c-bar", table="cifar") + corruptions.suite("c-bar", table="imagenet"))
    ),
}


@dataclass(frozen=True)
class Benchmark:
    """A set of images that models are evaluated on, and the classes it is scored in (anomalies: those of `clean`).

    kind: "id", "shift" or "anomaly", as of `Cell`. archive: corrupted images on disk, where that is what it is;
    `listing` is then that of the clean images.
    """

    name: str
    kind: str
    listing: Listing
    scored: ScoredClasses
    archive: readers.Archive | None = None


def clean_listing(settings: EvaluationSettings, test: Listing) -> Listing:
    """The clean images: the test part of `settings.data`, or all of the data where the settings say so."""
    if settings.part == "test":
        return test
    assert settings.data is not None
    return concatenated([sources.listing(settings.data, part="train", root=settings.root), test])


def find_benchmarks(
    settings: EvaluationSettings, clean: Listing, models: Sequence[EvaluatedModel], notes: list[str]
) -> list[Benchmark]:
    """The clean test set, the shifts and the anomalies of the settings, each with the classes it is scored in.

    What a reader of the results must know of them is added to `notes`. Raises InputError for a set that is not there,
    has no labels, or shares no classes with the models, and for anomalies of a class that a model knows.
    """
    classes = {model.name: model.classes for model in models}
    mapping = read_class_mapping(Path(settings.classes)) if settings.classes else {}
    found: list[Benchmark] = []

    def add(name: str, kind: str, listing: Listing, scored: ScoredClasses) -> None:
        notes.extend(f"{name}: {note}" for note in (*listing.notes, *([scored.note] if scored.note else [])))
        if any(name == other.name for other in found):
            raise InputError(f"two test sets are called {name}; give their files or folders different names.")
        found.append(Benchmark(name, kind, listing, scored))

    def labelled(
        name: str, listing: Listing, own_mapping: Mapping[str, Sequence[str]] | None = None, numbered: bool = False
    ) -> ScoredClasses:
        if not listing.classes:
            raise InputError(
                f"{name}: its images have no labels: they are in no class folders, or have no column of labels."
            )
        given = {**(own_mapping or {}), **mapping}
        return scored_classes(name, listing.classes, classes, given=given, numbered=numbered)

    add("clean", "id", clean, labelled("clean", clean))
    for name in settings.on:
        kind, _, path = name.partition(":")
        if name in published.SHIFTS:
            shift = published.shift(name, settings.root)
            add(name, "shift", shift.listing, labelled(name, shift.listing, shift.mapping, shift.numbered))
        elif kind in SOURCES:
            listing = whole_listing(name, root=settings.root)
            add(listing.name, "shift", listing, labelled(listing.name, listing))
        elif kind in STORED_SUITES and path:
            found.append(_stored_corruptions(kind, path, found[0], settings.strict, notes))
    for listing in _anomalies(settings, classes, notes):
        add(listing.name, "anomaly", listing, found[0].scored)
    return found


def _anomalies(settings: EvaluationSettings, models: Mapping[str, Sequence[str]], notes: list[str]) -> list[Listing]:
    """The anomaly sets that are listings; `photos` are cut from the size of the models' images instead."""
    found = []
    not_there = set(settings.exclude_classes) - {"known", "none"}
    for spec in settings.anomalies:
        if spec == "photos":
            continue
        named = spec in published.ANOMALIES
        listing = published.anomalies(spec, settings.root) if named else whole_listing(spec, root=settings.root)
        not_there -= set(listing.classes)
        found.append(_without_known_classes(listing, settings, models, notes))
    if not_there:
        raise InputError(f"--exclude-classes: no anomaly set has a class {some(sorted(not_there))}.")
    return found


def _without_known_classes(
    listing: Listing, settings: EvaluationSettings, models: Mapping[str, Sequence[str]], notes: list[str]
) -> Listing:
    """The anomalies as images of no class, without those of excluded classes.

    Raises InputError where a class is one of the models' own and the settings do not say what to do with it.
    """
    excluded = set(settings.exclude_classes)
    class_names = [name for name in listing.classes if not name.isdecimal()]
    known = {
        name
        for classes in models.values()
        for name, outputs in zip(class_names, matching_outputs(class_names, classes), strict=True)
        if outputs
    }
    if "known" in excluded:
        excluded |= known
    elif known - excluded and "none" not in excluded:
        raise InputError(
            f"{listing.name}: anomalies belong to no known class, but {len(known - excluded)} of its classes are "
            f"classes of the models: {some(sorted(known - excluded))}. --exclude-classes known leaves them out, names "
            "leave out those, none keeps them."
        )
    left_out = [number for number, name in enumerate(listing.classes) if name in excluded]
    if left_out:
        names = ", ".join(listing.classes[number] for number in left_out)
        notes.append(f"{listing.name}: classes left out: {names}")
    kept = ~torch.isin(listing.labels, torch.tensor(left_out, dtype=torch.int64))
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


def _stored_corruptions(suite: str, path: str, clean: Benchmark, strict: bool, notes: list[str]) -> Benchmark:
    """Corrupted images on disk, of the classes and in the order of the clean test set."""
    listing = clean.listing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its notes say the same
        archive = readers.read_archive(path, classes=listing.classes, strict=strict)
    notes.extend(f"{suite}: {note}" for note in archive.notes)
    if not set(archive.names) & set(SUITE_NAMES[suite]):
        raise InputError(f"{suite}:{path} has no corruption of {suite}; it has {', '.join(archive.names)}.")
    first = archive.cell(archive.names[0], archive.severities[0])
    check_range(f"{suite}:{path}", first.labels, listing.classes)
    if len(first.labels) != len(listing.labels) or not torch.equal(first.labels, listing.labels[first.index]):
        notes.append(f"{suite}: its labels are not those of the clean test set in its order, so images are not paired")
    return Benchmark(suite, "shift", listing, clean.scored, archive)


def no_labels(count: int) -> Tensor:
    """int64 [count] of -1: images of no known class."""
    return torch.full((count,), -1, dtype=torch.int64)
