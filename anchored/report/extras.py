"""Numbers beside the headline: summaries over many cells, and exact tests of clean accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anchored.evaluation.metrics import clopper_pearson, mcnemar
from anchored.evaluation.rows import Cell
from anchored.report.scores import read_cell, run_folder
from anchored.report.summary import Summary

# metric -> (heading, digits)
NUMBERS = {
    "mce": ("mCE %", 1),
    "smooth_ece_mean": ("smooth ECE over shifts, mean", 3),
    "smooth_ece_std": ("smooth ECE over shifts, std", 3),
    "auroc_mean": ("AUROC %, mean of iSUN, Textures, Places365", 1),
    "auroc_msp": ("AUROC % by confidence", 1),
    "auroc_maxlogit": ("AUROC % by maximum logit", 1),
    "auroc_std": ("AUROC % by spread over references", 1),
    "auroc_disagreement": ("AUROC % by disagreement of references", 1),
    "aupr": ("AUPR %", 1),
    "top5": ("top-5 %", 1),
    "nll": ("NLL", 3),
    "brier": ("Brier score", 3),
    "ece": ("ECE, 15 bins", 3),
}


@dataclass(frozen=True)
class Extras:
    """Two tables: of exact tests (arm, n, accuracy, interval, p), and of further numbers (heading, then arms)."""

    tests: tuple[tuple[str, str, str, str, str], ...]
    numbers: tuple[tuple[str, tuple[str, ...]], ...]
    severities: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]


def extras(summary: Summary, runs: Mapping[str, Path]) -> Extras:
    """Clean accuracy with its Clopper-Pearson interval and McNemar's exact p against the baseline, of the first seed;
    and every further number of the rows, mean over seeds, per benchmark."""
    return Extras(tuple(_tests(summary, runs)), tuple(_numbers(summary)), tuple(_severities(summary)))


def _tests(summary: Summary, runs: Mapping[str, Path]) -> list[tuple[str, str, str, str, str]]:
    tables = {}
    for arm in summary.arms:
        run = summary.runs[arm, summary.seeds_of(arm)[0]]
        table = read_cell(run_folder(runs, run), run, Cell("clean"), [])
        if table is not None:
            tables[arm] = table
    found = []
    for arm, table in tables.items():
        hits, n = int(table["correct"].sum()), len(table["correct"])
        low, high = clopper_pearson(hits, n)
        base = tables.get(summary.baselines.get(arm, ""))
        p = ""
        if base is not None and np.array_equal(base["index"], table["index"]):
            value = mcnemar(table["correct"], base["correct"])
            p = f"{value:.2g} against {summary.baselines[arm]}"
        found.append((arm, f"{n:,}", f"{100 * hits / n:.2f}", f"{100 * low:.2f} to {100 * high:.2f}", p))
    return found


def _numbers(summary: Summary) -> list[tuple[str, tuple[str, ...]]]:
    found = []
    for metric, (heading, digits) in NUMBERS.items():
        for benchmark in sorted({cell.benchmark for cell in summary.cells(metric)}, key=lambda b: (b != "clean", b)):
            cells = summary.cells(metric, benchmark)
            values = [summary.over_seeds(arm, cells, metric) for arm in summary.arms]
            texts = tuple(f"{np.mean(list(each.values())):.{digits}f}" if each else "–" for each in values)
            if any(text != "–" for text in texts):
                place = "" if benchmark in ("shifts", "vision-ood") else f", {benchmark}"
                found.append((heading + place, texts))
    return found


def _severities(summary: Summary) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Per benchmark of corruptions, lines of (severity, accuracy of each arm): means over corruptions."""
    found = []
    for benchmark in sorted({cell.benchmark for cell in summary.cells("top1_mean")}):
        lines = []
        for cell in sorted(summary.cells("top1_mean", benchmark), key=lambda cell: cell.severity or 0):
            values = [summary.over_seeds(arm, [cell], "top1_mean") for arm in summary.arms]
            texts = (f"{np.mean(list(each.values())):.1f}" if each else "–" for each in values)
            lines.append((str(cell.severity), *texts))
        found.append((benchmark, tuple(lines)))
    return found
