"""The figures of a comparison, each a function from numbers to a Picture, or None where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from anchored.evaluation.rows import Cell
from anchored.report.figures import (
    ANOMALY,
    INK,
    KNOWN,
    MUTED,
    PAPER,
    Look,
    Picture,
    canvas,
    label_ends,
    looks,
    to_svg,
)
from anchored.report.scores import Scores
from anchored.report.summary import Summary

Curves = Mapping[tuple[str, int], list[dict[str, float]]]  # (method, seed) -> one record an epoch


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
    figure, (axis,) = canvas(3.3)
    figure.subplots_adjust(left=0.155, right=0.77, top=0.96, bottom=0.16)
    clean = Cell("clean")
    for method in summary.methods:
        groups = [(0, [clean])] + [(s, [c for c in cells if c.severity == s]) for s in severities]
        points = [(x, summary.over_seeds(method, group, "top1")) for x, group in groups]
        points = [(x, by_seed) for x, by_seed in points if by_seed]
        if not points:
            continue
        x = [point for point, _ in points]
        y = [float(np.mean(list(by_seed.values()))) for _, by_seed in points]
        look = styles[method]
        if any(len(by_seed) > 1 for _, by_seed in points):
            error = [float(np.std(list(b.values()), ddof=1)) if len(b) > 1 else 0.0 for _, b in points]
            lower, upper = np.subtract(y, error), np.add(y, error)
            axis.fill_between(x, lower, upper, color=look.colour, alpha=0.16, linewidth=0)
        axis.plot(x, y, color=look.colour, linestyle=look.dash, marker=look.marker, markersize=6,
                  markeredgecolor=PAPER, clip_on=False)  # fmt: skip
        ends[method] = (x[-1], y[-1])
        spoken.append(f"{method} from {y[0]:.1f} to {y[-1]:.1f} %")
    axis.set_xticks([0, *severities], ["clean", *map(str, severities)])
    axis.set_xlabel("severity")
    axis.grid(axis="x", visible=False)
    axis.set_ylabel("top-1 accuracy, %")
    axis.margins(y=0.08)
    label_ends(axis, ends, styles)
    band = " Bands: ± one standard deviation over seeds." if len(summary.seeds) > 1 else ""
    corruptions = len({cell.corruption for cell in cells})
    return Picture(
        f"severity-{_slug(benchmark)}",
        f"Accuracy by severity ({benchmark})",
        f"Mean over {corruptions} corruptions; higher is better.{band}",
        f"Line chart of top-1 accuracy from clean to severity {severities[-1]} of {benchmark}: {'; '.join(spoken)}.",
        to_svg(figure),
    )


def corruption_chart(summary: Summary, benchmark: str) -> Picture | None:
    """Accuracy per corruption, the mean over its severities, one dot a method."""
    measure = summary.measure(f"top1:{benchmark}")
    cells = [cell for cell in measure.cells if cell.corruption is not None] if measure else []
    names = sorted({str(cell.corruption) for cell in cells})
    if not names:
        return None
    table = per_corruption(summary, benchmark, "top1")
    first = next(method for method in summary.methods if any((method, name) in table for name in names))
    names.sort(key=lambda name: (table.get((first, name), math.nan), name))
    styles = looks(summary)
    height = 0.95 + 0.235 * len(names) + 0.2 * _legend_lines(summary)
    figure, (axis,) = canvas(height)
    figure.subplots_adjust(left=0.36, right=0.97, top=1 - (0.2 + 0.2 * _legend_lines(summary)) / height,
                           bottom=0.52 / height)  # fmt: skip
    for row, name in enumerate(names):
        found = [table[method, name] for method in summary.methods if (method, name) in table]
        axis.plot([min(found), max(found)], [row, row], color=MUTED, linewidth=1.0, zorder=1)
    for method in summary.methods:
        points = [(table[method, name], row) for row, name in enumerate(names) if (method, name) in table]
        if points:
            x, y = zip(*points, strict=True)
            axis.scatter(x, y, s=44, color=styles[method].colour, marker=styles[method].marker,
                         edgecolors=PAPER, linewidths=0.7, zorder=3)  # fmt: skip
    axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], color=INK)
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("top-1 accuracy, %")
    _legend(figure, summary, styles)
    return Picture(
        f"corruptions-{_slug(benchmark)}",
        f"Accuracy by corruption ({benchmark})",
        f"Mean over severities, hardest for {first} at the bottom; the bar joins the methods.",
        f"Dot plot of top-1 accuracy for {len(names)} corruptions of {benchmark} by method; "
        "the numbers are in the table per corruption.",
        to_svg(figure),
    )


def reliability_chart(summary: Summary, scores: Scores) -> Picture | None:
    """How often predictions of a confidence are right, clean and shifted."""
    places = [p for p in ("clean", "shifted") if any((m, p) in scores.reliability for m in summary.methods)]
    if not places:
        return None
    styles, spoken = looks(summary), []
    lines = _legend_lines(summary)
    height = 2.75 + 0.2 * lines
    figure, axes = canvas(height, 1, 2, sharey=True)
    figure.subplots_adjust(left=0.11, right=0.97, top=1 - (0.45 + 0.2 * lines) / height,
                           bottom=0.5 / height, wspace=0.22)  # fmt: skip
    for axis, place in zip(axes, places, strict=False):
        axis.plot([0, 100], [0, 100], color=MUTED, linewidth=1.0, linestyle=(0, (3, 2)))
        for method in summary.methods:
            if (method, place) not in scores.reliability:
                continue
            count, confidence, hits = scores.reliability[method, place]
            kept = count >= max(10.0, 0.002 * count.sum())  # a bin of few images is noise
            kept = kept if kept.any() else count > 0
            look = styles[method]
            axis.plot(100 * confidence[kept] / count[kept], 100 * hits[kept] / count[kept], color=look.colour,
                      linestyle=look.dash, marker=look.marker, markersize=4.5, markeredgecolor=PAPER,
                      markeredgewidth=0.5, linewidth=1.6)  # fmt: skip
            gap = 100 * (confidence.sum() - hits.sum()) / count.sum()
            sense = "above" if gap >= 0 else "below"
            spoken.append(f"{method} {place}: confidence {abs(gap):.1f} points {sense} accuracy")
        axis.set(xlim=(0, 100), ylim=(0, 100), xticks=(0, 50, 100), yticks=(0, 50, 100))
        axis.set_title(place, loc="left", fontweight="bold", pad=5)
        axis.set_xlabel("confidence, %")
    for axis in axes[len(places) :]:
        axis.set_visible(False)
    axes[0].set_ylabel("accuracy, %")
    _legend(figure, summary, styles)
    return Picture(
        "reliability",
        "Does confidence mean what it says?",
        "Accuracy of predictions by their confidence. On the dashed line the two agree; below it the model is "
        "over-confident.",
        f"Reliability diagrams: {'; '.join(spoken)}.",
        to_svg(figure),
    )


def energy_chart(summary: Summary, scores: Scores, benchmark: str) -> Picture | None:
    """Energies of test images against those of anomalies, one row a method."""
    methods = [
        method
        for method in summary.methods
        if (method, benchmark) in scores.energies and (method, "clean") in scores.energies
    ]
    if not methods:
        return None
    height = 0.75 + 0.95 * len(methods)
    figure, axes = canvas(height, len(methods), 1)
    figure.subplots_adjust(left=0.03, right=0.97, top=1 - 0.3 / height, bottom=0.5 / height, hspace=0.75)
    spoken = []
    for row, (axis, method) in enumerate(zip(axes, methods, strict=True)):
        known, odd = scores.energies[method, "clean"], scores.energies[method, benchmark]
        low, high = np.quantile(np.concatenate([known, odd]), [0.01, 0.99])
        edges = np.linspace(low, max(high, low + 1e-6), 41)
        for values, colour, alpha in ((known, KNOWN, 0.75), (odd, ANOMALY, 0.45)):
            counts = np.histogram(values, edges)[0] / len(values)
            axis.stairs(counts, edges, fill=True, color=colour, alpha=alpha)
            axis.stairs(counts, edges, color=colour, linewidth=1.2)
        if row == 0:
            for name, colour, place in (("test images", KNOWN, 0.79), ("anomalies", ANOMALY, 1.0)):
                axis.annotate(name, (place, 1.0), xycoords="axes fraction", xytext=(0, 4),
                              textcoords="offset points", ha="right", va="bottom", color=colour,
                              fontweight="bold", fontsize=10.5)  # fmt: skip
        stat = summary.stats.get((method, f"auroc:{benchmark}"))
        seed = min(s for name, s in summary.runs if name == method)
        value = None if stat is None else stat.values.get(seed)
        told = "" if value is None else f": AUROC {value:.1f} %"
        axis.set_title(f"{method}{told}", loc="left", pad=4)
        spoken.append(f"{method}{told}")
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
        axis.grid(visible=False)
    axes[-1].set_xlabel("energy, higher looks more like an anomaly")
    first = "" if len(summary.seeds) == 1 else f" Seed {min(summary.seeds)}."
    return Picture(
        f"energy-{_slug(benchmark)}",
        f"Are anomalies told apart? ({benchmark})",
        f"The less the two overlap, the better they can be separated; the outermost 1 % are left out.{first}",
        f"Histograms of the energy of test images against anomalies of {benchmark}: {'; '.join(spoken)}.",
        to_svg(figure),
    )


def training_chart(summary: Summary, curves: Curves) -> Picture | None:
    """Loss and training accuracy by epoch; the loss of masked batches dotted."""
    if not any(curves.values()):
        return None
    styles = looks(summary)
    figure, axes = canvas(4.2, 2, 1, sharex=True)
    figure.subplots_adjust(left=0.12, right=0.77, top=0.93, bottom=0.13, hspace=0.3)
    spoken = []
    for axis, key, title in zip(
        axes, ("loss", "train_accuracy"), ("training loss", "training accuracy, %"), strict=True
    ):
        ends = {}
        for method in summary.methods:
            runs = [curve for (name, _), curve in sorted(curves.items()) if name == method and curve]
            for curve in runs:
                look = styles[method]
                _line(axis, curve, key, look, look.dash, 1.8 if len(runs) == 1 else 1.0)
                if key == "loss":
                    _line(axis, curve, "loss_masked", look, (0, (1, 1.5)), 1.2)
            last = [record for curve in runs for record in curve[-1:] if record.get(key) is not None]
            if last:
                ends[method] = (last[0]["epoch"], float(np.mean([record[key] for record in last])))
                spoken.append(f"{method} {title} ends at {ends[method][1]:.3g}")
        axis.set_title(title, loc="left", pad=5)
        axis.grid(axis="x", visible=False)
        label_ends(axis, ends, styles)
    axes[-1].set_xlabel("epoch")
    axes[-1].xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    masked = any(record.get("loss_masked") is not None for curve in curves.values() for record in curve)
    return Picture(
        "training",
        "How training went",
        "Loss and accuracy on the training images." + (" Dotted: the loss of masked batches." if masked else ""),
        f"Training curves: {'; '.join(spoken)}.",
        to_svg(figure),
    )


def per_corruption(summary: Summary, benchmark: str, metric: str) -> dict[tuple[str, str], float]:
    """(method, corruption) -> mean of `metric` over the severities that all methods have, and over seeds."""
    measure = summary.measure(f"top1:{benchmark}")
    found = {}
    for name in sorted({str(c.corruption) for c in measure.cells if c.corruption}) if measure else []:
        cells = [cell for cell in (measure.cells if measure else ()) if cell.corruption == name]
        for method in summary.methods:
            by_seed = summary.over_seeds(method, cells, metric)
            if by_seed:
                found[method, name] = float(np.mean(list(by_seed.values())))
    return found


def _line(axis: Axes, curve: list[dict[str, float]], key: str, look: Look, dash: object, width: float) -> None:
    points = [(record["epoch"], record[key]) for record in curve if record.get(key) is not None]
    if points:
        x, y = zip(*points, strict=True)
        marker = {"marker": look.marker, "markersize": 4} if len(points) == 1 else {}
        axis.plot(x, y, color=look.colour, linestyle=dash, linewidth=width, **marker)  # type: ignore[arg-type]


def _legend_columns(summary: Summary) -> int:
    return 2 if max(map(len, summary.methods)) <= 22 else 1  # what fits side by side


def _legend_lines(summary: Summary) -> int:
    return math.ceil(len(summary.methods) / _legend_columns(summary))


def _legend(figure: Figure, summary: Summary, styles: Mapping[str, Look]) -> None:
    handles = [
        Line2D([], [], color=styles[m].colour, marker=styles[m].marker, linestyle=styles[m].dash,
               markeredgecolor=PAPER, linewidth=1.6, label=m if len(m) <= 48 else f"{m[:47]}…")
        for m in summary.methods
    ]  # fmt: skip
    figure.legend(
        handles=handles,
        loc="upper left",
        ncols=_legend_columns(summary),
        labelcolor="linecolor",
        borderaxespad=0.1,
        handlelength=2.0,
        columnspacing=1.5,
        labelspacing=0.25,
        bbox_to_anchor=(0.02, 1.0),
    )


def _slug(name: str) -> str:
    return "".join(mark if mark.isalnum() and mark.isascii() else "-" for mark in name.lower())
