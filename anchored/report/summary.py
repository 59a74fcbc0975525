"""Rows to headline numbers: one value a method and measure, over seeds, and its difference from standard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import stdtrit

from anchored.evaluation.rows import Cell, Row
from anchored.system.errors import InputError

LEVEL = 0.95
METHODS = ("standard", "vanilla", "masking")
HIGHER_IS_BETTER = {"top1": True, "smooth_ece": False, "auroc": True, "fpr95": False}
PURPOSES = {"top1": "accuracy", "smooth_ece": "calibration", "auroc": "anomalies", "fpr95": "anomalies"}
METRIC_NAMES = {"top1": "top-1 %", "smooth_ece": "smooth ECE", "auroc": "AUROC %", "fpr95": "FPR95 %"}
ANOMALY_METRICS = ("auroc", "fpr95")

# What does not tell two runs of one arm apart. Anything else does, and is shown in the arm's name where it differs.
_SAME = {"arm", "method", "masked_target", "seed", "epoch", "arithmetic", "parameters", "forward_passes"}
_FIRST = ("model", "recipe", "augmentation", "label_noise", "train_size", "alpha")
_PREDICTION = ("protocol", "k", "tempering", "preprocess")

Interval = tuple[float, float]


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


@dataclass(frozen=True)
class Stat:
    """One method on one measure. `std` is over seeds (sample), None with one; `n` images a cell (smallest)."""

    values: Mapping[int, float]  # by seed
    n: int
    n_other: int

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))

    @property
    def std(self) -> float | None:
        return float(np.std(list(self.values.values()), ddof=1)) if len(self.values) > 1 else None

    @property
    def seeds(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Delta:
    """Method minus baseline on one measure, over the seeds that both have.

    `over_images`: bootstrap interval over test images, paired; None where no scores were given.
    `over_seeds`: Student's t interval over the per-seed differences; None with fewer than two seeds. With so few that
    it reaches beyond the `possible` differences, it ends there.
    """

    values: Mapping[int, float]
    over_images: Interval | None = None
    possible: Interval = (-np.inf, np.inf)

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))

    @property
    def over_seeds(self) -> Interval | None:
        count = len(self.values)
        if count < 2:
            return None
        error = float(np.std(list(self.values.values()), ddof=1)) / count**0.5
        reach = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * error
        return max(self.mean - reach, self.possible[0]), min(self.mean + reach, self.possible[1])

    @property
    def interval(self) -> Interval | None:
        """The interval that a claim rests on: from the lower to the upper end of those over seeds and over images.

        A claim is about other seeds and other images; two seeds that agree by chance have no spread at all.
        """
        found = [interval for interval in (self.over_seeds, self.over_images) if interval is not None]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None


Value = tuple[str, int, Cell, str]  # method, seed, cell, metric


@dataclass(frozen=True)
class Summary:
    """Everything the tables, the verdict and the figures say. Methods are in a fixed order, standard first."""

    data: str
    model: str
    methods: tuple[str, ...]
    measures: tuple[Measure, ...]
    stats: Mapping[tuple[str, str], Stat]  # (method, measure key)
    deltas: Mapping[tuple[str, str], Delta]  # (method, measure key), for methods that have a baseline
    baselines: Mapping[str, str]  # method -> the standard method it is compared with
    values: Mapping[Value, float]  # every number of the rows
    runs: Mapping[tuple[str, int], str]  # (method, seed) -> run
    kinds: Mapping[str, str]  # method -> standard | vanilla | masking
    notes: tuple[str, ...] = field(default=())

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for _, seed in self.runs}))

    def measure(self, key: str) -> Measure | None:
        return next((measure for measure in self.measures if measure.key == key), None)

    def of_kind(self, kind: str) -> tuple[str, ...]:
        return tuple(method for method in self.methods if self.kinds[method] == kind)

    def cells(self, metric: str, benchmark: str | None = None) -> tuple[Cell, ...]:
        """The cells, sorted, on which any method has `metric`."""
        found = {cell for _, _, cell, name in self.values if name == metric}
        return tuple(sorted((c for c in found if benchmark in (None, c.benchmark)), key=_cell_order))

    def over_seeds(self, method: str, cells: Iterable[Cell], metric: str) -> dict[int, float]:
        """Per seed, the mean of `metric` over `cells`, for the seeds that have them all."""
        cells = tuple(cells)
        found = {}
        for seed in self.seeds:
            numbers = [self.values.get((method, seed, cell, metric)) for cell in cells]
            if numbers and None not in numbers:
                found[seed] = float(np.mean([number for number in numbers if number is not None]))
        return found


def headline(rows: Iterable[Row], baseline: str | None = None) -> Summary:
    """Per method and headline measure: mean, spread and count over seeds, and the difference from standard.

    baseline: the run whose method all others are compared with, instead of the standard one; a name of no run counts
    for none. A mean over corruptions counts only the cells that every run compared has; a note names the others.
    Where a number occurs twice, the later row counts. Raises InputError when there are no rows or they come from
    several data sets.
    """
    rows = list(rows)
    if not rows:
        raise InputError("a report needs at least one row; there are none.")
    if len(datasets := sorted({row.data for row in rows})) > 1:
        raise InputError(f"a report compares methods on one data set; the rows have {', '.join(datasets)}.")
    distinguishing = _distinguishing(rows)
    name = _namer(rows, distinguishing)
    values: dict[Value, float] = {}
    counts: dict[Value, tuple[int, int]] = {}
    runs: dict[tuple[str, int], str] = {}
    kinds: dict[str, str] = {}
    twice: dict[tuple[str, int], str] = {}
    for row in rows:
        method = name[_identity(row, distinguishing)]
        key = (method, row.seed, Cell(row.benchmark, row.corruption, row.severity, _kind(row)), row.metric)
        values[key], counts[key] = float(row.value), (row.n, row.n_other)
        if (other := runs.get((method, row.seed), row.run)) != row.run:
            twice[method, row.seed] = f"{other} and {row.run}"
        runs[method, row.seed], kinds[method] = row.run, row.method
    methods = tuple(sorted(kinds, key=lambda method: (_method_order(kinds[method]), method)))
    notes = [f"{both} are both {method}, seed {seed}: the latter counts" for (method, seed), both in twice.items()]
    measures = _measures(values, notes)
    bare = Summary(
        data=datasets[0],
        model=", ".join(sorted({row.model for row in rows})),
        methods=methods,
        measures=measures,
        stats={},
        deltas={},
        baselines=_baselines(methods, kinds, next((m for (m, _), run in runs.items() if run == baseline), None)),
        values=values,
        runs=runs,
        kinds=kinds,
        notes=tuple(notes),
    )
    stats: dict[tuple[str, str], Stat] = {}
    deltas: dict[tuple[str, str], Delta] = {}
    for measure in measures:
        for method in methods:
            by_seed = bare.over_seeds(method, measure.cells, measure.metric)
            if by_seed:
                sizes = [counts[method, seed, c, measure.metric] for seed in by_seed for c in measure.cells]
                n, n_other = (min(column) for column in zip(*sizes, strict=True))
                stats[method, measure.key] = Stat(by_seed, n, n_other)
        for method, baseline in bare.baselines.items():
            mine, theirs = stats.get((method, measure.key)), stats.get((baseline, measure.key))
            if mine and theirs and (common := mine.values.keys() & theirs.values.keys()):
                differences = {seed: mine.values[seed] - theirs.values[seed] for seed in sorted(common)}
                base = float(np.mean([theirs.values[seed] for seed in differences]))
                possible = (-base, (1.0 if measure.fraction else 100.0) - base)
                deltas[method, measure.key] = Delta(differences, possible=possible)
    return replace(bare, stats=stats, deltas=deltas)


def _kind(row: Row) -> str:
    if row.benchmark == "clean":
        return "id"
    return "anomaly" if row.n_other else "shift"


def _method_order(kind: str) -> int:
    return METHODS.index(kind) if kind in METHODS else len(METHODS)


def _cell_order(cell: Cell) -> tuple[int, str, str, int]:
    kind = ("id", "shift", "anomaly").index(cell.kind)
    return kind, cell.benchmark, cell.corruption or "", cell.severity or 0


def _distinguishing(rows: Iterable[Row]) -> tuple[str, ...]:
    """The columns that may tell two runs of one arm apart, in the order in which they are tried."""
    columns = dict.fromkeys(name for row in rows for name in row.about if name not in {*_SAME, *_FIRST})
    return (*_FIRST, *columns, *_PREDICTION)


def _identity(row: Row, names: Sequence[str]) -> tuple[object, ...]:
    columns = row.columns()
    return (row.arm, *(columns.get(name) for name in names))


def _namer(rows: list[Row], distinguishing: Sequence[str]) -> dict[tuple[object, ...], str]:
    """A name for each identity: the arm, and what it takes to tell it from others of the same name."""
    names = {}
    identities = {_identity(row, distinguishing): row.arm for row in rows}
    for identity, arm in identities.items():
        same = [other for other, its in identities.items() if its == arm]
        chosen: list[int] = []
        for i in range(1, len(identity)):  # an attribute that goes along with those before it says nothing new
            if len({tuple(o[j] for j in (*chosen, i)) for o in same}) > len(
                {tuple(o[j] for j in chosen) for o in same}
            ):
                chosen.append(i)
        names[identity] = ", ".join([arm, *(_words(distinguishing[i - 1], identity[i]) for i in chosen)])
    return names


def _words(attribute: str, value: object) -> str:
    if attribute == "model":
        return str(value)
    return f"{attribute} {value}".replace("_", " ")


def _baselines(methods: tuple[str, ...], kinds: Mapping[str, str], chosen: str | None) -> dict[str, str]:
    """What each method is compared with: the chosen one, or the standard one with the same additions, or the only."""
    if chosen is not None:
        return {method: chosen for method in methods if method != chosen}
    standards = [method for method in methods if kinds[method] == "standard"]
    found = {}
    for method in methods:
        if kinds[method] == "standard":
            continue
        additions = method.partition(", ")[2]
        same = [standard for standard in standards if standard.partition(", ")[2] == additions]
        if len(same) == 1 or len(standards) == 1:
            found[method] = (same or standards)[0]
    return found


def _measures(values: Mapping[Value, float], notes: list[str]) -> tuple[Measure, ...]:
    """The headline measures for which any method has numbers, in the order of the table."""
    by_metric: dict[str, dict[tuple[str, int], set[Cell]]] = {}
    for method, seed, cell, metric in values:
        by_metric.setdefault(metric, {}).setdefault((method, seed), set()).add(cell)

    def common(metric: str, kind: str, benchmark: str | None = None) -> tuple[Cell, ...]:
        """The cells that every run with any of them has."""
        sets = [
            {cell for cell in cells if cell.kind == kind and benchmark in (None, cell.benchmark)}
            for cells in by_metric.get(metric, {}).values()
        ]
        sets = [cells for cells in sets if cells]
        shared = set.intersection(*sets) if sets else set()
        missing = sorted((set.union(*sets) if sets else set()) - shared, key=_cell_order)
        if missing and (benchmark is not None or kind == "id") and metric in ("top1", "auroc"):
            listed = ", ".join(cell.name for cell in missing[:6]) + (" and more" if len(missing) > 6 else "")
            notes.append(
                f"{len(missing)} of {len(missing) + len(shared)} cells of {benchmark or 'clean'} are not in "
                f"every run and count in no mean: {listed}."
            )
        return tuple(sorted(shared, key=_cell_order))

    def benchmarks(metric: str, kind: str) -> list[str]:
        runs = by_metric.get(metric, {}).values()
        return sorted({cell.benchmark for cells in runs for cell in cells if cell.kind == kind})

    found = [Measure("top1:clean", "top1", "clean", common("top1", "id"))]
    shifts = benchmarks("top1", "shift")
    for benchmark in shifts:
        cells = common("top1", "shift", benchmark)
        worst = tuple(cell for cell in cells if cell.severity == 5)
        found.append(Measure(f"top1:{benchmark}", "top1", benchmark, cells))
        if len(worst) < len(cells):
            found.append(Measure(f"top1:{benchmark}@5", "top1", f"{benchmark} severity 5", worst))
    if len(shifts) > 1:
        found.append(Measure("top1:shift", "top1", "all shifts", common("top1", "shift")))
    found.append(Measure("smooth_ece:clean", "smooth_ece", "clean", common("smooth_ece", "id")))
    found.append(Measure("smooth_ece:shift", "smooth_ece", "shifted", common("smooth_ece", "shift")))
    anomalies = benchmarks("auroc", "anomaly")
    for benchmark in anomalies:
        for metric in ANOMALY_METRICS:
            cells = common(metric, "anomaly", benchmark)
            found.append(Measure(f"{metric}:{benchmark}", metric, benchmark, cells))
    if len(anomalies) > 1:
        for metric in ANOMALY_METRICS:
            cells = common(metric, "anomaly")
            found.append(Measure(f"{metric}:anomalies", metric, "mean of sets", cells))
    return tuple(measure for measure in found if measure.cells)


def shift_key(summary: Summary) -> str | None:
    """The measure that stands for accuracy under shift: over all shifts, or the only one."""
    keys = [m.key for m in summary.measures if m.metric == "top1" and m.cells[0].kind == "shift"]
    return "top1:shift" if "top1:shift" in keys else (keys[0] if keys else None)


def anomaly_key(summary: Summary, metric: str = "auroc") -> str | None:
    """The measure that stands for anomaly rejection: over all anomaly sets, or the only one."""
    keys = [measure.key for measure in summary.measures if measure.metric == metric]
    return f"{metric}:anomalies" if f"{metric}:anomalies" in keys else (keys[0] if keys else None)
