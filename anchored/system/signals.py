"""SIGTERM as a request: schedulers send it before they take the machine away."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Termination:
    """Inside, SIGTERM only sets `asked`, so that the step in hand can end and be saved."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Termination:
        if threading.current_thread() is threading.main_thread():  # handlers can be set there only
            self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
