"""Per-sample scores of a comparison folder, read once and reduced to what intervals and figures need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import parquet

from anchored.evaluation.metrics import auroc_terms, fpr95_terms, smooth_ece_terms
from anchored.evaluation.rows import Cell
from anchored.report.measures import Measure
from anchored.report.summary import Summary
from anchored.system.errors import InputError

BINS = 15
COLUMNS = ("index", "confidence", "correct", "energy")

Floats = NDArray[np.float64]


@dataclass
class Influence:
    """How much each image moves one number: what a bootstrap over images resamples.

    `parts` maps a population (the test images, or a set of its own) to pairs of image index and influence. The
    influences of a population sum to zero; resampling its images shifts the number by their sum.
    """

    parts: dict[str, list[tuple[NDArray[np.int64], Floats]]] = field(default_factory=dict)

    def add(self, population: str, index: NDArray[np.int64], terms: Floats, weight: float) -> None:
        """Count `weight` times the mean of `terms` (one an image) into the number."""
        self.parts.setdefault(population, []).append((index, weight * (terms - terms.mean()) / len(terms)))

    def include(self, other: Influence, weight: float) -> None:
        """Count `weight` times another number into this one."""
        for population, parts in other.parts.items():
            mine = self.parts.setdefault(population, [])
            mine.extend((index, weight * terms) for index, terms in parts)

    def compact(self) -> Influence:
        """The same with one pair a population: cells on the same images add up."""
        small = Influence()
        for population, parts in self.parts.items():
            images, place = np.unique(np.concatenate([index for index, _ in parts]), return_inverse=True)
            total = np.zeros(len(images))
            np.add.at(total, place, np.concatenate([terms for _, terms in parts]))
            small.parts[population] = [(images, total)]
        return small

    def per_image(self) -> dict[str, Floats]:
        """Per population, the influence of each distinct image times their count: a bootstrap takes means."""
        parts = sorted(self.compact().parts.items())
        return {population: pairs[0][1] * len(pairs[0][0]) for population, pairs in parts}


@dataclass(frozen=True)
class Scores:
    """The reduced scores. Keys name arms and measures of the summary they were read for."""

    influences: Mapping[tuple[str, int, str], Influence]  # arm, seed, measure key; absent where scores are
    reliability: Mapping[tuple[str, str], Floats]  # arm, "clean" | "shifted" -> [3, BINS]: n, confidence, hits
    energies: Mapping[tuple[str, str], Floats]  # arm, benchmark -> energies of the first seed
    missing: tuple[str, ...]  # score files that the rows call for and the folder lacks


def read_scores(summary: Summary, out: Path | Mapping[str, Path]) -> Scores:
    """Read every score file that a headline measure needs, one cell at a time.

    out: the comparison's folder, or the folder of each run. Raises InputError, naming the file, where one is not a
    table of scores.
    """
    influences: dict[tuple[str, int, str], Influence] = {}
    reliability: dict[tuple[str, str], Floats] = {}
    energies: dict[tuple[str, str], Floats] = {}
    missing: list[str] = []
    for (arm, seed), run in sorted(summary.runs.items()):
        measures = [m for m in summary.measures if seed in _seeds(summary, arm, m)]
        first = seed == summary.seeds_of(arm)[0]
        cells = sorted({cell for m in measures for cell in m.cells}, key=lambda cell: (cell.kind, cell.name))
        own = {measure.key: Influence() for measure in measures}
        where = run_folder(out, run)
        clean = read_cell(where, run, Cell("clean"), [])
        for cell in cells:
            table = read_cell(where, run, cell, missing)
            concerned = [measure for measure in measures if cell in measure.cells]
            if table is None or (cell.kind == "anomaly" and clean is None):
                for measure in concerned:
                    own.pop(measure.key, None)
                continue
            if cell.kind == "anomaly":
                _add_anomaly(own, concerned, cell, clean or {}, table)
            else:
                _add_known(own, concerned, cell, table)
                _count(reliability.setdefault((arm, _place(cell)), np.zeros((3, BINS))), table)
            if first and cell.kind in ("id", "anomaly"):
                energies[arm, cell.benchmark] = table["energy"]
        for key, influence in own.items():
            if influence.parts:
                influences[arm, seed, key] = influence.compact()
    return Scores(influences, reliability, energies, tuple(missing))


def _seeds(summary: Summary, arm: str, measure: Measure) -> set[int]:
    stat = summary.stats.get((arm, measure.key))
    return set(stat.values) if stat else set()


def _place(cell: Cell) -> str:
    return "clean" if cell.kind == "id" else "shifted"


def _population(cell: Cell) -> str:
    """Corruptions are made of the test images; any other shift or anomaly set has images of its own."""
    return "clean" if cell.corruption is not None or cell.kind == "id" else cell.name


def run_folder(out: Path | Mapping[str, Path], run: str) -> Path:
    """The folder of a run: under the comparison's folder `out`, or as `out` says."""
    return out / "runs" / run if isinstance(out, Path) else out[run]


