"""Units of work on several processes, a few ahead of those that are taken."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import wait as wait_for
from types import TracebackType

import torch

from anchored.corruptions.units import Plan, Unit, make_unit
from anchored.system.errors import TrainingError

_AHEAD = 3  # units a process that are waiting


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes:
    """`workers` processes, or this one alone for 1. To be entered before this process starts threads.

    On Linux they are forks, as those of torch's DataLoader: they start at once and share the memory of the libraries,
    which is most of what each needs.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Processes:
        if self._workers > 1:
            context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_start)
            with warnings.catch_warnings():
                # Python warns of forks beside the idle threads of libraries; these use one thread and none of those.
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                self._pool.submit(os.getpid).result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def results(self, plan: Plan, units: list[Unit]) -> Iterator[tuple[Unit, list[str]]]:
        """(unit, what `make_unit` returns) of all units, as they come. Raises TrainingError if a process is killed."""
        if self._pool is None:
            yield from ((unit, make_unit(plan, unit)) for unit in units)
            return
        waiting = iter(units)
        running: dict[Future[list[str]], Unit] = {}
        try:
            while True:
                for unit in islice(waiting, _AHEAD * self._workers - len(running)):
                    running[self._pool.submit(make_unit, plan, unit)] = unit
                if not running:
                    return
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise TrainingError(
                "a process was killed, perhaps for want of memory (fewer: --workers). The same command goes on."
            ) from None
        finally:
            for future in running:
                future.cancel()
            wait(running)  # nobody writes any more when this ends


def _start() -> None:
    """What a new process does first: one thread, interruptions left to the parent, an end with the parent."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
