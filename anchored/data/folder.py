"""folder:PATH: one folder a class, in train/ and test/ (or val/), or directly under PATH."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from anchored.data.base import TEST_WORDS, TRAIN_WORDS, Data, Listing, Options, place, title, unused
from anchored.data.checks import check_parts, decoded, some
from anchored.data.decode import Decoded, decode
from anchored.data.splits import stratified
from anchored.system.errors import InputError

SPEC = "folder:PATH"
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
JUNK = ("thumbs.db", "desktop.ini", "__macosx")
TEST_PART = 0.2


@dataclass
class _Part:
    """The class folders of one part: class names (sorted), files and labels, and what is no image."""

    root: Path
    classes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    loose: int = 0

    def notes(self) -> Iterator[str]:
        if self.loose:
            yield f"images in no class folder, left out: {self.loose:,} in {_text(self.root.name)}"
        if self.others:
            kinds = ", ".join(sorted(self.others))
            yield f"files that are no images, left out: {self.others.total():,} in {_text(self.root.name)} ({kinds})"


def load(path: str, options: Options) -> Data:
    """Train and test from class folders; where PATH has no test/ or val/, 20 % of the training images.

    Class names are the folder names, sorted; images anywhere below a class folder belong to it. Raises InputError
    for a missing or empty PATH, a class without images, and a class of the test images that train lacks.
    """
    return decoded(f"folder:{path}", listings(path, options), options)


def listings(path: str, options: Options) -> tuple[Listing, Listing]:
    """Training and test part as `load` has them, not decoded. Raises InputError as it does."""
    where = f"folder:{path}"
    root = _root(path)
    train_root, test_root = _parts(root, where)
    given = _scan(train_root, where, least=2)
    labels = torch.tensor(given.labels, dtype=torch.int64)
    notes = [*given.notes()]
    if test_root is None:
        test_rows, train_rows = stratified(labels, TEST_PART, options.seed, given.classes)
        test_files, test_labels = [given.files[row] for row in test_rows.tolist()], labels[test_rows]
        train_files, train_labels = [given.files[row] for row in train_rows.tolist()], labels[train_rows]
        how = f"stratified 80 / 20 of {len(given.files):,} images, seed {options.seed}"
    else:
        tested = _scan(test_root, where, least=1)
        strangers = [name for name in tested.classes if name not in given.classes]
        if strangers:
            raise InputError(
                f"{where}: every class of {test_root.name} is a class of {train_root.name} too; "
                f"these are not: {some(strangers)}. Classes of {train_root.name}: {some(given.classes)}."
            )
        train_files, train_labels, test_files = given.files, labels, tested.files
        numbers = torch.tensor([given.classes.index(name) for name in tested.classes])
        test_labels = numbers[torch.tensor(tested.labels)]
        notes += tested.notes()
        others = [part for word, part in _named(root).items() if any(word in words for words in TEST_WORDS)]
        notes += unused([part.name for part in others if part != test_root])
        how = f"as given ({train_root.name}, {test_root.name})"
    check_parts(where, train_labels, test_labels, given.classes)

    def part(files: list[Path], labels: torch.Tensor, below: Path) -> Listing:
        return Listing(
            f"folder:{title(path)}",
            labels,
            tuple(given.classes),
            how,
            tuple(notes),
            pictures=lambda rows: (files[row] for row in rows.tolist()),
            called=lambda row: _text(files[row].relative_to(root).as_posix()),
            files=tuple("/".join(file.relative_to(below).parts[1:]) for file in files),
        )

    return part(train_files, train_labels, train_root), part(test_files, test_labels, test_root or train_root)


def load_unlabelled(path: str, options: Options) -> Decoded:
    """The images below PATH/test (or val) where there is one, else all images below PATH; no classes needed."""
    root = _root(path)
    parts = _named(root)
    root = next((parts[word] for words in TEST_WORDS for word in words if word in parts), root)
    files = [file for file in _walk(root) if file.suffix.lower() in SUFFIXES]
    if not files:
        raise InputError(f"folder:{path}: there are no images in it ({', '.join(SUFFIXES)}).")
    return decode(files, len(files), options, name=lambda row: _text(files[row].relative_to(root).as_posix()))


def _root(path: str) -> Path:
    root = place(path)
    if not os.path.exists(root):
        raise InputError(f"folder:{path}: there is no such folder.")
    if not root.is_dir():
        raise InputError(f"folder:{path}: that is a file; a folder of class folders is needed.")
    return root


def _parts(root: Path, where: str) -> tuple[Path, Path | None]:
    """The folders that hold the class folders of the training and of the test images (None: not given)."""
    named = _named(root)
    words = {*TRAIN_WORDS, *TEST_WORDS[0], *TEST_WORDS[1]}
    train = next((named[word] for word in TRAIN_WORDS if word in named), None)
    tests = [named[word] for words in TEST_WORDS for word in words if word in named]
    only_parts = bool(named) and set(named) <= words
    if train is not None and subfolders(train):
        # A test folder without classes is what a competition hands out to be labelled: val is the one to use then.
        sorted_into_classes = [test for test in tests if subfolders(test)]
        return train, next(iter(sorted_into_classes or (tests if only_parts else [])), None)
    if only_parts:
        if train is None:
            raise InputError(f"{where}: there is {', '.join(sorted(named))} but no train.")
        raise InputError(f"{where}: images are sorted into one folder a class; {train.name} has no folder in it.")
    return root, None


def _named(root: Path) -> dict[str, Path]:
    return {folder.name.lower(): folder for folder in subfolders(root)}


def _scan(root: Path, where: str, *, least: int) -> _Part:
    """The class folders of `root`, `least` of them or more."""
    part = _Part(root)
    folders = subfolders(root)
    part.loose = sum(entry.suffix.lower() in SUFFIXES for entry in root.iterdir() if entry.is_file())
    if not folders:
        what = f"{part.loose:,} images but no folders" if part.loose else "neither folders nor images"
        raise InputError(f"{where}: images are sorted into one folder a class; {_text(root.name)} has {what} in it.")
    empty = []
    for label, folder in enumerate(folders):
        part.classes.append(_text(folder.name))
        others: Counter[str] = Counter()
        before = len(part.files)
        for file in _walk(folder):
            if file.suffix.lower() in SUFFIXES:
                part.files.append(file)
                part.labels.append(label)
            else:
                others[_text(file.suffix.lower()) or "no suffix"] += 1
        if len(part.files) == before:
            empty.append(part.classes[-1] + (f" (it has {', '.join(sorted(others))})" if others else ""))
        part.others += others
    if empty:
        raise InputError(f"{where}: every class folder holds images ({', '.join(SUFFIXES)}); none in {some(empty)}.")
    if len(folders) < least:
        inner = subfolders(folders[0])
        hint = f" Did you mean folder:{folders[0]}, which has {len(inner)} folders?" if len(inner) > 1 else ""
        raise InputError(
            f"{where}: a classifier needs at least 2 classes, one folder each; there is only {part.classes[0]}.{hint}"
        )
    return part


def subfolders(folder: Path) -> list[Path]:
    """The visible folders in `folder`, sorted by name. Raises InputError where it cannot be read."""
    try:
        found = [entry for entry in folder.iterdir() if entry.is_dir() and _seen(entry.name)]
    except OSError as error:
        raise InputError(f"the folder {_text(str(folder))} cannot be read: {error.strerror}.") from error
    return sorted(found, key=lambda entry: entry.name)


def class_files(root: Path) -> dict[str, list[Path]]:
    """Class folder in `root` -> the images anywhere below it, in a stable order."""
    return {
        folder.name: [file for file in _walk(folder) if file.suffix.lower() in SUFFIXES] for folder in subfolders(root)
    }


def _seen(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in JUNK


def _walk(folder: Path) -> Iterator[Path]:
    """All visible files below `folder` in a stable order; links to folders are followed, each folder once."""
    visited = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(filter(_seen, folders))
        yield from (Path(here, name) for name in sorted(filter(_seen, files)))


def _text(name: str) -> str:
    """A file name that can be written as UTF-8: undecodable bytes become question marks."""
    return name.encode("utf-8", "replace").decode("utf-8")
