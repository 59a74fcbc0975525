"""Where a run stands while it trains: its part of a checkpoint, besides the weights and their optimiser."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from anchored.training.log import Meter
from anchored.training.step import Done


@dataclass
class State:
    """Steps done, what they measured, and what they took.

    history: a line of metrics an epoch. meter: sums over the epoch in hand. best: goodness of the best epoch so far.
    seconds: of training, over all sittings that a checkpoint or the end followed; None where one was not timed.
    stretches: (first step, arithmetic) of each part of the run computed in one arithmetic, in order; the steps before
    the first are of a version that did not note it.
    """

    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)
    best: float = -math.inf
    seconds: float | None = 0.0
    stretches: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._timed = time.monotonic()
        self.begin()

    def begin(self) -> None:
        """The first step of this sitting comes now."""
        self.saved = self._began = time.monotonic()  # saved: when the last checkpoint was written
        self._first = self.step

    def next_epoch(self) -> None:
        """The first step of another epoch comes now."""
        self.meter, self._began, self._first = Meter(), time.monotonic(), self.step

    def count(self, done: Done, images: int) -> None:
        """Count one step, of so many images."""
        self.step += 1
        self.meter.add(done.loss, done.masked, done.right, images)

    def speed(self) -> float:
        """Steps a second of this epoch, in this sitting."""
        return (self.step - self._first) / (time.monotonic() - self._began)

    def add_time(self) -> None:
        """Add what has passed since the last call, or since the sitting began, to `seconds`."""
        now = time.monotonic()
        if self.seconds is not None:
            self.seconds += now - self._timed
        self._timed = now

    def computes_in(self, arithmetic: str) -> None:
        """Note that the steps from here on are computed in `arithmetic`."""
        if not self.stretches or self.stretches[-1][1] != arithmetic:
            self.stretches.append((self.step, arithmetic))

    @property
    def arithmetic(self) -> str | None:
        """What the run was computed in, such as "bfloat16" or "bfloat16 and float32"; None where that is not known."""
        if not self.stretches or self.stretches[0][0] > 0:
            return None
        return " and ".join(dict.fromkeys(name for _, name in self.stretches))

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "step": self.step,
            "history": self.history,
            "meter": asdict(self.meter),
            "best": self.best,
            "seconds": self.seconds,
            "arithmetic": self.stretches,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept; those of older versions lack seconds and arithmetic."""
        self.step, self.history, self.best = saved["step"], saved["history"], saved["best"]
        self.meter = Meter(**saved["meter"])
        self.seconds = saved.get("seconds")
        self.stretches = [(step, name) for step, name in saved.get("arithmetic", ())]