def read_cell(where: Path, run: str, cell: Cell, missing: list[str]) -> dict[str, NDArray[Any]] | None:
    """The scores of a cell in the run's folder `where`; None, and its name in `missing`, where there are none.

    Raises InputError for a file that is not a table of scores.
    """
    path = where / "scores" / f"{cell.name}.parquet"
    if not path.exists():
        missing.append(f"runs/{run}/scores/{cell.name}.parquet")
        return None
    try:
        table = parquet.read_table(path, columns=list(COLUMNS), use_threads=False)
        found = {name: table.column(name).to_numpy() for name in COLUMNS}
        found["index"] = found["index"].astype(np.int64)
        found["confidence"] = np.clip(found["confidence"].astype(np.float64), 0.0, 1.0)  # float32 rounds above 1
        found["correct"] = found["correct"].astype(np.float64)
        found["energy"] = found["energy"].astype(np.float64)
    except (pyarrow.ArrowException, KeyError, ValueError, TypeError, OSError) as error:
        raise InputError(f"{path} is not a table of scores with {', '.join(COLUMNS)}: {error}.") from error
    if not len(found["index"]) or any(np.isnan(found[name]).any() for name in COLUMNS):
        raise InputError(f"{path} holds no scores or some that are not numbers.")
    return found


def _add_known(own: dict[str, Influence], concerned: list[Measure], cell: Cell, table: dict[str, NDArray[Any]]) -> None:
    for measure in concerned:
        if measure.key not in own:
            continue
        if measure.metric == "top1":
            terms = 100.0 * table["correct"]
        else:
            terms = smooth_ece_terms(table["confidence"], table["correct"])
        own[measure.key].add(_population(cell), table["index"], terms, 1.0 / len(measure.cells))


def _add_anomaly(
    own: dict[str, Influence],
    concerned: list[Measure],
    cell: Cell,
    clean: dict[str, NDArray[Any]],
    table: dict[str, NDArray[Any]],
) -> None:
    """Both sides of a comparison with anomalies: the test images and the anomalies are resampled apart."""
    for measure in concerned:
        if measure.key in own:
            terms = auroc_terms if measure.metric == "auroc" else fpr95_terms
            known, odd = terms(clean["energy"], table["energy"])
            weight = 100.0 / len(measure.cells)
            own[measure.key].add("clean", clean["index"], known, weight)
            own[measure.key].add(_population(cell), table["index"], odd, weight)


def _count(bins: Floats, table: dict[str, NDArray[Any]]) -> None:
    place = np.clip(np.ceil(table["confidence"] * BINS).astype(np.int64) - 1, 0, BINS - 1)
    for row, weights in enumerate((None, table["confidence"], table["correct"])):
        bins[row] += np.bincount(place, weights, BINS)
