"""The report on a terminal: the table with differences, the budget, the verdict."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anchored.report.budget import HEADINGS, Budget, cautions, known
from anchored.report.differences import Delta
from anchored.report.measures import Measure
from anchored.report.numbers import (
    NONE,
    ascii_only,
    counts_text,
    delta_lines,
    legend_text,
    stat_text,
    verdict_on,
)
from anchored.report.summary import Summary

MANY = 4  # differences of more arms are shown without their intervals
MARKS = {"better": "▲", "worse": "▼"}
LONGEST = 32  # columns of a terminal that names may take: longer ones are broken into lines
_STYLES = {"better": "bold green", "worse": "bold red", "mixed": "bold yellow"}


def print_table(summary: Summary, console: Console) -> None:
    """Print the table, arm by benchmark, with the differences from the baseline, on `console`.

    As many measures a block as the console's width holds; without colour and in ASCII where it has neither.
    """
    clean = _cleaner(console)
    brief = len(summary.compared) > MANY
    first = _first_column([*summary.arms, *(f"Δ {arm}" for arm in summary.compared)], console)
    for block in _blocks(summary, console.width - first - 2, brief):
        table = _table(console, first)
        for measure in block:
            table.add_column(clean(_heading(measure)), justify="right", overflow="fold")
        for arm in summary.arms:
            cells = [stat_text(summary.stats.get((arm, measure.key)), measure) for measure in block]
            table.add_row(clean(_broken(arm, first)), *map(clean, cells), end_section=arm == summary.arms[-1])
        for arm in summary.compared:
            texts = [_delta_cell(summary.deltas.get((arm, m.key)), m, clean, brief) for m in block]
            table.add_row(Text(clean(_delta_label(arm, first)), style="bold"), *texts)
        console.print(table)
        console.print()
    marks = [f"{MARKS['better']} {MARKS['worse']}: clearly better, clearly worse; intervals are in the verdict."]
    for line in (counts_text(summary), legend_text(summary), *(marks if brief else ()), *summary.notes):
        console.print(Text(clean(line), style="dim"))


def print_budgets(budgets: Sequence[Budget], console: Console) -> None:
    """Print what each arm cost, and in which ways that differs; nothing where nothing is known."""
    if not known(budgets):
        return
    clean = _cleaner(console)
    headings = [heading.replace(" ", "\n", 1) for heading in HEADINGS]
    lines = [headings, *(budget.cells for budget in budgets)]
    columns = [max(len(part) for line in lines for part in line[i].split("\n")) for i in range(len(HEADINGS))]
    left = console.width - sum(columns) - 3 * len(columns)  # three for what rich puts between columns
    first = min(_first_column([budget.arm for budget in budgets], console), max(10, left))
    table = _table(console, first)
    for heading in headings:
        table.add_column(heading, justify="right")
    for budget in budgets:
        table.add_row(clean(_broken(budget.arm, first)), *map(clean, budget.cells))
    console.print(table)
    for note in cautions(budgets):
        console.print(Text(clean(note), style="bold"))


def print_verdict(text: str, console: Console) -> None:
    """Print the verdict, its words in colour; lines are not broken, so that commands can be copied."""
    shown = Text(_cleaner(console)(text))
    for word, style in _STYLES.items():
        shown.highlight_regex(re.compile(rf"(?<=  ){word}\b"), style)
    console.print(shown, soft_wrap=True)


def _cleaner(console: Console) -> Callable[[str], str]:
    return str if console.encoding.lower().startswith("utf") else ascii_only


def _table(console: Console, first: int) -> Table:
    plain = not console.encoding.lower().startswith("utf")
    table = Table(box=box.ASCII2 if plain else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("arm", width=first, overflow="fold")
    return table


def _first_column(names: Iterable[str], console: Console) -> int:
    return max(3, min(max(map(len, names)), max(20, min(LONGEST, console.width // 3))))


def _broken(name: str, width: int) -> str:
    """A name in lines of that width, broken at its hyphens where it has some."""
    return "\n".join(textwrap.wrap(name, width))


def _delta_label(arm: str, width: int) -> str:
    return "Δ " + _broken(arm, width - 2).replace("\n", "\n  ")


def _heading(measure: Measure) -> str:
    name, _, place = measure.heading.partition(", ")
    return f"{name}\n{place}"


def _blocks(summary: Summary, width: int, brief: bool) -> list[list[Measure]]:
    """The measures in groups that fit `width`, split between purposes where possible."""
    groups: list[list[Measure]] = []
    for measure in summary.measures:
        if groups and groups[-1][0].purpose == measure.purpose:
            groups[-1].append(measure)
        else:
            groups.append([measure])
    blocks: list[list[Measure]] = [[]]
    for group in groups:
        if blocks[-1] and _width(summary, blocks[-1] + group, brief) > width:
            blocks.append([])
        for measure in group:
            if blocks[-1] and _width(summary, [*blocks[-1], measure], brief) > width:
                blocks.append([])
            blocks[-1].append(measure)
    return blocks


def _width(summary: Summary, measures: Iterable[Measure], brief: bool) -> int:
    return sum(_column_width(summary, measure, brief) + 2 for measure in measures)


def _column_width(summary: Summary, measure: Measure, brief: bool) -> int:
    texts = _heading(measure).split("\n")
    texts += [stat_text(summary.stats.get((arm, measure.key)), measure) for arm in summary.arms]
    for arm in summary.arms:
        if delta := summary.deltas.get((arm, measure.key)):
            texts += _delta_lines(delta, measure, brief)
    return max(map(len, texts))


def _delta_lines(delta: Delta, measure: Measure, brief: bool) -> list[str]:
    value, *intervals = delta_lines(delta, measure)
    return [f"{value} {MARKS.get(verdict_on(delta, measure), ' ')}"] if brief else [value, *intervals]


def _delta_cell(delta: Delta | None, measure: Measure, clean: Callable[[str], str], brief: bool) -> Text:
    if delta is None:
        return Text(clean(NONE), style="dim")
    style = _STYLES.get(verdict_on(delta, measure), "")
    value, *rest = map(clean, _delta_lines(delta, measure, brief))
    return Text.assemble((value, style), *((f"\n{line}", "dim") for line in rest))
