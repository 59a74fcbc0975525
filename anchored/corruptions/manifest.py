"""What completes a folder of corrupted images: labels or checksums, and the manifest, which is written last."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from anchored.corruptions import tables
from anchored.corruptions.api import source
from anchored.corruptions.decoded_copy import DecodedCopy
from anchored.corruptions.units import JPEG_QUALITY, Plan, recorded_units
from anchored.data import Listing
from anchored.system.files import write_atomic, write_json

MANIFEST = "manifest.json"
CHECKSUMS = "checksums.md5"


def write_manifest(plan: Plan, listing: Listing, decoded: DecodedCopy, about: dict[str, Any]) -> Path:
    """Write what completes a folder of corrupted images, the manifest last, and remove what was unfinished; its path.

    about: settings, data, frost textures and versions, which the manifest repeats.
    """
    if plan.layout == "arrays":
        labels = np.tile(np.load(plan.unfinished / "labels.npy"), len(plan.severities))
        small = labels.astype(np.uint8 if len(listing.classes) <= 256 else np.int64)
        write_atomic(plan.out / "labels.npy", lambda temporary: np.save(temporary, small))
        listed = [f"{name}.npy" for name in plan.names] + ["labels.npy"]
    else:
        write_atomic(plan.out / CHECKSUMS, lambda temporary: _write_checksums(plan, temporary))
        listed = [CHECKSUMS]
    table, factor = tables.choose(plan.table, *decoded.shape[:2])
    manifest = {
        **about,
        "corruptions": {name: source(name, plan.frost_dir) for name in plan.names},
        "severities": list(plan.severities),
        "table": {"name": table, "lengths_times": factor},
        "arithmetic": "exact" if plan.exact else "fast",
        "random_numbers": "numpy's legacy generator, one an image" if plan.peer_rng else "anchored's streams",
        "codec": _codec(plan, about),
        "images": {
            "count": decoded.count,
            "height": decoded.shape[0],
            "width": decoded.shape[1],
            "sha256": decoded.sha256,
            "positions": _positions(plan, listing),
            "split": listing.split,
            "notes": list(decoded.notes),
        },
        "classes": list(listing.classes),
        "files": {name: {"md5": md5_of(plan.out / name), "bytes": (plan.out / name).stat().st_size} for name in listed},
    }
    write_json(plan.out / MANIFEST, manifest)
    shutil.rmtree(plan.unfinished)
    return plan.out / MANIFEST


def _positions(plan: Plan, listing: Listing) -> list[int] | None:
    """Which images of the part they are; None for all."""
    index: list[int] = np.load(plan.unfinished / "index.npy").tolist()
    return None if index == list(range(len(listing))) else index


def _codec(plan: Plan, about: dict[str, Any]) -> str:
    if plan.layout == "arrays":
        return "none: uint8 arrays"
    if plan.codec == "png":
        return "PNG"
    return f"JPEG, quality {JPEG_QUALITY}, optimised, {about['versions']['jpeg']}"


def _write_checksums(plan: Plan, path: Path) -> None:
    """One line a file, as md5sum writes and checks them, in the order of corruptions, severities and images."""
    names = np.load(plan.unfinished / "paths.npy", mmap_mode="r")
    with open(path, "w") as file:
        for name in plan.names:
            done = dict(recorded_units(plan, name))
            for unit in plan.units():
                if unit.name == name:
                    here = names[unit.start : unit.start + plan.images_per_unit]
                    for digest, relative in zip(done[unit], here, strict=True):
                        file.write(f"{digest}  {name}/{unit.severity}/{relative.decode()}\n")


def md5_of(path: Path) -> str:
    """MD5 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
