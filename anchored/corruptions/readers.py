"""Corrupted test sets on disk: the published archives of -C and C-bar, and what `anchored corrupt` writes.

Three layouts: arrays (`<name>.npy`, severity-major, and `labels.npy`), and folders `<name>/<severity>/<class>/<file>`
with severities written 1..5 or, as the script of ImageNet-C-bar writes them, as strengths with two decimals.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchored.corruptions import bar
from anchored.corruptions.api import NAMES, suite
from anchored.corruptions.generate import CHECKSUMS, MANIFEST, md5
from anchored.corruptions.units import STATE
from anchored.data import ImageSet, Options
from anchored.data.checks import integer_labels, some
from anchored.data.decode import decode
from anchored.data.folder import class_files, subfolders
from anchored.system.errors import InputError, unknown
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


@dataclass(frozen=True)
class CorruptedSet:
    """One corruption at one severity: labels (int64 [N]), positions in the test set (int64 [N]), images on demand."""

    labels: Tensor
    index: Tensor
    _rows: np.ndarray | None = None
    _files: tuple[Path, ...] = ()
    _root: Path = Path()

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, *, size: int | None = None, part: slice | Tensor | None = None) -> ImageSet:
        """The images (uint8 [M, H, W, 3]) and labels, of `part` of them (a slice, or int64 [M]) or of all.

        size: side in pixels of images that come as files (None: as stored). Raises InputError for unreadable ones.
        """
        chosen = torch.arange(len(self))[slice(None) if part is None else part]
        if self._rows is not None:
            return ImageSet(torch.from_numpy(np.array(self._rows[chosen.numpy()])), self.labels[chosen])
        files = [self._files[row] for row in chosen.tolist()]
        options = Options(size=size, strict=True)
        decoded = decode(files, len(files), options, name=lambda i: files[i].relative_to(self._root).as_posix())
        return ImageSet(decoded.images, self.labels[chosen])

    def batches(self, count: int, *, size: int | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(images, labels, index) of `count` images at a time, so that memory holds no more."""
        for start in range(0, len(self), count):
            part = slice(start, start + count)
            images = self.load(size=size, part=part)
            yield images.images, images.labels, self.index[part]


