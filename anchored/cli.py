"""The command line. Flags mean the same in every command; bad input is one line on stderr and exit status 2."""

from __future__ import annotations

import errno
import os
import select
import shlex
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser
from rich.console import Console

from anchored.commands import compare, corrupt, doctor, evaluate, export, import_checkpoint, predict, report, train
from anchored.commands.parser import Parser, Version
from anchored.system.errors import InputError, Stopped, TrainingError

COMMANDS: dict[str, Any] = {
    command.NAME: command
    for command in (compare, train, corrupt, evaluate, report, predict, export, import_checkpoint, doctor)
}
# What can be wrong with a place that results are to be written to.
WRITING = (
    errno.ENOSPC,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EDQUOT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENOENT,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command.

    Exits with 0, 1 (training failed), 2 (bad input), 130 (interrupted), 141 (nobody reads the output) or 143 (SIGTERM).
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parsed = parser().parse_args(given)
    errors = Console(stderr=True)
    warnings.showwarning = lambda message, *rest, **more: errors.print(
        f"Note: {message}", highlight=False, markup=False
    )
    command = "anchored " + shlex.join(given)
    if parsed.subcommand != "train" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if os.environ.get("RANK", "0") == "0":  # once
            print(
                f"Error: of several processes train is the only command; run {parsed.subcommand} alone.",
                file=sys.stderr,
            )
        raise SystemExit(2)
    try:
        COMMANDS[parsed.subcommand].run(parsed[parsed.subcommand], command)
        sys.stdout.flush()
    except InputError as error:
        _end(errors, f"Error: {error}", 2)
    except TrainingError as error:
        _end(errors, f"Stopped: {error}", 1)
    except Stopped as error:
        _end(errors, f"{error} The same command goes on from there.", 143)
    except KeyboardInterrupt:
        _end(errors, "Interrupted. The same command goes on from the last checkpoint.", 130)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _unread():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(141) from None
        if error.errno not in WRITING:
            raise
        _end(errors, f"Error: cannot write {error.filename or 'the output'}: {error.strerror}.", 2)


def _unread() -> bool:
    """Whether the output is a pipe whose reader, such as `head`, has had enough."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _end(console: Console, message: str, status: int) -> None:
    console.print(message, highlight=False, markup=False, soft_wrap=True)
    raise SystemExit(status)


def parser() -> ArgumentParser:
    """The parser of the whole command line."""
    top = ArgumentParser(prog="anchored", description="Train image classifiers on (reference, residual) tuples.")
    top.add_argument("--version", action=Version)
    commands = top.add_subcommands(required=True)
    for command in COMMANDS.values():
        added = command.parser()
        if isinstance(added, Parser):
            added.below(commands, command.NAME, command.HELP)
        else:
            commands.add_subcommand(command.NAME, added, help=command.HELP)
    return top
