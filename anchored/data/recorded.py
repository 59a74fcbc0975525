"""Where the data of a run came from, as its run.json keeps it, and where that data is now."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from anchored.data.base import place


@dataclass(frozen=True)
class Located:
    """Recorded data that is there: as `--data` and `--root` name it.

    not_used: the recorded path, where the spec as given leads to another place from the current folder.
    """

    data: str
    root: str | None = None
    not_used: str | None = None


def source_of(spec: str, root: str | None = None, labels: str | None = None) -> dict[str, str | None]:
    """What run.json keeps of --data SPEC, --root and --labels, so that the data is found later and from elsewhere.

    data: as given. path: its path, absolute; None for data without one (digits, cifar10, hf:ID on the Hub). root,
    labels: absolute, None where not given. A path that is no UTF-8, which JSON cannot hold, is None too.
    """
    path = spec.partition(":")[2]
    on_the_hub = _may_be_on_the_hub(spec) and not _exists(path)
    return {
        "data": spec,
        "root": _absolute(root) if root else None,
        "path": _absolute(path) if path and not on_the_hub else None,
        "labels": _absolute(labels) if labels else None,
    }


def locate(source: Mapping[str, str | None]) -> Located | None:
    """The data of `source_of`: as given from the current folder, else at its recorded path; None where it is not there.

    Data without a path is there by its name. A root that is no longer there counts as not given: other machines keep
    downloads elsewhere.
    """
    spec, recorded, root = str(source["data"]), source.get("path"), source.get("root")
    kind, _, path = spec.partition(":")
    root = root if root and os.path.isdir(place(root)) else None
    if not path or (recorded is None and _may_be_on_the_hub(spec)):
        return Located(spec, root)
    there = recorded is not None and _exists(recorded)
    if _exists(path):
        elsewhere = there and _real(path) != _real(str(recorded))
        return Located(spec, root, recorded if elsewhere else None)
    return Located(f"{kind}:{recorded}", root) if there else None


def same_data(one: str, other: str) -> bool:
    """Whether two specs lead to the same data from the current folder."""
    (kind, _, path), (other_kind, _, other_path) = one.partition(":"), other.partition(":")
    return one == other or (kind == other_kind and bool(path and other_path) and _real(path) == _real(other_path))


def _may_be_on_the_hub(spec: str) -> bool:
    return spec.startswith("hf:")


def _parts(path: str) -> list[str]:
    """The files or folders that a path names: one, or several between commas."""
    return [path] if os.path.exists(place(path)) else path.split(",")


def _exists(path: str) -> bool:
    return all(part and os.path.exists(place(part)) for part in _parts(path))


def _real(path: str) -> list[str]:
    return [os.path.realpath(place(part)) for part in _parts(path)]


def _absolute(path: str) -> str | None:
    absolute = ",".join(os.path.abspath(place(part)) for part in _parts(path))
    try:
        absolute.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return absolute
