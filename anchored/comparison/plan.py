"""What a training run would take, before it is started: `anchored train --plan`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from anchored.comparison.inputs import Prepared, prepare, say_notes
from anchored.comparison.settings import Comparison
from anchored.method.core import Anchored, anchored_loss
from anchored.method.stem import logits_of
from anchored.runs.build import build
from anchored.system.devices import arithmetic
from anchored.system.errors import InputError
from anchored.system.rng import generator
from anchored.training.order import order_of

GPUS = 16  # of the paper's ImageNet runs
GIB = 2**30
CPU = torch.device("cpu")


def plan(settings: Comparison, *, images_per_second: float | None = None, strict: bool = False) -> None:
    """Print what training the run would take: steps, parameters, memory, and the time at a given speed.

    images_per_second: of one device. Memory: weights, gradients, optimiser state and average, in float32, and what is
    kept of a batch for the backward pass, on one device and on each of 16, measured on the CPU in an arithmetic that it
    has. Raises InputError as `prepare` does, and for a speed of 0 or less.
    """
    if images_per_second is not None and images_per_second <= 0:
        raise InputError(f"images-per-second is above 0; got {images_per_second}.")
    prepared = prepare(settings, strict=strict, tested=False)
    say_notes(prepared)
    (config,) = prepared.settings.run_configs()
    inputs = prepared.first
    recipe, n = config.recipe, len(inputs.data.train)
    size, classes = inputs.preprocess.size, len(inputs.data.classes)
    net = build(config, classes, size)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    copies = 2 + {"sgd": 1, "adamw": 2}[recipe.optimiser] + (recipe.ema_decay is not None)
    order = order_of(config, n)
    fixed = copies * 4 * parameters / GIB
    measured, said = measurable(config.precision)
    kept = activations(net, size, classes, measured) * order.batch / recipe.accumulate / GIB
    rows = {
        "run": config.run,
        "model": f"{config.model}, {parameters:,} parameters",
        "images": f"{n:,} of {size} px",
        "batch": f"{order.batch:,} in {recipe.accumulate} part(s)",
        "steps": f"{order.steps:,} an epoch, {order.steps * recipe.epochs:,} in {recipe.epochs} epochs",
        "memory": f"{fixed:.2f} GiB for weights, gradients and optimiser; images {_images(prepared)}",
        "activations": f"{kept:.2f} GiB on one device, {kept / GPUS:.2f} on each of {GPUS} ({said})",
    }
    if images_per_second is not None:
        days = n * recipe.epochs / images_per_second / 86400
        rows["time"] = f"{days:.2f} days on one device, {days / GPUS:.2f} on {GPUS}"
    table = Table(show_header=False, box=None)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def measurable(precision: str) -> tuple[str, str]:
    """(the arithmetic in which this CPU measures activations of `precision`, what to say of it).

    float16 is emulated on nearly all CPUs, bfloat16 on many, at a tenth of the speed. Of either are kept as many bytes.
    """
    measured = precision if precision == "float32" else arithmetic(CPU, "bfloat16")
    if measured == precision:
        return measured, precision
    if measured == "bfloat16":
        return measured, f"measured in bfloat16; {precision} keeps as much"
    return measured, f"measured in float32, as this CPU has no bfloat16; {precision} keeps 0.5 to 0.6 of it"


def activations(net: nn.Module, size: int, classes: int, precision: str) -> float:
    """Bytes that a forward pass keeps for the backward pass, per image: what grows with the batch.

    net: a classifier of images [B, 3, size, size] or an `Anchored` one, on the CPU; it is run on 2 and on 4 images.
    precision: "bfloat16" or "float16" (autocast), or "float32".
    """
    few, more = (_kept(net.train(), count, size, classes, precision) for count in (2, 4))
    return (more - few) / 2


def _kept(net: nn.Module, count: int, size: int, classes: int, precision: str) -> int:
    """Bytes of the storages that autograd keeps of a forward pass, each counted once."""
    x, reference = (torch.rand(count, 3, size, size, generator=generator("example", part)) for part in range(2))
    y = torch.arange(count) % classes
    storages: dict[int, Any] = {}  # kept alive, so that no address comes twice

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage
        return tensor

    with (
        torch.random.fork_rng(devices=[]),
        torch.autocast("cpu", getattr(torch, precision), enabled=precision != "float32"),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        if isinstance(net, Anchored):
            anchored_loss(net, x, y, reference, masked=False)
        else:
            F.cross_entropy(logits_of(net(x)).float(), y)
    return sum(storage.nbytes() for storage in storages.values())


def _images(prepared: Prepared) -> str:
    sets = (prepared.first.data.train, prepared.first.data.test)
    if prepared.settings.stream:
        return "stay in their files"
    return f"{sum(3 * len(images) * images.side**2 for images in sets) / GIB:.2f} GiB"
