"""A table of images in a file of text: one row an image, columns found by name."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anchored.data.base import place
from anchored.data.checks import check_missing, some
from anchored.system.errors import InputError, unknown

COLUMNS = {
    "path": ("path", "file", "filename", "filepath", "image", "image_path", "img"),
    "label": ("label", "class", "target", "category", "y"),
    "split": ("split", "set", "subset", "part", "fold"),
}
DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class Table:
    """Rows of a table, or some of them.

    file: the table. paths: of the images, as written; files: where that is. labels, splits: as written, None without
    such a column. lines: of the rows in the file. columns: the header. notes: on the choice of columns.
    """

    file: Path
    paths: list[str]
    files: list[str]
    labels: list[str] | None
    splits: list[str] | None
    lines: list[int]
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def rows(self, kept: Sequence[int]) -> Table:
        """The rows at these positions."""
        cells = {"paths": self.paths, "files": self.files, "labels": self.labels, "splits": self.splits}
        chosen = {name: None if column is None else [column[row] for row in kept] for name, column in cells.items()}
        return replace(self, lines=[self.lines[row] for row in kept], **chosen)  # type: ignore[arg-type]

    def line(self, row: int) -> str:
        """What a message calls a row."""
        return f"{self.file.name} line {self.lines[row]} ({self.paths[row]})"

    def keys(self) -> list[str]:
        """What two paths of the same image have in common, links apart."""
        return [os.path.abspath(file) for file in self.files]


def read_table(file: Path, chosen: Mapping[str, str]) -> Table:
    """The rows of a table: UTF-8 text with a header, its cells apart by commas, semicolons or tabs.

    chosen: what (path, label, split) -> its column, or "" for none; the others have their usual names. Raises
    InputError for what is no such table, a column that is not there, none of paths, and rows without a path.
    """
    header, rows, lines = _cells(file)
    notes: list[str] = []
    found = {what: _column(file, header, what, chosen, notes) for what in COLUMNS}
    if found["path"] is None:
        raise no_column(file, "path", header)
    if not rows:
        raise InputError(f"{file}: there are no rows below the header ({', '.join(header)}).")
    cells = {what: None if at is None else [row[at].strip() for row in rows] for what, at in found.items()}
    paths = cells["path"] or []
    gone = [line for line, path in zip(lines, paths, strict=True) if not path]
    check_missing(gone, str(file), what="path", unit="line")
    files = [_place(str(file.parent), path) for path in paths]
    return Table(file, paths, files, cells["label"], cells["split"], lines, tuple(header), tuple(notes))


def no_column(file: Path, what: str, header: Sequence[str]) -> InputError:
    """That there is no column of what (path, label, split), and which there are."""
    return InputError(
        f"{file}: the {what} column is named {' or '.join(COLUMNS[what])}; the columns, as the first line "
        f"(the header) names them, are {', '.join(header)}. Another one is chosen with csv:FILE?{what}=COLUMN."
    )


def _place(folder: str, path: str) -> str:
    """The file that a path in a table in `folder` means; backslashes of Windows are folders where nothing has them."""
    file = os.path.join(folder, place(path) if path.startswith("~") else path)
    if "\\" in path and os.sep == "/" and not os.path.exists(file):
        return os.path.join(folder, path.replace("\\", "/"))
    return file


def _column(file: Path, header: list[str], what: str, chosen: Mapping[str, str], notes: list[str]) -> int | None:
    """Which column holds what, and a note where others would do. None: there is none by the usual names."""
    plain = [name.casefold() for name in header]
    if what in chosen:
        wanted = chosen[what]
        if not wanted:
            return None
        names, there = ([wanted], header) if wanted in header else ([wanted.casefold()], plain)
        if names[0] not in there:
            raise unknown(f"column of {file.name}", wanted, header)
    else:
        names, there = list(COLUMNS[what]), plain
    found = [name for name in names if name in there]
    if not found:
        return None
    if there.count(found[0]) > 1:
        raise InputError(f"{file}: columns have different names; {header[there.index(found[0])]!r} is there twice.")
    if len(found) > 1:
        notes.append(f"{what}s are column {header[there.index(found[0])]!r}; {some(found[1:])} would do too")
    return there.index(found[0])


def _cells(file: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """(header, rows, the line each begins at) of a table; lines without any text are left out."""
    rows: list[list[str]] = []
    lines: list[int] = []
    line = 0
    try:
        with open(file, newline="", encoding="utf-8-sig") as opened:
            first = next((text for text in opened if text.strip()), "")
            if "\0" in first:
                raise InputError(f"{file}: a table is UTF-8 text; this is not. Save it as UTF-8.")
            opened.seek(0)
            reader = csv.reader(opened, delimiter=_delimiter(first), skipinitialspace=True, strict=True)
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append(row)
                    lines.append(line + 1)
                line = reader.line_num
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: a table is UTF-8 text; this is not ({error.reason}). Save it as UTF-8.") from error
    except csv.Error as error:
        raise InputError(f"{file}: line {line + 1} cannot be read ({error}).") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from error
    if not rows:
        raise InputError(f"{file} is empty; a table has a header, the names of its columns, and one row an image.")
    header = [name.strip() for name in rows[0]]
    for row in rows[1:]:  # spreadsheets end lines with empty cells
        while len(row) > len(header) and not row[-1].strip():
            row.pop()
    wrong = [(line, len(row)) for line, row in zip(lines, rows, strict=True) if len(row) != len(header)]
    if wrong:
        raise InputError(
            f"{file}: every row has as many cells as the header, {len(header)} ({', '.join(header)}); {len(wrong):,} "
            f"{'do' if len(wrong) > 1 else 'does'} not: {some([f'line {line} has {count}' for line, count in wrong])}. "
            'A cell with a delimiter in it is written in quotes, "like, this".'
        )
    return header, rows[1:], lines[1:]


def _delimiter(header: str) -> str:
    """The one of comma, semicolon and tab that makes the most columns of the header."""
    counts = {each: len(next(csv.reader([header], delimiter=each), [])) for each in DELIMITERS}
    return max(counts, key=lambda each: counts[each])
