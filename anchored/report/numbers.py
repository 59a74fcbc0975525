"""How numbers are written, and what is called a difference."""

from __future__ import annotations

from anchored.report.differences import LEVEL, Delta, Interval, Stat
from anchored.report.measures import Measure
from anchored.report.summary import Summary

MINUS = "−"  # a true minus sign: a hyphen is too short to see in front of a digit
NONE = "–"  # where there is no number
PERCENT = f"{round(100 * LEVEL)} %"
ROUNDING = 1e-9  # of sums of exact differences
FEW_SEEDS = 5
_ASCII = str.maketrans({MINUS: "-", "±": "~", NONE: "-", "×": "x", "Δ": "d", "→": "->", "…": ".", "▲": "^", "▼": "v"})


def ascii_only(text: str) -> str:
    """`text` for a terminal that has nothing else."""
    return text.translate(_ASCII)


def number(value: float, measure: Measure, *, signed: bool = False, more: int = 0) -> str:
    """`value` with the digits its measure deserves: one for percentages, three for fractions; `more` adds some."""
    digits = (3 if measure.fraction else 1) + more
    rounded = round(value, digits) + 0.0  # + 0.0: never "-0.0"
    sign = "+" if signed and rounded > 0 else (MINUS if rounded < 0 else "")
    return f"{sign}{abs(rounded):.{digits}f}"


def interval_text(interval: Interval, measure: Measure) -> str:
    """`low to high`, signed; an end that excludes zero gets the digit that shows it."""
    excludes = interval[0] > 0.0 or interval[1] < 0.0

    def end(value: float) -> str:
        text = number(value, measure, signed=True)
        return number(value, measure, signed=True, more=1) if excludes and text[0] == "0" else text

    return " to ".join(map(end, interval))


def delta_text(delta: Delta, measure: Measure) -> str:
    """The difference and, in brackets, the interval that a claim about it rests on."""
    between = "" if delta.interval is None else f" [{interval_text(delta.interval, measure)}]"
    return number(delta.mean, measure, signed=True) + between


def delta_lines(delta: Delta, measure: Measure) -> list[str]:
    """The difference, then its intervals, named where there are both."""
    intervals = {"seeds": delta.over_seeds, "images": delta.over_images}
    found = {over: interval_text(interval, measure) for over, interval in intervals.items() if interval is not None}
    named = [f"{over} {text}" for over, text in found.items()] if len(found) > 1 else list(found.values())
    return [number(delta.mean, measure, signed=True), *named]


def stat_text(stat: Stat | None, measure: Measure) -> str:
    """Mean, and the standard deviation over seeds where there are several."""
    if stat is None:
        return NONE
    spread = "" if stat.std is None else f" ±{number(stat.std, measure)}"
    return number(stat.mean, measure) + spread


def verdict_on(delta: Delta, measure: Measure) -> str:
    """`better`, `worse`, `unclear` or `unknown` (there is no interval).

    Unclear: the interval holds zero, up to rounding, or the difference is too small to be seen in the table.
    """
    interval = delta.interval
    if interval is None:
        return "unknown"
    low, high = interval
    visible = 0.0005 if measure.fraction else 0.05
    if (low <= ROUNDING and high >= -ROUNDING) or abs(delta.mean) < visible:
        return "unclear"
    return "better" if (low > 0.0) == measure.higher_is_better else "worse"


def counts_text(summary: Summary) -> str:
    """How many images, cells and seeds the numbers rest on."""
    parts = []
    for measure in summary.measures:
        stats = [stat for arm in summary.arms if (stat := summary.stats.get((arm, measure.key)))]
        if not stats or measure.metric in ("fpr95", "smooth_ece") or measure.key.endswith(("@5", "anomalies")):
            continue
        images = f"{min(stat.n for stat in stats):,}"
        if measure.metric == "auroc":
            images += f" + {min(stat.n_other for stat in stats):,} anomalies"
        cells = "" if len(measure.cells) == 1 else f" × {len(measure.cells)} cells"
        parts.append(f"{measure.place} {images}{cells}")
    return f"n = {'; '.join(parts)}; {seeds_text(summary)}."


def seeds_text(summary: Summary) -> str:
    """`seed 0`, or how many."""
    return f"seed {summary.seeds[0]}" if len(summary.seeds) == 1 else f"{len(summary.seeds)} seeds"


def legend_text(summary: Summary) -> str:
    """What the small print under the numbers means."""
    single = all(stat.seeds == 1 for stat in summary.stats.values())
    first = "One seed: no spread over seeds" if single else "±: standard deviation over seeds"
    if not summary.deltas:
        return f"{first}."
    difference = f"{first}. Δ: difference from {listed(summary.bases, 'or')}"
    if not any(delta.interval for delta in summary.deltas.values()):
        return f"{difference}; no scores per image, so no intervals."
    if single:
        return f"{difference}, with its {PERCENT} interval over images."
    if not any(delta.over_images for delta in summary.deltas.values()):
        return f"{difference}, with its {PERCENT} interval over seeds."
    few = " Few seeds make theirs wide." if len(summary.seeds) < FEW_SEEDS else ""
    return f"{difference}, with its {PERCENT} intervals over seeds and over images (of these seeds).{few}"


def listed(names: tuple[str, ...] | list[str], last: str = "and", *, most: int | None = None) -> str:
    """`a, b and c`; of more than `most` the rest is counted."""
    names = list(names)
    if most is not None and len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return f" {last} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
