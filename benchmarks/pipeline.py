"""python benchmarks/pipeline.py

Images a second of `anchored.augment.Pipeline` against torchvision's DataLoader doing the same to the same images:
random crop of the image padded by an eighth, random mirror, normalise. About a minute. Expect a ratio above 10 for
32 px (docs/benchmarks.md has a run with its machine).

Both start from one uint8 array in memory. Theirs: a Dataset of PIL images as torchvision's CIFAR10 makes them,
transforms v2, two persistent workers, warmed up. Ours: the training process itself, one thread. The two take turns,
so that whatever else the machine does meets both; each figure is the median over the turns (quartiles in brackets).
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torchvision
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from anchored.augment import Pipeline

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
WORKERS = 2


class Pictures(Dataset[Tensor]):
    """PIL images of a uint8 array, transformed one by one."""

    def __init__(self, images: NDArray[np.uint8]) -> None:
        self.images = images
        side = images.shape[1]
        self.transform = v2.Compose(
            [
                v2.RandomCrop(side, padding=side // 8),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.transform(Image.fromarray(self.images[index]))


def ours(images: NDArray[np.uint8], batch: int) -> Callable[[int], int]:
    """A function that makes every batch of an epoch and returns the number of images."""
    pipeline = Pipeline(torch.from_numpy(images), MEAN, STD, "crop_flip", seed=0)

    def epoch(number: int) -> int:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(number))
        return sum(len(pipeline.train(index, number)) for index in order.split(batch))

    return epoch


def theirs(images: NDArray[np.uint8], batch: int) -> Callable[[int], int]:
    """The same through torchvision's transforms and a DataLoader."""
    loader = DataLoader(Pictures(images), batch_size=batch, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    return lambda number: sum(len(x) for x in loader)


def quartiles(values: list[float]) -> str:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    digits = 0 if middle >= 100 else 1
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def measure(side: int, batch: int, images: int, share: int, turns: int) -> str:
    """One line of the table; the DataLoader gets an n-th (`share`) of the images, to end in the same minute."""
    pictures = np.random.default_rng(0).integers(0, 256, (images, side, side, 3), dtype=np.uint8)
    epochs = {"ours": ours(pictures, batch), "theirs": theirs(pictures[: images // share], batch)}
    speeds: dict[str, list[float]] = {name: [] for name in epochs}
    for turn in range(turns + 1):
        for name, epoch in epochs.items():
            began = time.perf_counter()
            done = epoch(turn)
            if turn:  # the first turn warms up: workers start, memory is touched
                speeds[name].append(done / (time.perf_counter() - began))
    ratios = [a / b for a, b in zip(speeds["ours"], speeds["theirs"], strict=True)]
    columns = [f"{side} px, batches of {batch}", *map(quartiles, (*speeds.values(), ratios))]
    return f"| {' | '.join(columns)} |"


def machine() -> str:
    """Processor kind and cores, and the versions that matter."""
    kind = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        kind = names[0] if names else kind
    return (
        f"{kind} ({platform.machine()}), {os.cpu_count()} cores; Python {platform.python_version()}, "
        f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9, help="measured turns of each (default 9)")
    parser.add_argument("--threads", type=int, default=1, help="threads of ours (default 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{machine()}; {options.turns} turns; {options.threads} thread(s) against {WORKERS} workers\n")
    print("| | anchored, images/s | DataLoader, images/s | ratio |\n|---|---:|---:|---:|")
    print(measure(32, 128, 24_000, 4, options.turns), flush=True)
    print(measure(224, 32, 640, 2, options.turns), flush=True)


if __name__ == "__main__":
    main()
