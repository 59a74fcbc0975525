"""What a command that measures ends with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from anchored.evaluation.rows import Row
from anchored.report.intervals import summarise
from anchored.report.page import write_report
from anchored.report.tables import print_table
from anchored.report.verdict import verdict


def present(rows: Iterable[Row], out: Path, console: Console) -> None:
    """Write the report of `rows` (those of `out/rows.jsonl`) and print table, verdict and where the report is."""
    write_report(out)
    summary = summarise(list(rows), out)
    print_table(summary, console)
    console.print()
    console.print(verdict(summary), highlight=False, markup=False, soft_wrap=True)
    console.print(f"Report: {out / 'report.html'}", highlight=False, markup=False, soft_wrap=True)
