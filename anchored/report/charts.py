"""The figures of a comparison that are drawn from its numbers: accuracy by severity and by corruption."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from anchored.evaluation.rows import Cell
from anchored.report.figures import (
    INK,
    MUTED,
    PAPER,
    Legend,
    Look,
    Picture,
    canvas,
    label_ends,
    labels_fit,
    looks,
    slug,
    to_svg,
)
from anchored.report.score_charts import energy_chart, reliability_chart
from anchored.report.scores import Scores
from anchored.report.summary import Summary
from anchored.report.training_chart import Curves, training_chart

FEW = 4  # arms whose lines are drawn thick


def charts(summary: Summary, scores: Scores, curves: Curves) -> list[Callable[[], Picture | None]]:
    """The figures that this comparison may have, in the order of the page."""
    shifts = sorted({cell.benchmark for cell in summary.cells("top1") if cell.kind == "shift"})
    anomalies = sorted({cell.benchmark for cell in summary.cells("auroc")})
    found: list[Callable[[], Picture | None]] = []
    found += [partial(severity_chart, summary, benchmark) for benchmark in shifts]
    found += [partial(corruption_chart, summary, benchmark) for benchmark in shifts]
    found += [partial(reliability_chart, summary, scores)]
    found += [partial(energy_chart, summary, scores, benchmark) for benchmark in anomalies]
    found += [partial(training_chart, summary, curves)]
    return found


def severity_chart(summary: Summary, benchmark: str) -> Picture | None:
    """Accuracy against severity, the clean test set at 0."""
    measure = summary.measure(f"top1:{benchmark}")
    cells = measure.cells if measure else ()
    severities = sorted({cell.severity for cell in cells if cell.severity is not None})
    if len(severities) < 2:
        return None
    styles, spoken, ends = looks(summary), [], {}
    groups = [(0, [Cell("clean")])] + [(s, [c for c in cells if c.severity == s]) for s in severities]
    drawn = 3.3 if len(summary.arms) <= FEW else 4.4
    direct = labels_fit(summary.arms, 0.8 * drawn)
    legend = None if direct else Legend.of(summary.arms)
    height = drawn + (legend.height if legend else 0.0)
    figure, (axis,) = canvas(height)
    figure.subplots_adjust(left=0.155, right=0.77 if direct else 0.97, top=0.96 * drawn / height, bottom=0.53 / height)
    for arm in summary.arms:
        ends_at = _severities(axis, summary, arm, groups, styles[arm])
        if ends_at is not None:
            ends[arm], first, last = ends_at
            spoken.append(f"{arm} from {first:.1f} to {last:.1f} %")
    axis.set_xticks([0, *severities], ["clean", *map(str, severities)])
    axis.set_xlabel("severity")
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("top-1 accuracy, %")
    axis.margins(y=0.08)
    if legend:
        legend.draw(figure, styles)
    else:
        label_ends(axis, ends, styles)
    band = " Bands: ± one standard deviation over seeds." if len(summary.seeds) > 1 else ""
    corruptions = len({cell.corruption for cell in cells})
    return Picture(
        f"severity-{slug(benchmark)}",
        f"Accuracy by severity ({benchmark})",
        f"Mean over {corruptions} corruptions; higher is better.{band}",
        f"Line chart of top-1 accuracy from clean to severity {severities[-1]} of {benchmark}: {'; '.join(spoken)}.",
        to_svg(figure),
    )


def _severities(
    axis: Axes, summary: Summary, arm: str, groups: list[tuple[int, list[Cell]]], look: Look
) -> tuple[tuple[float, float], float, float] | None:
    """Draw one arm's line; where it ends, its first and its last value, or None where it has none."""
    points = [(x, by_seed) for x, group in groups if (by_seed := summary.over_seeds(arm, group, "top1"))]
    if not points:
        return None
    x = [point for point, _ in points]
    y = [float(np.mean(list(by_seed.values()))) for _, by_seed in points]
    if any(len(by_seed) > 1 for _, by_seed in points):
        error = [float(np.std(list(b.values()), ddof=1)) if len(b) > 1 else 0.0 for _, b in points]
        axis.fill_between(
            x,
            np.subtract(y, error),
            np.add(y, error),
            color=look.colour,
            alpha=0.14 if len(summary.arms) <= FEW else 0.07,
            linewidth=0,
        )
    width = 2.0 if len(summary.arms) <= FEW else 1.4
    axis.plot(x, y, color=look.colour, linestyle=look.dash, marker=look.marker, markersize=6,
              linewidth=width, markeredgecolor=PAPER, clip_on=False)  # fmt: skip
    return (x[-1], y[-1]), y[0], y[-1]


def corruption_chart(summary: Summary, benchmark: str) -> Picture | None:
    """Accuracy per corruption, the mean over its severities, one dot an arm."""
    measure = summary.measure(f"top1:{benchmark}")
    cells = [cell for cell in measure.cells if cell.corruption is not None] if measure else []
    names = sorted({str(cell.corruption) for cell in cells})
    if not names:
        return None
    table = per_corruption(summary, benchmark, "top1")
    first = next(arm for arm in summary.arms if any((arm, name) in table for name in names))
    names.sort(key=lambda name: (table.get((first, name), math.nan), name))
    styles, legend = looks(summary), Legend.of(summary.arms)
    height = 0.95 + 0.235 * len(names) + legend.height
    figure, (axis,) = canvas(height)
    figure.subplots_adjust(left=0.36, right=0.97, top=1 - (0.2 + legend.height) / height, bottom=0.52 / height)
    for row, name in enumerate(names):
        found = [table[arm, name] for arm in summary.arms if (arm, name) in table]
        axis.plot([min(found), max(found)], [row, row], color=MUTED, linewidth=1.0, zorder=1)
    for arm in summary.arms:
        points = [(table[arm, name], row) for row, name in enumerate(names) if (arm, name) in table]
        if points:
            x, y = zip(*points, strict=True)
            axis.scatter(x, y, s=44, color=styles[arm].colour,
                         marker=styles[arm].marker, edgecolors=PAPER, linewidths=0.7, zorder=3)  # fmt: skip
    axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], color=INK)
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("top-1 accuracy, %")
    legend.draw(figure, styles)
    return Picture(
        f"corruptions-{slug(benchmark)}",
        f"Accuracy by corruption ({benchmark})",
        f"Mean over severities, hardest for {first} at the bottom; the bar joins the arms.",
        f"Dot plot of top-1 accuracy for {len(names)} corruptions of {benchmark} by arm; "
        "the numbers are in the table per corruption.",
        to_svg(figure),
    )


def per_corruption(summary: Summary, benchmark: str, metric: str) -> dict[tuple[str, str], float]:
    """(arm, corruption) -> mean of `metric` over the severities that all arms have, and over seeds."""
    measure = summary.measure(f"top1:{benchmark}")
    found = {}
    for name in sorted({str(c.corruption) for c in measure.cells if c.corruption}) if measure else []:
        cells = [cell for cell in (measure.cells if measure else ()) if cell.corruption == name]
        for arm in summary.arms:
            by_seed = summary.over_seeds(arm, cells, metric)
            if by_seed:
                found[arm, name] = float(np.mean(list(by_seed.values())))
    return found
