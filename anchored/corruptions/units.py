"""Stretches of corrupted images, made and written by one of several processes."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anchored.corruptions.api import corrupt
from anchored.system.errors import InputError

STATE = ".anchored"
LAYOUTS = ("arrays", "folder")
CODECS = {"jpeg": ".JPEG", "png": ".png"}
QUALITY = 85  # of the JPEG files, as in ImageNet-C
_STRETCH = 2**23  # bytes of images made at a time: little memory, and much work beside its administration


class Unit(NamedTuple):
    """Images `start`... of one corruption at one severity."""

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
    def state(self) -> Path:
        """The folder of what is unfinished."""
        return self.out / STATE

    @property
    def stretch(self) -> int:
        """Images a unit."""
        return max(1, _STRETCH // int(np.prod(self.shape)))

    def units(self) -> list[Unit]:
        """Every unit, corruption by corruption."""
        return [
            Unit(name, severity, start)
            for name in self.names
            for severity in self.severities
            for start in range(0, self.count, self.stretch)
        ]

    def part(self, name: str) -> Path:
        """The unfinished array of a corruption."""
        return self.state / f"{name}.npy"

    def header(self) -> bytes:
        """The first bytes of an array file, those that `numpy.save` writes."""
        buffer = io.BytesIO()
        shape = (len(self.severities) * self.count, *self.shape)
        np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
        return buffer.getvalue()


def peer_seed(seed: int, severity: int, index: int) -> int:
    """What to give numpy.random.seed before the official code corrupts image `index`, to have --peer-rng's bytes."""
    return (seed + 100_000_000 * severity + index) % 2**32


@lru_cache(maxsize=1)
def _inputs(plan: Plan) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bytes_] | None]:
    """Images, positions in the data set, and paths of the folder layout, mapped from disk."""
    images = np.memmap(plan.state / "images.bin", np.uint8, mode="r", shape=(plan.count, *plan.shape))
    index = np.load(plan.state / "index.npy", mmap_mode="r")
    paths = np.load(plan.state / "paths.npy", mmap_mode="r") if plan.layout == "folder" else None
    return images, index, paths


def forget() -> None:
    """Close the files of an earlier plan, which may have gone since."""
    _inputs.cache_clear()


def make(plan: Plan, unit: Unit) -> list[str]:
    """Corrupt and write the images of a unit; the MD5 sums of the files, where it writes files of their own."""
    images, index, paths = _inputs(plan)
    stretch = slice(unit.start, unit.start + plan.stretch)
    positions = np.array(index[stretch])
    seeds = [peer_seed(plan.seed, unit.severity, int(i)) for i in positions] if plan.peer_rng else None
    done = corrupt(
        images[stretch],
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
        _write_at(plan.part(unit.name), len(plan.header()) + row * done[0].nbytes, done)
        return []
    cell = plan.out / unit.name / str(unit.severity)
    return [
        _write_file(plan, cell / path.decode(), encode(image, plan.codec))
        for image, path in zip(done, paths[stretch], strict=True)
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


def encode(image: NDArray[np.uint8], codec: str) -> bytes:
    """One image as a file: JPEG as in ImageNet-C (quality 85, optimised Huffman tables), or PNG."""
    buffer = io.BytesIO()
    if codec == "png":
        Image.fromarray(image).save(buffer, "PNG", compress_level=6)
    else:
        Image.fromarray(image).save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()


def _write_file(plan: Plan, path: Path, content: bytes) -> str:
    """Write a file as a whole or not at all; its MD5. No fsync: there are millions, and they are secured together."""
    temporary = plan.state / f"{os.getpid()}.tmp"
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


def severities(values: Iterable[str | int]) -> tuple[int, ...]:
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
