"""Files that are either whole or absent: temporary file, fsync, rename."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomic(path: str | os.PathLike[str], write: Callable[[Path], Any]) -> None:
    """Call `write(temporary)` and rename the temporary file to `path` once its bytes are on disk.

    The temporary file lies in the same folder (same file system) and keeps the suffix of `path`,
    because some writers choose their format by it. It is removed when `write` fails.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` (UTF-8) to `path` atomically."""
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` to `path` atomically as indented JSON with a stable key order."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, sort_keys=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """The JSON value in `path`."""
    return json.loads(Path(path).read_text(encoding="utf-8"))
