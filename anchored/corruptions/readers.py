"""Corrupted test sets on disk: the published archives of -C and C-bar, and what `anchored corrupt` writes.

Three layouts: arrays (`<name>.npy`, severity-major, and `labels.npy`), and folders `<name>/<severity>/<class>/<file>`
with severities written 1..5 or, as the script of ImageNet-C-bar writes them, as strengths with two decimals.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchored.corruptions import bar
from anchored.corruptions.api import NAMES, suite
from anchored.corruptions.archive import Archive, mapped_images
from anchored.corruptions.manifest import CHECKSUMS, MANIFEST, md5_of
from anchored.corruptions.units import UNFINISHED
from anchored.data.checks import integer_labels, some
from anchored.data.folder import subfolders
from anchored.system.errors import InputError
from anchored.system.files import read_json

# MD5 of the files of CIFAR-10-C (https://zenodo.org/records/2535967).
PUBLISHED = {
    "brightness.npy": "0a81ef75e0b523c3383219c330a85d48",
    "contrast.npy": "3c8262171c51307f916c30a3308235a8",
    "defocus_blur.npy": "7d1322666342a0702b1957e92f6254bc",
    "gaussian_blur.npy": "c33370155bc9b055fb4a89113d3c559d",
    "jpeg_compression.npy": "2b9cc4c864e0193bb64db8d7728f8187",
    "pixelate.npy": "0f14f7e2db14288304e1de10df16832f",
    "saturate.npy": "1cfae0964219c5102abbb883e538cc56",
    "zoom_blur.npy": "6ea8e63f1c5cdee1517533840641641b",
    "labels.npy": "c439b113295ed5254878798ffe28fd54",
}


def read_archive(
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    labels: Tensor | None = None,
    strict: bool = False,
    verify: bool = False,
) -> Archive:
    """The corrupted test set in the folder `path`, recognised by what it holds; images are read later.

    classes: names in the order of the labels, for class folders (None: sorted, as everywhere).
    labels: int64 [N] of the clean test set; a different number or order of labels is an error.
    strict: a missing corruption is an error, not a warning and a note. verify: compare MD5 sums where they are known,
        the published ones or those of the manifest, which reads every file.
    Raises InputError for a folder that is none of these, is unfinished, or is damaged.
    """
    root = Path(path).expanduser()
    manifest = _own_manifest(root)
    arrays, folders = _corruptions_found(root)
    names = tuple(name for name in NAMES if name in (arrays or folders))
    wanted = tuple(manifest["corruptions"]) if manifest else _wanted(names, bool(arrays))
    missing = tuple(name for name in wanted if name not in names)
    notes = []
    if missing:
        notes.append(_missing_note(root, names, wanted, missing))
        if strict:
            raise InputError(f"{notes[0]}.")
        warnings.warn(notes[0], stacklevel=2)
    if arrays:
        severities: tuple[int, ...] = tuple(manifest["severities"]) if manifest else (1, 2, 3, 4, 5)
        places = {(name, severity): arrays[name] for name in names for severity in severities}
        found_labels = _array_labels(root, [arrays[name] for name in names], len(severities))
    else:
        severities, places = _folder_places(folders, names)
        found_labels = None
        if not manifest and severities != (1, 2, 3, 4, 5):
            notes.append(f"severities found in {root.name}: {', '.join(map(str, severities))} of 1 to 5")
            warnings.warn(notes[-1], stacklevel=2)
        if classes is None:
            first = places[names[0], severities[0]]
            classes = manifest["classes"] if manifest else [folder.name for folder in subfolders(first)]
    archive = Archive(
        root,
        "arrays" if arrays else "folder",
        names,
        severities,
        missing,
        tuple(notes),
        _source(manifest),
        places,
        found_labels,
        tuple(classes) if classes is not None and not arrays else None,
        _given(manifest),
        _order(root, manifest) if manifest and not arrays else None,
    )
    if labels is not None:
        _check_labels(archive, labels)
    if verify:
        _verify(archive, manifest)
    return archive


def _own_manifest(root: Path) -> dict[str, Any] | None:
    """The manifest of a folder that `anchored corrupt` wrote, else None; raises InputError if it is unfinished."""
    if not root.is_dir():
        raise InputError(f"{root}: there is no such folder.")
    if not (root / MANIFEST).is_file():
        if (root / UNFINISHED).exists():
            raise InputError(
                f"{root} is unfinished: `anchored corrupt` was interrupted there. The same command goes on."
            )
        return None
    manifest: dict[str, Any] = read_json(root / MANIFEST)
    return manifest if {"corruptions", "severities", "files"} <= set(manifest) else None  # else of another program


def _corruptions_found(root: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Corruption -> its array, and, where there are no arrays, corruption -> its folder. One of them is not empty."""
    arrays = {file.stem: file for file in sorted(root.glob("*.npy")) if file.stem in NAMES}
    folders = {} if arrays else _corruption_folders(root)
    if not arrays and not folders:
        found = ", ".join(sorted(entry.name for entry in root.iterdir())[:5]) or "nothing"
        raise InputError(
            f"{root}: corruptions are files like fog.npy with labels.npy, or folders like fog/1/CLASS; found {found}."
        )
    return arrays, folders


