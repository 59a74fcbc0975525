"""The figure of how training went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from anchored.report.figures import Legend, Look, Picture, canvas, label_ends, labels_fit, looks, to_svg
from anchored.report.summary import Summary

Curves = Mapping[tuple[str, int], list[dict[str, float]]]  # (arm, seed) -> one record an epoch


def read_curves(summary: Summary, runs: Mapping[str, Path]) -> Curves:
    """The training log of each run; a line cut off by a crash is left out."""
    found = {}
    for key, run in sorted(summary.runs.items()):
        path = runs[run] / "metrics.jsonl"
        records = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict) and isinstance(record.get("epoch"), int | float):
                records.append(record)
        found[key] = records
    return found


def training_chart(summary: Summary, curves: Curves) -> Picture | None:
    """Loss and training accuracy by epoch; the loss of masked batches dotted."""
    if not any(curves.values()):
        return None
    styles, direct = looks(summary), labels_fit(summary.arms, 1.5)
    legend = None if direct else Legend.of(summary.arms)
    height = 4.2 + (legend.height + 0.1 if legend else 0.0)
    figure, axes = canvas(height, 2, 1, sharex=True)
    top = 0.93 * 4.2 / height
    figure.subplots_adjust(left=0.12, right=0.77 if direct else 0.97, top=top, bottom=0.55 / height, hspace=0.3)
    spoken = []
    for axis, key, title in zip(
        axes, ("loss", "train_accuracy"), ("training loss", "training accuracy, %"), strict=True
    ):
        ends = _curves(axis, summary, curves, key, styles)
        spoken += [f"{arm} {title} ends at {value:.3g}" for arm, (_, value) in ends.items()]
        axis.set_title(title, loc="left", pad=5)
        axis.grid(axis="x", visible=False)
        if direct:
            label_ends(axis, ends, styles)
    if legend:
        legend.draw(figure, styles)
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


def _curves(
    axis: Axes, summary: Summary, curves: Curves, key: str, styles: Mapping[str, Look]
) -> dict[str, tuple[float, float]]:
    """Draw a line a run; where those of each arm end, on average."""
    ends = {}
    for arm in summary.arms:
        runs = [curve for (name, _), curve in sorted(curves.items()) if name == arm and curve]
        for curve in runs:
            look = styles[arm]
            _line(axis, curve, key, look, look.dash, 1.8 if len(runs) == 1 and len(summary.arms) <= 4 else 1.0)
            if key == "loss":
                _line(axis, curve, "loss_masked", look, (0, (1, 1.5)), 1.2)
        last = [record for curve in runs for record in curve[-1:] if record.get(key) is not None]
        if last:
            ends[arm] = (last[0]["epoch"], float(np.mean([record[key] for record in last])))
    return ends


def _line(axis: Axes, curve: list[dict[str, float]], key: str, look: Look, dash: object, width: float) -> None:
    points = [(record["epoch"], record[key]) for record in curve if record.get(key) is not None]
    if points:
        x, y = zip(*points, strict=True)
        marker = {"marker": look.marker, "markersize": 4} if len(points) == 1 else {}
        axis.plot(x, y, color=look.colour, linestyle=dash, linewidth=width, **marker)  # type: ignore[arg-type]
