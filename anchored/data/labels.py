"""Labels as data sets have them (integers, text, booleans, whole floats), and how they become 0 to classes - 1."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchored.data.checks import check_missing, check_parts, check_range, one_each, some
from anchored.data.splits import stratified
from anchored.system.errors import InputError

TEST_PART = 0.2  # of the images, where a source has no test part
MISSING = ("", "nan", "null", "<na>")  # how files of text write that there is no value, in any case
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.I)
WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))(?:\.0*)?")  # 7, -1, 7.0; not 007, which is a name
LARGEST = 2**53  # floats are whole, and exact, below
POSITIONS = 10_000  # integers below it may be positions among the classes of a model

Kind = Literal["integers", "booleans", "text"]


@dataclass(frozen=True)
class Labels:
    """The labels of some images as they are stored: `values[codes]`, one an image.

    kind: what they are. values: the different ones, ascending (text by code point; False is 0, True is 1).
    codes: int64 [N], positions among them. floats: whether the integers are stored as floating-point numbers.
    """

    kind: Kind
    values: tuple[Any, ...]
    codes: NDArray[np.int64]
    floats: bool = False

    def __len__(self) -> int:
        return len(self.codes)

    def part(self, start: int, stop: int) -> Labels:
        """The labels of the images from `start` to before `stop`."""
        return Labels(self.kind, self.values, self.codes[start:stop], self.floats)

    def used(self) -> list[Any]:
        """The values that an image has, ascending."""
        return [self.values[code] for code in np.unique(self.codes)]

    def numbers(self, table: Sequence[Any]) -> Tensor:
        """int64 [N]: the position of each label in `table`."""
        position = {value: number for number, value in enumerate(table)}
        return torch.from_numpy(np.array([position.get(value, -1) for value in self.values], np.int64)[self.codes])

    def integers(self) -> Tensor:
        """int64 [N]: the labels themselves, which are integers or booleans."""
        return torch.from_numpy(np.array(self.values, np.int64)[self.codes])

    def name(self, value: Any) -> str:
        """What the class of a value is called."""
        return str(bool(value)) if self.kind == "booleans" else str(value)


# --- reading -------------------------------------------------------------------------------------------------------


def from_numpy(labels: NDArray[np.generic], n: int, where: str) -> Labels:
    """Labels [N] or [N, 1] of integers, whole floats, booleans or text.

    Raises InputError for other shapes and types, for another number than `n`, and for missing labels.
    """
    labels = one_each(labels, n, where)
    if labels.dtype.kind in "US":
        try:
            return from_text([item.decode() if isinstance(item, bytes) else item for item in labels.tolist()], where)
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: labels of bytes are UTF-8; {error}.") from error
    if labels.dtype.kind not in "biuf":
        raise InputError(f"{where}: labels are integers, text or booleans, one an image; got {labels.dtype}.")
    if labels.dtype.kind == "f":
        wide = labels.astype(np.float64)
        check_missing(np.isnan(wide).nonzero()[0], where)
        wrong = labels[(wide != np.floor(wide)) | (np.abs(wide) > LARGEST)]
        if len(wrong):
            raise InputError(f"{where}: labels are classes (integers, text or booleans); got numbers like {wrong[0]}.")
    if labels.dtype == np.uint64 and len(labels) and int(labels.max()) >= 2**63:
        raise InputError(f"{where}: labels of integers are below 2^63; got {labels.max()}.")
    values, codes = np.unique(labels.astype(np.int64), return_inverse=True)
    kind: Kind = "booleans" if labels.dtype.kind == "b" else "integers"
    return Labels(kind, tuple(values.tolist()), codes.reshape(-1), labels.dtype.kind == "f")


def from_text(labels: Sequence[str], where: str) -> Labels:
    """Labels of text. Raises InputError for missing ones."""
    check_missing(missing(labels), where)
    values = sorted(set(labels))
    position = {value: number for number, value in enumerate(values)}
    codes = np.fromiter((position[text] for text in labels), np.int64, len(labels))
    return Labels("text", tuple(values), codes)


def from_cells(cells: Sequence[str], where: str) -> Labels:
    """Labels in a file of text, where integers are written out: integers if all of them are, else text.

    Raises InputError for missing labels and where all are numbers but not all are whole.
    """
    text = from_text(cells, where)
    found = [WHOLE.fullmatch(value) for value in text.values]
    if all(found):
        numbers = np.array([int(match.group(1)) for match in found if match], object)
        if len(numbers) and max(abs(numbers)) >= 2**63:
            raise InputError(f"{where}: labels of integers are below 2^63; got {max(numbers, key=abs)}.")
        return from_numpy(numbers.astype(np.int64)[text.codes], len(cells), where)
    if all(NUMBER.fullmatch(str(value)) and not re.match("0[0-9]", str(value)) for value in text.values):
        odd = next(value for value, match in zip(text.values, found, strict=True) if not match)
        raise InputError(f"{where}: labels are classes (integers, text or booleans); got numbers like {odd}.")
    return text


def from_arrow(labels: pa.ChunkedArray, column: str, where: str) -> Labels:
    """Labels of a column of integers, whole floats, booleans or text, or of a dictionary of these.

    Raises InputError for other types and for missing labels.
    """
    if pa.types.is_dictionary(labels.type):
        labels = labels.cast(labels.type.value_type)
    check_missing(np.flatnonzero(labels.is_null().to_numpy()), where)
    if pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type):
        return from_text(labels.to_pylist(), where)
    if pa.types.is_decimal(labels.type):
        labels = labels.cast(pa.float64())
    if not is_label_type(labels.type):
        raise InputError(
            f"{where}: labels are integers, text or booleans, one an image; column {column!r} holds {labels.type}."
        )
    return from_numpy(labels.to_numpy(), len(labels), where)


def is_label_type(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold labels."""
    if pa.types.is_dictionary(kind):
        return is_label_type(kind.value_type)
    tests = ("is_integer", "is_floating", "is_boolean", "is_decimal", "is_string", "is_large_string", "is_null")
    return any(getattr(pa.types, test)(kind) for test in tests)