def _missing_note(root: Path, names: tuple[str, ...], wanted: tuple[str, ...], missing: tuple[str, ...]) -> str:
    there = f"{len(wanted) - len(missing)} of {len(wanted)}"
    return f"{there} corruptions found in {root.name}: {', '.join(names)}; missing: {', '.join(missing)}"


def _source(manifest: dict[str, Any] | None) -> str:
    """Where the images are from, as results say it."""
    if manifest is None:
        return "official"
    return f"{manifest['arithmetic']} arithmetic, {manifest['frost']}, seed {manifest['settings']['seed']}"


def _wanted(names: tuple[str, ...], arrays: bool) -> tuple[str, ...]:
    """The whole suites that the corruptions found belong to."""
    common, cifar, imagenet = suite("c"), set(bar.CIFAR), set(bar.IMAGENET)
    wanted = list(common) if set(names) & set(common) else []
    rest = set(names) - set(common)
    if rest & (cifar - imagenet) or (rest and arrays and not rest & (imagenet - cifar)):
        wanted += bar.CIFAR
    if rest & (imagenet - cifar) or (rest and not arrays and not rest & (cifar - imagenet)):
        wanted += [name for name in bar.IMAGENET if name not in wanted]
    return tuple(wanted)


# --- arrays --------------------------------------------------------------------------------------------------------


