"""Measures: the columns of the table, each a metric averaged over some cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anchored.evaluation.rows import Cell

HIGHER_IS_BETTER = {"top1": True, "smooth_ece": False, "auroc": True, "fpr95": False}
PURPOSES = {"top1": "accuracy", "smooth_ece": "calibration", "auroc": "anomalies", "fpr95": "anomalies"}
METRIC_NAMES = {"top1": "top-1 %", "smooth_ece": "smooth ECE", "auroc": "AUROC %", "fpr95": "FPR95 %"}
ANOMALY_METRICS = ("auroc", "fpr95")

Value = tuple[str, int, Cell, str]  # arm, seed, cell, metric


@dataclass(frozen=True)
class Measure:
    """One column of the table: `metric`, averaged over `cells` with equal weight."""

    key: str
    metric: str
    place: str
    cells: tuple[Cell, ...]

    @property
    def heading(self) -> str:
        return f"{METRIC_NAMES[self.metric]}, {self.place}"

    @property
    def higher_is_better(self) -> bool:
        return HIGHER_IS_BETTER[self.metric]

    @property
    def purpose(self) -> str:
        return PURPOSES[self.metric]

    @property
    def fraction(self) -> bool:
        """Whether the value is a fraction (calibration errors) rather than a percentage."""
        return self.metric == "smooth_ece"


def measures(values: Iterable[Value]) -> tuple[tuple[Measure, ...], list[str]]:
    """The measures for which any arm has numbers, in the order of the table, and notes on cells that count in none."""
    by_metric: dict[str, dict[tuple[str, int], set[Cell]]] = {}
    for arm, seed, cell, metric in values:
        by_metric.setdefault(metric, {}).setdefault((arm, seed), set()).add(cell)
    notes: list[str] = []
    found = [*_accuracy(by_metric, notes), *_calibration(by_metric), *_anomalies(by_metric, notes)]
    return tuple(measure for measure in found if measure.cells), notes


def shift_key(given: Sequence[Measure]) -> str | None:
    """The measure that stands for accuracy under shift: over all shifts, or the only one."""
    keys = [m.key for m in given if m.metric == "top1" and m.cells[0].kind == "shift"]
    return "top1:shift" if "top1:shift" in keys else (keys[0] if keys else None)


def anomaly_key(given: Sequence[Measure], metric: str = "auroc") -> str | None:
    """The measure that stands for anomaly rejection: over all anomaly sets, or the only one."""
    keys = [measure.key for measure in given if measure.metric == metric]
    return f"{metric}:anomalies" if f"{metric}:anomalies" in keys else (keys[0] if keys else None)


def cell_order(cell: Cell) -> tuple[int, str, str, int]:
    """What cells are sorted by."""
    kind = ("id", "shift", "anomaly").index(cell.kind)
    return kind, cell.benchmark, cell.corruption or "", cell.severity or 0


ByMetric = Mapping[str, Mapping[tuple[str, int], set[Cell]]]  # metric -> (arm, seed) -> cells


def _accuracy(by_metric: ByMetric, notes: list[str]) -> list[Measure]:
    found = [Measure("top1:clean", "top1", "clean", _common(by_metric, "top1", "id", notes=notes))]
    shifts = _benchmarks(by_metric, "top1", "shift")
    for benchmark in shifts:
        cells = _common(by_metric, "top1", "shift", benchmark, notes)
        worst = tuple(cell for cell in cells if cell.severity == 5)
        found.append(Measure(f"top1:{benchmark}", "top1", benchmark, cells))
        if len(worst) < len(cells):
            found.append(Measure(f"top1:{benchmark}@5", "top1", f"{benchmark} severity 5", worst))
    if len(shifts) > 1:
        found.append(Measure("top1:shift", "top1", "all shifts", _common(by_metric, "top1", "shift")))
    return found


def _calibration(by_metric: ByMetric) -> list[Measure]:
    return [
        Measure("smooth_ece:clean", "smooth_ece", "clean", _common(by_metric, "smooth_ece", "id")),
        Measure("smooth_ece:shift", "smooth_ece", "shifted", _common(by_metric, "smooth_ece", "shift")),
    ]


def _anomalies(by_metric: ByMetric, notes: list[str]) -> list[Measure]:
    found = []
    sets = _benchmarks(by_metric, "auroc", "anomaly")
    for benchmark in sets:
        for metric in ANOMALY_METRICS:
            told = notes if metric == "auroc" else None  # once for both
            cells = _common(by_metric, metric, "anomaly", benchmark, told)
            found.append(Measure(f"{metric}:{benchmark}", metric, benchmark, cells))
    if len(sets) > 1:
        for metric in ANOMALY_METRICS:
            cells = _common(by_metric, metric, "anomaly")
            found.append(Measure(f"{metric}:anomalies", metric, "mean of sets", cells))
    return found


def _benchmarks(by_metric: ByMetric, metric: str, kind: str) -> list[str]:
    runs = by_metric.get(metric, {}).values()
    return sorted({cell.benchmark for cells in runs for cell in cells if cell.kind == kind})


def _common(
    by_metric: ByMetric, metric: str, kind: str, benchmark: str | None = None, notes: list[str] | None = None
) -> tuple[Cell, ...]:
    """The cells that every run with any of them has; a note names those that some lack."""
    sets = [
        {cell for cell in cells if cell.kind == kind and benchmark in (None, cell.benchmark)}
        for cells in by_metric.get(metric, {}).values()
    ]
    sets = [cells for cells in sets if cells]
    shared = set.intersection(*sets) if sets else set()
    missing = sorted((set.union(*sets) if sets else set()) - shared, key=cell_order)
    if missing and notes is not None:
        listed = ", ".join(cell.name for cell in missing[:6]) + (" and more" if len(missing) > 6 else "")
        notes.append(
            f"{len(missing)} of {len(missing) + len(shared)} cells of {benchmark or 'clean'} are not in "
            f"every run and count in no mean: {listed}."
        )
    return tuple(sorted(shared, key=cell_order))
