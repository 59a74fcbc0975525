"""Row: one measured number with everything needed to know what it means. Stored as JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from anchored.arms.run_config import default_name
from anchored.system.errors import InputError
from anchored.system.files import write_text


@dataclass(frozen=True)
class Cell:
    """One test set: a benchmark, or one corruption at one severity of it.

    `kind` is "id" (the clean test set), "shift" (same classes, other images) or "anomaly" (no known class).
    """

    benchmark: str
    corruption: str | None = None
    severity: int | None = None
    kind: str = "id"

    @property
    def name(self) -> str:
        """The cell as a file name: `clean`, `c-gaussian_noise-3`, `photos`."""
        parts = [self.benchmark.replace("/", "_").replace(":", "_")]
        if self.corruption is not None:
            parts.append(self.corruption)
        if self.severity is not None:
            parts.append(str(self.severity))
        return "-".join(parts)


@dataclass(frozen=True)
class Row:
    """One number (`metric`, `value`) of one run on one cell.

    Accuracies, AUROC and FPR95 are percentages, calibration errors fractions. `n` counts the images the
    number is computed from; `n_other` the anomalies it compares them with. `about` is what the row says of the run,
    by column: its arm, train_size (training images), recipe, augmentation, label_noise, the settings of its method
    (method: standard, vanilla or masking; masked_target: uniform or label, None where nothing is masked; alpha;
    references: size of the reference set, 0 for the standard method ...), model, weights (raw, ema), seed, epoch,
    arithmetic (what training was computed in), parameters, forward_passes (an image). They are attributes too.
    """

    run: str
    config_hash: str
    data: str
    about: Mapping[str, Any]
    benchmark: str
    corruption: str | None
    severity: int | None
    corruption_source: str | None
    preprocess: str
    protocol: str  # direct | one_random | k_random | transduction
    k: int
    tempering: str | None
    metric: str
    value: float
    n: int
    n_other: int

    @classmethod
    def of(cls, **columns: Any) -> Row:
        """A row by its columns, those of `about` among them. Raises TypeError for a missing one."""
        own = {name: columns.pop(name) for name in MEASURED if name in columns}
        for name in ("method", "model", "seed"):
            if name not in columns:
                raise TypeError(f"a row needs the column {name!r}")
        return cls(about={"arm": None, **columns}, **own)

    def __getattr__(self, name: str) -> Any:
        about = self.__dict__.get("about", {})  # a row that is being made has none yet
        if name in about:
            return about[name]
        raise AttributeError(f"a row has no column {name!r}")

    @property
    def arm(self) -> str:
        """The name of the arm; in rows without one (older ones) that of the method."""
        return str(self.about.get("arm") or default_name(self.about["method"], self.about.get("masked_target")))

    def replaced(self, **columns: Any) -> Row:
        """This row with other values in some columns."""
        return Row.of(**{**self.columns(), **columns})

    def columns(self) -> dict[str, Any]:
        """Every column, as it stands in a file."""
        found: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            found |= {**value, "arm": self.arm} if field.name == "about" else {field.name: value}
        return found


MEASURED = tuple(field.name for field in fields(Row) if field.name != "about")


def write_rows(path: str | os.PathLike[str], rows: Iterable[Row]) -> None:
    """Write `rows` to `path` as JSON lines, atomically."""
    write_text(path, "".join(json.dumps(row.columns(), ensure_ascii=False) + "\n" for row in rows))


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The rows in the JSON-lines file `path`. Raises InputError, naming the line, where one is not a Row."""
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows.append(Row.of(**json.loads(line)))
        except (TypeError, AttributeError, json.JSONDecodeError) as error:
            raise InputError(f"{path}, line {number} is not a row: {error}.") from error
    return rows
