"""What a run keeps while it trains: sums over an epoch, a log of events, the checkpoint to resume from."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anchored.errors import InputError


@dataclass
class Meter:
    """Sums over the steps of an epoch; anchored and masked batches apart."""

    loss: float = 0.0
    steps: int = 0
    loss_masked: float = 0.0
    steps_masked: int = 0
    right: int = 0
    images: int = 0

    def add(self, loss: float, masked: bool, right: int, images: int) -> None:
        """Count one step; accuracy is that of unmasked batches."""
        if masked:
            self.loss_masked, self.steps_masked = self.loss_masked + loss, self.steps_masked + 1
        else:
            self.loss, self.steps = self.loss + loss, self.steps + 1
            self.right, self.images = self.right + right, self.images + images

    def mean(self) -> float:
        """Mean loss of the unmasked batches so far."""
        return self.loss / self.steps if self.steps else math.nan

    def summary(self) -> dict[str, float | None]:
        """The epoch in numbers; None where there was no such batch."""
        return {
            "loss": self.loss / self.steps if self.steps else None,
            "loss_masked": self.loss_masked / self.steps_masked if self.steps_masked else None,
            "train_accuracy": 100 * self.right / self.images if self.images else None,
        }


class Log:
    """What happened when, a JSON line each, appended: evidence of what a resumed run did again."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def write(self, event: str, **values: Any) -> None:
        """Append one event."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **values, "time": round(time.time(), 3)}) + "\n")

    def step(self, step: int, steps: int) -> None:
        """Append a step, about 20 an epoch."""
        if step % max(1, steps // 20) == 0:
            self.write("step", step=step)


def read_checkpoint(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The checkpoint at `path`, or None where there is none. Raises InputError for an unreadable one."""
    if not path.exists():
        return None
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch raises many types for a damaged file
        raise InputError(
            f"the checkpoint {path} cannot be read ({type(error).__name__}). Delete it to train this run again."
        ) from error
