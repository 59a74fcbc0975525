"""Example images on the page: strips of what the models saw, and images on which the arms disagree."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anchored.report.scores import run_folder
from anchored.report.summary import Summary
from anchored.system.errors import InputError

THUMBNAIL = 64  # pixels: larger examples are shrunk to this, so that a page stays small
BUDGET = 1_200_000  # bytes of pixels in all strips together: noise does not compress


@dataclass(frozen=True)
class Dispute:
    """One image on which the arms disagree: its picture, its class, and (arm, its answer, right or not)."""

    uri: str
    truth: str
    answers: tuple[tuple[str, str, bool], ...]


def thumbnails(out: Path) -> list[tuple[str, str, int]]:
    """Example images: cell, one strip of them as a data URI, how many. Of a corruption, its highest severity."""
    path = out / "thumbnails.npz"
    if not path.exists():
        return []
    strips = _arrays(path)
    worst: dict[str, str] = {}
    for name in strips:
        stem, _, severity = name.rpartition("-")
        stem, level = (stem, int(severity)) if stem and severity.isdigit() else (name, 0)
        if stem not in worst or level > int(worst[stem].rpartition("-")[2] or 0):
            worst[stem] = name
    order = sorted(worst.values(), key=lambda name: (name != "clean", name))
    order = [name for name in order if len(strips[name])]
    side = max((min(THUMBNAIL, max(strips[name].shape[1:3])) for name in order), default=1)
    count = max(2, min(8, BUDGET // (3 * side * side * max(1, len(order)))))
    return [(_cell_words(name), _strip(strips[name][:count]), len(strips[name][:count])) for name in order]


def _cell_words(name: str) -> str:
    """`c-gaussian_noise-5` as words."""
    stem, _, severity = name.rpartition("-")
    if not (stem and severity.isdigit()):
        return name
    benchmark, _, corruption = stem.rpartition("-")
    return f"{corruption.replace('_', ' ')}, severity {severity}" + (f" ({benchmark})" if benchmark else "")


def _strip(images: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
    """Images [n, H, W, 3] side by side as a PNG data URI, a pixel apart."""
    tiles = [Image.fromarray(image) for image in images]
    if max(images.shape[1:3]) > THUMBNAIL:
        scale = THUMBNAIL / max(images.shape[1:3])
        size = max(1, round(images.shape[2] * scale)), max(1, round(images.shape[1] * scale))
        tiles = [tile.resize(size, Image.Resampling.LANCZOS) for tile in tiles]
    width, height = tiles[0].size
    strip = Image.new("RGBA", ((width + 1) * len(tiles) - 1, height))
    for place, tile in enumerate(tiles):
        strip.paste(tile, (place * (width + 1), 0))
    buffer = io.BytesIO()
    strip.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def disputes(summary: Summary, out: Path, runs: Mapping[str, Path]) -> list[tuple[str, list[Dispute]]]:
    """Per cell, in words, the images of OUT/disagreements.npz with what each arm (its first seed) says of them.

    Raises InputError where the archive is damaged.
    """
    path = out / "disagreements.npz"
    if not path.exists():
        return []
    archive = _arrays(path)
    first = {arm: summary.seeds_of(arm)[0] for arm in summary.arms}
    found = []
    for name in sorted((key for key in archive if f"{key}.index" in archive), key=lambda key: (key != "clean", key)):
        classes = [str(each) for each in archive[f"{name}.classes"]]
        tables = {arm: _answers(run_folder(runs, summary.runs[arm, seed]), name) for arm, seed in first.items()}
        images = []
        for image, row in zip(archive[name], archive[f"{name}.index"].tolist(), strict=True):
            told = [(arm, *table[row]) for arm, table in tables.items() if table and row in table]
            if told:
                truth = classes[told[0][2]] if 0 <= told[0][2] < len(classes) else "?"
                answers = tuple(
                    (arm, f"{_name(classes, guess)} {confidence:.0%}", guess == label)
                    for arm, guess, label, confidence in told
                )
                images.append(Dispute(_strip(image[None]), truth, answers))
        if images:
            found.append((_cell_words(name), images))
    return found


def _answers(folder: Path, name: str) -> dict[int, tuple[int, int, float]] | None:
    """index -> (prediction, label, confidence) of a cell."""
    from pyarrow import parquet

    path = folder / "scores" / f"{name}.parquet"
    if not path.exists():
        return None
    table = parquet.read_table(path, columns=["index", "prediction", "label", "confidence"], use_threads=False)
    columns = (table.column(each).to_pylist() for each in ("prediction", "label", "confidence"))
    return dict(zip(table.column("index").to_pylist(), zip(*columns, strict=True), strict=True))


def _name(classes: list[str], number: int) -> str:
    return classes[number] if 0 <= number < len(classes) else str(number)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not an archive of uint8 images: {error}.") from error
