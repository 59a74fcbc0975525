"""parquet:PATH: Hugging Face's image-classification layout, a folder with train and test files or two files."""

from __future__ import annotations

import bisect
import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import Tensor

from anchored.data.base import TEST_WORDS, TRAIN_WORDS, Data, Listing, Options, pair_title, place, title, unused
from anchored.data.checks import decoded, same_classes
from anchored.data.decode import Decoded, decode
from anchored.data.labels import Labels, alone, from_arrow, is_label_type, joined, numbered, unknown_labels
from anchored.system.errors import InputError

SPEC = "parquet:PATH"
IMAGE_COLUMNS = ("image", "img", "images")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class")
BATCH = 256  # rows in memory at a time


def load(path: str, options: Options) -> Data:
    """Train and test from the parquet file(s) at `path`; where there is no test file, 20 % of the training images.

    Raises InputError for files, columns, labels and pictures that do not follow the layout.
    """
    return decoded(f"parquet:{path}", listings(path, options), options)


def listings(path: str, options: Options) -> tuple[Listing, Listing]:
    """Training and test part as `load` has them, not decoded. Raises InputError as it does."""
    where = f"parquet:{path}"
    train_files, test_files, how = find(path)
    train_labels, names = _labels(train_files, where)
    test_labels = None
    if test_files:
        test_labels, test_names = _labels(test_files, where)
        names = same_classes(where, names, test_names)
    found = numbered(where, train_labels, test_labels, names, options.seed)
    if found.made:
        test_files, how = train_files, f"stratified 80 / 20 of {how}, seed {options.seed}"
    notes = () if found.made else _unused(path, [*train_files, *test_files])
    name = f"parquet:{pair_title(path, train_files[0], test_files[0])}"

    def part(files: list[Path], rows: NDArray[np.int64], labels: Tensor) -> Listing:
        return Listing(
            name,
            labels,
            found.classes,
            how,
            (*notes, *found.notes),
            pictures=lambda wanted: _pictures(files, rows[wanted]),
            called=_namer(files, rows),
        )

    return part(train_files, found.train_rows, found.train), part(test_files, found.test_rows, found.test)


def load_unlabelled(path: str, options: Options) -> Decoded:
    """The images of the test part, or of everything where there is none; labels are not looked at."""
    train_files, test_files, _ = find(path)
    files = test_files or train_files
    rows = np.arange(sum(_rows(files)))
    return decode(_pictures(files, rows), len(rows), options, name=_namer(files, rows))


def find(path: str) -> tuple[list[Path], list[Path], str]:
    """(training files, test files or none, the choice in words). Raises InputError where there is nothing to choose."""
    parts = [place(path)] if os.path.exists(place(path)) else [place(part) for part in path.split(",")]
    for part in parts:
        if not os.path.exists(part):
            raise InputError(f"parquet:{path}: there is no file or folder {part}.")
    if len(parts) > 2:
        raise InputError(f"parquet:{path}: at most two files, train.parquet,test.parquet; got {len(parts)}.")
    if len(parts) == 2:
        train, test = (_shards(part) for part in parts)
        return train, test, f"as given (train {parts[0].stem}, test {parts[1].stem})"
    root = parts[0]
    files = _shards(root)
    if root.is_file():
        return files, [], root.name

    def having(words: tuple[str, ...]) -> list[Path]:
        return [file for file in files if set(words) & set(re.split("[^a-z]+", _relative(file, root).lower()))]

    train = having(TRAIN_WORDS)
    tests = [[file for file in having(words) if file not in train] for words in TEST_WORDS]
    test = next(filter(None, tests), [])
    if train:
        if not test:
            return train, [], _count(train, root)
        return train, test, f"as given (train {_count(train, root)}, test {_count(test, root)})"
    if test and len(test) < len(files):
        names = ", ".join(_relative(file, root) for file in files[:5])
        raise InputError(
            f"parquet:{path}: a folder has files with train and with test in their names; found {names}. "
            "Or pass two files, parquet:TRAIN,TEST."
        )
    return files, [], _count(files, root)


def _unused(path: str, used: list[Path]) -> tuple[str, ...]:
    """The note of files beside those of train and test."""
    root = place(path)
    others = [_relative(file, root) for file in _shards(root) if file not in used] if root.is_dir() else []
    return unused([*others[:4], *([f"{len(others) - 4} more files"] if len(others) > 4 else [])])


