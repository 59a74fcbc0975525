"""Files that are either whole or absent: temporary file, fsync, rename."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anchored.system.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_held: set[int] = set()  # descriptors of folders in use


def _let_go() -> None:
    """In a forked process: its copies would keep the folder in use after the parent has died."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextmanager
def in_use(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other processes that ask the same out of `folder` (there already) until the end of the block or process.

    Raises InputError where one is in it. On file systems and platforms without locks it lets everyone in.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    _held.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"another process is working in {os.fspath(folder)}. Wait for it to end, or use another --out."
            ) from error
        except OSError:  # no locks here
            pass
        yield
    finally:
        if handle in _held:
            _held.remove(handle)
            os.close(handle)


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


def as_tuple(value: Any) -> Any:
    """Lists, which the command line and files have, as the tuples of settings; anything else as it is."""
    return tuple(value) if isinstance(value, list) else value
