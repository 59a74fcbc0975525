"""Example images kept beside the scores: a few of every cell, and some on which the methods disagree."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from anchored.evaluation.cell_images import CellImages
from anchored.evaluation.rows import Cell
from anchored.evaluation.scores import Scores, read_scores
from anchored.system.files import write_atomic

COUNT = 8  # images a cell
LARGEST_SIDE = 96  # pixels: larger examples are shrunk to this
SHOWN_SEVERITY = 3  # of the corruptions


@dataclass(frozen=True)
class Shown:
    """A cell whose images may be shown: how to have them, and the names of its labels."""

    cell: Cell
    make: Callable[[], CellImages]
    classes: Sequence[str]


def store(out: Path, cells: Sequence[Shown], runs: Sequence[str]) -> None:
    """Write OUT/thumbnails.npz and OUT/disagreements.npz from cells that have been scored for all `runs`.

    The first holds a strip of images a cell (corruptions at severity 3). The second holds, for the clean images and
    the shift on which the runs do worst, images that one run has right and another wrong, spread evenly over the set
    rather than chosen: NAME (uint8 [n, H, W, 3]), NAME.index (int64 [n]) and NAME.classes (the names of the labels).
    """
    severities = sorted({shown.cell.severity for shown in cells if shown.cell.severity is not None})
    severity = severities[len(severities) // 2] if severities else None
    if SHOWN_SEVERITY in severities:
        severity = SHOWN_SEVERITY
    strips = [shown for shown in cells if shown.cell.severity in (None, severity)]
    path = out / "thumbnails.npz"
    if not path.exists() or not {shown.cell.name for shown in strips} <= set(_array_names(path)):
        thumbnails = {}
        for shown in strips:
            images = shown.make()
            thumbnails[shown.cell.name] = shrunk(images.take(torch.arange(min(COUNT, len(images)))))
        _write(path, thumbnails)
    if len(runs) > 1:
        _write(out / "disagreements.npz", _disagreements(out, cells, runs))


def disputed(scores: Sequence[Scores], count: int = COUNT) -> NDArray[np.int64]:
    """At most `count` positions, evenly spread, of images that one of the models has right and another wrong.

    scores: of each model on the same images in the same order.
    """
    correct = np.stack([each["correct"] for each in scores])
    positions = np.flatnonzero(correct.any(0) & ~correct.all(0))
    if len(positions) <= count:
        return positions
    return positions[np.linspace(0, len(positions) - 1, count).round().astype(np.int64)]


def shrunk(images: Tensor) -> NDArray[np.uint8]:
    """Images uint8 [n, H, W, 3], shrunk to at most LARGEST_SIDE pixels."""
    array: NDArray[np.uint8] = images.numpy()
    if not len(array) or max(array.shape[1:3]) <= LARGEST_SIDE:
        return array
    scale = LARGEST_SIDE / max(array.shape[1:3])
    size = max(1, round(array.shape[2] * scale)), max(1, round(array.shape[1] * scale))
    return np.stack([np.asarray(Image.fromarray(one).resize(size, Image.Resampling.LANCZOS)) for one in array])


def _disagreements(out: Path, cells: Sequence[Shown], runs: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of disagreements.npz: of the clean images, and of the shift with the lowest mean accuracy."""

    def scores_of(shown: Shown) -> list[Scores]:
        return [read_scores(out / "runs" / run / "scores" / f"{shown.cell.name}.parquet") for run in runs]

    def mean_accuracy(shown: Shown) -> float:
        return float(np.mean([scores["correct"].mean() for scores in scores_of(shown)]))

    chosen = [shown for shown in cells if shown.cell.kind == "id"]
    shifts = [shown for shown in cells if shown.cell.kind == "shift"]
    if shifts:
        chosen.append(min(shifts, key=lambda shown: (mean_accuracy(shown), shown.cell.name)))
    found: dict[str, NDArray[Any]] = {}
    for shown in chosen:
        scores = scores_of(shown)
        if len({each["index"].tobytes() for each in scores}) != 1:
            continue
        rows = scores[0]["index"][disputed(scores)]
        images = shown.make()
        # Rows and not positions: an image that could not be read is in the cell and not in the scores.
        positions = torch.isin(images.index, torch.from_numpy(np.array(rows))).nonzero()[:, 0]
        if len(positions):
            name = shown.cell.name
            found[name] = shrunk(images.take(positions))
            found[f"{name}.index"] = images.index[positions].numpy()
            found[f"{name}.classes"] = np.array(list(shown.classes))
    return found


def _array_names(path: Path) -> list[str]:
    with np.load(path, allow_pickle=False) as archive:
        return list(archive.files)


def _write(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomic(path, lambda temporary: temporary.write_bytes(buffer.getvalue()))
