"""Units of work: some images of one corruption at one severity, made and written by one of several processes."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anchored.corruptions.api import corrupt
from anchored.system.errors import InputError

UNFINISHED = ".anchored"  # the folder in the output that holds what is unfinished
LAYOUTS = ("arrays", "folder")
CODECS = {"jpeg": ".JPEG", "png": ".png"}
JPEG_QUALITY = 85  # as in ImageNet-C
_UNIT_BYTES = 2**23  # of images made at a time: little memory, and much work beside its administration


class Unit(NamedTuple):
    """`images_per_unit` images from number `start` on, of one corruption at one severity."""

    name: str
    severity: int
    start: int


@dataclass(frozen=True)
class Plan:
    """All that a process needs to make a unit. Images, positions and paths lie in files below `out`/.anchored."""

    out: Path
    layout: str
    codec: str
    names: tuple[str, ...]
    severities: tuple[int, ...]
    count: int
    shape: tuple[int, int, int]
    seed: int
    table: str | None
    exact: bool
    frost_dir: str | None
    peer_rng: bool

    @property
    def unfinished(self) -> Path:
        """The folder of what is unfinished."""
        return self.out / UNFINISHED

    @property
    def images_per_unit(self) -> int:
        """So many images are made at a time."""
        return max(1, _UNIT_BYTES // int(np.prod(self.shape)))

    def units(self) -> list[Unit]:
        """Every unit, corruption by corruption."""
        return [
            Unit(name, severity, start)
            for name in self.names
            for severity in self.severities
            for start in range(0, self.count, self.images_per_unit)
        ]

    def unfinished_array(self, name: str) -> Path:
        """The unfinished array of a corruption."""
        return self.unfinished / f"{name}.npy"

    def array_header(self) -> bytes:
        """The first bytes of an array file, those that `numpy.save` writes."""
        buffer = io.BytesIO()
        shape = (len(self.severities) * self.count, *self.shape)
        np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
        return buffer.getvalue()


def peer_seed(seed: int, severity: int, index: int) -> int:
    """What to give numpy.random.seed before the official code corrupts image `index`, to have --peer-rng's bytes."""
    return (seed + 100_000_000 * severity + index) % 2**32


@lru_cache(maxsize=1)
def _mapped_inputs(plan: Plan) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bytes_] | None]:
    """Images, positions in the data set, and paths of the folder layout, mapped from disk."""
    images = np.memmap(plan.unfinished / "images.bin", np.uint8, mode="r", shape=(plan.count, *plan.shape))
    index = np.load(plan.unfinished / "index.npy", mmap_mode="r")
    paths = np.load(plan.unfinished / "paths.npy", mmap_mode="r") if plan.layout == "folder" else None
    return images, index, paths


def close_inputs() -> None:
    """Close the mapped files of an earlier plan, which may have gone since."""
    _mapped_inputs.cache_clear()


def make_unit(plan: Plan, unit: Unit) -> list[str]:
    """Corrupt and write the images of a unit; the MD5 sums of the files, where it writes files of their own."""
    images, index, paths = _mapped_inputs(plan)
    here = slice(unit.start, unit.start + plan.images_per_unit)
    positions = np.array(index[here])
    seeds = [peer_seed(plan.seed, unit.severity, int(i)) for i in positions] if plan.peer_rng else None
    done = corrupt(
        images[here],
        unit.name,
        unit.severity,
        seed=plan.seed,
        index=positions,
        table=plan.table,
        exact=plan.exact,
        frost_dir=plan.frost_dir,
        peer_seeds=seeds,
    )
    if paths is None:
        row = plan.severities.index(unit.severity) * plan.count + unit.start
        _write_at(plan.unfinished_array(unit.name), len(plan.array_header()) + row * done[0].nbytes, done)
        return []
    folder = plan.out / unit.name / str(unit.severity)
    return [
        _write_file(plan, folder / path.decode(), encode_image(image, plan.codec))
        for image, path in zip(done, paths[here], strict=True)
    ]


def _write_at(path: Path, offset: int, images: NDArray[np.uint8]) -> None:
    try:
        with open(path, "r+b", buffering=0) as file:
            file.seek(offset)
            rest = images.data.cast("B")
            while rest:  # an unbuffered write may take a part only
                rest = rest[file.write(rest) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def encode_image(image: NDArray[np.uint8], codec: str) -> bytes:
    """One image as a file: JPEG as in ImageNet-C (quality 85, optimised Huffman tables), or PNG."""
    buffer = io.BytesIO()
    if codec == "png":
        Image.fromarray(image).save(buffer, "PNG", compress_level=6)
    else:
        Image.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


def _write_file(plan: Plan, path: Path, content: bytes) -> str:
    """Write a file as a whole or not at all; its MD5. No fsync: there are millions, and they are secured together."""
    temporary = plan.unfinished / f"{os.getpid()}.tmp"
    try:
        temporary.write_bytes(content)
        try:
            os.replace(temporary, path)
        except FileNotFoundError:  # the first file of its class
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def record_units(plan: Plan, fresh: list[tuple[Unit, list[str]]]) -> None:
    """Note units as done, once their bytes are on disk. Empties `fresh`."""
    if not fresh:
        return
    if hasattr(os, "sync"):
        os.sync()
    for unit, sums in fresh:
        with open(plan.unfinished / f"{unit.name}.done", "a") as file:
            file.write("\n" + " ".join([str(unit.severity), str(unit.start), *sums, "."]) + "\n")
    fresh.clear()


def recorded_units(plan: Plan, name: str) -> Iterator[tuple[Unit, list[str]]]:
    """(unit, MD5 sums of its files) of every unit noted as done; a line that a crash cut off does not count."""
    path = plan.unfinished / f"{name}.done"
    if not path.exists():
        return
    with open(path) as file:
        for line in file:
            severity, start, *sums, end = line.split() if line.endswith(" .\n") else ("0", "0", "")
            if end:
                yield Unit(name, int(severity), int(start)), sums


def parse_severities(values: Iterable[str | int]) -> tuple[int, ...]:
    """Severities from what a user writes: `1-5`, `3`, `1,3`, in ascending order. Raises InputError outside 1..5."""
    found: set[int] = set()
    for part in (part for value in values for part in str(value).split(",")):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"severities are 1 to 5, written like 1-5 or 1,3 or 2; got {part!r}.")
        low, high = int(first), int(last if dash else first)
        if not 1 <= low <= high <= 5:
            raise InputError(f"severities are 1 to 5; got {part}.")
        found.update(range(low, high + 1))
    if not found:
        raise InputError("severities are 1 to 5; got none.")
    return tuple(sorted(found))
