"""npz:PATH: NumPy arrays of images and labels in one file, as Keras or MedMNIST name them."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from anchored.data.base import Data, Listing, Options, place, title, unused
from anchored.data.checks import assemble
from anchored.data.decode import Decoded, check_memory, fit_arrays
from anchored.data.labels import Labels, Numbered, alone, from_numpy, numbered, unknown_labels
from anchored.system.errors import InputError

SPEC = "npz:PATH"
TRAIN_KEYS = (("x_train", "y_train"), ("train_images", "train_labels"))
TEST_KEYS = (("x_test", "y_test"), ("test_images", "test_labels"), ("x_val", "y_val"), ("val_images", "val_labels"))
BLOCK = 2**23  # bytes of images read at a time
DAMAGE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def load(path: str, options: Options) -> Data:
    """Train and test from x_train, y_train, x_test, y_test (or train_images, ...; val where there is no test).

    Images: uint8 [N, H, W], [N, H, W, C] or [N, C, H, W] with C of 1 or 3. Labels: integers, text or booleans, [N] or
    [N, 1]. Optional `classes`: the names. Without a test part 20 % of the training images are it. Raises InputError
    otherwise.
    """
    where = f"npz:{path}"
    with _open(path, where) as file:
        keys = _keys(file, where)
        _check_memory(file, [images for images, _ in keys], options)
        classes = _names(_read(file, "classes", where)) if "classes" in file.files else None
        notes = _unused(file, keys)
        images = [_rgb(_read(file, key, where), f"{where}, {key}") for key, _ in keys]
        labels = [_labels(file, key[1], len(part), where) for key, part in zip(keys, images, strict=True)]
    found = _numbered(labels, classes, where, options)
    if found.made:
        images = [images[0][found.train_rows], images[0][found.test_rows]]
    train = fit_arrays(images[0], options, name=keys[0][0], others=len(found.test))
    test = fit_arrays(images[1], options, name=keys[-1][0], others=len(found.train))
    parts = (train, found.train), (test, found.test)
    notes = (*notes, *found.notes)
    return assemble(f"npz:{title(path)}", where, *parts, found.classes, split=_split(found, keys, options), notes=notes)


def load_unlabelled(path: str, options: Options) -> Decoded:
    """The images of the test part, or of the training part where there is none; labels are not looked at."""
    where = f"npz:{path}"
    with _open(path, where) as file:
        key = next((images for images, _ in (*TEST_KEYS, *TRAIN_KEYS) if images in file.files), None)
        if key is None:
            raise InputError(f"{where}: images are in x_test or test_images; found {', '.join(file.files) or 'none'}.")
        _check_memory(file, [key], options)
        images = _rgb(_read(file, key, where), f"{where}, {key}")
    return fit_arrays(images, options, name=key)


def listings(path: str, options: Options) -> tuple[Listing, Listing]:
    """Training and test part as `load` has them; images are read from the file a few megabytes at a time."""
    where = f"npz:{path}"
    with _open(path, where) as file:
        keys = _keys(file, where)
        notes = _unused(file, keys)
        classes = _names(_read(file, "classes", where)) if "classes" in file.files else None
        labels = [_labels(file, key[1], _shape(path, key[0], where)[0], where) for key in keys]
    found = _numbered(labels, classes, where, options)

    def part(key: str, rows: NDArray[np.int64], labels: torch.Tensor) -> Listing:
        return Listing(
            f"npz:{title(path)}",
            labels,
            found.classes,
            _split(found, keys, options),
            (*notes, *found.notes),
            pictures=lambda wanted: _images(path, key, where, rows[wanted]),
            called=lambda row: f"{key} image {rows[row]}",
        )

    return part(keys[0][0], found.train_rows, found.train), part(keys[-1][0], found.test_rows, found.test)


def _numbered(labels: list[Labels], classes: tuple[str, ...] | None, where: str, options: Options) -> Numbered:
    return numbered(where, labels[0], labels[1] if len(labels) > 1 else None, classes, options.seed)


def _split(found: Numbered, keys: list[tuple[str, str]], options: Options) -> str:
    """How train and test were made, in words."""
    if found.made:
        return f"stratified 80 / 20 of {keys[0][0]}, seed {options.seed}"
    return f"as given ({keys[0][0]}, {keys[1][0]})"


def _keys(file: NpzFile, where: str) -> list[tuple[str, str]]:
    """The names of (images, labels) of the training part and, where there is one, of the test part."""
    train = _pair(file, TRAIN_KEYS)
    if train is None:
        raise InputError(
            f"{where}: the arrays are x_train, y_train, x_test, y_test or train_images, train_labels, test_images, "
            f"test_labels; found {', '.join(file.files) or 'none'}."
        )
    test = _pair(file, TEST_KEYS)
    return [train, test] if test else [train]


def _unused(file: NpzFile, keys: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return unused([pair[0] for pair in TEST_KEYS if pair[0] in file.files and pair not in keys])


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """(shape, Fortran order, dtype) of the .npy file whose bytes `member` gives."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(member)


def _shape(path: str, key: str, where: str) -> tuple[int, ...]:
    """The shape of an array of images, after checking all that its header tells."""
    try:
        with zipfile.ZipFile(place(path)) as archive, archive.open(f"{key}.npy") as member:
            shape, _, dtype = _header(member)
    except DAMAGE as error:
        raise InputError(f"{where}: the array {key} cannot be read: {error}") from error
    if dtype != np.uint8:
        raise InputError(f"{where}, {key}: images are uint8 from 0 to 255; got {dtype}.")
    _rgb(np.broadcast_to(np.uint8(0), shape), f"{where}, {key}")  # of this shape without its memory
    if 0 in shape[1:]:
        raise InputError(f"{where}, {key}: images of shape {list(shape[1:])} have no pixels.")
    return shape


