"""Row: one measured number with everything needed to know what it means. Stored as JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

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
    number is computed from; `n_other` the anomalies it compares them with.
    """

    run: str
    config_hash: str
    data: str
    train_size: int
    recipe: str
    augmentation: str
    label_noise: float
    method: str  # standard | vanilla | masking
    masked_target: str | None  # uniform | label; None where nothing is masked
    alpha: float
    schedule: str
    masked_bn: str | None
    recalibrate_bn: int  # training images used to re-estimate batch norm; 0 = not re-estimated
    reference_source: str | None
    references: int  # size of the reference set; 0 for the standard method
    model: str
    weights: str  # raw | ema
    seed: int
    epoch: int
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

    @property
    def variant(self) -> str:
        """The method, with its masked target where it has one: `standard`, `masking-uniform`."""
        return f"{self.method}-{self.masked_target}" if self.masked_target else self.method


def write_rows(path: str | os.PathLike[str], rows: Iterable[Row]) -> None:
    """Write `rows` to `path` as JSON lines, atomically."""
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The rows in the JSON-lines file `path`. Raises InputError, naming the line, where one is not a Row."""
    known = {field.name for field in fields(Row)}
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            value = json.loads(line)
            rows.append(Row(**{key: item for key, item in value.items() if key in known}))
        except (TypeError, AttributeError, json.JSONDecodeError) as error:
            raise InputError(f"{path}, line {number} is not a row: {error}.") from error
    return rows
