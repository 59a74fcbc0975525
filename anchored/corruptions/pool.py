"""Units of work on several processes, a few ahead of those that are taken."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import wait as wait_for

import torch

from anchored.corruptions.cells import Plan, Unit, make
from anchored.errors import TrainingError

_AHEAD = 3  # units a process that are waiting
_WORTH_A_PROCESS = 10_000_000  # bytes of images; less is done before a process has started


def results(plan: Plan, units: list[Unit], workers: int | None) -> Iterator[tuple[Unit, list[str]]]:
    """(unit, what `make` returns) of all units, as they come; with one process in this one."""
    size = len(units) * plan.stretch * plan.shape[0] * plan.shape[1] * 3
    if workers is None:
        workers = min(_cores(), max(1, size // _WORTH_A_PROCESS))
    workers = min(workers, len(units))
    if workers <= 1:
        yield from ((unit, make(plan, unit)) for unit in units)
        return
    context = multiprocessing.get_context(
        "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    )
    if context.get_start_method() == "forkserver":
        # The server imports torch once; its forks share that memory.
        multiprocessing.set_forkserver_preload(["anchored.corruptions.cells"])
    waiting = iter(units)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start)
    running: dict[Future[list[str]], Unit] = {}
    try:
        while True:
            for unit in islice(waiting, _AHEAD * workers - len(running)):
                running[pool.submit(make, plan, unit)] = unit
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
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
