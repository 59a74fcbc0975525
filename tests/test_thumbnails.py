"""Example images kept beside the scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from anchored.data.base import ImageSet
from anchored.evaluation.cell_images import plain
from anchored.evaluation.rows import Cell
from anchored.evaluation.thumbnails import COUNT, LARGEST_SIDE, Shown, shrunk, store


def shown(name: str, value: int, side: int = 4, severity: int | None = None) -> Shown:
    """A cell of images of one grey."""
    images = ImageSet(torch.full((20, side, side, 3), value, dtype=torch.uint8), torch.arange(20) % 2)
    kind = "shift" if severity else "id" if name == "clean" else "anomaly"
    cell = Cell(name, "fog" if severity else None, severity, kind)
    return Shown(cell, lambda: plain(cell, images), ("a", "b"))


def stored(out: Path) -> dict[str, int]:
    """Cell -> the grey of its images."""
    with np.load(out / "thumbnails.npz") as archive:
        assert all(len(archive[name]) == COUNT for name in archive.files)
        return {name: int(archive[name][0, 0, 0, 0]) for name in archive.files}


def test_every_cell_of_a_later_call_has_its_images(tmp_path: Path) -> None:
    store(tmp_path, [shown("clean", 1), shown("svhn", 2)], ["model"])
    assert stored(tmp_path) == {"clean": 1, "svhn": 2}
    store(tmp_path, [shown("clean", 1), shown("textures", 3)], ["model"])
    assert stored(tmp_path) == {"clean": 1, "textures": 3}
    store(tmp_path, [shown("clean", 9)], ["model"])  # nothing new: what is there stays
    assert stored(tmp_path) == {"clean": 1, "textures": 3}


def test_corruptions_are_shown_at_severity_3_or_the_middle_one(tmp_path: Path) -> None:
    for severities, chosen in (((1, 3, 5), 3), ((1, 2), 2), ((5,), 5)):
        out = tmp_path / str(chosen)
        out.mkdir()
        store(out, [shown("c", severity, severity=severity) for severity in severities], ["model"])
        assert stored(out) == {f"c-fog-{chosen}": chosen}


def test_large_images_are_shrunk_in_proportion() -> None:
    images = torch.full((2, 2 * LARGEST_SIDE, LARGEST_SIDE, 3), 7, dtype=torch.uint8)
    assert shrunk(images).shape == (2, LARGEST_SIDE, LARGEST_SIDE // 2, 3) and (shrunk(images) == 7).all()
    small = images[:, :LARGEST_SIDE]
    assert np.array_equal(shrunk(small), small.numpy()) and len(shrunk(images[:0])) == 0
