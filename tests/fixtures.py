"""Where real images and parity fixtures lie, for the tests that need them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def shared(variable: str, default: str) -> Path:
    """The folder named by an environment variable, else ../shared/..., or a skip that says why."""
    path = Path(os.environ.get(variable, ROOT.parent / "shared" / default))
    if not path.is_dir():
        pytest.skip(f"no folder {default} of real data: set {variable} to where it is")
    return path
