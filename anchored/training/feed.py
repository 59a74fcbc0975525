"""From the order of images to batches on the device: out of memory, or decoded by workers."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from anchored.arms.run_config import RunConfig
from anchored.augment import Pictures, Pipeline, parse
from anchored.data.base import ImageSet
from anchored.data.images import fit
from anchored.data.stream import Streamed
from anchored.method.references import Anchoring
from anchored.system.preprocess import Preprocess
from anchored.training.distributed import Team
from anchored.training.order import Order

REFERENCE = -1  # in place of an epoch: an image under the evaluation transform
Request = tuple[int, int, int]  # index, epoch or REFERENCE, repeat


class Batch(NamedTuple):
    """Part of a step: positions (int64 [B]), augmented and normalised images [B, 3, H, W], labels (int64 [B]).

    reference: [B, 3, H, W] where workers loaded the step's references too.
    """

    positions: Tensor
    x: Tensor
    labels: Tensor
    reference: Tensor | None = None


@dataclass
class Feed:
    """The training batches of a run, from any step on.

    workers: processes that decode streamed images. `failures` fills with the files that could not be read.
    """

    images: ImageSet | Streamed
    config: RunConfig
    preprocess: Preprocess
    classes: int
    order: Order
    team: Team
    anchoring: Anchoring | None = None
    workers: int = 2
    failures: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        recipe, preprocess = self.config.recipe, self.preprocess
        stored = torch.empty(0, preprocess.size, preprocess.size, 3, dtype=torch.uint8)
        if isinstance(self.images, ImageSet):
            stored = self.images.images
        self.pipeline = Pipeline(
            stored.to(self.team.device),
            preprocess.mean,
            preprocess.std,
            recipe.policy,
            self.config.seed,
            repeats=recipe.repeats,
            classes=self.classes,
            interpolation=preprocess.interpolation,
        )
        self.labels = self.images.labels.to(self.team.device)

    def batches(self, start: int, stop: int) -> Generator[Batch, None, None]:
        """The parts this process takes of steps start..stop, one after another."""
        if isinstance(self.images, Streamed):
            yield from self._decoded(self.images, start, stop)
            return
        device = self.team.device
        for step in range(start, stop):
            for index, repeat in self._parts(step):
                index = index.to(device)
                x = self.pipeline.train(index, step // self.order.steps, repeat.to(device))
                yield Batch(index, x, self.labels[index])

    def plain(self, index: Tensor) -> Tensor:
        """Un-augmented images [B, 3, H, W] at `index`, as at inference."""
        if isinstance(self.images, Streamed):
            return self.preprocess(self.images.take(index.cpu()).to(self.team.device))
        return self.pipeline.plain(index.to(self.team.device))

    def _parts(self, step: int) -> list[Any]:
        return list(self.order.step(step, self.team.rank, self.team.size, self.config.recipe.accumulate))

    def _decoded(self, images: Streamed, start: int, stop: int) -> Iterator[Batch]:
        parts = self.config.recipe.accumulate

        def requests() -> Iterator[list[Request]]:
            for step in range(start, stop):
                epoch = step // self.order.steps
                for part, (index, repeat) in enumerate(self._parts(step)):
                    asked = [(i, epoch, r) for i, r in zip(index.tolist(), repeat.tolist(), strict=True)]
                    if self.anchoring is not None and self.anchoring.source == "set":
                        assert self.anchoring.references is not None
                        rank, world = self.team.rank * parts + part, self.team.size * parts
                        drawn = self.anchoring.positions(len(index), step, rank=rank, world=world)
                        asked += [(i, REFERENCE, 0) for i in self.anchoring.references.indices[drawn].tolist()]
                    yield asked

        policy = parse(self.config.recipe.policy)
        pictures = Pictures(
            policy,
            self.preprocess.size,
            seed=self.config.seed,
            interpolation=self.preprocess.interpolation,
            crop=self.preprocess.crop,
        )
        loader = DataLoader(
            _Decoding(images, pictures),
            batch_sampler=requests(),
            num_workers=self.workers,
            collate_fn=_collate,
            worker_init_fn=_deaf,
            multiprocessing_context=_context() if self.workers else None,
        )
        device = self.team.device
        for keys, pixels, labels, failures in loader:
            self.failures.update(dict.fromkeys(failures))
            n = int((keys[:, 1] != REFERENCE).sum())
            index, repeat = keys[:n, 0].to(device), keys[:n, 2].to(device)
            x = self.pipeline.finish(pixels[:n].to(device), index, int(keys[0, 1]), repeat)
            reference = self.preprocess(pixels[n:].to(device)) if n < len(keys) else None
            yield Batch(index, x, labels[:n].to(device), reference)


class _Decoding(Dataset[Any]):
    """A request -> (request, uint8 [S, S, 3], label, what could not be read)."""

    def __init__(self, images: Streamed, pictures: Pictures) -> None:
        self.images, self.pictures = images, pictures

    def __getitem__(self, request: Request) -> tuple[Request, Tensor, int, tuple[str, ...]]:
        index, epoch, repeat = request
        image, position, failures = self.images.readable(index)
        if epoch == REFERENCE:
            options = self.images.options
            pixels = fit(image, options.size, options.interpolation, options.crop)
        else:
            pixels = self.pictures(image, index, epoch, repeat)
        return request, torch.from_numpy(pixels.copy()), int(self.images.labels[position]), failures


def _deaf(worker: int) -> None:
    # A scheduler's SIGTERM and Ctrl-C reach every process of the group; this one decides when the workers end.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _collate(items: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor, list[str]]:
    keys, pixels, labels, failures = zip(*items, strict=True)
    return torch.tensor(keys), torch.stack(pixels), torch.tensor(labels), [text for part in failures for text in part]


def _context() -> Any:
    # Workers get the file names without copying them; where there is no fork (Windows) they are sent.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    return multiprocessing.get_context(method)