def _shards(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    for pattern in ("*.parquet", "data/*.parquet", "*/*.parquet"):
        files = sorted(root.glob(pattern))
        if files:
            return files
    raise InputError(f"parquet:{root}: the folder has no .parquet file.")


def _relative(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()


def _count(files: list[Path], root: Path) -> str:
    names = [_relative(file, root) for file in files]
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]} ({len(names)} files)"


def _labels(files: list[Path], where: str) -> tuple[Labels, tuple[str, ...] | None]:
    """The labels of all rows and the class names, if the files state them."""
    parts, names = [], None
    for file in files:
        with _open(file) as opened:
            column = _column(opened, LABEL_COLUMNS, "label", file)
            try:
                values = opened.read(columns=[column]).column(column)
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"{file} is damaged: {error}") from error
            names = same_classes(where, names, _class_names(opened, column))
        parts.append((from_arrow(values, column, str(file)), file.name))
    return joined(parts, where), names


def _class_names(file: pq.ParquetFile, column: str) -> tuple[str, ...] | None:
    metadata = file.schema_arrow.metadata or {}
    try:
        names = json.loads(metadata[b"huggingface"])["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError):  # not written by `datasets`, or a column that is no ClassLabel
        return None
    return tuple(map(str, names)) if names else None


def _rows(files: list[Path]) -> list[int]:
    """How many rows each file has."""
    counts = []
    for file in files:
        with _open(file) as opened:
            counts.append(opened.metadata.num_rows)
    return counts


def _namer(files: list[Path], rows: NDArray[np.int64]) -> Callable[[int], str]:
    """Position among `rows` (counted over all files) -> what a message calls that row."""
    counts = _rows(files)
    ends = list(accumulate(counts))

    def name(position: int) -> str:
        row = int(rows[position])
        number = bisect.bisect_right(ends, row)
        return f"{files[number].name} row {row - (ends[number] - counts[number])}"

    return name


def _pictures(files: list[Path], wanted: NDArray[np.int64]) -> Iterator[bytes | None]:
    """The encoded pictures of the wanted rows, a few hundred in memory at a time."""
    start = 0
    for file in files:
        with _open(file) as opened:
            column = _column(opened, IMAGE_COLUMNS, "image", file)
            kind = opened.schema_arrow.field(column).type
            if not _is_picture(kind):
                raise InputError(f"{file}: images are struct<bytes, path> or binary; column {column!r} is {kind}.")
            try:
                for batch in opened.iter_batches(BATCH, columns=[column]):
                    stop = start + len(batch)
                    here = wanted[np.searchsorted(wanted, start) : np.searchsorted(wanted, stop)] - start
                    values = batch.column(0).take(pa.array(here))
                    yield from (pc.struct_field(values, "bytes") if _encoded(kind) else values).to_pylist()
                    start = stop
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"{file} is damaged: {error}") from error


def _open(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is not a readable parquet file: {error}") from error


def _column(file: pq.ParquetFile, names: tuple[str, ...], what: str, path: Path) -> str:
    found = file.schema_arrow.names
    for name in names:
        if name in found:
            return name
    fits = is_label_type if what == "label" else _is_picture
    near = [column for column in found if column not in LABEL_COLUMNS and fits(file.schema_arrow.field(column).type)]
    hint = f" Is it {' or '.join(near[:3])}? Rename it to {names[0]}." if near else ""
    raise InputError(
        f"{path}: the {what} column is named {' or '.join(names)}; the columns are {', '.join(found)}.{hint}"
    )


def _is_picture(kind: pa.DataType) -> bool:
    return _encoded(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _encoded(kind: pa.DataType) -> bool:
    """Whether a column of this type is Hugging Face's struct of the bytes of pictures."""
    return pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0


def whole(path: str) -> Listing:
    """The test part, or everything where there is none, not decoded; labels are -1 where there is no such column.

    Raises InputError for labels outside the classes.
    """
    where = f"parquet:{path}"
    train_files, test_files, _ = find(path)
    files = test_files or train_files
    count = sum(_rows(files))
    labels, classes, notes = unknown_labels(count)
    if any(column in pq.read_schema(file).names for file in files for column in LABEL_COLUMNS):
        labels, classes, notes = alone(where, *_labels(files, where))
    name = title(str(files[0]) if len(files) == 1 else path.split(",")[-1])
    how = f"all {count:,} rows of {', '.join(file.name for file in files[:4])}"
    called = _namer(files, np.arange(count))
    return Listing(name, labels, classes, how, notes, pictures=lambda wanted: _pictures(files, wanted), called=called)
