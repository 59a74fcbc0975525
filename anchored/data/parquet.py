"""parquet:PATH: Hugging Face's image-classification layout, a folder with train and test files or two files."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from anchored.data.base import Data, ImageSet
from anchored.data.images import fit
from anchored.data.splits import stratified
from anchored.errors import InputError

IMAGE_COLUMNS = ("image", "img", "images")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class")
TEST_NAMES = ("test", "validation", "val")

Decode = Callable[[Image.Image], Any]


def load(path: str, *, size: int | None = None, interpolation: str = "bilinear", crop: float = 1.0, **_: Any) -> Data:
    """Train and test from the parquet file(s) at `path`; a lone file is split 80 / 20, stratified, seed 0."""
    train_files, test_files = _find(path)
    name = "parquet:" + Path(path.split(",")[0]).stem
    train, classes = _read(train_files, size, interpolation, crop)
    if test_files:
        test, test_classes = _read(test_files, size or train.images.shape[1], interpolation, crop)
        if test_classes and classes and test_classes != classes:
            raise InputError(
                f"{path}: train and test name different classes: {classes[:3]}... and {test_classes[:3]}..."
            )
        split = "as given"
    else:
        part, rest = stratified(train.labels, 0.2, seed=0)
        train, test = train.subset(rest), train.subset(part)
        split = "stratified 80 / 20 of the only file, seed 0"
    count = int(max(train.labels.max(), test.labels.max())) + 1
    classes = classes or tuple(str(number) for number in range(count))
    _check_labels(path, train, test, classes)
    return Data(name, train, test, classes, split=split)


def load_unlabelled(path: str, *, size: int, interpolation: str = "bilinear", crop: float = 1.0) -> ImageSet:
    """The images of the test part (or the only file) of `path`, labels -1."""
    train_files, test_files = _find(path)
    images = _decode(_column(test_files or train_files, IMAGE_COLUMNS, "image"), size, interpolation, crop, path)
    return ImageSet(images, torch.full((len(images),), -1, dtype=torch.int64))


def _check_labels(path: str, train: ImageSet, test: ImageSet, classes: tuple[str, ...]) -> None:
    for part, images in (("train", train), ("test", test)):
        low, high = int(images.labels.min()), int(images.labels.max())
        if low < 0 or high >= len(classes):
            raise InputError(f"{path}: labels are 0..{len(classes) - 1}; {part} has {low if low < 0 else high}.")
    missing = sorted(set(test.labels.unique().tolist()) - set(train.labels.unique().tolist()))
    if missing:
        raise InputError(f"{path}: class {classes[missing[0]]!r} is in the test images but not in the training images.")


def _find(path: str) -> tuple[list[Path], list[Path]]:
    parts = [Path(part) for part in path.split(",")]
    for part in parts:
        if not part.exists():
            raise InputError(f"parquet:{path}: there is no {part}.")
    if len(parts) == 2:
        return [parts[0]], [parts[1]]
    if len(parts) > 2:
        raise InputError(f"parquet:{path}: two files at most, train.parquet,test.parquet; got {len(parts)}.")
    (root,) = parts
    if root.is_file():
        return [root], []
    files = sorted(root.glob("*.parquet")) or sorted(root.glob("data/*.parquet")) or sorted(root.glob("*/*.parquet"))
    if not files:
        raise InputError(f"parquet:{path}: the folder has no .parquet file.")

    def named(*words: str) -> list[Path]:
        return [file for file in files if any(word in file.relative_to(root).as_posix().lower() for word in words)]

    train = named("train")
    for word in TEST_NAMES:
        test = [file for file in named(word) if file not in train]
        if test:
            break
    if not train:
        if len(files) == 1 or not test:
            return files, []
        raise InputError(f"parquet:{path}: no file is named train; found {', '.join(file.name for file in files[:5])}.")
    return train, test


def _read(files: list[Path], size: int | None, interpolation: str, crop: float) -> tuple[ImageSet, tuple[str, ...]]:
    path = str(files[0])
    labels = _column(files, LABEL_COLUMNS, "label")
    if labels.null_count or not pa.types.is_integer(labels.type):
        raise InputError(f"{path}: labels are integers without gaps; got {labels.type}, {labels.null_count} missing.")
    images = _decode(_column(files, IMAGE_COLUMNS, "image"), size, interpolation, crop, path)
    if not len(images):
        raise InputError(f"{path}: there are no images in it.")
    return ImageSet(images, torch.from_numpy(labels.to_numpy().astype(np.int64))), _classes(files[0])


def _column(files: Iterable[Path], names: tuple[str, ...], what: str) -> pa.ChunkedArray:
    parts = []
    for file in files:
        try:
            found = pq.read_schema(file).names
            column = next((name for name in names if name in found), None)
            if column is None:
                raise InputError(f"{file}: no {what} column; it is named {' or '.join(names)}, this has {found}.")
            parts.append(pq.read_table(file, columns=[column])[column])
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{file} is not a readable parquet file: {error}") from error
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)


def _classes(file: Path) -> tuple[str, ...]:
    metadata = pq.read_schema(file).metadata or {}
    features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    for name in LABEL_COLUMNS:
        names = features.get(name, {}).get("names")
        if names:
            return tuple(str(item) for item in names)
    return ()


def _decode(column: pa.ChunkedArray, size: int | None, interpolation: str, crop: float, path: str) -> torch.Tensor:
    if pa.types.is_struct(column.type):
        column = pa.chunked_array([chunk.field("bytes") for chunk in column.chunks], pa.binary())
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        raise InputError(f"{path}: images are stored as struct<bytes, path> or binary; got {column.type}.")

    def decode(number: int) -> Any:
        data = column[number].as_py()
        if data is None:
            raise InputError(f"{path}: row {number} has no image bytes.")
        try:
            with Image.open(io.BytesIO(data)) as image:
                return fit(image, size, interpolation, crop)
        except (OSError, SyntaxError, ValueError) as error:
            raise InputError(f"{path}: row {number} is not a readable image ({error}).") from error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        arrays = pool.map(decode, range(len(column)), chunksize=64)
        images: np.ndarray | None = None
        for number, array in enumerate(arrays):
            if images is None:
                if array.shape[0] != array.shape[1]:
                    raise InputError(
                        f"{path}: images are not square ({array.shape[1]}x{array.shape[0]}); pass --image-size."
                    )
                images = np.empty((len(column), *array.shape), np.uint8)
            if array.shape != images.shape[1:]:
                raise InputError(
                    f"{path}: images have different sizes ({images.shape[2]}x{images.shape[1]} and "
                    f"{array.shape[1]}x{array.shape[0]} in row {number}); pass --image-size."
                )
            images[number] = array
    return torch.from_numpy(np.empty((0, 1, 1, 3), np.uint8) if images is None else images)
