"""`anchored report`: the report of rows and scores, drawn again."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from anchored.system.errors import InputError

NAME, HELP = "report", "draw the report of a comparison again"


def parser() -> ArgumentParser:
    """Its flags."""
    p = ArgumentParser(description="Draw a report again from rows and scores, of one folder or of several together.")
    p.add_argument(
        "sources", nargs="+", help="folders of comparisons or evaluations, runs in them, or rows.jsonl files"
    )
    p.add_argument("--out", type=str, help="folder of the report (the first source's own, if it is the only one)")
    p.add_argument("--baseline", help="the arm or run that others are compared with (as when it was made)")
    p.add_argument("--pairs", nargs="+", default=[], help="further pairs of arms to compare, A:B")
    return p


def run(flags: Namespace, command: str) -> None:
    """Run `anchored report`. Raises InputError."""
    from anchored.report import write_report

    sources = [Path(source) for source in flags.sources]
    for source in sources:
        if not source.exists():
            raise InputError(f"{source}: there is no such folder or file.")
    if flags.out is None and (len(sources) > 1 or not sources[0].is_dir()):
        raise InputError("a report of several folders, or of a file, needs --out, the folder to write it to.")
    print(write_report(flags.out or sources[0], sources, baseline=flags.baseline, pairs=tuple(flags.pairs)))
