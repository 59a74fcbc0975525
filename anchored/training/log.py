"""What a run keeps while it trains: sums over an epoch, a log of events, the checkpoint to resume from."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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

    def __str__(self) -> str:
        values = self.summary()
        words = {"loss": "loss {:.3f}", "loss_masked": "masked {:.3f}", "train_accuracy": "accuracy {:.1f} %"}
        return ", ".join(text.format(values[name]) for name, text in words.items() if values[name] is not None)

    def summary(self) -> dict[str, float | None]:
        """The epoch in numbers; None where there was no such batch."""
        return {
            "loss": self.loss / self.steps if self.steps else None,
            "loss_masked": self.loss_masked / self.steps_masked if self.steps_masked else None,
            "train_accuracy": 100 * self.right / self.images if self.images else None,
        }


class Log:
    """What happened when, a JSON line each, appended: evidence of what a resumed run did again."""

    def __init__(self, path: Path, *, quiet: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.quiet = path, quiet

    def write(self, event: str, **values: Any) -> None:
        """Append one event (nothing where quiet: one process of several writes)."""
        if self.quiet:
            return
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **values, "time": round(time.time(), 3)}) + "\n")

    def step(self, step: int, steps: int) -> None:
        """Append a step, about 20 an epoch."""
        if step % max(1, steps // 20) == 0:
            self.write("step", step=step)
