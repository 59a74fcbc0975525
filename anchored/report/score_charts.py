"""The figures that are drawn from scores of single images: reliability and energies."""

from __future__ import annotations

import numpy as np

from anchored.report.figures import (
    ANOMALY,
    KNOWN,
    MUTED,
    PAPER,
    Legend,
    Picture,
    canvas,
    fitted,
    looks,
    slug,
    to_svg,
)
from anchored.report.scores import Scores
from anchored.report.summary import Summary


def reliability_chart(summary: Summary, scores: Scores) -> Picture | None:
    """How often predictions of a confidence are right, clean and shifted."""
    places = [p for p in ("clean", "shifted") if any((m, p) in scores.reliability for m in summary.arms)]
    if not places:
        return None
    styles, spoken, legend = looks(summary), [], Legend.of(summary.arms)
    height = 2.75 + legend.height
    figure, axes = canvas(height, 1, 2)
    figure.subplots_adjust(left=0.125, right=0.97, top=1 - (0.45 + legend.height) / height,
                           bottom=0.5 / height, wspace=0.22)  # fmt: skip
    crowded = len(summary.arms) > 4
    for axis, place in zip(axes, places, strict=False):
        axis.plot([0, 100], [0, 100], color=MUTED, linewidth=1.0, linestyle=(0, (3, 2)))
        low = 100.0
        for arm in summary.arms:
            if (arm, place) not in scores.reliability:
                continue
            count, confidence, hits = scores.reliability[arm, place]
            kept = count >= max(10.0, 0.002 * count.sum())  # a bin of few images is noise
            kept = kept if kept.any() else count > 0
            look = styles[arm]
            sure, right = 100 * confidence[kept] / count[kept], 100 * hits[kept] / count[kept]
            low = min(low, sure.min(), right.min())
            axis.plot(sure, right, color=look.colour,
                      linestyle=look.dash, marker=look.marker, markersize=3.5 if crowded else 4.5,
                      markeredgecolor=PAPER, markeredgewidth=0.5, linewidth=1.1 if crowded else 1.6)  # fmt: skip
            gap = 100 * (confidence.sum() - hits.sum()) / count.sum()
            sense = "above" if gap >= 0 else "below"
            spoken.append(f"{arm} {place}: confidence {abs(gap):.1f} points {sense} accuracy")
        low = min(10.0 * np.floor(low / 10), 80.0)  # what no line reaches is left out
        ticks = (low, (low + 100) / 2, 100)
        axis.set(xlim=(low, 100), ylim=(low, 100), xticks=ticks, yticks=ticks)
        axis.set_title(place, loc="left", fontweight="bold", pad=5)
        axis.set_xlabel("confidence, %")
    for axis in axes[len(places) :]:
        axis.set_visible(False)
    axes[0].set_ylabel("accuracy, %")
    legend.draw(figure, styles)
    return Picture(
        "reliability",
        "Does confidence mean what it says?",
        "Accuracy of predictions by their confidence. On the dashed line the two agree; below it the model is "
        "over-confident.",
        f"Reliability diagrams: {'; '.join(spoken)}.",
        to_svg(figure),
    )


def energy_chart(summary: Summary, scores: Scores, benchmark: str) -> Picture | None:
    """Energies of test images against those of anomalies, one row an arm."""
    arms = [a for a in summary.arms if (a, benchmark) in scores.energies and (a, "clean") in scores.energies]
    if not arms:
        return None
    crowded = len(arms) > 5
    each = 0.95 if not crowded else 0.72
    height = 0.75 + each * len(arms)
    figure, axes = canvas(height, len(arms), 1)
    figure.subplots_adjust(left=0.03, right=0.97, top=1 - 0.3 / height, bottom=0.5 / height, hspace=0.75)
    # The first title shares its line with the names of the colours.
    spoken, titles = [], {**fitted(arms, 38), arms[0]: fitted(arms[:1], 16)[arms[0]]}
    for row, (axis, arm) in enumerate(zip(axes, arms, strict=True)):
        known, odd = scores.energies[arm, "clean"], scores.energies[arm, benchmark]
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
        stat = summary.stats.get((arm, f"auroc:{benchmark}"))
        value = None if stat is None else stat.values.get(summary.seeds_of(arm)[0])
        told = "" if value is None else f": AUROC {value:.1f} %"
        axis.set_title(f"{titles[arm]}{told}", loc="left", pad=4)
        spoken.append(f"{arm}{told}")
        axis.set_yticks([])
        axis.tick_params(labelbottom=not crowded)
        axis.spines["left"].set_visible(False)
        axis.grid(visible=False)
    axes[-1].set_xlabel(f"energy{', to its own scale' if crowded else ''}: higher looks more like an anomaly")
    first = "" if len(summary.seeds) == 1 else f" Seed {min(summary.seeds)}."
    return Picture(
        f"energy-{slug(benchmark)}",
        f"Are anomalies told apart? ({benchmark})",
        f"The less the two overlap, the better they can be separated; the outermost 1 % are left out.{first}",
        f"Histograms of the energy of test images against anomalies of {benchmark}: {'; '.join(spoken)}.",
        to_svg(figure),
    )
