"""python benchmarks/anchoring.py [step|fold|k_random|transduction|memory ...]

What anchoring costs, as ratios measured in one run: the training step against the standard one, the folded model
against the ordinary one, ten references against one pass and against repeated inputs, transduction against one
reference. Times are processor seconds of this process, in turns (a, b, a, b, ...); medians with quartiles. Memory of
training is the peak resident size of fresh processes; of predicting, that above the resident size before it; both with
an allocator that gives back what is freed. Expect: step 1.03 at most, fold 1.00, k_random(10) at most 10 passes,
transduction 1.1 at most (docs/benchmarks.md has a run with its machine).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pipeline import machine
from torch import Tensor, nn

from anchored import ReferenceSet, anchor, anchored_loss, direct, fold, k_random, one_random, transduction
from anchored.models import resnet18
from anchored.system.devices import autocast, placed

CPU = torch.device("cpu")
CLASSES, K = 10, 10
PARTS = ("step", "fold", "k_random", "transduction", "memory")


def network(name: str) -> tuple[nn.Module, Tensor]:
    """A classifier and one batch: resnet18 at 32 px (128 images), vit_b_16 at 224 px (4)."""
    torch.manual_seed(0)
    if name == "resnet18":
        return placed(resnet18(CLASSES), CPU), torch.randn(128, 3, 32, 32).to(memory_format=torch.channels_last)
    from torchvision.models import vit_b_16

    return placed(vit_b_16(num_classes=CLASSES), CPU), torch.randn(4, 3, 224, 224)


def stepper(net: nn.Module, x: Tensor, *, anchored: bool) -> Callable[[], Any]:
    """One training step of `net` on `x`, in the arithmetic that training takes."""
    optimiser = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9)
    y, reference = torch.arange(len(x)) % CLASSES, x.roll(1, 0)

    def step() -> None:
        with autocast(CPU, "bfloat16"):
            loss = anchored_loss(net, x, y, reference, masked=False) if anchored else F.cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def ratio(ours: Callable[[], Any], theirs: Callable[[], Any], turns: int) -> str:
    """ours / theirs in processor time: median and quartiles over interleaved turns, after one of each to warm up."""
    ours(), theirs()
    ratios = []
    for _ in range(turns):
        seconds = []
        for work in (ours, theirs):
            began = time.process_time()
            work()
            seconds.append(time.process_time() - began)
        ratios.append(seconds[0] / seconds[1])
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def references(images: Tensor) -> ReferenceSet:
    return ReferenceSet.from_images(images)


def repeated(net: Any, r: Tensor) -> Callable[[Tensor], Tensor]:
    """The obvious way to several references: every image with every reference as one large batch."""

    @torch.no_grad()
    def predict(x: Tensor) -> Tensor:
        pairs = net(x.repeat(len(r), 1, 1, 1), r.repeat_interleave(len(x), 0))
        return pairs.view(len(r), len(x), -1).mean(0)

    return predict


def rows(part: str, turns: int) -> list[tuple[str, str]]:
    """(what, ratio) of one part."""
    if part == "step":
        found = []
        for name in ("resnet18", "vit_b_16"):
            net, x = network(name)
            mine = stepper(anchor(net, example=x[:2], init="fresh"), x, anchored=True)
            found.append(
                (f"training step, {name}: anchored / standard", ratio(mine, stepper(net, x, anchored=False), turns))
            )
        return found
    net, x = network("resnet18")
    net.eval()
    anchored = anchor(net, example=x[:2], init="fresh").eval()
    others = torch.randn(1000, 3, 32, 32)
    if part == "fold":
        plain, folded = direct(net), direct(fold(anchored, others[:1]))
        return [("folded model / standard model, resnet18", ratio(lambda: folded(x), lambda: plain(x), turns))]
    refs = references(others)
    if part == "k_random":
        many, one = k_random(anchored, refs, k=K), one_random(anchored, refs)
        r = refs.sample(K, 0)
        naive = repeated(anchored, r)
        torch.testing.assert_close(many(x[:4]).logits, naive(x[:4]), rtol=1e-3, atol=1e-4)
        return [
            (f"k_random({K}) / one_random", ratio(lambda: many(x), lambda: one(x), turns)),
            (f"k_random({K}) / inputs repeated for {K} references", ratio(lambda: many(x), lambda: naive(x), turns)),
        ]
    images = torch.randn(1000, 3, 32, 32)
    nearest, one = transduction(anchored, refs, candidates=50, bank=1000), one_random(anchored, refs)

    def over(predict: Any) -> Callable[[], None]:
        def work() -> None:
            for batch in images.split(128):
                predict(batch)

        return work

    what = "transduction (50 candidates, bank of 1,000) / one_random, 1,000 images"
    return [(what, ratio(over(nearest), over(one), turns))]


def resident(name: str) -> float:
    """VmHWM (the peak) or VmRSS of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(name))) / 1024


def peak(what: str) -> float:
    """MiB that a fresh process needs at most: of all it does in training, beyond what was there before a prediction."""
    command = [sys.executable, __file__, "--work", what]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc else keeps what is freed, now more, now less
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


def work(what: str) -> None:
    """One piece of work; prints what `peak` says (Linux)."""
    name, _, kind = what.partition(" ")
    net, x = network(name)
    anchored = anchor(net, example=x[:2], init="fresh")
    if kind in ("anchored", "standard"):
        step = stepper(anchored if kind == "anchored" else net, x, anchored=kind == "anchored")
        for _ in range(3):
            step()
        print(resident("VmHWM"))
    else:
        refs = references(torch.randn(K, 3, 32, 32))
        r = refs.sample(K, 0)
        predict: Any = {
            "one": one_random(anchored, refs),
            "many": k_random(anchored, refs, k=K),
            "repeated": repeated(anchored.eval(), r),
        }[kind]
        predict(x[:2])  # what libraries load and keep
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before = resident("VmRSS")
        predict(x)
        print(resident("VmHWM") - before)


def memory() -> list[tuple[str, str]]:
    """(what, ratio of peaks) of the training step and of several references."""
    found = []
    for name in ("resnet18", "vit_b_16"):
        anchored, standard = peak(f"{name} anchored"), peak(f"{name} standard")
        found.append((f"peak memory of training, {name}: anchored / standard", f"{anchored / standard:.3f}"))
    one, many, naive = (peak(f"resnet18 {kind}") for kind in ("one", "many", "repeated"))
    found.append((f"extra peak memory, k_random({K}) / one_random", f"{many / one:.2f}"))
    found.append((f"extra peak memory, inputs repeated / k_random({K})", f"{naive / many:.2f}"))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--turns", type=int, default=21, help="pairs of turns (default 21)")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.work:
        work(options.work)
        return
    print(f"{machine()}; {options.turns} pairs, one thread\n\n| | ratio |\n|---|---:|")
    for part in options.parts:
        for what, value in memory() if part == "memory" else rows(part, options.turns):
            print(f"| {what} | {value} |", flush=True)


if __name__ == "__main__":
    main()
