"""The tables of the page: what the template fills its cells with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anchored.report.charts import per_corruption
from anchored.report.differences import Delta
from anchored.report.judgement import Aspect, Judgement, Part, judge, judged_arm
from anchored.report.measures import METRIC_NAMES, Measure
from anchored.report.numbers import NONE, delta_text, interval_text, number, stat_text, verdict_on
from anchored.report.summary import Summary
from anchored.report.verdict import part_name, sentence

PURPOSES = {"accuracy": "Accuracy", "calibration": "Calibration", "anomalies": "Anomalies"}
OUTCOMES = {"better": "better", "worse": "worse", "unclear": "not clear", "unknown": "no interval"}
SIGNS = {"better": "▲", "worse": "▼", "mixed": "◆", "not clear": "○", "not measured": "–"}  # words without colour


def verdict_grid(judgement: Judgement) -> list[dict[str, Any]]:
    """A line an arm; in each aspect the word and the numbers, and below what to try."""
    return [
        {
            "arm": arm.arm,
            "baseline": arm.baseline,
            "aspects": [_aspect(aspect) for aspect in arm.aspects],
            "steps": arm.steps,
        }
        for arm in judgement.arms
    ]


def _aspect(aspect: Aspect) -> dict[str, Any]:
    return {
        "name": aspect.name,
        "word": aspect.word,
        "sign": SIGNS[aspect.word],
        "style": aspect.word.replace(" ", "-"),
        "parts": [_part(aspect, part) for part in aspect.parts],
    }


def _part(aspect: Aspect, part: Part) -> dict[str, str]:
    difference, _, interval = delta_text(part.delta, part.measure).partition(" ")
    unit = "" if part.measure.fraction else " %"
    return {
        "name": part_name(aspect, part),
        "before": number(part.before, part.measure),
        "after": number(part.after, part.measure) + unit,
        "difference": difference,
        "interval": interval.strip("[]"),
        "outcome": part.outcome,
    }


def purposes(summary: Summary) -> list[tuple[str, int]]:
    """The table's upper heading: purpose and how many measures it spans."""
    groups: list[tuple[str, int]] = []
    for measure in summary.measures:
        name = PURPOSES[measure.purpose]
        if groups and groups[-1][0] == name:
            groups[-1] = (name, groups[-1][1] + 1)
        else:
            groups.append((name, 1))
    return groups


def number_table(summary: Summary) -> dict[str, Any]:
    """Every arm on every measure, and the differences."""
    measures = summary.measures
    return {
        "columns": [(METRIC_NAMES[m.metric], m.place, "higher" if m.higher_is_better else "lower") for m in measures],
        "rows": [(arm, [stat_text(summary.stats.get((arm, m.key)), m) for m in measures]) for arm in summary.arms],
        "deltas": [
            (arm, [_delta_entry(summary.deltas.get((arm, m.key)), m) for m in measures]) for arm in summary.compared
        ],
    }


def _delta_entry(delta: Delta | None, measure: Measure) -> tuple[str, str]:
    if delta is None:
        return NONE, "unknown"
    return number(delta.mean, measure, signed=True), verdict_on(delta, measure)


def differences(summary: Summary) -> list[dict[str, Any]]:
    """Per measure, each arm's difference with both intervals and a small drawing of what a claim rests on."""
    found = []
    for measure in summary.measures:
        pairs = [(arm, delta) for arm in summary.compared if (delta := summary.deltas.get((arm, measure.key)))]
        reach = max((abs(end) for _, delta in pairs for end in (delta.mean, *(delta.interval or ()))), default=0.0)
        lines = []
        for arm, delta in pairs:
            outcome = verdict_on(delta, measure)
            lines.append(
                {
                    "arm": arm,
                    "difference": number(delta.mean, measure, signed=True),
                    "outcome": outcome,
                    "word": OUTCOMES[outcome],
                    "glyph": _glyph(delta, reach or 1.0),
                    "images": "" if delta.over_images is None else interval_text(delta.over_images, measure),
                    "seeds": "" if delta.over_seeds is None else interval_text(delta.over_seeds, measure),
                }
            )
        if lines:
            found.append({"heading": measure.heading, "higher": measure.higher_is_better, "lines": lines})
    return found


def pair_tables(pairs: Sequence[Summary]) -> list[dict[str, Any]]:
    """Further comparisons of two arms: a sentence and their differences each."""
    found = []
    for view in pairs:
        other, arm = view.arms
        judged = judge(view).arms
        told = sentence(judged[0]) if judged else f"{arm} and {other} share no measure and seed."
        found.append({"arm": arm, "other": other, "sentence": told, "blocks": differences(view)})
    return found


def _glyph(delta: Delta, reach: float) -> dict[str, float]:
    """Positions, in a box 240 wide with zero at 120, of the difference and its interval."""
    low, high = delta.interval or (delta.mean, delta.mean)
    return {
        name: round(120.0 + 112.0 * value / reach, 1)
        for name, value in (("low", low), ("high", high), ("mean", delta.mean))
    }


def corruption_tables(summary: Summary) -> list[dict[str, Any]]:
    """Per shift made of corruptions: accuracy and calibration per corruption and arm."""
    judged = judged_arm(summary)
    baseline = summary.baselines.get(judged or "")
    found = []
    for benchmark in sorted({c.benchmark for c in summary.cells("top1") if c.corruption is not None}):
        for metric in ("top1", "smooth_ece"):
            measure = Measure("", metric, benchmark, ())
            table = per_corruption(summary, benchmark, metric)
            lines = []
            for name in sorted({name for _, name in table}):
                values = [table.get((arm, name)) for arm in summary.arms]
                mine, theirs = table.get((judged or "", name)), table.get((baseline or "", name))
                change = None if mine is None or theirs is None else mine - theirs
                cells = [NONE if value is None else number(value, measure) for value in values]
                told = "" if change is None else number(change, measure, signed=True)
                lines.append((name.replace("_", " "), cells, told))
            if lines:
                found.append({"benchmark": benchmark, "metric": METRIC_NAMES[metric], "judged": judged,
                              "baseline": baseline, "lines": lines, "first": metric == "top1"})  # fmt: skip
    return found
