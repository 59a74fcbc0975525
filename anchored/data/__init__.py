"""Data sources: one module a source, found by the name before the colon of `--data`.

A source is a module of this package with `SPEC` (how it is written, e.g. "folder:PATH") and
`load(path, options) -> Data`; one that can give images without labels also has
`load_unlabelled(path, options) -> Decoded`, and `called(path) -> str` where the path says more than where they are.

What may enter: what reads images and labels, splits, checks and lists them; test sets and class maps as well.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anchored.data import photos
from anchored.data.base import Data, Images, ImageSet, Listing, Options, place, title, unlabelled
from anchored.data.splits import Split, limit, limit_labels, split, stratified
from anchored.system.errors import InputError, unknown

__all__ = [
    "Data",
    "ImageSet",
    "Images",
    "Listing",
    "Options",
    "Split",
    "channel_statistics",
    "limit",
    "limit_labels",
    "listing",
    "load",
    "load_anomalies",
    "sources",
    "split",
    "stratified",
]

PARTS = ("train", "test")


def load(
    spec: str,
    *,
    size: int | None = None,
    seed: int = 0,
    root: str | None = None,
    interpolation: str = "bilinear",
    crop: float = 1.0,
    strict: bool = False,
    memory_limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Data:
    """The data set `spec` (digits, parquet:PATH, folder:PATH, csv:FILE, npz:PATH, hf:PATH, cifar10 ...), in memory.

    The other arguments are those of `anchored.data.base.Options`. Images come out as uint8 [N, size, size, 3].
    Raises InputError, saying the rule and the value, for anything that cannot be trained on.
    """
    module, path = _source(spec)
    return module.load(path, Options(size, seed, root, interpolation, crop, strict, memory_limit, progress))


def listing(spec: str, *, part: str = "test", seed: int = 0, root: str | None = None) -> Listing:
    """The part `train` or `test` of the data set `spec`, not decoded, so that it may be larger than memory.

    The archives of CIFAR and the digits are in memory all the same: they are small. Raises InputError as `load` does.
    """
    if part not in PARTS:
        raise unknown("part of the data", part, PARTS)
    module, path = _source(spec)
    options = Options(seed=seed, root=root)
    if hasattr(module, "listings"):
        found: Listing = module.listings(path, options)[PARTS.index(part)]
        return found
    data = module.load(path, options)
    images: ImageSet = getattr(data, part)
    return Listing(
        data.name,
        images.labels,
        data.classes,
        data.split,
        data.notes,
        pictures=lambda rows: (images.images[row].numpy() for row in rows.tolist()),
        called=lambda row: f"{spec} {part} image {row}",
    )


def load_anomalies(
    spec: str,
    *,
    like: Data,
    size: int,
    root: str | None = None,
    interpolation: str = "bilinear",
    crop: float = 1.0,
    strict: bool = False,
    memory_limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[str, ImageSet]:
    """(name, images uint8 [N, size, size, 3] with labels -1) of images that belong to no class of `like`.

    spec: `photos` (crops of scikit-learn's two photographs), or any data source, of which the test part is taken;
    folders and files need no labels then. Raises InputError as `load` does; warns of images that are left out.
    """
    options = Options(size, 0, root, interpolation, crop, strict, memory_limit, progress)
    if spec == "photos":
        return "photos", photos.load(like, size)
    module, path = _source(spec)
    name = module.called(path) if hasattr(module, "called") else title(path.split(",")[-1]) if path else spec
    if hasattr(module, "load_unlabelled"):
        decoded = module.load_unlabelled(path, options)
        for note in decoded.notes:
            warnings.warn(f"{spec}: {note}", stacklevel=2)
        images = decoded.images
    else:
        images = module.load(path, options).test.images
    if not len(images):
        raise InputError(f"{spec}: an anomaly set needs at least one image; there is none.")
    return name, unlabelled(images)


def sources() -> tuple[str, ...]:
    """How every data source is written, in alphabetical order."""
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    return tuple(sorted(module.SPEC for module in modules if hasattr(module, "SPEC")))


def _source(spec: str) -> tuple[Any, str]:
    kind, _, path = spec.partition(":")
    name = f"{__name__}.{kind}"
    module = importlib.import_module(name) if kind.isidentifier() and importlib.util.find_spec(name) else None
    written = getattr(module, "SPEC", None)
    if written is None:
        near = place(spec)
        if spec and os.path.exists(near):
            kind = (
                "folder"
                if near.is_dir()
                else {".parquet": "parquet", ".npz": "npz", ".csv": "csv", ".tsv": "csv"}.get(near.suffix, "")
            )
            if any((near / name).is_file() for name in ("state.json", "dataset_dict.json")):
                kind = "hf"
            elif (near / "train.csv").is_file():
                kind = "csv"
            if kind:
                raise InputError(f"data is written KIND:PATH; got the path {spec!r}. Did you mean {kind}:{spec}?")
        raise unknown("data", spec, sources())
    if bool(path) != (":" in written):
        raise InputError(f"the data source {kind} is written {written}; got {spec!r}.")
    return module, path


def channel_statistics(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel over all pixels, in units of [0, 1]; a constant channel has std 1.

    Exact (counts of the 256 values), with no copy larger than a few megabytes beside the images.
    """
    counts = torch.zeros(3, 256, dtype=torch.int64)
    for positions in torch.arange(len(images)).split(max(1, 2**22 // (3 * images.side**2)) if len(images) else 1):
        part = images.take(positions)
        for channel in range(3):
            counts[channel] += torch.bincount(part[..., channel].reshape(-1).cpu(), minlength=256)
    if not len(images):
        raise InputError("channel statistics need at least one image; got none.")
    value = torch.arange(256, dtype=torch.float64)
    n = counts.sum(1)
    mean = (counts * value).sum(1) / n
    std = ((counts * value**2).sum(1) / n - mean**2).clamp(min=0).sqrt()
    std = torch.where(std > 0, std, torch.full_like(std, 255.0))
    return _tuple(mean / 255), _tuple(std / 255)


def _tuple(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())
