"""`anchored corrupt`: a corrupted copy of a data set on disk, in the layout of CIFAR-10-C or of ImageNet-C.

The images are decoded once to a file that the processes map; a unit of work corrupts some of them and writes them.
What an image becomes depends on (seed, corruption, severity, its position) alone, so that units can be made by any
process in any order, and again after a crash, and always give the same bytes. `OUT/.anchored` holds what is
unfinished and goes when `manifest.json` is written, last.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import features
from rich.console import Console

import anchored.data as sources
from anchored.corruptions import frost, tables
from anchored.corruptions.api import MIN_SIDE, source, suite
from anchored.corruptions.decoded_copy import SUMMARY, DecodedCopy, image_paths, write_decoded_copy
from anchored.corruptions.manifest import MANIFEST, write_manifest
from anchored.corruptions.pool import Processes, cores
from anchored.corruptions.units import (
    CODECS,
    LAYOUTS,
    UNFINISHED,
    Plan,
    Unit,
    close_inputs,
    record_units,
    recorded_units,
)
from anchored.data import Listing, Options
from anchored.system.errors import InputError, unknown
from anchored.system.files import in_use, read_json, write_atomic, write_json
from anchored.system.progress import Work

WORTH_PROCESSES = 1_000  # images to make; for fewer one process is as fast
SECURED_EVERY = 30.0  # seconds of work that a crash of the machine can cost


@dataclass(frozen=True)
class Request:
    """What to make; see `anchored corrupt --help`. Raises InputError on values that cannot be."""

    data: str
    suite: tuple[str, ...] = ("c",)
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    part: str = "test"
    layout: str | None = None
    codec: str | None = None
    seed: int = 0
    table: str | None = None
    exact: bool = True
    peer_rng: bool = False
    frost_dir: str | None = None
    root: str | None = None
    image_size: int | None = None
    crop: float = 1.0
    limit: int | None = None

    def __post_init__(self) -> None:
        if not self.suite:
            raise InputError("--suite takes c, c-bar, c-mce or names of corruptions; got none.")
        self.names(self.table or "cifar")
        if not self.severities:
            raise InputError("severities are 1 to 5; got none.")
        for severity in self.severities:
            tables.check_severity(severity)
        if self.layout is not None and self.layout not in LAYOUTS:
            raise unknown("layout", self.layout, LAYOUTS)
        if self.codec is not None and self.codec not in CODECS:
            raise unknown("codec", self.codec, CODECS)
        if self.codec is not None and self.chosen_layout == "arrays":
            raise InputError("--codec is of image files; the layout arrays holds bare pixels. Add --layout folder.")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"limit is at least 1; got {self.limit}.")
        if self.image_size is not None and self.image_size < MIN_SIDE:
            raise InputError(f"images must have sides of at least {MIN_SIDE} px; got --image-size {self.image_size}.")
        frost.find(self.frost_dir)

    @property
    def chosen_layout(self) -> str:
        """`layout`, or the one that fits the data source: folders from folders, arrays from all others."""
        return self.layout or ("folder" if self.data.startswith("folder:") else "arrays")

    def names(self, table: str) -> tuple[str, ...]:
        """The corruptions for images whose strengths are in `table`, each once."""
        return tuple(dict.fromkeys(name for given in self.suite for name in suite(given, table=table)))


def generate(request: Request, out: Path, *, workers: int | None = None, console: Console | None = None) -> Path:
    """Make the corrupted copy in `out` and return the path of its manifest; the same call again goes on or is done.

    workers: processes (None: one a core). Raises InputError for bad input, for an `out` that holds something else,
    and when writing fails; files that are whole stay, nothing is half-written.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is at least 1; got {workers}.")
    options = Options(size=request.image_size, root=request.root, crop=request.crop)
    listing = sources.listing(request.data, part=request.part, root=request.root)
    rows = np.arange(len(listing))
    if request.limit is not None:
        rows = sources.limit_labels(listing.labels, request.limit, seed=0).numpy()
    about = _about(request, listing, rows)
    there = out.exists()
    if not _claim(out, about):
        return out / MANIFEST
    corrupted_sets = len(request.names(request.table or "cifar")) * len(request.severities)
    if workers is None:
        workers = cores() if corrupted_sets * len(rows) > WORTH_PROCESSES else 1
    with in_use(out), _discarding(out, there):
        with Processes(workers) as processes:
            with Work(len(rows), console) as reading:
                decoded = write_decoded_copy(
                    listing, rows, options, out / UNFINISHED, lambda: reading.advance(1, "reading images")
                )
            plan = _plan(request, decoded, out)
            _prepare(plan, listing)
            with Work(plan.count * len(plan.names) * len(plan.severities), console) as work:
                _make_units(plan, processes, work)
        return write_manifest(plan, listing, decoded, about)


