"""The data that runs were trained on: what they are evaluated on unless --data says otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anchored.data as sources
from anchored.data.base import Listing
from anchored.data.checks import some
from anchored.data.recorded import Located, locate, same_data
from anchored.system.errors import InputError
from anchored.system.files import read_json

SAY_DATA = "--data says where the test images are"
EXAMPLES = "cifar10, parquet:PATH, folder:PATH, npz:PATH ..."


@dataclass(frozen=True)
class _Trained:
    """What a run says of its data: the name in results, and its source where that is known."""

    run: str
    name: str | None
    source: Mapping[str, Any] | None

    def __str__(self) -> str:
        return f"{self.run} on {self.source['data'] if self.source else self.name}"


def own_data(folders: Mapping[str, Path]) -> Located:
    """The data that all of these runs (spec -> folder) were trained on.

    Raises InputError where none of them says, they disagree, or it is not there any more.
    """
    told = [run for run in (_trained(spec, folder) for spec, folder in folders.items()) if run.source or run.name]
    known = [(run, run.source) for run in told if run.source]
    if not known:
        names = some(sorted({str(run.name) for run in told}))
        says = f"the runs say {names}, but not where that is" if told else "no model says one"
        raise InputError(f"{SAY_DATA} ({says}): {EXAMPLES}")
    found: list[Located] = []
    for run, source in known:
        located = locate(source)
        if located is None:
            kind, _, given = str(source["data"]).partition(":")
            who = "the run" if len(folders) == 1 else f"the run {run.run}"
            where = f"{kind}:{source.get('path') or given}"
            raise InputError(f"{who} was trained on {where}, which is not there; pass --data.")
        found.append(located)
    if len({run.name for run in told} - {None}) > 1 or not all(same_data(found[0].data, each.data) for each in found):
        raise InputError(
            f"the runs were trained on different data: {', '.join(map(str, told))}. --data says which test images all "
            "of them are evaluated on."
        )
    return found[0]


def own_data_note(own: Located, runs: int) -> str:
    """The flags that the data of `runs` runs stands for, in a line."""
    flags = f"--data {own.data}" + (f" --root {own.root}" if own.root else "")
    whose = "the run's own" if runs == 1 else "the runs' own"
    return f"{flags} ({whose}{f'; {own.not_used} is another place and is not used' if own.not_used else ''})"


def check_part(folders: Mapping[str, Path], test: Listing, *, part: str, own: bool) -> Iterator[str]:
    """Notes on training images that may be among those evaluated on: `test`, or everything with part "all".

    own: whether the data is the runs' own rather than one that was asked for. Raises InputError where the runs' own
    data is split in another way now than when they were trained: images that were trained on could be test images.
    """
    for spec, folder in folders.items():
        info = read_json(folder / "run.json")
        if info.get("data") != test.name:
            continue
        before = info.get("split")
        if part == "all":
            yield f"--part all: the training images of {spec} are among those it is evaluated on"
        elif before is not None and before != test.split:
            changed = f"{spec} was trained with {test.name} split {before}; now it is split {test.split}"
            if own:
                raise InputError(
                    f"{changed}. Images it was trained on could be among the test images. --data names the data as it "
                    "was, or this one all the same."
                )
            yield f"{changed}: images it was trained on may be among the test images"


def _trained(spec: str, folder: Path) -> _Trained:
    """From run.json; of older runs the source is that of their comparison, or a data set that needs no path."""
    info = read_json(folder / "run.json")
    name, source = info.get("data"), info.get("source")
    if not source and name is not None:
        source = _of_comparison(folder, name)
        if not source and name in [each for each in sources.sources() if ":" not in each]:
            source = {"data": name}
    return _Trained(spec, name, source)


def _of_comparison(folder: Path, name: str) -> dict[str, str | None] | None:
    """The source in the config.json of the run, or of the comparison in whose runs/ it lies, where it is of `name`."""
    for config in (folder / "config.json", folder.resolve().parent.parent / "config.json"):
        found = read_json(config) if config.is_file() else {}
        settings = found.get("settings", {})
        if found.get("data", {}).get("name") == name and isinstance(settings.get("data"), str):
            spec = settings["data"]
            path = spec.partition(":")[2] if not spec.startswith("hf:") else None
            return {"data": spec, "root": settings.get("root"), "path": path or None}
    return None
