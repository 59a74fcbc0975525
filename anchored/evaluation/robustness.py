"""Effective robustness: accuracy under shift beyond what a testbed of models predicts from accuracy without it."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from anchored.system.errors import InputError, unknown

TESTBEDS = Path(__file__).parent / "testbeds.csv"
MODELS = 3  # a line through two says nothing of others

Floats = NDArray[np.float64]


def effective_robustness(id_accuracy: float, ood_accuracy: float, testbed: str | os.PathLike[str] | ArrayLike) -> float:
    """How far `ood_accuracy` lies above the testbed's line at `id_accuracy`; a fraction, 0 on the line.

    The line is the least-squares fit of logit(ood) on logit(id) over the models of the testbed.

    id_accuracy, ood_accuracy: fractions in (0, 1). testbed: the name of one that comes with the package (see
    `shipped_testbeds`), a .csv file with columns `id` and `ood` (fractions, or percentages where any exceeds 1;
    PATH#ID,OOD for other columns; lines that lack one are passed over), or pairs [M, 2] of fractions, id first.
    Raises InputError for accuracies outside (0, 1), fewer than 3 models, or models all of one id accuracy.
    Source: Andreassen et al. 2021, section 3 and appendix A; the testbeds of Taori et al. 2020 and Recht et al. 2018.
    """
    given = _fraction("id_accuracy", id_accuracy), _fraction("ood_accuracy", ood_accuracy)
    slope, intercept = fit(testbed)
    return float(given[1] - expit(slope * logit(given[0]) + intercept))


def fit(testbed: str | os.PathLike[str] | ArrayLike) -> tuple[float, float]:
    """(slope, intercept) of the testbed's line between logits; arguments and errors as `effective_robustness`."""
    pairs = _pairs(testbed)
    x, y = logit(pairs[:, 0]), logit(pairs[:, 1])
    centred = x - x.mean()
    spread = float(centred @ centred)
    if spread < 1e-12 * len(x):
        raise InputError(f"a testbed's models differ in id accuracy; all {len(x)} have {pairs[0, 0]:g}.")
    slope = float(centred @ (y - y.mean())) / spread
    return slope, float(y.mean() - slope * x.mean())


def shipped_testbeds() -> dict[str, Floats]:
    """The testbeds of the package: name -> accuracies [M, 2] as fractions, without and under the shift.

    `imagenet-v2`, `imagenet-sketch`: id accuracy over all of ImageNet. `imagenet-r`, `objectnet`: id
    accuracy on ImageNet's images of the classes of the shift, among these alone. `cifar10.1`: version 6.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    with open(TESTBEDS, encoding="utf-8", newline="") as file:
        for line in csv.DictReader(row for row in file if not row.startswith("#")):
            found.setdefault(line["testbed"], []).append((float(line["id"]), float(line["ood"])))
    return {name: np.array(pairs) for name, pairs in found.items()}


def _pairs(testbed: str | os.PathLike[str] | ArrayLike) -> Floats:
    if isinstance(testbed, str | os.PathLike):
        path = os.fspath(testbed)
        table = str(path).partition("#")[0]
        if not table.lower().endswith(".csv") and not Path(table).is_file():
            there = shipped_testbeds()
            if path not in there:
                raise unknown("testbed", path, [*there, "PATH.csv"])
            return there[str(path)]
        return _checked(_read(str(path)), f"the testbed {path}")
    try:
        pairs = np.asarray(testbed, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"a testbed is pairs [M, 2] of accuracies, a .csv file or a name: {error}.") from error
    return _checked(pairs, "the testbed")


def _read(path: str) -> Floats:
    table, _, columns = path.partition("#")
    names = tuple(part.strip() for part in columns.split(",")) if columns else ("id", "ood")
    try:
        with open(table, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(row for row in file if not row.startswith("#"))
            if len(names) != 2 or not set(names) <= set(reader.fieldnames or ()):
                raise InputError(
                    f"the testbed {table} has columns id and ood, or those of PATH#ID,OOD; got {', '.join(names)} and "
                    f"the columns {', '.join((reader.fieldnames or ())[:8]) or 'none'}."
                )
            rows = [(line[names[0]], line[names[1]]) for line in reader]
        pairs = np.array([(float(x), float(y)) for x, y in rows if x and y], dtype=np.float64).reshape(-1, 2)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the testbed {table} is a .csv file of numbers: {error}.") from error
    return pairs / 100 if len(pairs) and pairs.max() > 1 else pairs


def _checked(pairs: Floats, what: str) -> Floats:
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(f"{what} is pairs [M, 2] of accuracies, id first; got shape {list(pairs.shape)}.")
    if len(pairs) < MODELS:
        raise InputError(f"{what} needs at least {MODELS} models; got {len(pairs)}.")
    if not ((pairs > 0) & (pairs < 1)).all():
        odd = pairs[~((pairs > 0) & (pairs < 1))][0]
        raise InputError(f"{what}: accuracies are fractions in (0, 1); got {odd:g}.")
    return pairs


def _fraction(name: str, value: float) -> float:
    number = float(value)
    if not 0 < number < 1:
        hint = f" (percent? {number / 100:g})" if 1 < number < 100 else ""
        raise InputError(f"{name} is a fraction in (0, 1); got {number:g}{hint}.")
    return number
