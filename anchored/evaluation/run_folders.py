"""Which of the models under evaluation are runs, and the folders they lie in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from anchored import runs
from anchored.models.ours import OURS
from anchored.runs import hub
from anchored.system.errors import InputError

FOLD = "fold:"


def is_run(spec: str) -> bool:
    """Whether a model is named by its folder, as trained here, rather than by a library's or a module's name."""
    if spec.startswith(FOLD) or Path(spec).is_dir():
        return True
    return spec not in OURS and not re.match(r"[\w.]+:", spec)


def run_folders(specs: Sequence[str]) -> dict[str, Path]:
    """The folder of every run among `specs`: RUN, fold:RUN, or the name (user/name) of one on the Hub, fetched.

    Raises InputError for what is no run and no model.
    """
    return {spec: _run_folder(spec) for spec in specs if is_run(spec)}


def _run_folder(spec: str) -> Path:
    name = spec.removeprefix(FOLD)
    folder = Path(name)
    if not folder.exists() and hub.REPOSITORY.fullmatch(name):
        return hub.fetch(name)
    if not folder.is_dir():
        raise InputError(
            f"{spec} is no folder of a run and no model: {', '.join(OURS)}, timm:NAME, torchvision:NAME or "
            "package.module:callable."
        )
    if not (folder / "run.json").is_file():
        runs.load(folder)  # raises, saying what is there instead
    return folder
