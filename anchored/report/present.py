"""What a command that measures ends with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from anchored.evaluation.rows import Row
from anchored.report.contents import contents
from anchored.report.judgement import judge
from anchored.report.page import write
from anchored.report.terminal import print_budgets, print_table, print_verdict
from anchored.report.verdict import pair_text, verdict


def present(rows: Iterable[Row], out: Path, console: Console) -> None:
    """Write the report of `rows` (those of `out/rows.jsonl`), and print its table, budget, verdict and place."""
    found = contents([out], rows=rows)
    page = write(found, out)
    print_table(found.summary, console)
    console.print()
    print_budgets(found.budgets, console)
    console.print()
    print_verdict(verdict(found.summary), console)
    for view in found.pairs:
        console.print()
        for arm in judge(view).arms:
            print_verdict(pair_text(arm), console)
    console.print(f"\nReport: {page}", highlight=False, markup=False, soft_wrap=True)
