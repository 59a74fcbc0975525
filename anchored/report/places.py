"""Where the rows and scores of a report lie: one folder, or several folders, runs and files together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchored.evaluation.rows import Row, read_rows
from anchored.system.errors import InputError
from anchored.system.files import read_json


@dataclass(frozen=True)
class Places:
    """Rows, the folder of each run's scores, and the comparisons or evaluations they come from, with their configs."""

    rows: tuple[Row, ...]
    runs: Mapping[str, Path]
    folders: tuple[Path, ...]
    configs: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> Mapping[str, Any]:
        return self.configs[0]


def gather(sources: Sequence[str | Path]) -> Places:
    """The rows of `sources`: folders of comparisons or evaluations, folders of runs in them, or rows.jsonl files.

    Runs of the same name in different folders are told apart by the folder's name. Raises InputError where a source
    holds no rows.
    """
    if not sources:
        raise InputError("a report is drawn from at least one folder or rows.jsonl; got none.")
    rows: list[Row] = []
    runs: dict[str, Path] = {}
    folders: list[Path] = []
    notes: list[str] = []
    for source in sources:
        file, only = _rows_file(Path(source))
        own = [row for row in read_rows(file) if only in (None, row.run)]
        if only and not own:
            raise InputError(f"{source}: the rows of {file} say nothing of this run.")
        names = {}
        for run in sorted({row.run for row in own}):
            place = file.parent / "runs" / run
            name = run
            if runs.get(name, place).resolve() != place.resolve():
                name = f"{file.resolve().parent.name}/{run}"
            if runs.get(name, place).resolve() != place.resolve():
                raise InputError(f"two folders called {file.resolve().parent.name} have a run {run}; rename one.")
            names[run], runs[name] = name, place
        seen = {(row.run, row.benchmark, row.corruption, row.severity, row.metric) for row in rows}
        fresh = [replace(row, run=names[row.run]) for row in own]
        rows += [r for r in fresh if (r.run, r.benchmark, r.corruption, r.severity, r.metric) not in seen]
        if file.parent not in folders:
            folders.append(file.parent)
    return Places(tuple(rows), runs, tuple(folders), tuple(read_config(folder) for folder in folders), tuple(notes))


def _rows_file(source: Path) -> tuple[Path, str | None]:
    """The rows.jsonl of a source, and the run if it is the folder of one."""
    if source.is_file():
        return source, None
    if (source / "rows.jsonl").is_file():
        return source / "rows.jsonl", None
    whole = source.resolve()
    if whole.parent.name == "runs" and (whole.parent.parent / "rows.jsonl").is_file():
        return whole.parent.parent / "rows.jsonl", whole.name
    raise InputError(f"a report is drawn from rows.jsonl; {source} holds none. Give a comparison's folder.")


def read_config(out: Path) -> dict[str, Any]:
    """What config.json of a folder says; {} where there is none. Raises InputError where it is damaged."""
    path = out / "config.json"
    if not path.exists():
        return {}
    try:
        config = read_json(path)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} must hold one JSON object; got a {type(config).__name__}.")
    return config