@dataclass(frozen=True)
class Archive:
    """A folder of corrupted images. Iterating gives every (corruption, severity) there is.

    names: corruptions in official order; missing: those of its suites that are not there; notes: what a reader of
    results must know (missing corruptions, unofficial files); source: `official`, or how it was generated.
    """

    path: Path
    layout: str
    names: tuple[str, ...]
    severities: tuple[int, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    source: str
    _places: dict[tuple[str, int], Path] = field(repr=False)
    _labels: Tensor | None = field(default=None, repr=False)
    _classes: tuple[str, ...] | None = field(default=None, repr=False)
    _positions: Tensor | None = field(default=None, repr=False)
    _order: dict[str, int] | None = field(default=None, repr=False)
    _expected: list[str] = field(default_factory=list, repr=False)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter((name, severity) for name in self.names for severity in self.severities)

    def cell(self, name: str, severity: int) -> CorruptedSet:
        """One corruption at one severity. Raises InputError for one that is not there or differs from the others."""
        if name not in self.names:
            raise unknown("corruption of this archive", name, self.names)
        if severity not in self.severities:
            raise InputError(f"{self.path} has severities {', '.join(map(str, self.severities))}; got {severity}.")
        place = self._places[name, severity]
        if self._labels is not None:
            n = len(self._labels)
            start = self.severities.index(severity) * n
            rows = _array(place, n * len(self.severities))[start : start + n]
            return CorruptedSet(self._labels, self._index(n), rows)
        files, labels = _class_files(place, self._classes or ())
        stems = [_stem(file, place) for file in files]
        if not self._expected:
            self._expected.extend(stems if self._order is None else sorted(self._order))
        if sorted(stems) != sorted(self._expected):
            odd = sorted(set(stems) ^ set(self._expected))
            raise InputError(
                f"{place}: every corruption and severity has the same images; this has {len(stems):,}, the others "
                f"{len(self._expected):,}. They differ in {some(odd)}."
            )
        rank = list(range(len(files)))
        if self._order is not None:
            order = self._order
            rank.sort(key=lambda i: order[stems[i]])
        sorted_labels = torch.tensor([labels[i] for i in rank])
        return CorruptedSet(sorted_labels, self._index(len(files)), None, tuple(files[i] for i in rank), self.path)

    def _index(self, n: int) -> Tensor:
        return torch.arange(n) if self._positions is None else self._positions


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
    if not root.is_dir():
        raise InputError(f"{path}: there is no such folder.")
    if (root / STATE).exists() and not (root / MANIFEST).exists():
        raise InputError(f"{path} is unfinished: `anchored corrupt` was interrupted there. The same command goes on.")
    manifest: dict[str, Any] | None = read_json(root / MANIFEST) if (root / MANIFEST).is_file() else None
    if manifest is not None and not {"corruptions", "severities", "files"} <= set(manifest):
        manifest = None  # of another program
    arrays = {file.stem: file for file in sorted(root.glob("*.npy")) if file.stem in NAMES}
    folders = {} if arrays else _corruption_folders(root)
    if not arrays and not folders:
        found = ", ".join(sorted(entry.name for entry in root.iterdir())[:5]) or "nothing"
        raise InputError(
            f"{path}: corruptions are files like fog.npy with labels.npy, or folders like fog/1/CLASS; found {found}."
        )
    names = tuple(name for name in NAMES if name in (arrays or folders))
    wanted = tuple(manifest["corruptions"]) if manifest else _wanted(names, bool(arrays))
    missing = tuple(name for name in wanted if name not in names)
    notes = []
    if missing:
        notes.append(
            f"{len(wanted) - len(missing)} of {len(wanted)} corruptions found in {root.name}: {', '.join(names)}; "
            f"missing: {', '.join(missing)}"
        )
        if strict:
            raise InputError(f"{notes[0]}.")
        warnings.warn(notes[0], stacklevel=2)
    places: dict[tuple[str, int], Path] = {}
    found_labels = None
    if arrays:
        severities = tuple(manifest["severities"]) if manifest else (1, 2, 3, 4, 5)
        places = {(name, severity): arrays[name] for name in names for severity in severities}
        found_labels = _labels(root, arrays[names[0]], len(severities))
        for name in names:
            _array(arrays[name], len(found_labels) * len(severities))
    else:
        for name in names:
            places |= {(name, severity): place for severity, place in _severities(folders[name], name).items()}
        severities = tuple(sorted({severity for _, severity in places}))
        for name in names:
            lacking = [severity for severity in severities if (name, severity) not in places]
            if lacking:
                raise InputError(f"{folders[name]}: severity {some(lacking)} is missing, which other corruptions have.")
        if not manifest and severities != (1, 2, 3, 4, 5):
            notes.append(f"severities found in {root.name}: {', '.join(map(str, severities))} of 1 to 5")
            warnings.warn(notes[-1], stacklevel=2)
        if classes is None:
            first = places[names[0], severities[0]]
            classes = manifest["classes"] if manifest else [folder.name for folder in subfolders(first)]
    source = "official"
    if manifest:
        source = f"{manifest['arithmetic']} arithmetic, {manifest['frost']}, seed {manifest['settings']['seed']}"
    archive = Archive(
        root,
        "arrays" if arrays else "folder",
        names,
        severities,
        missing,
        tuple(notes),
        source,
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


def _array(path: Path, rows: int) -> np.ndarray:
    """The images of a .npy file, mapped, uint8 [rows, H, W, 3]."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable .npy file: {error}") from error
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3 or len(array) != rows:
        raise InputError(f"{path}: images are uint8 [{rows}, H, W, 3]; got {array.dtype} {list(array.shape)}.")
    return array


def _labels(root: Path, first: Path, severities: int) -> Tensor:
    """int64 [N], once, of labels.npy, which repeats them for every severity (or has them once)."""
    path = root / "labels.npy"
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


def _class_files(place: Path, classes: tuple[str, ...]) -> tuple[list[Path], list[int]]:
    """Files and labels below the class folders of `place`, in the order of labels and then of names."""
    found = class_files(place)
    strangers = [name for name in found if name not in classes]
    if strangers:
        raise InputError(f"{place}: there is no class {some(strangers)}. Classes: {some(classes)}.")
    files, labels = [], []
    for label, name in enumerate(classes):
        here = found.get(name, [])
        files += here
        labels += [label] * len(here)
    if not files:
        raise InputError(f"{place}: there are no images in class folders.")
    return files, labels


def _stem(file: Path, place: Path) -> str:
    return file.relative_to(place).with_suffix("").as_posix()


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
        first = _array(archive._places[archive.names[0], 1], 5 * len(archive._labels))
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
    return not path.is_file() or md5(path) != value
