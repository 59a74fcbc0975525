"""The comparison as CSV, at full precision."""

from __future__ import annotations

import csv
import io

from anchored.report.summary import Summary

# The first column holds arms; its name is that of the files written before there were any.
CSV_COLUMNS = (
    "method", "measure", "metric", "cells", "mean", "std_over_seeds", "seeds", "n", "n_other", "baseline",
    "delta", "images_low", "images_high", "seeds_low", "seeds_high",
)  # fmt: skip


def csv_text(summary: Summary) -> str:
    """One line an arm and measure at full precision; empty where a number does not exist."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for arm in summary.arms:
        for measure in summary.measures:
            stat = summary.stats.get((arm, measure.key))
            if stat is None:
                continue
            delta = summary.deltas.get((arm, measure.key))
            line: list[object] = [arm, measure.key, measure.metric, len(measure.cells), stat.mean, stat.std]
            line += [stat.seeds, stat.n, stat.n_other]
            if delta is None:
                line += [None] * 6
            else:
                line += [summary.baselines[arm], delta.mean]
                line += [*(delta.over_images or (None, None)), *(delta.over_seeds or (None, None))]
            writer.writerow(["" if item is None else item for item in line])
    return buffer.getvalue()
