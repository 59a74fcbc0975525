"""Images per second of the in-memory augmentation against torchvision's DataLoader doing the same.

    python benchmarks/pipeline.py [--data parquet:PATH] [--images 10000] [--workers 2] [--repeats 7]

Both give shuffled batches of normalised float32 images, cropped at random after padding and mirrored half of the time.
The DataLoader is the usual one: PIL images, torchvision.transforms.v2, persistent worker processes. Ours runs in the
training process, on --threads threads. Whole epochs alternate, so that a busy machine slows both. Expect a ratio of at
least 10 on 32 px images.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median, quantiles

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from anchored import data as sources
from anchored.augment import Pipeline
from anchored.data.base import ImageSet

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class PilImages(Dataset[tuple[Tensor, int]]):
    """Images as PIL pictures, transformed one by one: what torchvision's data sets do."""

    def __init__(self, images: ImageSet) -> None:
        size = images.images.shape[1]
        self.images, self.labels = images.images.numpy(), images.labels.tolist()
        self.transform = v2.Compose(
            [
                v2.RandomCrop(size, padding=size // 8),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def generated(count: int, size: int) -> ImageSet:
    """Noise of the shape of a data set; neither pipeline looks at the content."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.zeros(count, dtype=torch.int64))


def measure(images: ImageSet, *, batch: int, workers: int, repeats: int) -> tuple[list[float], list[float]]:
    """Images per second, an entry an epoch: ours and the DataLoader's, alternating after one epoch of warming up."""
    loader = DataLoader(
        PilImages(images), batch, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=workers > 0
    )
    pipeline = Pipeline(images.images, MEAN, STD, "crop_flip", seed=0)
    full = len(images) // batch * batch

    def ours(epoch: int) -> None:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for index in order[:full].split(batch):
            pipeline.train(index, epoch)
            images.labels.index_select(0, index)

    def theirs(epoch: int) -> None:
        for _ in loader:
            pass

    def speed(run: Callable[[int], None], epoch: int) -> float:
        start = time.perf_counter()
        run(epoch)
        return full / (time.perf_counter() - start)

    speeds: tuple[list[float], list[float]] = ([], [])
    for epoch in range(repeats + 1):
        for run, kept in zip((ours, theirs), speeds, strict=True):
            kept.append(speed(run, epoch))
    return speeds[0][1:], speeds[1][1:]


def line(name: str, values: list[float], digits: int = 0) -> str:
    """A line of the table: median and quartiles."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return f"{name:<44}" + "".join(f"{value:>12,.{digits}f}" for value in (median(values), low, high))


def main(arguments: list[str] | None = None) -> float:
    """Measure, print the table and return the median ratio."""
    parser = argparse.ArgumentParser(
        description="Images per second: anchored.augment against torchvision's DataLoader."
    )
    parser.add_argument("--data", help="a data set as anchored names them (generated images by default)")
    parser.add_argument("--images", type=int, default=10000, help="number of images, at most (10000)")
    parser.add_argument("--size", type=int, default=32, help="side of generated images in pixels (32)")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2, help="worker processes of the DataLoader (2)")
    parser.add_argument("--threads", type=int, default=1, help="threads of ours (1)")
    parser.add_argument("--repeats", type=int, default=7, help="epochs measured of each, at least 2 (7)")
    flags = parser.parse_args(arguments)
    if flags.repeats < 2:
        parser.error(f"--repeats is at least 2, for a spread; got {flags.repeats}")
    torch.set_num_threads(flags.threads)
    if flags.data:
        images = sources.load(flags.data).train
        images = images.subset(torch.arange(min(flags.images, len(images))))
    else:
        images = generated(flags.images, flags.size)
    if len(images) < flags.batch_size:
        parser.error(f"--batch-size is at most the number of images, {len(images)}; got {flags.batch_size}")
    ours, theirs = measure(images, batch=flags.batch_size, workers=flags.workers, repeats=flags.repeats)
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    size = images.images.shape[1]
    print(f"{len(images):,} images of {size} px ({flags.data or 'generated'}), batches of {flags.batch_size},", end=" ")
    print(f"{flags.repeats} epochs of each, torch {torch.__version__}")
    print(f"{'images/s':<44}{'median':>12}{'quartile 1':>12}{'quartile 3':>12}")
    print(line(f"anchored.augment, {flags.threads} thread(s)", ours))
    print(line(f"torchvision DataLoader, {flags.workers} worker(s)", theirs))
    print(line("ratio of neighbouring epochs", ratios, digits=1))
    return median(ratios)


if __name__ == "__main__":
    main()
