"""The comparison as a table: on the terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anchored.report.summary import Delta, Interval, Measure, Stat, Summary

MINUS = "−"  # a true minus sign: a hyphen is too short to see in front of a digit
_ASCII = str.maketrans({MINUS: "-", "±": "~", "–": "-", "×": "x", "Δ": "d"})


ROUNDING = 1e-9  # of sums of exact differences
FEW_SEEDS = 5


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


def stat_text(stat: Stat | None, measure: Measure) -> str:
    """Mean, and the standard deviation over seeds where there are several."""
    if stat is None:
        return "–"
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
        stats = [stat for method in summary.methods if (stat := summary.stats.get((method, measure.key)))]
        if not stats or measure.metric in ("fpr95", "smooth_ece") or measure.key.endswith(("@5", "anomalies")):
            continue
        images = f"{min(stat.n for stat in stats):,}"
        if measure.metric == "auroc":
            images += f" + {min(stat.n_other for stat in stats):,} anomalies"
        cells = "" if len(measure.cells) == 1 else f" × {len(measure.cells)} cells"
        parts.append(f"{measure.place} {images}{cells}")
    seeds = summary.seeds
    listed = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return f"n = {'; '.join(parts)}; {listed}."


def legend_text(summary: Summary) -> str:
    """What the small print under the numbers means."""
    single = all(stat.seeds == 1 for stat in summary.stats.values())
    spread = "one seed: no spread over seeds" if single else "±: standard deviation over seeds"
    first = f"{spread[0].upper()}{spread[1:]}"
    if not summary.deltas:
        return f"{first}."
    difference = f"{first}. Δ: difference from {' or '.join(sorted(set(summary.baselines.values())))}"
    if not any(delta.interval for delta in summary.deltas.values()):
        return f"{difference}; no scores per image, so no intervals."
    if single:
        return f"{difference}, with its 95 % interval over images."
    if not any(delta.over_images for delta in summary.deltas.values()):
        return f"{difference}, with its 95 % interval over seeds."
    few = " Few seeds make theirs wide." if len(summary.seeds) < FEW_SEEDS else ""
    return f"{difference}, with its 95 % intervals over seeds and over images (of these seeds).{few}"


def print_table(summary: Summary, console: Console) -> None:
    """Print the table, method by benchmark, with the differences from standard, on `console`.

    As many measures a block as the console's width holds; without colour and in ASCII where it has neither.
    """
    plain = not console.encoding.lower().startswith("utf")

    def clean(text: str) -> str:
        return text.translate(_ASCII) if plain else text

    compared = delta_methods(summary)
    first = max(len(label) for label in ["method", *summary.methods, *map(_delta_label, compared)])
    first = min(first, max(20, console.width // 2))  # longer names are broken into lines
    for block in _blocks(summary, console.width - first - 2):
        table = Table(box=box.ASCII2 if plain else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("method", max_width=first, overflow="fold")
        for measure in block:
            table.add_column(clean(_heading(measure)), justify="right", overflow="fold")
        for method in summary.methods:
            cells = [stat_text(summary.stats.get((method, measure.key)), measure) for measure in block]
            table.add_row(clean(method), *map(clean, cells), end_section=method == summary.methods[-1])
        for method in compared:
            texts = [_delta_cell(summary.deltas.get((method, m.key)), m, clean) for m in block]
            table.add_row(Text(clean(_delta_label(method)), style="bold"), *texts)
        console.print(table)
        console.print()
    for line in (counts_text(summary), legend_text(summary), *summary.notes):
        console.print(Text(clean(line), style="dim"))


def markdown(summary: Summary, verdict: str) -> str:
    """The verdict, the table and the differences as Markdown."""
    head = ["method", *(measure.heading for measure in summary.measures)]
    lines = [_row(head), _row(["---", *("---:" for _ in summary.measures)])]
    for method in summary.methods:
        cells = [stat_text(summary.stats.get((method, m.key)), m) for m in summary.measures]
        lines.append(_row([method, *cells]))
    for method in delta_methods(summary):
        cells = []
        for measure in summary.measures:
            delta = summary.deltas.get((method, measure.key))
            cells.append("–" if delta is None else _with_interval(delta, measure))
        lines.append(_row([f"**{_delta_label(method)}**", *cells]))
    small = [counts_text(summary), legend_text(summary), *summary.notes]
    title = f"# {_escape(summary.model)} on {_escape(summary.data)}"
    return "\n\n".join([title, _escape(verdict), "\n".join(lines), *map(_escape, small)]) + "\n"


CSV_COLUMNS = (
    "method", "measure", "metric", "cells", "mean", "std_over_seeds", "seeds", "n", "n_other", "baseline",
    "delta", "images_low", "images_high", "seeds_low", "seeds_high",
)  # fmt: skip


def csv_text(summary: Summary) -> str:
    """One line a method and measure at full precision; empty where a number does not exist."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for method in summary.methods:
        for measure in summary.measures:
            stat = summary.stats.get((method, measure.key))
            if stat is None:
                continue
            delta = summary.deltas.get((method, measure.key))
            line: list[object] = [method, measure.key, measure.metric, len(measure.cells), stat.mean, stat.std]
            line += [stat.seeds, stat.n, stat.n_other]
            if delta is None:
                line += [None] * 6
            else:
                line += [summary.baselines[method], delta.mean]
                line += [*(delta.over_images or (None, None)), *(delta.over_seeds or (None, None))]
            writer.writerow(["" if item is None else item for item in line])
    return buffer.getvalue()