def any_known(labels: pa.ChunkedArray) -> bool:
    """Whether any label is there: -1 and none at all are what the Hub writes into test splits to be labelled."""
    values = labels.unique().to_pylist()
    return any(value not in (None, -1) and str(value).strip().casefold() not in MISSING for value in values)


def missing(labels: Sequence[str]) -> list[int]:
    """The positions where text says that there is no label."""
    return [row for row, text in enumerate(labels) if text.strip().casefold() in MISSING]


def joined(parts: Sequence[tuple[Labels, str]], where: str) -> Labels:
    """The labels of several files (each with its name) one after another. Raises InputError for several types."""
    kind = _kind(parts, where)
    values = sorted({value for part, _ in parts for value in part.values})
    codes = np.concatenate([part.numbers(values).numpy() for part, _ in parts])
    return Labels(kind, tuple(values), codes, any(part.floats for part, _ in parts))


def _kind(parts: Sequence[tuple[Labels, str]], where: str) -> Kind:
    """The one kind of all labels there are. Raises InputError for several."""
    kinds: dict[Kind, str] = {}
    for part, called in parts:
        if len(part):
            kinds.setdefault(part.kind, f"{called} has {part.kind} like {part.name(part.used()[0])}")
    if len(kinds) > 1:
        raise InputError(f"{where}: labels are of one type throughout; {' and '.join(kinds.values())}.")
    return next(iter(kinds), "integers")


# --- numbering -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbered:
    """The labels of train and test (int64) as 0 to classes - 1, the rows they are of, class names, and notes.

    rows: int64, sorted. made: whether the test part is a stratified choice of the training part.
    """

    train: Tensor
    test: Tensor
    train_rows: NDArray[np.int64]
    test_rows: NDArray[np.int64]
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    made: bool


def numbered(where: str, train: Labels, test: Labels | None, names: Sequence[str] | None, seed: int) -> Numbered:
    """Train and test with the same numbering; without a test part one is split off, stratified by `seed`.

    names: the class names that the file states. With them integers and booleans are positions among them, and text
    is one of them. Without them integers from 0, all in use, stay as they are; other labels are numbered in their
    order: text by code point, integers by value, False before True. Raises InputError for labels of two types, text
    that is no class name, and as `check_parts` does: for negative integers, integers from 0 of which a few are not in
    use, a class of the test part that the training part lacks, and a single class.
    """
    parts = [(train, "train"), *([(test, "test")] if test is not None else [])]
    (first, *rest), classes, notes = _numbers(where, parts, names)
    if rest:
        second, first_rows, second_rows = rest[0], torch.arange(len(first)), torch.arange(len(rest[0]))
    else:
        check_parts(where, first, first, classes)
        second_rows, first_rows = stratified(first, TEST_PART, seed, classes)
        first, second = first[first_rows], first[second_rows]
    called, _ = check_parts(where, first, second, classes)
    return Numbered(first, second, first_rows.numpy(), second_rows.numpy(), called, notes, test is None)


