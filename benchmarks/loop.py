"""python benchmarks/loop.py --data parquet:PATH

What the training loop adds to its forward, backward and optimiser passes, and what anchoring adds to it: the recipe
`cifar_resnet18` (ResNet-18, batches of 128) for a few steps, standard and anchored, against bare steps of the same
network on a batch that is there already. Processor seconds of this process, in turns; medians with quartiles. Expect:
loop at most 5 % of the time, anchored step at most 1.03 (docs/benchmarks.md has a run with its machine).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pipeline import machine

from anchored.arms.recipe_choice import recipe
from anchored.comparison.inputs import Prepared, prepare
from anchored.comparison.settings import Comparison
from anchored.method.core import anchored_loss
from anchored.runs.build import build
from anchored.system.devices import autocast, placed
from anchored.training.loop import train

CPU = torch.device("cpu")


class Enough(Exception):
    """The steps to be measured are done."""


def loop(prepared: Prepared, method: int, steps: int) -> float:
    """Processor seconds a step of the training loop, without the first two steps."""
    marks: list[float] = []

    def tick(amount: float, note: str) -> None:
        marks.append(time.process_time())
        if len(marks) == steps + 2:
            raise Enough

    with tempfile.TemporaryDirectory() as folder:
        try:
            config = prepared.settings.run_configs()[method]
            train(config, prepared.data, prepared.preprocess, Path(folder), device=CPU, tick=tick)
        except Enough:
            pass
    return (marks[-1] - marks[1]) / steps


def bare(prepared: Prepared, method: int) -> Callable[[int], float]:
    """Processor seconds a step of forward, backward and optimiser alone, on one batch of noise."""
    config = prepared.settings.run_configs()[method]
    net = placed(build(config, 10, 32), CPU).train()
    optimiser = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=5e-4)
    x = torch.randn(config.recipe.batch_size, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.arange(len(x)) % 10
    reference = x.roll(1, 0)

    def measure(steps: int) -> float:
        def step() -> Any:
            with autocast(CPU, config.precision):
                if config.anchored:
                    loss = anchored_loss(net, x, y, reference, masked=False)
                else:
                    loss = F.cross_entropy(net(x).float(), y)
            loss.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

        for _ in range(2):
            step()
        began = time.process_time()
        for _ in range(steps):
            step()
        return (time.process_time() - began) / steps

    return measure


def shown(values: list[float]) -> str:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=4, help="steps a turn (default 4)")
    parser.add_argument("--turns", type=int, default=7, help="turns (default 7)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    made = recipe("cifar_resnet18", epochs=1)
    settings = Comparison(options.data, "resnet18", made, methods=("standard", "vanilla"), on=("clean",), anomalies=())
    prepared = prepare(settings)
    alone = [bare(prepared, method) for method in (0, 1)]
    ratios: dict[str, list[float]] = {name: [] for name in ("anchored / standard", "loop, standard", "loop, anchored")}
    for _ in range(options.turns):
        seconds = [loop(prepared, method, options.steps) for method in (0, 1)]
        ratios["anchored / standard"].append(seconds[1] / seconds[0])
        for method, name in enumerate(("loop, standard", "loop, anchored")):
            ratios[name].append(seconds[method] / alone[method](options.steps))
    print(f"{machine()}; {options.turns} turns of {options.steps} steps, one thread\n\n| | ratio |\n|---|---:|")
    print(f"| step of the loop: anchored / standard | {shown(ratios['anchored / standard'])} |")
    for name in ("standard", "anchored"):
        print(f"| {name}: step of the loop / forward, backward and optimiser | {shown(ratios[f'loop, {name}'])} |")


if __name__ == "__main__":
    main()
