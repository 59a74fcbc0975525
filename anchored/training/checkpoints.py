"""Checkpoints of a run that is training: whole or absent, the last few and the best."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from anchored.system.errors import InputError
from anchored.system.files import write_atomic

State = dict[str, Any]


class Checkpoints:
    """The checkpoints in `folder`: the last `keep`, by step, and `best.pt`."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, state: State) -> None:
        """Write `state` (with its "step") and remove those before the last `keep`."""
        write_atomic(self._path(state["step"]), functools.partial(_write, state))
        for path in self._all()[: -self.keep]:
            path.unlink(missing_ok=True)

    def save_best(self, state: State) -> None:
        """Write `state` as the best one so far."""
        write_atomic(self.folder / "best.pt", functools.partial(_write, state))

    def best(self, device: torch.device) -> State:
        """The best state. Raises InputError where it cannot be read."""
        path = self.folder / "best.pt"
        try:
            return _read(path, device)
        except Exception as error:
            raise InputError(f"the checkpoint {path} cannot be read ({type(error).__name__}).") from error

    def newest(self, device: torch.device) -> tuple[State | None, tuple[str, ...]]:
        """(the newest state that can be read or None, what was wrong with the ones after it).

        Raises InputError where there are checkpoints and none can be read.
        """
        notes: list[str] = []
        paths = self._all()
        for path in reversed(paths):
            try:
                return _read(path, device), tuple(notes)
            except Exception as error:  # torch raises many types for a damaged file
                notes.append(f"the checkpoint {path} cannot be read ({type(error).__name__}); taking the one before")
        if paths:
            raise InputError(
                f"no checkpoint in {self.folder} can be read (newest: {paths[-1].name}). Delete them to train this "
                "run again."
            )
        return None, ()

    @property
    def last(self) -> Path | None:
        """The file of the newest one, if there is any."""
        paths = self._all()
        return paths[-1] if paths else None

    def clear(self) -> None:
        """Remove all of them: the run is finished."""
        for path in [*self._all(), self.folder / "best.pt"]:
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}.pt"

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.pt"))


def _write(state: State, path: Path) -> None:
    try:
        with open(path, "wb") as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as error:
        # Torch fails with an error of its own on its way out of what the system said, such as a full disk.
        said = error if isinstance(error, OSError) else error.__context__
        if isinstance(said, OSError):
            raise OSError(said.errno, said.strerror, str(path)) from error
        raise


def _read(path: Path, device: torch.device) -> State:
    state: State = torch.load(path, map_location=device, weights_only=True)
    return state
