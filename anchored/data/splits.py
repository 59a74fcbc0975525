"""Seeded, stratified choices of images."""

from __future__ import annotations

import torch
from torch import Tensor

from anchored.data.base import ImageSet
from anchored.errors import InputError
from anchored.rng import generator


def stratified(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted indices (part, rest): `fraction` of every class, rounded, and at least one image of each class."""
    part = []
    for label in labels.unique():
        members = (labels == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator(seed, "split", int(label)))]
        part.append(members[: max(1, round(fraction * len(members)))])
    chosen = torch.cat(part).sort().values
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    return chosen, rest.nonzero()[:, 0]


def split(images: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """(rest, part): `fraction` of every class is held out. Raises InputError where a class has only one image."""
    part, rest = stratified(images.labels, fraction, seed)
    lost = set(images.labels.unique().tolist()) - set(images.labels[rest].unique().tolist())
    if lost:
        raise InputError(f"holding out {fraction:g} of each class leaves class {min(lost)} without training images.")
    return images.subset(rest), images.subset(part)


def limit(images: ImageSet, n: int, seed: int) -> Tensor:
    """Sorted indices of at most n images, the classes in their proportions (largest remainders)."""
    total = len(images)
    if n >= total:
        return torch.arange(total)
    labels, counts = images.labels.unique(return_counts=True)
    exact = counts.double() * n / total
    take = exact.floor().long()
    short = n - int(take.sum())
    take[torch.argsort(exact - take, descending=True, stable=True)[:short]] += 1
    chosen = []
    for label, count in zip(labels.tolist(), take.tolist(), strict=True):
        members = (images.labels == label).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=generator(seed, "limit", label))
        chosen.append(members[order[:count]])
    return torch.cat(chosen).sort().values
