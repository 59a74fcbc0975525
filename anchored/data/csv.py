"""csv:FILE: a table with one row an image, of paths and labels; or csv:FOLDER, with train.csv and test.csv.

Columns are found by their usual names, or named: csv:FILE?path=COLUMN&label=COLUMN&split=COLUMN. Paths are relative to
the folder of the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath

from torch import Tensor

from anchored.data.base import TEST_WORDS, TRAIN_WORDS, Data, Listing, Options, pair_title, place, title, unused
from anchored.data.checks import check_missing, decoded, some
from anchored.data.decode import Decoded, decode
from anchored.data.labels import Labels, alone, from_cells, missing, numbered, unknown_labels
from anchored.data.table import COLUMNS, Table, no_column, read_table
from anchored.system.errors import InputError, unknown

SPEC = "csv:FILE"
SUFFIXES = (".csv", ".tsv")
WORDS = {word: words[0] for words in (TRAIN_WORDS, *TEST_WORDS) for word in words}
NAMED = re.compile(r"\?(?=\w+=)")  # where the names of columns begin
NEXT = re.compile(r"[&,](?=\w+=)")


@dataclass(frozen=True)
class _Parts:
    """test: None where it has to be split off. how: the choice in words."""

    train: Table
    test: Table | None
    how: str
    notes: tuple[str, ...]


def load(path: str, options: Options) -> Data:
    """Train and test of the table(s) at `path`; where there is no test part, 20 % of the training images.

    A part is the rows of a split column, or the table train.csv or test.csv of a folder. Raises InputError for tables
    that cannot be read, columns that are not there, missing paths, labels and files, an image with two labels or in
    both parts, and labels that cannot be trained on.
    """
    return decoded(f"csv:{path}", listings(path, options), options)


def listings(path: str, options: Options) -> tuple[Listing, Listing]:
    """Training and test part as `load` has them, not decoded. Raises InputError as it does."""
    where = f"csv:{path}"
    found = _parts(path, where)
    tables, notes = [], [*found.notes]
    for table in [found.train, *([found.test] if found.test else [])]:
        if table.labels is None:
            raise no_column(table.file, "label", table.columns)
        once, more = _once(table)
        tables.append(once)
        notes += more
    _check_leak(tables, where)
    for table in tables:
        _check_files(table)
    first, *rest = _labels(tables, where)
    numbers = numbered(where, first, rest[0] if rest else None, None, options.seed)
    how = f"stratified 80 / 20 of {len(tables[0]):,} images, seed {options.seed}" if numbers.made else found.how
    files, _ = _written(path)
    name = f"csv:{pair_title(files, place(files.split(',')[0]), place(files.split(',')[-1]))}"
    notes += numbers.notes
    train, test = tables[0].rows(numbers.train_rows.tolist()), tables[-1].rows(numbers.test_rows.tolist())
    return (
        _listing(train, name, numbers.train, numbers.classes, how, notes),
        _listing(test, name, numbers.test, numbers.classes, how, notes),
    )


def load_unlabelled(path: str, options: Options) -> Decoded:
    """The images of the test part, or all of them where there is none; labels are not looked at."""
    table, notes = _once(replace(_tested(path), labels=None))
    _check_files(table)
    found = decode(map(Path, table.files), len(table), options, name=table.line)
    return replace(found, notes=(*notes, *found.notes))


def whole(path: str) -> Listing:
    """The test part, or everything where there is none, not decoded; labels are -1 where there is no such column."""
    table, notes = _once(_tested(path))
    _check_files(table)
    labels, classes, told = unknown_labels(len(table))
    if table.labels is not None:
        labels, classes, told = alone(f"csv:{path}", _labels([table], f"csv:{path}")[0], None)
    how = f"all {len(table):,} rows of {table.file.name}"
    return _listing(table, called(path), labels, classes, how, [*table.notes, *notes, *told])


def called(path: str) -> str:
    """What images of no known class are called, by where they are."""
    files, _ = _written(path)
    return title(files if os.path.exists(place(files)) else files.split(",")[-1])


def _listing(
    table: Table, name: str, labels: Tensor, classes: tuple[str, ...], how: str, notes: Sequence[str]
) -> Listing:
    return Listing(
        name,
        labels,
        classes,
        how,
        tuple(notes),
        pictures=lambda rows: (Path(table.files[row]) for row in rows.tolist()),
        called=table.line,
        files=tuple(_names(table)),
    )


def _names(table: Table) -> Iterator[str]:
    """A relative name for each image, all different: its path, or what of it lies below a folder."""
    taken: set[str] = set()
    for path, line in zip(table.paths, table.lines, strict=True):
        parts = [
            part for part in PurePosixPath(path.replace("\\", "/")).parts if part.strip("/") not in ("", "..", "~")
        ]
        name = "/".join(parts)
        if name.lower() in taken:
            name = "/".join([*parts[:-1], f"{line}_{parts[-1]}"])
        taken.add(name.lower())
        yield name


# --- what is checked -----------------------------------------------------------------------------------------------


def _labels(tables: Sequence[Table], where: str) -> list[Labels]:
    """The labels of each table, read as one: what they are is what all of them are."""
    for table in tables:
        gone = missing(table.labels or [])
        check_missing([table.lines[row] for row in gone], str(table.file), unit="line")
    together = from_cells([label for table in tables for label in table.labels or []], where)
    return [together.part(start, stop) for start, stop in pairwise(accumulate(map(len, tables), initial=0))]


def _once(table: Table) -> tuple[Table, list[str]]:
    """Every image once, and a note of repeats. Raises InputError for an image with two labels."""
    labels = table.labels or [""] * len(table)
    first: dict[str, int] = {}
    repeats = []
    for row, key in enumerate(table.keys()):
        before = first.setdefault(key, row)
        if labels[before] != labels[row]:
            raise InputError(
                f"{table.file}: an image has one label; {table.line(before)} has {labels[before]!r} and line "
                f"{table.lines[row]} has {labels[row]!r}."
            )
        if before != row:
            repeats.append(row)
    if not repeats:
        return table, []
    note = f"rows of an image that is there already, left out: {len(repeats):,}: {some([*map(table.line, repeats)])}"
    return table.rows(list(first.values())), [note]


def _check_leak(tables: Sequence[Table], where: str) -> None:
    if len(tables) < 2:
        return
    train, test = tables
    rows = dict(zip(train.keys(), range(len(train)), strict=True))
    both = [(row, rows[key]) for row, key in enumerate(test.keys()) if key in rows]
    if both:
        shown = [f"{test.line(row)} is {train.line(other)}" for row, other in both]
        raise InputError(
            f"{where}: no image is in both train and test, as accuracy would be that on known images; {len(both):,} "
            f"{'are' if len(both) > 1 else 'is'}: {some(shown)}."
        )


def _check_files(table: Table) -> None:
    gone = [row for row, file in enumerate(table.files) if not os.path.isfile(file)]
    if gone:
        raise InputError(
            f"{table.file}: image files that are not there: {len(gone):,} of {len(table):,}: "
            f"{some([table.line(row) for row in gone])}. Relative paths start at {table.file.parent.absolute()}."
        )


# --- train and test ------------------------------------------------------------------------------------------------


def _written(path: str) -> tuple[str, dict[str, str]]:
    """(file or files, columns by what they hold) of what is written after csv:. Raises InputError for other names."""
    if os.path.exists(place(path)):
        return path, {}
    files, *rest = NAMED.split(path, maxsplit=1)
    chosen: dict[str, str] = {}
    for item in NEXT.split(rest[0]) if rest else []:
        what, _, column = item.partition("=")
        if what not in COLUMNS:
            raise unknown(f"part of csv:{path}", what, COLUMNS)
        if what in chosen or (not column and what != "split"):
            raise InputError(f"csv:{path}: {what} is one column, {what}=COLUMN; got {item!r}.")
        chosen[what] = column
    return files, chosen


def _found(path: str) -> tuple[Path, list[Path], dict[str, str]]:
    """(training or only table, test tables in the order of preference, chosen columns)."""
    files, chosen = _written(path)
    parts = [place(files)] if os.path.exists(place(files)) else [place(part) for part in files.split(",")]
    for part in parts:
        if not os.path.exists(part):
            raise InputError(f"csv:{path}: there is no file or folder {part}.")
    if len(parts) > 2:
        raise InputError(f"csv:{path}: at most two files, train.csv,test.csv; got {len(parts)}.")
    if len(parts) == 2 or parts[0].is_file():
        return parts[0], parts[1:], chosen
    there = sorted(file for file in parts[0].iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    named = {file.stem.lower(): file for file in there}
    train = [named[word] for word in TRAIN_WORDS if word in named]
    if not train:
        hint = f" Did you mean csv:{there[0]}?" if len(there) == 1 else ""
        listed = ", ".join(file.name for file in there[:5]) or "no .csv"
        raise InputError(f"csv:{path}: a folder holds train.csv and test.csv (or val.csv); found {listed}.{hint}")
    return train[0], [named[word] for words in TEST_WORDS for word in words if word in named], chosen


def _parts(path: str, where: str) -> _Parts:
    """Train and test: of two tables, or of the split column of one."""
    file, tests, chosen = _found(path)
    if tests:
        return _two(file, tests, chosen, where)
    table = read_table(file, chosen)
    if table.splits is None:
        return _Parts(table, None, "", table.notes)
    parts = _by_word(table, table.splits)
    if "train" not in parts:
        raise InputError(f"{where}: there is {', '.join(parts)} in the split column but no train.")
    tested = [words[0] for words in TEST_WORDS if words[0] in parts]
    how = f"as given (train and {tested[0]} of the split column)" if tested else ""
    return _Parts(parts["train"], parts[tested[0]] if tested else None, how, (*table.notes, *unused(tested[1:])))


def _two(file: Path, tests: Sequence[Path], chosen: dict[str, str], where: str) -> _Parts:
    """The tables of train and, of several, of the first test that has labels."""
    if chosen.get("split"):
        raise InputError(f"{where}: two tables are train and test already; leave out split={chosen['split']}.")
    train, *others = (read_table(each, {**chosen, "split": ""}) for each in (file, *tests))
    labelled = [table for table in others if table.labels is not None]
    if not labelled:
        reason = no_column(others[0].file, "label", others[0].columns)
        raise InputError(f"{reason} To have a part of {file.name} split off: csv:{file}.")
    test = labelled[0]
    how = f"as given (train {file.stem}, test {test.file.stem})"
    how += f"; {others[0].file.stem} has no labels" if test is not others[0] else ""
    notes = (*train.notes, *test.notes, *unused([table.file.name for table in labelled[1:]]))
    return _Parts(train, test, how, tuple(dict.fromkeys(notes)))


def _by_word(table: Table, splits: Sequence[str]) -> dict[str, Table]:
    """train, test and validation -> the rows whose split says so. Raises InputError for other words and none."""
    odd = [row for row, split in enumerate(splits) if split.casefold() not in WORDS]
    if odd:
        said = [f"{splits[row]!r} (line {table.lines[row]})" for row in odd]
        raise InputError(
            f"{table.file}: a split column says of every row {', '.join(WORDS)}; {len(odd):,} of {len(table):,} say "
            f"otherwise: {some(said)}. Another column is chosen with csv:FILE?split=COLUMN, none with csv:FILE?split="
        )
    rows: dict[str, list[int]] = {}
    for row, split in enumerate(splits):
        rows.setdefault(WORDS[split.casefold()], []).append(row)
    return {word: table.rows(kept) for word, kept in rows.items()}


def _tested(path: str) -> Table:
    """The rows of the test part, or all of them."""
    file, tests, chosen = _found(path)
    if tests:
        return read_table(tests[0], {**chosen, "split": ""})
    table = read_table(file, chosen)
    parts = _by_word(table, table.splits) if table.splits is not None else {}
    return next((parts[words[0]] for words in TEST_WORDS if words[0] in parts), table)