def alone(where: str, labels: Labels, names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...], tuple[str, ...]]:
    """(numbers int64 [N], class names, notes) of a test set that no training set goes with; one class is enough.

    As `numbered`, but integers without class names stay as they are, as they may be positions among the classes of a
    model: the names go from 0 to the largest of them. Raises InputError for labels outside the names.
    """
    if labels.kind == "integers" and names is None and max(labels.used(), default=0) < POSITIONS:
        given, notes = labels.integers(), _floats([labels])
    else:
        (given,), names, notes = _numbers(where, [(labels, "it")], names)
    check_range(where, given, names)
    return given, tuple(names or map(str, range(int(given.max()) + 1))), notes


def unknown_labels(n: int) -> tuple[Tensor, tuple[str, ...], tuple[str, ...]]:
    """What `alone` gives for `n` images without labels: -1 throughout, no classes and no notes."""
    return torch.full((n,), -1, dtype=torch.int64), (), ()


def _numbers(
    where: str, called: Sequence[tuple[Labels, str]], names: Sequence[str] | None
) -> tuple[list[Tensor], tuple[str, ...] | None, tuple[str, ...]]:
    """(numbers of each part, class names where they are not the numbers themselves, notes)."""
    kind, parts = _kind(called, where), [part for part, _ in called]
    notes = _floats(parts)
    if names is not None and kind != "text":
        return [part.integers() for part in parts], tuple(names), notes
    used: list[Any] = sorted({value for part in parts for value in part.used()})
    if names is not None:
        strangers = [value for value in used if value not in set(names)]
        if strangers:
            raise InputError(
                f"{where}: the class names of the file are {some(list(names))}; labels that are none of them: "
                f"{some([repr(name) for name in strangers])}."
            )
        told = f"labels are text, numbered in the order of the class names of the file: {some(list(names))}"
        return [part.numbers(names) for part in parts], tuple(names), (*notes, told)
    if kind == "integers" and _plain([int(value) for value in parts[0].used()], [int(value) for value in used]):
        return [part.integers() for part in parts], None, notes
    classes = tuple(str(bool(value)) if kind == "booleans" else str(value) for value in used)
    return [part.numbers(used) for part in parts], classes, (*notes, _order(kind, classes, used), *_alike(classes))


def _plain(train: Sequence[int], everything: Sequence[int]) -> bool:
    """Whether integers are meant as 0 to classes - 1, so that what does not fit this is a mistake.

    So they are where they start at 0 and most of the numbers up to the largest are in use: then a class has been lost.
    Negative ones are what data sets mark images without a label with.
    """
    return not train or everything[0] < 0 or (train[0] == 0 and 2 * len(train) > train[-1] + 1)


def _order(kind: Kind, classes: Sequence[str], values: Sequence[int | str]) -> str:
    to = f"0..{len(classes) - 1}"
    if kind == "text":
        which = f"labels are text, numbered {to} in the order of code points: {some(list(classes))}"
    elif kind == "integers" and len(values) > 1 and int(values[-1]) - int(values[0]) == len(values) - 1:
        which = f"labels {values[0]}..{values[-1]} are numbered {to}"
    else:
        which = f"labels {some(list(classes))} are numbered {to} in this order"
    return f"{which}; class names are the labels themselves"


def _floats(parts: Sequence[Labels]) -> tuple[str, ...]:
    if not any(part.floats for part in parts):
        return ()
    return ("labels are floating-point numbers without a fraction, read as integers",)


def _alike(classes: Sequence[str]) -> tuple[str, ...]:
    """A note of classes that a reader could take for one."""
    seen: dict[str, str] = {}
    pairs = []
    for name in classes:
        key = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        if key in seen:
            pairs.append(f"{seen[key]!r} and {name!r}")
        seen.setdefault(key, name)
    return (f"classes that differ in case or spaces alone: {some(pairs)}",) if pairs else ()
