"""Seeded, stratified choices of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from anchored.data.base import Images
from anchored.system.errors import InputError
from anchored.system.rng import generator


def stratified(
    labels: Tensor, fraction: float, seed: int, classes: Sequence[str] | None = None
) -> tuple[Tensor, Tensor]:
    """Sorted indices (part, rest) into labels (int64 [N]): a part of every class, for `fraction` in (0, 1).

    Of each class `fraction` is taken, rounded, but at least one image, and at least one is left. Raises InputError
    for other fractions and for a class of one image, which cannot be on both sides (named from `classes`).
    """
    if not 0 < fraction < 1:
        raise InputError(f"the part that is split off lies in (0, 1); got {fraction}.")
    part = [torch.zeros(0, dtype=torch.int64)]
    for label in labels.unique().tolist():
        members = (labels == label).nonzero()[:, 0]
        if len(members) < 2:
            name = repr(classes[label]) if classes else label
            raise InputError(f"a split needs at least 2 images of every class; class {name} has 1.")
        members = members[torch.randperm(len(members), generator=generator(seed, "split", label))]
        part.append(members[: min(max(1, round(fraction * len(members))), len(members) - 1)])
    chosen = torch.cat(part).sort().values
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    return chosen, rest.nonzero()[:, 0]


class Split(NamedTuple):
    """Two disjoint parts of an image set and the (sorted) positions each has there."""

    rest: Images
    part: Images
    rest_indices: Tensor
    part_indices: Tensor


def split(images: Images, fraction: float, seed: int) -> Split:
    """Hold out `fraction` of every class as `part`; see `stratified`. Raises InputError as it does."""
    part, rest = stratified(images.labels, fraction, seed)
    return Split(images.subset(rest), images.subset(part), rest, part)


def limit(images: Images, n: int, seed: int) -> Tensor:
    """Sorted indices of at most n images, the classes in their proportions (largest remainders, ties by the seed).

    Raises InputError for n below 1.
    """
    return limit_labels(images.labels, n, seed)


def limit_labels(labels: Tensor, n: int, seed: int) -> Tensor:
    """`limit` for images of which there are only the labels (int64 [N]) yet."""
    total = len(labels)
    if n < 1:
        raise InputError(f"a limit is at least 1 image; got {n}.")
    if n >= total:
        return torch.arange(total)
    kinds, counts = labels.unique(return_counts=True)
    take = counts * n // total
    remainder = counts * n % total
    short = n - int(take.sum())
    tied = torch.randperm(len(kinds), generator=generator(seed, "limit"))
    take[tied[torch.argsort(remainder[tied], descending=True, stable=True)][:short]] += 1
    chosen = []
    for label, count in zip(kinds.tolist(), take.tolist(), strict=True):
        members = (labels == label).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=generator(seed, "limit", label))
        chosen.append(members[order[:count]])
    return torch.cat(chosen).sort().values
