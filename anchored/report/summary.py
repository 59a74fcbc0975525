"""Rows to headline numbers: one value an arm and measure, over seeds, and its difference from the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anchored.evaluation.rows import MEASURED, Cell, Row
from anchored.report.differences import Delta, Stat
from anchored.report.measures import Measure, Value, cell_order, measures, shift_key
from anchored.report.naming import Namer, baselines, no_baseline, ordered, resolved
from anchored.system.errors import InputError


@dataclass(frozen=True)
class Leader:
    """The arm with the highest mean of the measure that arms are ranked by, and how far it is ahead of each other."""

    arm: str
    key: str
    deltas: Mapping[str, Delta]  # the leader minus that arm


@dataclass(frozen=True)
class Summary:
    """Everything the tables, the verdict and the figures say."""

    data: str
    model: str
    arms: tuple[str, ...]
    measures: tuple[Measure, ...]
    stats: Mapping[tuple[str, str], Stat]  # (arm, measure key)
    deltas: Mapping[tuple[str, str], Delta]  # (arm, measure key), for arms that have a baseline
    baselines: Mapping[str, str]  # arm -> the arm it is compared with
    values: Mapping[Value, float]  # every number of the rows
    runs: Mapping[tuple[str, int], str]  # (arm, seed) -> run
    facts: Mapping[tuple[str, int], Mapping[str, Any]]  # (arm, seed) -> what its rows say of it
    leader: Leader | None = None
    configs: tuple[Mapping[str, Any], ...] = ()  # what config.json says of each folder that the rows come from
    notes: tuple[str, ...] = field(default=())

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for _, seed in self.runs}))

    @property
    def bases(self) -> tuple[str, ...]:
        """The arms that others are compared with."""
        return tuple(arm for arm in self.arms if arm in self.baselines.values())

    @property
    def compared(self) -> tuple[str, ...]:
        """The arms that have a difference to show."""
        found = {arm for arm, _ in self.deltas}
        return tuple(arm for arm in self.arms if arm in found)

    def measure(self, key: str | None) -> Measure | None:
        return next((measure for measure in self.measures if measure.key == key), None)

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        return tuple(sorted(seed for name, seed in self.runs if name == arm))

    def fact(self, arm: str, name: str) -> Any:
        """What the rows of an arm, those of its first seed, say in the column `name`; None where they say nothing."""
        return self.facts[arm, self.seeds_of(arm)[0]].get(name)

    def cells(self, metric: str, benchmark: str | None = None) -> tuple[Cell, ...]:
        """The cells, sorted, on which any arm has `metric`."""
        found = {cell for _, _, cell, name in self.values if name == metric}
        return tuple(sorted((c for c in found if benchmark in (None, c.benchmark)), key=cell_order))

    def over_seeds(self, arm: str, cells: Iterable[Cell], metric: str) -> dict[int, float]:
        """Per seed, the mean of `metric` over `cells`, for the seeds that have them all."""
        cells = tuple(cells)
        found = {}
        for seed in self.seeds:
            numbers = [self.values.get((arm, seed, cell, metric)) for cell in cells]
            if numbers and None not in numbers:
                found[seed] = float(np.mean([number for number in numbers if number is not None]))
        return found


def headline(rows: Iterable[Row], baseline: str | None = None, *, configs: Sequence[Mapping[str, Any]] = ()) -> Summary:
    """Per arm and headline measure: mean, spread and count over seeds, and the difference from the baseline.

    baseline: the arm that all others are compared with, by its name or that of a run of it; by default what `configs`
    say (their `baseline`, else the first of their `arms`), or else the standard arm. configs: of the comparisons that
    the rows come from; arms stand in their order, the baseline first. A mean over corruptions counts only the cells
    that every run compared has; a note names the others. Where a number occurs twice, the later row counts. Raises
    InputError when there are no rows, when they come from several data sets, and for a baseline that is not there.
    """
    rows = list(rows)
    if not rows:
        raise InputError("a report needs at least one row; there are none.")
    if len(datasets := sorted({row.data for row in rows})) > 1:
        raise InputError(f"a report compares arms on one data set; the rows have {', '.join(datasets)}.")
    found = _Collected(rows)
    given = list(dict.fromkeys(name for config in configs for name in config.get("arms", ())))
    chosen = _chosen(baseline, given, configs, found)
    own = {arm: facts["arm"] for (arm, _), facts in found.facts.items()}
    methods = {arm: str(facts["method"]) for (arm, _), facts in found.facts.items()}
    arms = ordered(own, methods, given, chosen)
    columns, notes = measures(found.values)
    bare = Summary(
        data=datasets[0],
        model=", ".join(sorted({row.model for row in rows})),
        arms=arms,
        measures=columns,
        stats={},
        deltas={},
        baselines=baselines(own, methods, chosen),
        values=found.values,
        runs=found.runs,
        facts=found.facts,
        configs=tuple(configs),
        notes=(*found.notes, *notes),
    )
    full = replace(
        bare, stats={(arm, m.key): stat for arm in arms for m in columns if (stat := found.stat(bare, arm, m))}
    )
    full = replace(full, deltas=_deltas(full, full.baselines))
    return replace(full, leader=_leader(full))


def paired(summary: Summary, arm: str, other: str) -> Summary:
    """`arm` compared with `other` alone: their numbers on the measures of the whole comparison."""
    found = replace(summary, arms=(other, arm), baselines={arm: other}, leader=None, notes=())
    return replace(found, deltas=_deltas(found, found.baselines))


def difference(summary: Summary, arm: str, other: str, measure: Measure) -> Delta | None:
    """`arm` minus `other`, or None where they have no seed in common."""
    mine, theirs = summary.stats.get((arm, measure.key)), summary.stats.get((other, measure.key))
    if mine is None or theirs is None or not (common := mine.values.keys() & theirs.values.keys()):
        return None
    differences = {seed: mine.values[seed] - theirs.values[seed] for seed in sorted(common)}
    base = float(np.mean([theirs.values[seed] for seed in differences]))
    return Delta(differences, possible=(-base, (1.0 if measure.fraction else 100.0) - base))


class _Collected:
    """The numbers of the rows by arm, seed, cell and metric, and what the rows say of each run."""

    def __init__(self, rows: Sequence[Row]) -> None:
        name = Namer(rows)
        self.values: dict[Value, float] = {}
        self.counts: dict[Value, tuple[int, int]] = {}
        self.runs: dict[tuple[str, int], str] = {}
        self.facts: dict[tuple[str, int], Mapping[str, Any]] = {}
        twice: dict[tuple[str, int], str] = {}
        for row in rows:
            arm = name(row)
            key = (arm, row.seed, Cell(row.benchmark, row.corruption, row.severity, _kind(row)), row.metric)
            self.values[key], self.counts[key] = float(row.value), (row.n, row.n_other)
            run = arm, row.seed
            if (other := self.runs.get(run, row.run)) != row.run:
                twice[run] = f"{other} and {row.run}"
            if self.runs.get(run) != row.run:
                own = ("protocol", "k", "tempering", "preprocess")
                says = {column: value for column, value in row.columns().items() if column not in MEASURED}
                self.facts[run] = {**says, **{column: getattr(row, column) for column in own}}
            self.runs[run] = row.run
        self.notes = [f"{both} are both {arm}, seed {seed}: the latter counts" for (arm, seed), both in twice.items()]

    def stat(self, summary: Summary, arm: str, measure: Measure) -> Stat | None:
        by_seed = summary.over_seeds(arm, measure.cells, measure.metric)
        if not by_seed:
            return None
        sizes = [self.counts[arm, seed, cell, measure.metric] for seed in by_seed for cell in measure.cells]
        n, n_other = (min(column) for column in zip(*sizes, strict=True))
        return Stat(by_seed, n, n_other)


def _chosen(
    baseline: str | None, given: Sequence[str], configs: Sequence[Mapping[str, Any]], found: _Collected
) -> str | None:
    """The arm, or the name of arms, that is the baseline; None where nothing says so."""
    own = {arm: str(facts["arm"]) for (arm, _), facts in found.facts.items()}
    if baseline is not None:
        chosen = resolved(baseline, own, found.runs)
        if chosen is None:
            raise no_baseline(baseline, dict.fromkeys([*own, *own.values()]), found.runs.values())
        return chosen
    said = [str(config["baseline"]) for config in configs if config.get("baseline") is not None]
    candidates = (resolved(name, own, found.runs) for name in (*said, *given))
    return next((name for name in candidates if name is not None), None)


def _deltas(summary: Summary, against: Mapping[str, str]) -> dict[tuple[str, str], Delta]:
    found = {}
    for measure in summary.measures:
        for arm, other in against.items():
            if (delta := difference(summary, arm, other, measure)) is not None:
                found[arm, measure.key] = delta
    return found


def _leader(summary: Summary) -> Leader | None:
    """The best arm by accuracy under shift, or on clean images where there is no shift; None for one arm."""
    measure = summary.measure(shift_key(summary.measures) or "top1:clean")
    if measure is None:
        return None
    means = {arm: summary.stats[arm, measure.key].mean for arm in summary.arms if (arm, measure.key) in summary.stats}
    if len(means) < 2:
        return None
    best = max(means, key=lambda arm: means[arm])
    deltas = {arm: difference(summary, best, arm, measure) for arm in means if arm != best}
    return Leader(best, measure.key, {arm: delta for arm, delta in deltas.items() if delta is not None})


def _kind(row: Row) -> str:
    if row.benchmark == "clean":
        return "id"
    return "anomaly" if row.n_other else "shift"
