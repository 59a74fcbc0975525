"""What every source checks before it hands out labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchored.data.base import Data, ImageSet, Listing, Options
from anchored.data.decode import Decoded, decode
from anchored.system.errors import InputError


def integer_labels(labels: NDArray[np.generic], n: int, where: str) -> Tensor:
    """int64 [n] of labels [n] or [n, 1]. Raises InputError for other shapes, types that are not integers, and n."""
    labels = one_each(labels, None, where)
    if not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"{where}: labels are integers from 0; got {labels.dtype}{_sample(labels)}.")
    return torch.from_numpy(one_each(labels, n, where).astype(np.int64))


def one_each(labels: NDArray[np.generic], n: int | None, where: str) -> NDArray[np.generic]:
    """Labels [n] of [n] or [n, 1]. Raises InputError for other shapes and, unless n is None, another number."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        hint = " Of one-hot labels, save y.argmax(1)." if labels.ndim == 2 else ""
        raise InputError(f"{where}: labels are one an image, [N] or [N, 1]; got {list(labels.shape)}.{hint}")
    if n is not None and len(labels) != n:
        raise InputError(f"{where}: labels are one an image; got {len(labels):,} labels for {n:,} images.")
    return labels


def _sample(labels: NDArray[np.generic]) -> str:
    if np.issubdtype(labels.dtype, np.floating) and np.isnan(labels.astype(np.float64)).any():
        return " with NaN"
    return f" like {labels[0]!s}" if len(labels) else ""


def check_parts(
    where: str, train: Tensor, test: Tensor, classes: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(class names, notes) for the labels of both parts (int64 [N], [M]).

    classes None: the labels themselves are the names, and none between 0 and the largest may be missing in train.
    Raises InputError for an empty part, labels outside [0, classes), fewer than 2 classes, and a class of the
    test images that has no training image.
    """
    for part, labels in (("train", train), ("test", test)):
        if not len(labels):
            raise InputError(f"{where}: {part} has no images.")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or (classes is not None and high >= len(classes)):
            allowed = (
                "0 or more" if classes is None else f"0 to {len(classes) - 1}, as there are {len(classes)} classes"
            )
            raise InputError(f"{where}: labels are {allowed}; {part} has {low if low < 0 else high}.")
    there = set(train.unique().tolist())
    if classes is None and max(there) >= len(there):
        gap = next(label for label in range(len(there)) if label not in there)
        raise InputError(
            f"{where}: labels are 0 to classes - 1, each of them in use; train has labels up to {max(there)} "
            f"but no {gap}. Files with class names may leave out classes, and text labels are numbered as they are."
        )
    orphans = sorted(set(test.unique().tolist()) - there)
    if orphans:
        raise InputError(
            f"{where}: every class of the test images needs training images; "
            f"there are none of class {some([classes[label] if classes else label for label in orphans])}."
        )
    names = tuple(classes) if classes is not None else tuple(map(str, range(len(there))))
    if len(there) < 2:
        raise InputError(f"{where}: a classifier needs at least 2 classes; all images are {names[min(there)]!r}.")
    notes = []
    for part, labels in (("training", train), ("test", test)):
        missing = sorted(set(range(len(names))) - set(labels.unique().tolist()))
        if missing:
            notes.append(f"no {part} images of class {some([names[label] for label in missing])}")
    return names, tuple(notes)


def check_range(where: str, labels: Tensor, classes: Sequence[str] | None) -> None:
    """Raise InputError for labels below 0 or, where there are class names, beyond them, and for no images."""
    if not len(labels):
        raise InputError(f"{where}: there are no images.")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or (classes is not None and high >= len(classes)):
        allowed = "0 or more" if classes is None else f"0 to {len(classes) - 1}, as there are {len(classes)} classes"
        raise InputError(f"{where}: labels are {allowed}; there is {low if low < 0 else high}.")


def check_missing(
    rows: Sequence[int] | NDArray[np.integer], where: str, *, what: str = "label", unit: str = "row"
) -> None:
    """Raise InputError if there are any rows (whose numbers these are) of an image without a label."""
    if len(rows):
        missing = f"1 {what} is" if len(rows) == 1 else f"{len(rows):,} {what}s are"
        at = f"{unit}{'s' * (len(rows) > 1)} {some(list(rows))}"
        raise InputError(f"{where}: every image has a {what}; {missing} missing, in {at}.")


def some(items: Sequence[object]) -> str:
    """The first three items in words and how many more there are."""
    first = ", ".join(str(item) for item in items[:3])
    return first + (f" and {len(items) - 3:,} more" if len(items) > 3 else "")


def same_classes(where: str, train: Sequence[str] | None, test: Sequence[str] | None) -> tuple[str, ...] | None:
    """The class names both parts share, of whichever states them. Raises InputError where they differ."""
    if train and test and tuple(train) != tuple(test):
        position = next((i for i, (a, b) in enumerate(zip(train, test, strict=False)) if a != b), None)
        if position is None:
            how = f"{len(train)} and {len(test)} of them"
        else:
            how = f"class {position} is {train[position]!r} and {test[position]!r}"
        raise InputError(f"{where}: train and test have the same classes in the same order; here {how}.")
    names = train or test
    return tuple(names) if names else None


def decoded(where: str, parts: tuple[Listing, Listing], options: Options) -> Data:
    """Data of the training and test part of a source, decoded. Raises InputError as `decode` and `assemble` do."""
    train, test = parts

    def pictures(part: Listing, other: Listing) -> tuple[Decoded, Tensor]:
        rows = part.pictures(np.arange(len(part)))
        return decode(rows, len(part), options, name=part.called, others=len(other)), part.labels

    pairs = pictures(train, test), pictures(test, train)
    return assemble(train.name, where, *pairs, train.classes, split=train.split, notes=train.notes)


def assemble(
    name: str,
    where: str,
    train: tuple[Decoded, Tensor],
    test: tuple[Decoded, Tensor],
    classes: Sequence[str] | None,
    *,
    split: str,
    notes: tuple[str, ...] = (),
    flip: bool = True,
) -> Data:
    """Data of decoded pictures and the labels (int64) of all that were to be decoded, checked once more.

    Raises InputError if what was unreadable has left a class empty, or if the parts have images of two sizes.
    """
    first, second = (ImageSet(decoded.images, labels[decoded.kept]) for decoded, labels in (train, test))
    if first.images.shape[1:] != second.images.shape[1:]:
        (height, width), (other_height, other_width) = first.images.shape[1:3], second.images.shape[1:3]
        raise InputError(
            f"{where}: train has images of {width}x{height} and test of {other_width}x{other_height} pixels; "
            "pass --image-size."
        )
    names, more = check_parts(where, first.labels, second.labels, classes)
    notes = (*notes, *train[0].notes, *test[0].notes, *more)
    return Data(name, first, second, names, flip=flip, split=split, notes=notes)
