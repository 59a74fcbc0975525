"""hf:ID_OR_PATH: a data set of Hugging Face `datasets`, from a folder it was saved to or from the Hub (ID@CONFIG)."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from anchored.data.base import TEST_WORDS, TRAIN_WORDS, Data, Listing, Options, place, title, unused
from anchored.data.checks import decoded, same_classes, some
from anchored.data.decode import Decoded, decode
from anchored.data.labels import Labels, alone, any_known, from_arrow, is_label_type, numbered, unknown_labels
from anchored.data.parquet import IMAGE_COLUMNS, LABEL_COLUMNS
from anchored.system.errors import InputError

SPEC = "hf:ID_OR_PATH"
ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
BATCH = 64  # rows in memory at a time
TIMEOUT = 10  # seconds until the Hub counts as unreachable


def load(path: str, options: Options) -> Data:
    """Train and test (or validation) split; where there is no labelled one, 20 % of the training images.

    Images are the column of type Image, labels that of type ClassLabel or else of integers; of several the one with a
    usual name; or else one with such a name of text, booleans or whole floats. Raises InputError without the package
    `datasets`, for an id that cannot be had, and for splits, columns, labels and pictures that do not follow this.
    """
    return decoded(f"hf:{path}", listings(path, options), options)


def listings(path: str, options: Options) -> tuple[Listing, Listing]:
    """Training and test part as `load` has them, not decoded. Raises InputError as it does."""
    where = f"hf:{path}"
    splits = _splits(path)
    train, tests = _choose(splits)
    if train is None:
        raise InputError(f"{where}: one split is named {' or '.join(TRAIN_WORDS)}; the splits are {', '.join(splits)}.")
    column, notes = _label_column(splits[train], f"{where} {train}")
    labels, classes = _labels(splits[train], column, f"{where} {train}")
    test = next((name for name in tests if _labelled(splits[name], column)), None)
    test_labels = None
    if test is not None:
        test_labels, test_classes = _labels(splits[test], column, f"{where} {test}")
        classes = same_classes(where, classes, test_classes)
        how = f"as given ({train}, {test})" + (f"; {tests[0]} has no labels" if test != tests[0] else "")
        notes += unused([name for name in tests if name != test and _labelled(splits[name], column)])
    elif tests:
        raise InputError(
            f"{where}: test images have labels in column {column!r}; there are none in {' or '.join(tests)}. To have "
            f"a part of {train} split off, save that split alone: save_to_disk(FOLDER) and hf:FOLDER."
        )
    else:
        test, how = train, f"stratified 80 / 20 of {train} ({len(labels):,} images), seed {options.seed}"
    found = numbered(where, labels, test_labels, classes, options.seed)
    title_ = f"hf:{title(path)}" if os.path.exists(place(path)) else where

    def part(split: str, rows: NDArray[np.int64], labels: Tensor) -> Listing:
        images = _image_column(splits[split], f"{where} {split}")
        return Listing(
            title_,
            labels,
            found.classes,
            how,
            (*notes, *found.notes),
            pictures=lambda wanted: _pictures(splits[split], images, rows[wanted], where),
            called=lambda row: f"{split} row {rows[row]}",
        )

    return part(train, found.train_rows, found.train), part(test, found.test_rows, found.test)


def load_unlabelled(path: str, options: Options) -> Decoded:
    """The images of the test split, or of the training split where there is none; labels are not looked at."""
    where = f"hf:{path}"
    splits = _splits(path)
    train, tests = _choose(splits)
    split = next(iter(tests), train)
    if split is None:
        words = ", ".join(word for words in TEST_WORDS for word in words)
        raise InputError(f"{where}: one split is named {words} or train; the splits are {', '.join(splits)}.")
    rows = np.arange(len(splits[split]))
    column = _image_column(splits[split], f"{where} {split}")
    pictures = _pictures(splits[split], column, rows, where)
    return decode(pictures, len(rows), options, name=lambda row: f"{split} row {row}")


def whole(path: str) -> Listing:
    """The test split, or the training split where there is none, not decoded; labels are -1 where it has none.

    Raises InputError for labels outside the classes.
    """
    where = f"hf:{path}"
    splits = _splits(path)
    train, tests = _choose(splits)
    split = next(iter(tests), train) or next(iter(splits))
    dataset = splits[split]
    images = _image_column(dataset, f"{where} {split}")
    labels, classes, notes = unknown_labels(len(dataset))
    if _label_columns(dataset):
        column, _ = _label_column(dataset, f"{where} {split}")
        if _labelled(dataset, column):
            labels, classes, notes = alone(where, *_labels(dataset, column, f"{where} {split}"))
    return Listing(
        title(path),
        labels,
        classes,
        f"all {len(dataset):,} rows of {split}",
        notes,
        pictures=lambda wanted: _pictures(dataset, images, wanted, where),
        called=lambda row: f"{split} row {row}",
    )


# --- splits and columns --------------------------------------------------------------------------------------------


def _choose(splits: dict[str, Any]) -> tuple[str | None, list[str]]:
    """(training split, test splits in the order of preference); a split that is alone is the training split."""
    if len(splits) == 1:
        return next(iter(splits)), []
    named = {name.lower(): name for name in splits}
    train = next((named[word] for word in TRAIN_WORDS if word in named), None)
    return train, [named[word] for words in TEST_WORDS for word in words if word in named]


def _kind(feature: Any) -> str:
    """Image, ClassLabel, int64, string, ...: the type of a column in a word."""
    kind = type(feature).__name__
    return str(feature.dtype) if kind == "Value" else kind


def _kinds(dataset: Any) -> dict[str, str]:
    return {name: _kind(feature) for name, feature in dataset.features.items()}


def _image_column(dataset: Any, where: str) -> str:
    found = [name for name, kind in _kinds(dataset).items() if kind == "Image"]
    hint = "cast_column(NAME, datasets.Image()) makes one of files or their bytes."
    return _one(dataset, found, IMAGE_COLUMNS, "images are the column of type Image", where, hint)


def _label_columns(dataset: Any) -> list[str]:
    """The columns that can hold labels: of the first of these kinds of which there are any."""
    kinds, types = _kinds(dataset), dataset.features.arrow_schema
    named = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    integers = [name for name, kind in kinds.items() if kind in INTEGERS]
    usual = [name for name in LABEL_COLUMNS if name in kinds and is_label_type(types.field(name).type)]
    return named or [name for name in integers if name in LABEL_COLUMNS] or usual or integers


def _label_column(dataset: Any, where: str) -> tuple[str, tuple[str, ...]]:
    """The column of the labels, and a note where it was not the only choice."""
    kinds = _kinds(dataset)
    found = _label_columns(dataset)
    hint = "Of text, rename_column(NAME, 'label') or class_encode_column(NAME) makes one."
    rule = f"labels are the column of type ClassLabel, or else of integers, or one named {' or '.join(LABEL_COLUMNS)}"
    column = _one(dataset, found, LABEL_COLUMNS, rule, where, hint)
    others = [name for name in found if name != column]
    if kinds[column] == "ClassLabel" and others:
        return column, (f"labels are column {column!r}; {some(others)} would do too",)
    if kinds[column] in INTEGERS and column not in LABEL_COLUMNS:
        return column, (f"labels are column {column!r}, the only one of integers",)
    return column, ()


def _one(dataset: Any, found: list[str], usual: tuple[str, ...], rule: str, where: str, hint: str) -> str:
    """The column among `found`: the only one, or the first with a usual name."""
    chosen = found if len(found) == 1 else [name for name in usual if name in found]
    if chosen:
        return chosen[0]
    columns = ", ".join(f"{name} ({kind})" for name, kind in _kinds(dataset).items())
    if found:
        hint = f"Of several one is named {' or '.join(usual)}: rename_column, save_to_disk(FOLDER) and hf:FOLDER."
    raise InputError(f"{where}: {rule}; the columns are {columns}. {hint}")


# --- rows ----------------------------------------------------------------------------------------------------------


def _values(dataset: Any, column: str) -> pa.ChunkedArray:
    return dataset.select_columns([column]).with_format("arrow")[:].column(0)


def _labelled(dataset: Any, column: str) -> bool:
    """Whether any label is there."""
    if column not in dataset.column_names:
        return False
    values = _values(dataset, column)
    return not len(values) or not is_label_type(values.type) or any_known(values)


def _labels(dataset: Any, column: str, where: str) -> tuple[Labels, tuple[str, ...] | None]:
    """The labels of all rows and the class names, if the column has them."""
    feature = dataset.features[column]
    names = tuple(map(str, feature.names)) if _kind(feature) == "ClassLabel" and feature.names else None
    return from_arrow(_values(dataset, column), column, where), names


def _pictures(dataset: Any, column: str, wanted: NDArray[np.int64], where: str) -> Iterator[bytes | Path | None]:
    """The encoded pictures of the wanted rows as they are stored, so that all sources decode them alike."""
    stored = dataset.select_columns([column]).with_format("arrow")
    try:
        for start in range(0, len(wanted), BATCH):
            for cell in stored[wanted[start : start + BATCH].tolist()].column(0).to_pylist():
                cell = cell or {}
                file = cell.get("path")
                yield cell.get("bytes") or (Path(file) if file else None)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{where} is damaged: {error}") from error


# --- where it comes from -------------------------------------------------------------------------------------------


def _splits(path: str) -> dict[str, Any]:
    """Split name -> `datasets.Dataset`, from the folder `path` or, where there is none, from the Hub."""
    where = f"hf:{path}"
    library = _library(where)
    folder = place(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library about itself
        found = _saved(folder, library, where) if os.path.exists(folder) else _from_hub(path, library)
    return dict(found) if isinstance(found, dict) else {str(found.split or "all"): found}


def _library(where: str) -> ModuleType:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import datasets

            _ = datasets.load_from_disk, datasets.load_dataset  # a folder called datasets can be imported as well
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{where} needs the package datasets: pip install 'anchored[datasets]' ({str(error).rstrip('.')})."
        ) from error
    return datasets


def _saved(folder: Path, library: ModuleType, where: str) -> Any:
    if not folder.is_dir() or not any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
        raise InputError(
            f"{where}: that is no folder written by save_to_disk of `datasets`. Class folders are read with "
            f"folder:{folder}, parquet files with parquet:{folder}."
        )
    try:
        return library.load_from_disk(str(folder))
    except Exception as error:  # what a damaged file raises depends on the place
        raise InputError(
            f"{where} is damaged, not completely copied, or has a split without rows: {_line(error)}."
        ) from error


def _from_hub(path: str, library: ModuleType) -> Any:
    where = f"hf:{path}"
    name, _, configuration = path.partition("@")
    if not ID.fullmatch(name):
        raise InputError(f"{where}: there is no folder {place(path)}; an id on the Hub is NAME or OWNER/NAME.")
    unreachable = _unreachable(library)
    try:
        if not unreachable:
            return library.load_dataset(name, configuration or None)
        with _offline(library):
            return library.load_dataset(name, configuration or None)
    except MemoryError:
        raise
    except Exception as error:  # the network, the Hub, the library and the files all have errors of their own
        if not unreachable and not isinstance(error, ConnectionError):
            hint = " A configuration is chosen with hf:ID@CONFIG." if "onfig" in str(error) else ""
            raise InputError(f"{where} cannot be loaded: {_line(error)}.{hint}") from error
        cache = library.config.HF_DATASETS_CACHE
        wanted = f"{name!r}, {configuration!r}" if configuration else repr(name)
        raise InputError(
            f"{where}: there is no folder {name}, the Hub cannot be reached ({unreachable or _line(error)}) and "
            f"{cache} holds no copy ({_line(error)}). To go on without a network, save it where there is one, "
            f"datasets.load_dataset({wanted}).save_to_disk(FOLDER), copy FOLDER and pass hf:FOLDER; or copy that "
            f"machine's {cache.name} folder to {cache} (HF_DATASETS_CACHE names another) and set HF_DATASETS_OFFLINE=1."
        ) from error


def _unreachable(library: ModuleType) -> str:
    """Why the Hub cannot be reached, or nothing: one try, where the library itself would try for half a minute."""
    from huggingface_hub.utils import get_session  # its proxies and certificates are those of the download

    if library.config.HF_HUB_OFFLINE:
        return "HF_DATASETS_OFFLINE or HF_HUB_OFFLINE is set"
    try:
        get_session().head(library.config.HF_ENDPOINT, timeout=TIMEOUT)
    except Exception as error:  # of one of three network libraries, by its version
        return _line(error)
    return ""


@contextmanager
def _offline(library: ModuleType) -> Iterator[None]:
    """The library looks only into its cache, as with HF_DATASETS_OFFLINE=1, which it reads once when imported."""
    before = library.config.HF_HUB_OFFLINE
    library.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        library.config.HF_HUB_OFFLINE = before


def _line(error: Exception) -> str:
    """The message of an error in one line, without its examples of code."""
    text = " ".join(str(error).split("\nExample of usage")[0].split()).rstrip(".")
    return text or type(error).__name__
