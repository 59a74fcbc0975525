"""Data sources: one module a source, found by the name before the colon of `--data`."""

from __future__ import annotations

import importlib

import torch

from anchored.data.base import Data, ImageSet
from anchored.data.splits import limit, split, stratified
from anchored.errors import InputError, unknown

__all__ = ["Data", "ImageSet", "channel_statistics", "limit", "load", "load_anomalies", "split", "stratified"]

SOURCES = ("digits", "parquet:PATH", "folder:PATH", "npz:PATH", "cifar10", "cifar100")


def load(
    spec: str,
    *,
    size: int | None = None,
    root: str | None = None,
    interpolation: str = "bilinear",
    crop: float = 1.0,
) -> Data:
    """The data set `spec`, decoded into memory at `size` x `size` (None: as stored, where all are of one size).

    Raises InputError, saying the rule and the value, for anything that cannot be trained on.
    """
    kind, path = _source(spec)
    module = importlib.import_module(f"anchored.data.{kind}")
    return module.load(path, size=size, root=root, interpolation=interpolation, crop=crop)


def load_anomalies(
    spec: str, *, like: Data, size: int, root: str | None = None, interpolation: str = "bilinear", crop: float = 1.0
) -> tuple[str, ImageSet]:
    """(name, images with labels -1) of an anomaly set: `photos`, or the test part of any data source."""
    if spec == "photos":
        from anchored.data import photos

        return "photos", photos.load(like, size)
    kind, path = _source(spec)
    module = importlib.import_module(f"anchored.data.{kind}")
    name = path.rstrip("/").split("/")[-1].split(".")[0] or kind
    if hasattr(module, "load_unlabelled"):
        return name, module.load_unlabelled(path, size=size, interpolation=interpolation, crop=crop)
    images = module.load(path, size=size, root=root, interpolation=interpolation, crop=crop).test.images
    return name, ImageSet(images, torch.full((len(images),), -1, dtype=torch.int64))


def _source(spec: str) -> tuple[str, str]:
    kind, _, path = spec.partition(":")
    kinds = [source.partition(":")[0] for source in SOURCES]
    if kind not in kinds:
        raise unknown("data", spec, SOURCES)
    if not path and f"{kind}:PATH" in SOURCES:
        raise InputError(f"{kind} needs a path: {kind}:PATH.")
    return kind, path


def channel_statistics(images: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel over all pixels, in units of [0, 1]; a constant channel has std 1."""
    total, squares = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for part in images.images.split(1024):
        values = part.reshape(-1, 3).double()
        total += values.sum(0)
        squares += (values**2).sum(0)
    n = images.images.numel() / 3
    mean = total / n
    std = (squares / n - mean**2).clamp(min=0).sqrt()
    std = torch.where(std > 0, std, torch.full_like(std, 255.0))
    return tuple((mean / 255).tolist()), tuple((std / 255).tolist())
