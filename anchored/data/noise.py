"""Wrong labels on purpose: a rate of random ones, or given ones (CIFAR-10N) from a file."""

from __future__ import annotations

import csv
import json
import os
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchored.data.base import Images, place
from anchored.data.checks import integer_labels
from anchored.system.errors import InputError, unknown
from anchored.system.rng import generator

SUFFIXES = (".npy", ".npz", ".txt", ".json", ".csv", ".pt", ".pth")


@dataclass(frozen=True)
class Noisy:
    """Training images with other labels.

    label_noise: what Rows say, the part (0 to 1) of labels that are wrong on purpose. note: the same in words, for the
    notes of the data.
    """

    images: Images
    label_noise: float
    note: str


def relabelled(
    train: Images, classes: int, *, rate: float = 0.0, labels: str | None = None, seed: int = 0
) -> Noisy | None:
    """`train` with a `rate` of random labels, or with the labels in the file `labels`; None where neither is given.

    For a file label_noise is the part of its labels that differ from the data's own, for a rate the rate itself.
    Raises InputError for both at once and as `noisy_labels` and `read_labels` do.
    """
    if rate and labels is not None:
        raise InputError(f"labels are made noisy or given, not both; got a label noise of {rate} and {labels!r}.")
    if labels is not None:
        given = read_labels(labels, len(train), classes)
        wrong = int((given != train.labels.cpu()).sum())
        note = f"labels from {os.path.basename(labels)}: {wrong:,} of {len(train):,} differ from the data's own"
        return Noisy(train.with_labels(given), wrong / len(train), note)
    noisy = noisy_labels(train.labels, rate, classes, seed)
    if not rate:
        return None
    wrong = int((noisy != train.labels.cpu()).sum())
    note = f"label noise {rate}: {wrong:,} of {len(train):,} labels moved to another class, seed {seed}"
    return Noisy(train.with_labels(noisy), rate, note)


def noisy_labels(labels: Tensor, rate: float, classes: int, seed: int) -> Tensor:
    """`labels` (int64 [N]) with exactly round(rate N) of them moved, each to a different class, as likely any.

    Which ones and where to depends on (seed, N, classes) and the labels; a higher rate moves the same ones and more.
    Raises InputError for a rate outside [0, 1] and fewer than 2 classes.
    """
    if not 0 <= rate <= 1:
        raise InputError(f"label noise is the part of labels that are made wrong, in [0, 1]; got {rate}.")
    if classes < 2:
        raise InputError(f"label noise needs at least 2 classes; got {classes}.")
    n = len(labels)
    stream = generator(seed, "label noise")
    moved = torch.randperm(n, generator=stream)[: round(rate * n)]
    distance = torch.randint(1, classes, (n,), generator=stream)
    noisy = labels.cpu().clone()
    noisy[moved] = (noisy[moved] + distance[moved]) % classes
    return noisy


def read_labels(spec: str, n: int, classes: int) -> Tensor:
    """int64 [n]: the labels in a file, FILE or FILE:KEY, one for each training image in the order of the data set.

    npy; npz, json (an object), pt (a dictionary, as CIFAR-10N comes) and csv (with a header) with a KEY where there are
    several; txt and csv, one label a line; json, a list. pt is read without running code from it. Raises InputError for
    what cannot be read, a missing key, a wrong number of labels and labels outside [0, classes).
    """
    path, key = place(spec), None
    if not path.exists():
        before, colon, after = spec.rpartition(":")
        if colon and place(before).exists():
            path, key = place(before), after
    if not path.is_file():
        raise InputError(f"labels: there is no file {path}. Written FILE or FILE:KEY ({', '.join(SUFFIXES)}).")
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"labels come in a file of type {', '.join(SUFFIXES)}; got {path.name}.")
    where = f"labels from {path.name}" + (f":{key}" if key else "")
    try:
        values = _chosen(_read(path), key, where)
        array = np.asarray(values)
    except InputError:
        raise
    except (OSError, ValueError, EOFError, RuntimeError, pickle.PickleError, zipfile.BadZipFile, csv.Error) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        if isinstance(error, pickle.PickleError):
            reason = "it holds other things than tensors and arrays of integers, or is damaged"
        hint = " A pickled npy is not read; save its array, or use the .pt." if path.suffix.lower() == ".npy" else ""
        raise InputError(f"{where}: the file cannot be read ({reason}).{hint}") from error
    found = integer_labels(array, n, where)
    outside = found[(found < 0) | (found >= classes)]
    if len(outside):
        rule = f"labels are 0 to {classes - 1}, as there are {classes} classes"
        raise InputError(f"{where}: {rule}; got {int(outside[0])}.")
    return found


def _read(path: Path) -> Any:
    """What is in the file: an array or list of labels, or a mapping of names to them."""
    kind = path.suffix.lower()
    if kind in (".npy", ".npz"):
        with open(path, "rb") as file:
            array = np.load(file, allow_pickle=False)
            return array if isinstance(array, np.ndarray) else dict(array)
    if kind == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    if kind == ".txt":
        return [int(line) for line in path.read_text(encoding="utf-8").split()]
    if kind == ".csv":
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
        return _columns(rows)
    with torch.serialization.safe_globals(_numpy_types()):
        return torch.load(path, map_location="cpu", weights_only=True)


def _columns(rows: list[list[str]]) -> Any:
    header = [] if not rows or all(_is_whole(cell) for cell in rows[0]) else rows[0]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("its lines have different numbers of columns")
    columns = list(zip(*rows[1 if header else 0 :], strict=True))
    if not header:
        if len(columns) > 1:
            raise ValueError(f"it has {len(columns)} columns without names")
        return [int(cell) for cell in columns[0]] if columns else []
    whole = {name: column for name, column in zip(header, columns, strict=True) if all(map(_is_whole, column))}
    return {name: [int(cell) for cell in column] for name, column in whole.items()}


def _is_whole(cell: str) -> bool:
    return cell.strip().lstrip("-").isdecimal()


def _numpy_types() -> list[Any]:
    """What torch needs to read arrays of integers, written by NumPy 1 or 2; none of it runs foreign code."""
    from numpy._core.multiarray import _reconstruct

    kinds = {type(np.dtype(f"{sign}int{bits}")) for sign in ("", "u") for bits in (8, 16, 32, 64)}
    named = [(_reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    return [*named, np.ndarray, np.dtype, *kinds]


def _chosen(values: Any, key: str | None, where: str) -> NDArray[Any] | list[int] | Tensor:
    if isinstance(values, Mapping):
        names = [str(name) for name in values]
        if key is None and len(values) == 1:
            return next(iter(values.values()))
        if key is None:
            raise InputError(f"{where}: there are several in it; write FILE:KEY. Keys: {', '.join(names) or 'none'}.")
        if key not in values:
            raise unknown(f"key of {where.rpartition(':')[0]}", key, names)
        return values[key]
    if key is not None:
        raise InputError(f"{where}: the file holds one list of labels, without keys. Leave out :{key}.")
    return values
