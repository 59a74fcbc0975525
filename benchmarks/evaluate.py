"""Evaluation against bare forward passes: ResNet-18 at 32 px, corrupted images from disk and made on the fly.

    python benchmarks/evaluate.py [--n 20000] [--turns 3] [--corruptions 19] [--cpu-time]

Per turn, one after another: bare forward passes over the images as batches that are ready in memory; `evaluate` of a
folder in the layout of CIFAR-10-C, scores written; `evaluate` with the corruptions generated. The images are those of
--data (CIFAR-10's test set), five severities of corruptions of c. Then the peak memory of evaluating a folder of n
and of 4n images, each in a process of its own, with a network that costs nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn

from anchored import data as sources
from anchored.corruptions import corrupt, readers
from anchored.data.base import ImageSet, Options
from anchored.data.class_maps import scored_classes
from anchored.data.listings import array_listing, decode_rows, limited_rows, whole_listing
from anchored.evaluation.benchmarks import Benchmark
from anchored.evaluation.cell_images import CORRUPTION_SEED
from anchored.evaluation.planned_cells import plan_cells
from anchored.evaluation.scores import evaluate, write_scores
from anchored.evaluation.settings import EvaluationSettings
from anchored.method.protocols import direct
from anchored.models import resnet18
from anchored.system.preprocess import Preprocess

NAMES = ("gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow", "fog", "brightness", "contrast",
         "elastic_transform", "pixelate", "jpeg_compression", "defocus_blur", "glass_blur", "frost", "impulse_noise",
         "speckle_noise", "gaussian_blur", "spatter", "saturate")  # fmt: skip
SEVERITIES = (1, 2, 3, 4, 5)
BATCH = 64
PREPROCESS = Preprocess(32, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


clock = time.perf_counter


def stored(folder: Path, images: ImageSet, names: Sequence[str]) -> None:
    """The images corrupted, in the layout of CIFAR-10-C."""
    np.save(folder / "labels.npy", np.tile(images.labels.numpy(), len(SEVERITIES)))
    for name in names:
        done = [corrupt(images.images.numpy(), name, s, seed=CORRUPTION_SEED) for s in SEVERITIES]
        np.save(folder / f"{name}.npy", np.concatenate(done))


def run(net: nn.Module, benchmark: Benchmark, on: Sequence[str], out: Path) -> float:
    """Seconds to evaluate every corrupted cell and write its scores."""
    start = clock()
    settings = EvaluationSettings(models=("resnet18",), on=tuple(on))
    for each in plan_cells(settings, [benchmark], 32, "bilinear", 1.0):
        if each.cell.kind == "shift":
            scores = evaluate({"m": direct(net)}, each.make(), PREPROCESS, device=torch.device("cpu"))
            write_scores(out / f"{each.cell.name}.parquet", scores["m"])
    return clock() - start


def bare(net: nn.Module, batches: list[torch.Tensor], times: int) -> float:
    """Seconds of the forward passes alone, the batches being ready."""
    start = clock()
    with torch.inference_mode():
        for _ in range(times):
            for x in batches:
                net(x)
    return clock() - start


def speed(images: ImageSet, turns: int, names: Sequence[str]) -> None:
    net = resnet18(10).eval().to(memory_format=torch.channels_last)
    classes = [str(number) for number in range(10)]
    listing = array_listing("images", images.images.numpy(), images.labels.numpy(), classes)
    chosen = scored_classes("images", classes, {"m": classes})
    batches = [PREPROCESS(part) for part in images.images.split(BATCH)]
    cells = len(names) * len(SEVERITIES)
    ratios: dict[str, list[float]] = {"disk": [], "made": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "c"
        folder.mkdir()
        stored(folder, images, names)
        disk = Benchmark("c", "shift", listing, chosen, readers.read_archive(folder))
        made = Benchmark("clean", "id", listing, chosen)
        bare(net, batches, 1)
        for _ in range(turns):
            base = bare(net, batches, cells)
            seconds = {"disk": run(net, disk, ("clean",), Path(name)), "made": run(net, made, names, Path(name))}
            for kind, value in seconds.items():
                ratios[kind].append(value / base)
            count = cells * len(images)
            print(
                f"bare {base:.1f} s, disk {seconds['disk']:.1f} s, generated {seconds['made']:.1f} s ({count:,} images)"
            )
    print(f"{clock.__name__} over bare forward passes, median of {turns} ({cells * len(images):,} images):")
    print(f"  read from disk {median(ratios['disk']):.3f}x, generated {median(ratios['made']):.3f}x")


def peak(n: int) -> None:
    """Evaluate a folder of n images with a network that costs nothing; print the peak memory in MiB."""
    net = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(3, 10)).eval()
    with tempfile.TemporaryDirectory() as name:
        from PIL import Image

        content = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(content).save(Path(name) / "one.jpg")
        for label in range(10):
            folder = Path(name) / "set" / str(label)
            folder.mkdir(parents=True)
            for number in range(n // 10):
                os.link(Path(name) / "one.jpg", folder / f"{number:06}.jpg")
        listing = whole_listing(f"folder:{name}/set")
        chosen = scored_classes("set", listing.classes, {"m": listing.classes})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        benchmark = Benchmark("set", "shift", listing, chosen)
        for each in plan_cells(EvaluationSettings(models=("m",)), [benchmark], 32, "bilinear", 1.0):
            evaluate({"m": direct(net)}, each.make(), PREPROCESS, device=torch.device("cpu"))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory, folder of {n:,} images: {after:.0f} MiB ({after - before:.0f} MiB above the start)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20_000, help="images in all cells together")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--corruptions", type=int, default=len(NAMES), help="the first so many of c")
    parser.add_argument("--cpu-time", action="store_true", help="of this process, for a machine that is busy")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--root")
    parser.add_argument("--peak", type=int, help="only the memory of a folder of so many images")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        return peak(arguments.peak)
    listing = sources.listing(arguments.data, part="test", root=arguments.root)
    if arguments.cpu_time:
        global clock
        clock = time.process_time
    names = NAMES[: arguments.corruptions]
    each = -(-arguments.n // (len(names) * len(SEVERITIES)))
    images, _ = decode_rows(listing, limited_rows(listing, each, listing.labels), Options(32))
    speed(images, arguments.turns, names)
    for n in (5_000, 20_000):
        subprocess.run([sys.executable, __file__, "--peak", str(n)], check=True)
    print(f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}, one thread")


if __name__ == "__main__":
    main()
