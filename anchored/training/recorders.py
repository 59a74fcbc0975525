"""Where the metrics of an epoch go besides `metrics.jsonl`: TensorBoard and Weights & Biases, if asked for."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anchored.arms.run_config import RunConfig
from anchored.system.errors import InputError, unknown

Record = Callable[[dict[str, Any]], None]
RECORDERS = ("tensorboard", "wandb")
INIT_TIMEOUT = 20.0  # seconds until the service of wandb counts as unreachable


def check(names: Iterable[str]) -> None:
    """Raise InputError for an unknown recorder or one whose package is not installed."""
    for name in names:
        if name not in RECORDERS:
            raise unknown("recorder", name, RECORDERS)
        try:
            importlib.import_module({"tensorboard": "torch.utils.tensorboard"}.get(name, name))
        except ImportError as error:
            raise InputError(f"--{name} needs the package: pip install 'anchored[{name}]'.") from error


@contextmanager
def recording(names: Iterable[str], folder: Path, config: RunConfig) -> Iterator[Record]:
    """What records a line of metrics with each of `names`, until the end of the block."""
    opened = [{"tensorboard": _tensorboard, "wandb": _wandb}[name](folder, config) for name in names]

    def record(line: dict[str, Any]) -> None:
        numbers = {
            name: value
            for name, value in line.items()
            if isinstance(value, (int, float)) and name not in ("epoch", "step")
        }
        for each, _ in opened:
            each(numbers, line["step"])

    try:
        yield record
    finally:
        for _, close in opened:
            close()


def _tensorboard(folder: Path, config: RunConfig) -> tuple[Callable[[dict[str, Any], int], None], Callable[[], None]]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder / "tensorboard")

    def log(numbers: dict[str, Any], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def _wandb(folder: Path, config: RunConfig) -> tuple[Callable[[dict[str, Any], int], None], Callable[[], None]]:
    """One run of the project `anchored` (or $WANDB_PROJECT); the same one when training goes on after a stop.

    Raises InputError where nobody is logged in. A service out of reach is a note, and the run is recorded offline.
    """
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    same = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=6).hexdigest()
    options: dict[str, Any] = {
        "project": os.environ.get("WANDB_PROJECT", "anchored"),
        "name": config.run,
        "id": f"{config.run}-{same}",
        "resume": "allow",
        "dir": str(folder),
        "config": dataclasses.asdict(config),
        "settings": wandb.Settings(silent=True, init_timeout=INIT_TIMEOUT),
        "reinit": "create_new",
    }
    try:
        run = wandb.init(**options)
    except wandb.errors.UsageError as error:
        raise InputError(
            f"--wandb: {error} Or set WANDB_MODE=offline: the run is then kept in {folder / 'wandb'} (wandb sync)."
        ) from error
    except wandb.errors.CommError as error:
        reason = str(error).splitlines()[0]
        warnings.warn(f"wandb cannot be reached ({reason}); recorded offline, in {folder / 'wandb'}", stacklevel=2)
        run = wandb.init(**options, mode="offline")

    def log(numbers: dict[str, Any], step: int) -> None:
        run.log(numbers, step=step)

    return log, run.finish
