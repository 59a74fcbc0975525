"""The images to corrupt, decoded once to a file that all processes map: memory does not grow with the data set."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchored.data import Listing, Options
from anchored.data.decode import NAMED, Failure, pictures
from anchored.system.errors import InputError
from anchored.system.files import read_json, write_json

SUMMARY = "decoded.json"


@dataclass(frozen=True)
class DecodedCopy:
    """What is known of the decoded images: how many, their shape [H, W, 3], SHA-256 of their bytes, and notes."""

    count: int
    shape: tuple[int, int, int]
    sha256: str
    notes: tuple[str, ...]


def write_decoded_copy(
    listing: Listing, rows: NDArray[np.int64], options: Options, folder: Path, image_done: Callable[[], None]
) -> DecodedCopy:
    """Decode the pictures at `rows` (sorted int64) into `folder`: images.bin, labels.npy, index.npy.

    Images that cannot be read are left out and named in a note. A copy that is there is used as it is.
    `image_done()` is called for every picture. Images may have any shape; raises InputError for images of several
    sizes, and where none is readable.
    """
    summary = folder / SUMMARY
    if summary.exists():
        before = read_json(summary)
        return DecodedCopy(before["count"], tuple(before["shape"]), before["sha256"], tuple(before["notes"]))
    digest = hashlib.sha256()
    shape: tuple[int, int, int] | None = None
    kept: list[int] = []
    failures: dict[int, str] = {}
    # Broken metadata of sound pictures warns.
    with (
        open(folder / "images.bin", "wb") as file,
        warnings.catch_warnings(),
        closing(pictures(listing.pictures(rows), options)) as results,
    ):
        warnings.simplefilter("ignore")
        for position, (result, _) in enumerate(results):
            row = int(rows[position])
            image_done()
            if isinstance(result, Failure):
                failures[row] = result.reason
                continue
            height, width = result.shape[:2]
            shape = shape or (height, width, 3)
            if result.shape != shape:
                raise InputError(
                    f"the images have different sizes: {shape[1]}x{shape[0]} ({listing.called(kept[0])}) and "
                    f"{width}x{height} ({listing.called(row)}); pass --image-size."
                )
            pixels = np.ascontiguousarray(result)
            digest.update(pixels.data)
            file.write(pixels.data)
            kept.append(row)
    named = [f"{listing.called(row)} ({reason})" for row, reason in list(failures.items())[:NAMED]]
    named += [f"{len(failures) - NAMED:,} more"] if len(failures) > NAMED else []
    if shape is None:
        raise InputError(f"none of the {len(rows):,} images is readable; {', '.join(named)}.")
    left_out = f"unreadable images, left out: {len(failures):,} of {len(rows):,}: {', '.join(named)}"
    notes = (*listing.notes, left_out) if failures else listing.notes
    np.save(folder / "index.npy", np.array(kept, np.int64))
    np.save(folder / "labels.npy", listing.labels.numpy()[kept])
    decoded = DecodedCopy(len(kept), shape, digest.hexdigest(), notes)
    write_json(summary, asdict(decoded))
    return decoded


def image_paths(listing: Listing, kept: NDArray[np.int64], suffix: str) -> list[str]:
    """`<class>/<file><suffix>` of every kept image, all different; class folders keep the names of their files.

    A file of a kind that `suffix` stands for keeps its own suffix.
    """
    own = (".png",) if suffix == ".png" else (".jpeg", ".jpg")
    folders = _class_folders(listing.classes)
    digits = len(str(max(len(listing) - 1, 0)))
    taken: set[str] = set()
    out = []
    for row in kept.tolist():
        name = Path(listing.files[row] if listing.files is not None else f"{row:0{digits}}")
        if name.suffix.lower() not in own:
            name = name.with_suffix(suffix)
        path = f"{folders[int(listing.labels[row])]}/{name.as_posix()}"
        if path.lower() in taken and listing.files is not None:  # the file had a twin of another suffix
            path = f"{folders[int(listing.labels[row])]}/{listing.files[row]}{suffix}"
        taken.add(path.lower())
        out.append(path)
    return out


def _class_folders(classes: tuple[str, ...]) -> list[str]:
    """A folder name for every class: its own where that can be one."""
    names = [name.replace("/", "_").replace("\\", "_").replace("\0", "_").strip() for name in classes]
    different = len({name.lower() for name in names}) == len(names)
    if different and all(name and not name.startswith(".") for name in names):
        return names
    return [f"{label}_{name.lstrip('.')}" for label, name in enumerate(names)]
