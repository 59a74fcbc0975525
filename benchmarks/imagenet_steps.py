"""python benchmarks/imagenet_steps.py [--steps 20] [--batch 4]

Do the ImageNet recipes run? 1,000 JPEG files are generated in class folders; every `imagenet_*` recipe trains a few
steps on them at its full image size, standard and masking, alone and in two processes, streamed, with mixup, cutmix,
the average of the weights and clipping as the recipe has them. Prints a table of seconds a step and loss; ends with
status 1 if a run fails. On two cores about 20 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from pipeline import machine

MODELS = {
    "imagenet_swin_v2_t": ("swin_v2_t", 256),
    "imagenet_swin_v2_s": ("swin_v2_s", 256),
    "imagenet_swin_v2_b": ("swin_v2_b", 256),
    "imagenet_vit_b_16": ("vit_b_16", 224),
}
CLASSES = 10


def pictures(root: Path, count: int) -> None:
    """Class folders of smooth random JPEG pictures of different sizes in train/, and one a class in val/."""
    random = np.random.default_rng(0)
    for number in range(count + CLASSES):
        part = "train" if number < count else "val"
        folder = root / part / f"class{number % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        size = tuple(random.integers(300, 500, 2).tolist())
        small = random.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(folder / f"{number:05}.jpg", quality=90)


def run(recipe: str, method: str, processes: int, data: Path, out: Path, options: argparse.Namespace) -> str:
    """One line of the table."""
    model, size = MODELS[recipe]
    flags = ["train", "--data", f"folder:{data}", "--stream", "--workers", "1", "--recipe", recipe]
    flags += ["--model", f"torchvision:{model}", "--image-size", str(size), "--method", method, "--epochs", "1"]
    flags += ["--batch-size", str(options.batch), "--train-limit", str(options.batch * options.steps)]
    flags += ["--device", "cpu", "--checkpoint-every", "1e9", "--out", str(out)]
    command = [sys.executable, "-m", "anchored"]
    if processes > 1:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command += ["-m", "anchored"]
    began = time.monotonic()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run([*command, *flags], capture_output=True, text=True, check=False, env=environment)
    took = time.monotonic() - began
    if ended.returncode:
        print(ended.stderr[-2000:], file=sys.stderr)
        return f"| {recipe} | {method} | {processes} | failed | | |"
    line = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    info = json.loads((out / "run.json").read_text())
    loss = " / ".join("-" if line[name] is None else f"{line[name]:.3f}" for name in ("loss", "loss_masked"))
    speed = options.batch / line["images_per_second"]
    cells = (recipe, method, processes, line["step"], f"{speed:.1f}", loss, info["weights"], f"{took:.0f}")
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4, help="images a step, over all processes")
    parser.add_argument("--recipes", nargs="+", default=list(MODELS))
    options = parser.parse_args()
    print(f"{machine()}; batches of {options.batch}, one thread a process\n")
    print("| recipe | method | processes | steps | s / step | loss / masked | weights | s in all |")
    print("|---|---|---:|---:|---:|---|---|---:|")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        pictures(Path(folder) / "data", 1000)
        for recipe in options.recipes:
            for method in ("standard", "masking"):
                for processes in (1, 2):
                    out = Path(folder) / f"{recipe}-{method}-{processes}"
                    line = run(recipe, method, processes, Path(folder) / "data", out, options)
                    failed |= "failed" in line
                    print(line, flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