def delta_methods(summary: Summary) -> list[str]:
    """The methods with a difference to show, those with masking first: they are the question."""
    found = {method for method, _ in summary.deltas}
    masking = [method for method in summary.of_kind("masking") if method in found]
    return masking + [method for method in summary.methods if method in found and method not in masking]


def _delta_label(method: str) -> str:
    return f"Δ {method}"


def _heading(measure: Measure) -> str:
    name, _, place = measure.heading.partition(", ")
    return f"{name}\n{place}"


def _blocks(summary: Summary, width: int) -> list[list[Measure]]:
    """The measures in groups that fit `width`, split between purposes where possible."""
    groups: list[list[Measure]] = []
    for measure in summary.measures:
        if groups and groups[-1][0].purpose == measure.purpose:
            groups[-1].append(measure)
        else:
            groups.append([measure])
    blocks: list[list[Measure]] = [[]]
    for group in groups:
        if blocks[-1] and _width(summary, blocks[-1] + group) > width:
            blocks.append([])
        for measure in group:
            if blocks[-1] and _width(summary, [*blocks[-1], measure]) > width:
                blocks.append([])
            blocks[-1].append(measure)
    return blocks


def _width(summary: Summary, measures: Iterable[Measure]) -> int:
    return sum(_column_width(summary, measure) + 2 for measure in measures)


def _column_width(summary: Summary, measure: Measure) -> int:
    texts = _heading(measure).split("\n")
    texts += [stat_text(summary.stats.get((method, measure.key)), measure) for method in summary.methods]
    for method in summary.methods:
        if delta := summary.deltas.get((method, measure.key)):
            texts += _delta_lines(delta, measure)
    return max(map(len, texts))


def _delta_lines(delta: Delta, measure: Measure) -> list[str]:
    intervals = {"seeds": delta.over_seeds, "images": delta.over_images}
    found = {over: interval_text(interval, measure) for over, interval in intervals.items() if interval is not None}
    named = [f"{over} {text}" for over, text in found.items()] if len(found) > 1 else list(found.values())
    return [number(delta.mean, measure, signed=True), *named]


def _delta_cell(delta: Delta | None, measure: Measure, clean: Callable[[str], str]) -> Text:
    if delta is None:
        return Text(clean("–"), style="dim")
    style = {"better": "bold green", "worse": "bold red"}.get(verdict_on(delta, measure), "")
    value, *rest = map(clean, _delta_lines(delta, measure))
    return Text.assemble((value, style), *((f"\n{line}", "dim") for line in rest))


def _with_interval(delta: Delta, measure: Measure) -> str:
    mean, *intervals = _delta_lines(delta, measure)
    return f"{mean} ({', '.join(intervals)})" if intervals else mean


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(cell) if not cell.startswith("**") else cell for cell in cells) + " |"


def _escape(text: str) -> str:
    """Text as itself in Markdown: pipes would end a cell, underscores and stars change the type."""
    for mark in ("\\", "|", "<", "`", "*", "_", "["):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.splitlines())
