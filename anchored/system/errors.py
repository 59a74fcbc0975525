"""The one error that means "the input was wrong", so that a command can end cleanly on it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input from the user: the message states the rule, the value and the choices.

    The command line prints it on stderr without a traceback and exits with status 2; a library
    caller catches it as a ValueError.
    """


def unknown(what: str, value: object, choices: Iterable[str]) -> InputError:
    """An InputError for a name that is not among `choices`, with the nearest one suggested."""
    names = list(choices)
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {what} {value!r}.{hint} Choices: {', '.join(names)}.")


class TrainingError(RuntimeError):
    """Training cannot go on (a loss that is not finite, a full disk): the message says where it stopped."""


class Stopped(RuntimeError):
    """The run was asked to end (SIGTERM) and has saved where it is: the same command goes on from there."""
