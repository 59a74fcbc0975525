"""Progress of long work with the time left: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn


class Work:
    """Work of a known total, in any unit that goes at a steady pace (here: forward passes of one image).

    `advance(amount, note)` reports what was done; `skip(amount)` what had been done before, which must not
    count towards the pace.
    """

    def __init__(self, total: float, console: Console | None = None, *, every: float = 15.0) -> None:
        self.console = console or Console(stderr=True)
        self.total, self.done, self.skipped = total, 0.0, 0.0
        self.every = every
        self.printed = time.monotonic()
        self.first: tuple[float, float] | None = None  # time and amount done of the first report: it holds the start-up
        self.bar: Progress | None = None

    def __enter__(self) -> Work:
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TextColumn("{task.fields[left]} left"),
                console=self.console,
                transient=True,
            )
            self.bar.start()
            self.task = self.bar.add_task("starting", total=self.total, left="?")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def skip(self, amount: float) -> None:
        """Take `amount` off what is to be done: an earlier call of the command did it."""
        self.skipped += amount
        if self.bar is not None:
            self.bar.update(self.task, total=self.total - self.skipped)

    def advance(self, amount: float, note: str) -> None:
        """Count `amount` as done and say what is going on."""
        self.done += amount
        now = time.monotonic()
        self.first = self.first or (now, self.done)
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, description=note, left=self.left(now))
        elif now - self.printed >= self.every:
            self.printed = now
            share = (self.skipped + self.done) / max(self.total, 1e-9)
            self.console.print(
                f"[{min(share, 1):4.0%}] {note} | {self.left(now)} left", highlight=False, markup=False, soft_wrap=True
            )

    def left(self, now: float) -> str:
        """The time that the rest takes at the pace since the first report, or "?" while there is none."""
        since, before = self.first or (now, self.done)
        if self.done <= before:
            return "?"
        return clock((now - since) * max(0.0, self.total - self.skipped - self.done) / (self.done - before))


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


class Decoding:
    """Progress of reading images, shown once it has taken a few seconds; called with (done, total), part by part."""

    def __init__(self, what: str, console: Console | None = None, *, after: float = 3.0) -> None:
        self.what, self.console, self.after = what, console, after
        self.started = time.monotonic()
        self.work: Work | None = None
        self.total = 0

    def __enter__(self) -> Decoding:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def __call__(self, done: int, total: int) -> None:
        if self.work is not None and total != self.total:
            self._end()
        if self.work is None and time.monotonic() - self.started < self.after:
            return
        if self.work is None:
            self.work, self.total = Work(total, self.console).__enter__(), total
        self.work.advance(done - self.work.done, f"{self.what}: {done:,} of {total:,} images")

    def _end(self) -> None:
        if self.work is not None:
            self.work.__exit__(None, None, None)
            self.work = None
