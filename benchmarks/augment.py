"""python benchmarks/augment.py

Images a second of every augmentation policy, in one process and one thread, from uint8 images in memory to a normalised
batch: `anchored.augment.Pipeline` against torchvision's transforms v2 on one PIL image after the other, the same
operations with the same parameters. About two minutes. Expect a ratio of 1 to 2 for the policies of torchvision, where
both spend their time in the same operations, and far more for what is done by the batch (docs/benchmarks.md has a run).

What ours gives beyond theirs: a draw for each image that depends on the seed, the epoch and its index alone. The two
take turns; seconds are those of the processor, so that other work on the machine matters little; medians over the turns
(quartiles in brackets).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pipeline import MEAN, STD, machine, quartiles
from torch import Tensor
from torchvision.transforms import v2

from anchored.augment import Pipeline

CLASSES = 10
BILINEAR = v2.InterpolationMode.BILINEAR
# The policy, what theirs does to a PIL image after crop and mirror, to a normalised image, and to a batch.
POLICIES: dict[str, tuple[list[v2.Transform], list[v2.Transform], list[v2.Transform]]] = {
    "crop_flip": ([], [], []),
    "resized_crop_flip": ([], [], []),
    "crop_flip+randaugment": ([v2.RandAugment(interpolation=BILINEAR)], [], []),
    "crop_flip+trivialaugment": ([v2.TrivialAugmentWide(interpolation=BILINEAR)], [], []),
    "crop_flip+autoaugment": ([v2.AutoAugment(interpolation=BILINEAR)], [], []),
    "crop_flip+augmix": ([v2.AugMix()], [], []),
    "crop_flip+random_erasing": ([], [v2.RandomErasing()], []),
    "crop_flip+mixup+cutmix": (
        [],
        [],
        [v2.RandomChoice([v2.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)])],
    ),
}
OURS_ALONE = "crop_flip+pixmix"  # torchvision has none

Run = Callable[[int], int]


def ours(images: NDArray[np.uint8], policy: str, batch: int) -> Run:
    """A function that makes every batch of an epoch and returns the number of images."""
    pipeline = Pipeline(torch.from_numpy(images), MEAN, STD, policy, classes=CLASSES)
    labels = torch.arange(len(images)) % CLASSES

    def epoch(number: int) -> int:
        done = 0
        for step, index in enumerate(torch.arange(len(images)).split(batch)):
            x, _ = pipeline.mix(pipeline.train(index, number), labels[index], step)
            done += len(x)
        return done

    return epoch


def theirs(images: NDArray[np.uint8], policy: str, batch: int) -> Run:
    """The same, image by image, with torchvision."""
    side = images.shape[1]
    pictures, normalised, batches = POLICIES[policy]
    crop = v2.RandomResizedCrop(side) if policy.startswith("resized") else v2.RandomCrop(side, padding=side // 8)
    steps = [crop, v2.RandomHorizontalFlip(), *pictures, v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    transform = v2.Compose([*steps, v2.Normalize(MEAN, STD), *normalised])
    labels = torch.arange(len(images)) % CLASSES

    def epoch(number: int) -> int:
        done = 0
        for start in range(0, len(images), batch):
            x: Tensor = torch.stack([transform(Image.fromarray(image)) for image in images[start : start + batch]])
            for mix in batches:
                x, _ = mix(x, labels[start : start + len(x)])
            done += len(x)
        return done

    return epoch


def measure(side: int, policy: str, images: NDArray[np.uint8], turns: int, batch: int) -> str:
    """One line of the table."""
    runs = {"ours": ours(images, policy, batch)}
    if policy in POLICIES:
        runs["theirs"] = theirs(images, policy, batch)
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns + 1):
        for name, run in runs.items():
            began = time.process_time()
            done = run(turn)
            if turn:  # the first turn warms up
                speeds[name].append(done / (time.process_time() - began))
    ratio = [a / b for a, b in zip(speeds["ours"], speeds.get("theirs", []), strict=False)]
    columns = [quartiles(values) if values else "–" for values in (speeds["ours"], speeds.get("theirs", []), ratio)]
    return f"| {side} px, `{policy}` | {' | '.join(columns)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7, help="measured turns of each (default 7)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}; {options.turns} turns; one thread, seconds of the processor\n")
    print("| | anchored, images/s | torchvision, images/s | ratio |\n|---|---:|---:|---:|")
    for side, count, batch in ((32, 512, 128), (224, 48, 16)):
        pictures = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        for policy in (*POLICIES, OURS_ALONE):
            print(measure(side, policy, pictures, options.turns, batch), flush=True)


if __name__ == "__main__":
    main()