@contextmanager
def _discarding(out: Path, there: bool) -> Iterator[None]:
    """Leave nothing half-written when the block fails; there: whether the folder was there before."""
    try:
        yield
    except (InputError, OSError) as error:
        _discard(out, there)
        if isinstance(error, OSError):
            what = error.filename or out
            raise InputError(
                f"cannot write {what}: {error.strerror or error}. Nothing half-written is left."
            ) from error
        raise


# --- the folder ----------------------------------------------------------------------------------------------------


def _about(request: Request, listing: Listing, rows: np.ndarray) -> dict[str, Any]:
    """What decides about the bytes that come out: another `about`, another folder."""
    settings = asdict(request)
    for name in ("data", "root", "frost_dir"):  # where things lie does not matter
        del settings[name]
    settings["suite"], settings["severities"] = list(request.suite), list(request.severities)
    settings["layout"] = request.chosen_layout
    settings["codec"] = (request.codec or "jpeg") if request.chosen_layout == "folder" else None
    labels = hashlib.sha256(listing.labels.numpy().tobytes()).hexdigest()
    return {
        "settings": settings,
        "data": {"name": listing.name, "part": request.part, "images": len(rows), "labels_sha256": labels},
        "frost": source("frost", request.frost_dir),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    codec = features.version("libjpeg_turbo")
    jpeg = f"libjpeg-turbo {codec}" if codec else f"libjpeg {features.version('jpg')}"
    packages = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scipy", "pillow")}
    return {"anchored": importlib.metadata.version("anchored"), **packages, "jpeg": jpeg}


def _claim(out: Path, about: dict[str, Any]) -> bool:
    """Make `out` the folder of this work, or check that it is; False if the work is done."""
    settings = out / UNFINISHED / "settings.json"
    try:
        if (out / MANIFEST).is_file():
            _same(out, read_json(out / MANIFEST), about)
            shutil.rmtree(out / UNFINISHED, ignore_errors=True)
            return False
        if settings.is_file():
            _same(out, read_json(settings), about)
            for leftover in settings.parent.glob("*.tmp"):
                leftover.unlink()
            return True
        if out.exists() and any(entry.name != UNFINISHED for entry in out.iterdir()):
            raise InputError(f"--out {out} is not empty and is no unfinished work of this command. Use a new folder.")
        write_json(settings, about)
    except OSError as error:
        raise InputError(f"cannot write to --out {out}: {error.strerror or error}.") from error
    return True


def _same(out: Path, before: dict[str, Any], about: dict[str, Any]) -> None:
    changed = []
    for group, now in about.items():
        old = before.get(group)
        if isinstance(now, dict) and isinstance(old, dict):
            changed += [f"{key}: {old.get(key)!r} there, {now[key]!r} here" for key in now if old.get(key) != now[key]]
        elif old != now:
            changed.append(f"{group}: {old!r} there, {now!r} here")
    if changed:
        raise InputError(f"--out {out} holds other corruptions ({'; '.join(changed)}). Use another --out.")


def _discard(out: Path, there: bool) -> None:
    """Remove what is half-written; all of it, if nothing is finished yet."""
    unfinished = out / UNFINISHED
    if out.is_dir() and all(entry.name == UNFINISHED for entry in out.iterdir()):
        shutil.rmtree(unfinished, ignore_errors=True)
        if not there:
            out.rmdir()
        return
    for pattern in ("*.npy", "*.tmp", "images.bin", SUMMARY):
        for path in unfinished.glob(pattern):
            if path.name != "paths.npy":
                path.unlink(missing_ok=True)
                (unfinished / f"{path.stem}.done").unlink(missing_ok=True)


# --- the work ------------------------------------------------------------------------------------------------------


def _plan(request: Request, decoded: DecodedCopy, out: Path) -> Plan:
    height, width = decoded.shape[:2]
    if min(height, width) < MIN_SIDE:
        raise InputError(
            f"images must have sides of at least {MIN_SIDE} px, not {height} x {width}; pass --image-size."
        )
    table, _ = tables.choose(request.table, height, width)
    return Plan(
        out=out,
        layout=request.chosen_layout,
        codec=request.codec or "jpeg",
        names=request.names(table),
        severities=request.severities,
        count=decoded.count,
        shape=decoded.shape,
        seed=request.seed,
        table=request.table,
        exact=request.exact,
        frost_dir=request.frost_dir,
        peer_rng=request.peer_rng,
    )


def _prepare(plan: Plan, listing: Listing) -> None:
    """What the processes write into: empty arrays of the right size, or the paths of the files."""
    if plan.layout == "folder":
        kept = np.load(plan.unfinished / "index.npy")
        names = np.array([path.encode() for path in image_paths(listing, kept, CODECS[plan.codec])])
        write_atomic(plan.unfinished / "paths.npy", lambda temporary: np.save(temporary, names))
        return
    size = len(plan.array_header()) + len(plan.severities) * plan.count * int(np.prod(plan.shape))
    missing = [name for name in plan.names if not (plan.out / f"{name}.npy").exists()]
    parts = [plan.unfinished_array(name).stat() for name in missing if plan.unfinished_array(name).exists()]
    needed = size * len(missing) - sum(getattr(part, "st_blocks", 0) * 512 for part in parts)
    free = shutil.disk_usage(plan.out).free
    if needed > free:
        raise InputError(
            f"{len(missing)} arrays of {size / 1e9:.3g} GB need {needed / 1e9:.3g} GB more, but only "
            f"{free / 1e9:.3g} GB are free at {plan.out}."
        )
    for name in missing:
        # Also where a part is there already: a crash may have cut its beginning off.
        with open(plan.unfinished_array(name), "r+b" if plan.unfinished_array(name).exists() else "wb") as file:
            file.write(plan.array_header())
            file.truncate(size)


def _make_units(plan: Plan, processes: Processes, work: Work) -> None:
    """Make all units that are not recorded as done, and every array file once its units are."""
    close_inputs()
    todo: dict[str, set[Unit]] = {name: set() for name in plan.names}
    for unit in plan.units():
        todo[unit.name].add(unit)
    for name, units in todo.items():
        if plan.layout == "arrays" and (plan.out / f"{name}.npy").exists():
            done = set(units)
        else:
            done = {unit for unit, _ in recorded_units(plan, name)} & units
        units -= done
        work.skip(sum(_images(plan, unit) for unit in done))
        if not units:
            _complete(plan, name)
    fresh: list[tuple[Unit, list[str]]] = []
    secured = time.monotonic()
    try:
        for unit, sums in processes.results(plan, [unit for unit in plan.units() if unit in todo[unit.name]]):
            fresh.append((unit, sums))
            todo[unit.name].discard(unit)
            work.advance(_images(plan, unit), f"{unit.name}, severity {unit.severity}")
            if time.monotonic() - secured > SECURED_EVERY:
                record_units(plan, fresh)
                secured = time.monotonic()
            if not todo[unit.name]:
                _complete(plan, unit.name)
    finally:
        record_units(plan, fresh)


def _images(plan: Plan, unit: Unit) -> int:
    return min(plan.images_per_unit, plan.count - unit.start)


def _complete(plan: Plan, name: str) -> None:
    """Give a finished array its name."""
    final = plan.out / f"{name}.npy"
    if plan.layout == "arrays" and not final.exists():
        with open(plan.unfinished_array(name), "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(plan.unfinished_array(name), 0o644)
        os.replace(plan.unfinished_array(name), final)
