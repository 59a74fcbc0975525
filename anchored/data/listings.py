"""Listings of whole test sets: all the images of a folder, file or array, found and not yet decoded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import anchored.data as sources
from anchored.data import csv, folder, hf, npz, parquet
from anchored.data.base import TEST_WORDS, TRAIN_WORDS, ImageSet, Listing, Options, place, title
from anchored.data.checks import check_range, integer_labels, some
from anchored.data.decode import Source, decode
from anchored.data.splits import limit_labels
from anchored.system.errors import InputError

LISTED = {"parquet": parquet.whole, "npz": npz.whole, "hf": hf.whole, "csv": csv.whole}


def whole_listing(spec: str, *, root: str | None = None) -> Listing:
    """Every image of the test set `spec` (folder:, parquet:, npz: or hf:PATH, csv:FILE, or a data set by name).

    Where a folder or file has a test part (test/, val/, x_test), that part; of a data set by name its test part. A
    single class is enough, and images in no class folder are allowed: then there are no classes and labels are -1.
    Raises InputError where there is nothing to read.
    """
    kind, _, path = spec.partition(":")
    if kind == "folder" and path:
        return folder_listing(place(path), spec)
    if kind in LISTED and path:
        return LISTED[kind](path)
    if spec == "photos":
        raise InputError("photos are crops for images of one size and no data source; they go to --anomalies.")
    return sources.listing(spec, part="test", root=root)


def folder_listing(root: Path, where: str, *, name: str | None = None) -> Listing:
    """The images below `root`: one folder a class, or without folders images of no class."""
    if not root.is_dir():
        raise InputError(f"{where}: there is no such folder.")
    classes = _folders(root)
    parts = {entry.name.lower(): entry for entry in classes}
    if parts and set(parts) <= {*TRAIN_WORDS, *TEST_WORDS[0], *TEST_WORDS[1]}:
        inner = next((parts[word] for words in TEST_WORDS for word in words if word in parts), None)
        if inner is not None:
            return folder_listing(inner, where, name=name or title(str(root)))
    files: list[Path] = []
    labels: list[int] = []
    for label, entry in enumerate(classes):
        here = [file for file in folder._walk(entry) if file.suffix.lower() in folder.SUFFIXES]
        files += here
        labels += [label] * len(here)
    loose = sorted(entry for entry in root.iterdir() if entry.is_file() and entry.suffix.lower() in folder.SUFFIXES)
    if not files:
        files, labels, classes = loose, [-1] * len(loose), []
        loose = []
    if not files:
        raise InputError(f"{where}: there are no images in it ({', '.join(folder.SUFFIXES)}).")
    empty = [entry.name for number, entry in enumerate(classes) if number not in set(labels)]
    notes = [f"no images of class {some(empty)}"] if empty else []
    notes += [f"images in no class folder, left out: {len(loose):,}"] if loose else []
    relative = [file.relative_to(root).as_posix() for file in files]
    return Listing(
        name or title(str(root)),
        torch.tensor(labels, dtype=torch.int64),
        tuple(entry.name for entry in classes),
        f"all {len(files):,} images, sha256 of their names {names_digest(relative)}",
        tuple(notes),
        pictures=lambda rows: (files[row] for row in rows.tolist()),
        called=relative.__getitem__,
    )


def array_listing(name: str, images: NDArray[np.uint8], labels: NDArray[np.generic], classes: Sequence[str]) -> Listing:
    """Images uint8 [N, H, W, 3], which may be mapped from disk, and their labels [N] as a listing.

    Raises InputError for other images and for labels outside [0, classes).
    """
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise InputError(f"{name}: images are uint8 [N, H, W, 3]; got {images.dtype} {list(images.shape)}.")
    numbers = integer_labels(np.asarray(labels), len(images), name)
    check_range(name, numbers, classes)
    return Listing(
        name,
        numbers,
        tuple(classes),
        f"all {len(images):,} images",
        (),
        pictures=lambda rows: (np.asarray(images[row]) for row in rows.tolist()),
        called=lambda row: f"{name} image {row}",
    )


def concatenated(parts: Sequence[Listing]) -> Listing:
    """Several listings of the same classes one after another."""
    ends = list(accumulate(map(len, parts)))
    starts = [0, *ends]

    def pictures(rows: NDArray[np.int64]) -> Iterator[Source]:
        for part, start, end in zip(parts, starts, ends, strict=False):
            here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, end)] - start
            if len(here):
                yield from part.pictures(here)

    def called(row: int) -> str:
        number = next(number for number, end in enumerate(ends) if row < end)
        return parts[number].called(row - starts[number])

    first = parts[0]
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return Listing(
        first.name,
        torch.cat([part.labels for part in parts]),
        first.classes,
        f"all {ends[-1]:,} images",
        notes,
        pictures=pictures,
        called=called,
    )


def names_digest(names: Sequence[str]) -> str:
    """What tells one list of files from another: the first 16 digits of the SHA-256 of their sorted names."""
    return hashlib.sha256("\n".join(sorted(names)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _folders(root: Path) -> list[Path]:
    seen = (entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return sorted((entry for entry in seen if entry.name.lower() not in folder.JUNK), key=lambda entry: entry.name)


def limited_rows(listing: Listing, limit: int | None, labels: torch.Tensor) -> torch.Tensor:
    """The rows of a listing that are evaluated: at most `limit`, seeded and stratified; int64, ascending.

    labels: int64 [N], one a row; rows below 0 are in no class and left out. A listing without classes gives all its
    rows, or as many at random. Raises InputError for a limit below 1.
    """
    rows = (labels >= 0).nonzero()[:, 0] if listing.classes else torch.arange(len(listing))
    if limit is None or limit >= len(rows):
        return rows
    return rows[limit_labels(labels[rows], limit, seed=0)]


def decode_rows(listing: Listing, rows: torch.Tensor, options: Options) -> tuple[ImageSet, torch.Tensor]:
    """The images at `rows` (int64, ascending) in memory, and the rows of those that could be read.

    Raises InputError where none can be, and with `options.strict` where one cannot.
    """
    decoded = decode(
        listing.pictures(rows.numpy()), len(rows), options, name=lambda number: listing.called(int(rows[number]))
    )
    readable = rows[decoded.kept]
    return ImageSet(decoded.images, listing.labels[readable]), readable
