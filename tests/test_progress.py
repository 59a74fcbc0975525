"""The time left, and folders that one process has to itself."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from pathlib import Path

import pytest

from anchored.system.errors import InputError
from anchored.system.files import in_use
from anchored.system.progress import Work


def test_the_time_left_counts_neither_the_start_up_nor_what_was_done_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    work = Work(100)
    work.skip(40)
    now[0] += 500  # reading, compiling, the first batch
    work.advance(10, "")
    assert work.left(now[0]) == "?"
    now[0] += 10
    work.advance(10, "")
    assert work.left(now[0]) == "0:40", "40 of 60 are left, at 1 a second"


def wait_for(folder: Path, ready: object, end: object) -> None:
    with in_use(folder):
        ready.set()  # type: ignore[attr-defined]
        end.wait(30)  # type: ignore[attr-defined]


def test_a_folder_is_free_once_its_process_was_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    process = context.Process(target=wait_for, args=(tmp_path, ready, end))
    process.start()
    assert ready.wait(60)
    with pytest.raises(InputError, match=r"another process is working in .*--out"), in_use(tmp_path):
        pass
    process.kill()
    process.join()
    with in_use(tmp_path):
        pass


def test_a_forked_process_does_not_keep_the_folder_in_use(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with in_use(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads
        child = os.fork()
        if not child:
            os.write(writing, b"1")
            time.sleep(30)
            os._exit(0)
    os.read(reading, 1)
    try:
        with in_use(tmp_path):  # as a new command would after the parent was killed
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
