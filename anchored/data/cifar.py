"""The official CIFAR archives, read without unpacking them and without running what a pickle says."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import pickle
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anchored.data.base import Data, Options, place
from anchored.data.checks import assemble, check_parts, integer_labels
from anchored.data.decode import fit_arrays
from anchored.system.errors import InputError
from anchored.system.files import write_atomic

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 2**20


@dataclass(frozen=True)
class Archive:
    """Where a data set comes from and what is in it; members are (file name, MD5)."""

    title: str
    url: str
    md5: str
    folder: str
    train: tuple[tuple[str, str], ...]
    test: tuple[tuple[str, str], ...]
    meta: tuple[str, str]
    labels_key: str
    names_key: str

    @property
    def file(self) -> str:
        """The name of the archive file."""
        return self.url.rsplit("/", 1)[-1]


# Published by A. Krizhevsky, https://www.cs.toronto.edu/~kriz/cifar.html
ARCHIVES = {
    "cifar10": Archive(
        title="CIFAR-10",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
        train=(
            ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
            ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            ("data_batch_4", "634d18415352ddfa80567beed471001a"),
            ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        ),
        test=(("test_batch", "40351d587109b95175f43aff81a1287e"),),
        meta=("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
        labels_key="labels",
        names_key="label_names",
    ),
    "cifar100": Archive(
        title="CIFAR-100",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
        train=(("train", "16019d7e3df5f24257cddd939b257f8d"),),
        test=(("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
        meta=("meta", "7973b15100ade9c7d40fb424638fde48"),
        labels_key="fine_labels",
        names_key="fine_label_names",
    ),
}


def load(name: str, options: Options) -> Data:
    """`cifar10` or `cifar100` from the root folder, unpacked or as .tar.gz, else downloaded to it.

    Every file is used only if its MD5 is the published one. Raises InputError, saying which file is needed and
    where it goes, if it is damaged or cannot be had.
    """
    archive = ARCHIVES[name]
    root = place(options.root or os.environ.get("ANCHORED_DATA") or "~/.cache/anchored")
    members = _members(name, archive, root, options.progress)
    meta = _unpickle(members[archive.meta[0]], archive.meta[0])
    classes = tuple(map(str, _entry(meta, archive.names_key, list, archive.meta[0])))
    (train, train_labels), (test, test_labels) = (
        _part([(member, members.pop(member)) for member, _ in part], archive.labels_key)
        for part in (archive.train, archive.test)
    )
    check_parts(name, train_labels, test_labels, classes)
    parts = (
        (fit_arrays(train, options, name="train", others=len(test)), train_labels),
        (fit_arrays(test, options, name="test", others=len(train)), test_labels),
    )
    return assemble(name, name, *parts, classes, split="as given")


def _part(files: list[tuple[str, bytes]], labels_key: str) -> tuple[NDArray[np.uint8], torch.Tensor]:
    images, labels = [], []
    for member, content in files:
        batch = _unpickle(content, member)
        data = _entry(batch, "data", _Array, member).value
        if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
            raise InputError(f"{member}: data is uint8 [N, 3072]; got {data.dtype} {list(data.shape)}.")
        images.append(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(integer_labels(np.array(_entry(batch, labels_key, list, member)), len(data), member))
    return np.concatenate(images), torch.cat(labels)


def _entry(batch: object, key: str, kind: type, member: str) -> Any:
    value = batch.get(key) if isinstance(batch, dict) else None
    if not isinstance(value, kind):
        raise InputError(f"{member}: it has no {key!r} as in the official archive.")
    return value


# --- files ---------------------------------------------------------------------------------------------------------


def _members(name: str, archive: Archive, root: Path, progress: Callable[[int, int], None] | None) -> dict[str, bytes]:
    """member name -> content, of the unpacked folder or the archive; downloads the archive if there is neither."""
    wanted = dict((*archive.train, *archive.test, archive.meta))
    found = ""
    for base in (root, root / name):
        folder = base / archive.folder
        missing = [member for member in wanted if not (folder / member).is_file()]
        if not missing:
            return {member: _checked(folder / member, md5, archive, root) for member, md5 in wanted.items()}
        if folder.is_dir():
            found = f" ({folder} lacks {', '.join(missing)})"
        if (base / archive.file).is_file():
            return _from_tar(_checked(base / archive.file, archive.md5, archive, root), archive, wanted)
    if not found and any((root / name).glob("*.parquet")):
        found = f" (for the parquet files in {root / name} the data is written parquet:{root / name})"
    _download(archive, root, found, progress)
    return _from_tar(_checked(root / archive.file, archive.md5, archive, root), archive, wanted)


def _checked(path: Path, md5: str, archive: Archive, root: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    got = _md5(content)
    if got != md5:
        raise InputError(
            f"{path} is damaged or only a part of the official file: its MD5 is {got} ({len(content):,} bytes), "
            f"that of {archive.title} is {md5}. Delete it, and {_advice(archive, root)}"
        )
    return content


def _advice(archive: Archive, root: Path) -> str:
    return (
        f"get {archive.file} (MD5 {archive.md5}) from {archive.url} and put it into {root}, "
        "or name the folder that has it with --root."
    )


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _from_tar(content: bytes, archive: Archive, wanted: dict[str, str]) -> dict[str, bytes]:
    members = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            for info in tar:
                folder, _, member = info.name.removeprefix("./").rpartition("/")
                if folder == archive.folder and member in wanted and info.isfile():
                    extracted = tar.extractfile(info)
                    assert extracted is not None
                    members[member] = extracted.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InputError(f"{archive.file} is not a readable archive: {error}.") from error
    missing = [member for member in wanted if member not in members]
    if missing:
        raise InputError(f"{archive.file} lacks {', '.join(missing)}.")
    return members


def _download(archive: Archive, root: Path, found: str, progress: Callable[[int, int], None] | None) -> None:
    def fetch(temporary: Path) -> None:
        with urllib.request.urlopen(archive.url, timeout=TIMEOUT) as response, open(temporary, "wb") as file:
            total, done = int(response.headers.get("Content-Length") or 0), 0
            digest = hashlib.md5(usedforsecurity=False)
            while block := response.read(BLOCK):
                file.write(block)
                digest.update(block)
                done += len(block)
                if progress is not None:
                    progress(done, max(total, done))
        if done < total:
            raise OSError(f"it broke off after {done:,} of {total:,} bytes")
        if digest.hexdigest() != archive.md5:
            raise OSError(f"what came ({done:,} bytes) has the MD5 {digest.hexdigest()}")

    try:
        write_atomic(root / archive.file, fetch)
    except (OSError, http.client.HTTPException) as error:
        reason: object = error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        elif isinstance(error, urllib.error.URLError):
            reason = error.reason
        raise InputError(
            f"{archive.title} is not in {root}{found} and cannot be downloaded: {reason}. To go on without a "
            f"network, {_advice(archive, root)}"
        ) from error


# --- pickles -------------------------------------------------------------------------------------------------------


class _Array:
    """Takes the place of an ndarray in a pickle, so that none of NumPy's own unpickling runs."""

    value: NDArray[Any]

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        content = raw.encode("latin1") if isinstance(raw, str) else raw  # str: written by Python 2
        self.value = np.frombuffer(content, dtype.value).reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """Takes the place of a dtype: a plain number of given size."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in ("u1", "i4", "i8"):
            raise pickle.UnpicklingError(f"arrays of {code!r} are not expected here")
        self.value = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        self.value = self.value.newbyteorder(order if order in "<>" else "=")


class _NoType:
    """Takes the place of the type ndarray, which is only passed along."""


def _reconstruct(*_: Any) -> _Array:
    return _Array()


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _NoType,
    ("numpy", "dtype"): _Dtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def _unpickle(content: bytes, member: str) -> Any:
    """The plain containers, numbers, strings and arrays in a pickle. Raises InputError if it asks for anything else."""
    try:
        return _Unpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # damaged pickles fail in many ways
        raise InputError(f"{member} is not a pickle of plain arrays, and is not loaded: {error}.") from error