def _array_labels(root: Path, files: list[Path], severities: int) -> Tensor:
    """int64 [N], once, of labels.npy, which repeats them for every severity (or has them once).

    Raises InputError too for an array of images in `files` that does not fit them.
    """
    path, first = root / "labels.npy", files[0]
    if not path.is_file():
        raise InputError(f"{root}: there is no labels.npy beside the arrays of images.")
    try:
        whole, rows = np.load(path, allow_pickle=False), len(np.load(first, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} or {first} is not a readable .npy file: {error}") from error
    if rows % severities:
        raise InputError(f"{first}: {rows:,} images are not {severities} severities of equal size.")
    n = rows // severities
    labels = integer_labels(whole, n if len(whole) == n else rows, str(path))
    if len(labels) == rows and not torch.equal(labels, labels[:n].repeat(severities)):
        raise InputError(
            f"{path}: the labels are those of one test set, repeated for every severity; here they differ."
        )
    for file in files:
        mapped_images(file, n * severities)
    return labels[:n]


# --- folders -------------------------------------------------------------------------------------------------------


def _corruption_folders(root: Path) -> dict[str, Path]:
    """Corruption -> its folder, below `root` or one level deeper, as the parts of the archive unpack."""
    found = {}
    for folder in subfolders(root):
        if folder.name in NAMES:
            found[folder.name] = folder
        else:
            found |= {inner.name: inner for inner in subfolders(folder) if inner.name in NAMES}
    return found


def _folder_places(
    folders: dict[str, Path], names: tuple[str, ...]
) -> tuple[tuple[int, ...], dict[tuple[str, int], Path]]:
    """Severities in ascending order, and (corruption, severity) -> its folder; every corruption has all severities."""
    places = {(name, severity): place for name in names for severity, place in _severities(folders[name], name).items()}
    severities = tuple(sorted({severity for _, severity in places}))
    for name in names:
        lacking = [severity for severity in severities if (name, severity) not in places]
        if lacking:
            raise InputError(f"{folders[name]}: severity {some(lacking)} is missing, which other corruptions have.")
    return severities, places


def _severities(folder: Path, name: str) -> dict[int, Path]:
    """Severity -> its folder; a name with a point is a strength, whose place in the lists of C-bar is the severity."""
    out: dict[int, Path] = {}
    for place in subfolders(folder):
        severity = None
        if place.name in ("1", "2", "3", "4", "5"):
            severity = int(place.name)
        elif "." in place.name:
            lists = [strengths[name] for strengths in (bar.IMAGENET, bar.CIFAR) if name in strengths]
            texts = [[f"{strength:.2f}" for strength in strengths] for strengths in lists]
            severity = next((text.index(place.name) + 1 for text in texts if place.name in text), None)
        if severity is None:
            strengths = bar.IMAGENET.get(name) or bar.CIFAR.get(name) or ()
            also = f", or {', '.join(f'{strength:.2f}' for strength in strengths)}" if strengths else ""
            raise InputError(f"{folder}: severities are folders named 1 to 5{also}; found {place.name}.")
        if severity in out:
            raise InputError(f"{folder}: severity {severity} is there twice: {out[severity].name} and {place.name}.")
        out[severity] = place
    if not out:
        raise InputError(f"{folder}: severities are folders named 1 to 5; there are none.")
    return out


# --- checks --------------------------------------------------------------------------------------------------------


def _given(manifest: dict[str, Any] | None) -> Tensor | None:
    """Positions in the test set of the images of a generated folder, if they are not all of it."""
    positions = manifest["images"]["positions"] if manifest else None
    return torch.tensor(positions) if positions is not None else None


def _order(root: Path, manifest: dict[str, Any]) -> dict[str, int]:
    """`class/file` without suffix -> its rank in the test set, for a generated folder: that of its checksums."""
    out: dict[str, int] = {}
    with open(root / CHECKSUMS) as file:
        for line in file:
            path = Path(*Path(line.rstrip("\n").split("  ", 1)[1]).parts[2:]).with_suffix("").as_posix()
            out[path] = len(out)
            if len(out) == manifest["images"]["count"]:
                break
    return out


def _check_labels(archive: Archive, labels: Tensor) -> None:
    cell = archive.cell(archive.names[0], archive.severities[0])
    found = cell.labels
    if int(cell.index.max()) >= len(labels) or (archive._positions is None and len(found) != len(labels)):
        raise InputError(f"{archive.path} has {len(found):,} images a cell, the test set {len(labels):,}.")
    different = (found != labels.cpu()[cell.index]).nonzero()[:, 0]
    if len(different):
        raise InputError(
            f"{archive.path}: labels are those of the test set in its order; {len(different):,} of {len(found):,} "
            f"differ, the first at {int(different[0])}."
        )


def _verify(archive: Archive, manifest: dict[str, Any] | None) -> None:
    """Compare MD5 sums where they are known; raises InputError naming the first files that differ."""
    known: dict[str, str] = {}
    if manifest:
        known = {name: about["md5"] for name, about in manifest["files"].items()}
    elif archive.layout == "arrays" and archive._labels is not None:
        # Of the published sets those of CIFAR-10-C are known: 10,000 images of 32 px, 10 classes.
        first = mapped_images(archive._places[archive.names[0], 1], 5 * len(archive._labels))
        if (
            first.shape == (50_000, 32, 32, 3)
            and int(archive._labels.max()) == 9
            and set(archive.names) & set(suite("c"))
        ):
            known = {name: value for name, value in PUBLISHED.items() if (archive.path / name).exists()}
    wrong = [
        name for name, value in known.items() if not (archive.path / name).exists() or _differs(archive, name, value)
    ]
    if manifest and CHECKSUMS in known and not wrong:
        with open(archive.path / CHECKSUMS) as file:
            lines = (line.rstrip("\n").split("  ", 1) for line in file)
            wrong = [name for value, name in lines if _differs(archive, name, value)]
    if wrong:
        whose = "of the manifest" if manifest else "published"
        raise InputError(f"{archive.path}: {some(wrong)} differ from the MD5 sums {whose}.")


def _differs(archive: Archive, name: str, value: str) -> bool:
    path = archive.path / name
    return not path.is_file() or md5_of(path) != value