def _images(path: str, key: str, where: str, rows: NDArray[np.int64]) -> Iterator[NDArray[np.uint8]]:
    """uint8 [H, W, 3] or [H, W] of the given rows (sorted)."""
    try:
        with zipfile.ZipFile(place(path)) as archive, archive.open(f"{key}.npy") as member:
            shape, fortran, _ = _header(member)
            if fortran:  # its images do not lie one after another
                with np.load(place(path), allow_pickle=False) as file:
                    yield from _unpacked(file[key][rows], where)
                return
            size = math.prod(shape[1:])
            many = max(1, BLOCK // size)
            for start in range(0, shape[0], many):
                count = min(many, shape[0] - start)
                block = np.frombuffer(member.read(count * size), np.uint8).reshape(count, *shape[1:])
                here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + count)] - start
                yield from _unpacked(block[here], where)
    except DAMAGE as error:
        raise InputError(f"{where}: the array {key} cannot be read: {error}") from error


def _unpacked(block: NDArray[np.uint8], where: str) -> Iterator[NDArray[np.uint8]]:
    images = _rgb(block, where)
    yield from images[..., 0] if images.shape[3] == 1 else images


@contextmanager
def _open(path: str, where: str) -> Iterator[NpzFile]:
    whole = place(path)
    if not os.path.isfile(whole):
        raise InputError(f"{where}: there is no such file.")
    with open(whole, "rb") as opened:
        try:
            file = np.load(opened, allow_pickle=False)
        except DAMAGE as error:
            raise InputError(f"{where} is not a readable .npz file: {error}") from error
        if not isinstance(file, NpzFile):
            raise InputError(f"{where} is not a .npz file but a single array.")
        with file:
            yield file


def _pair(file: NpzFile, pairs: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    return next((pair for pair in pairs if set(pair) <= set(file.files)), None)


def _read(file: NpzFile, key: str, where: str) -> NDArray[np.generic]:
    try:
        values: NDArray[np.generic] = file[key]
    except DAMAGE as error:  # arrays of Python objects are pickles, which can run code: they are never loaded
        raise InputError(f"{where}: the array {key} cannot be read: {error}") from error
    return values


def _names(values: NDArray[np.generic]) -> tuple[str, ...]:
    items: list[object] = values.ravel().tolist()
    return tuple(item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in items)


def _check_memory(file: NpzFile, keys: list[str], options: Options) -> None:
    assert file.zip is not None
    members = {info.filename.removesuffix(".npy"): info.file_size for info in file.zip.infolist()}
    check_memory(sum(members[key] for key in keys), options, f"the arrays {' and '.join(keys)}")


def _labels(file: NpzFile, key: str, n: int, where: str) -> Labels:
    return from_numpy(_read(file, key, where), n, f"{where}, {key}")


def _rgb(images: NDArray[np.generic], where: str) -> NDArray[np.uint8]:
    """uint8 [N, H, W, C], C 1 or 3, of any accepted layout."""
    if images.dtype != np.uint8:
        raise InputError(f"{where}: images are uint8 from 0 to 255; got {images.dtype}{_range(images)}.")
    pixels: NDArray[np.uint8] = images.astype(np.uint8, copy=False)
    if pixels.ndim == 3:
        return pixels[..., None]
    first, last = (pixels.ndim == 4 and pixels.shape[axis] in (1, 3) for axis in (1, 3))
    if first == last:
        how = "which could be either" if first else "which is neither"
        raise InputError(
            f"{where}: images are [N, H, W], [N, H, W, C] or [N, C, H, W] with C of 1 or 3; "
            f"got {list(pixels.shape)}" + (f", {how}." if pixels.ndim == 4 else ".")
        )
    return pixels.transpose(0, 2, 3, 1) if first else pixels


def _range(values: NDArray[np.generic]) -> str:
    if not np.issubdtype(values.dtype, np.number) or np.issubdtype(values.dtype, np.complexfloating) or not values.size:
        return ""
    if np.isnan(values).any():
        return f" with {int(np.isnan(values).sum()):,} NaN"
    return f" from {values.min():.6g} to {values.max():.6g}"


def whole(path: str) -> Listing:
    """The test part, or the training part where there is none; labels are -1 where the file has none.

    Raises InputError for labels outside the classes.
    """
    where = f"npz:{path}"
    with _open(path, where) as file:
        pairs = (*TEST_KEYS, *TRAIN_KEYS)
        keys = _pair(file, pairs) or next((pair for pair in pairs if pair[0] in file.files), None)
        if keys is None:
            raise InputError(f"{where}: images are in x_test or test_images; found {', '.join(file.files) or 'none'}.")
        count = _shape(path, keys[0], where)[0]
        labels, classes, notes = unknown_labels(count)
        if keys[1] in file.files:
            names = _names(_read(file, "classes", where)) if "classes" in file.files else None
            labels, classes, notes = alone(where, _labels(file, keys[1], count, where), names)
    return Listing(
        title(path),
        labels,
        classes,
        f"all {count:,} images of {keys[0]}",
        notes,
        pictures=lambda wanted: _images(path, keys[0], where, wanted),
        called=lambda row: f"{keys[0]} image {row}",
    )
