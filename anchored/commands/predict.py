"""Prediction of image files with a run, as a table or as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.table import Table

from anchored.data.folder import SUFFIXES
from anchored.runs.run import Run, load, opened
from anchored.system.errors import InputError
from anchored.system.progress import Work

PART = 256  # images that are decoded at once
NAME, HELP = "predict", "predict images with a run"


def parser() -> ArgumentParser:
    """Its flags."""
    p = ArgumentParser(description="Predict images with a run.")
    p.add_argument("run", help="folder of a run, or a Hub repository user/name")
    p.add_argument("images", nargs="+", help="image files, or folders of them")
    p.add_argument("--protocol", default="one_random", help="one_random, k_random or transduction")
    p.add_argument("--k", type=int, default=10, help="references of k_random")
    p.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    return p


def run(flags: Namespace, command: str) -> None:
    """Run `anchored predict`."""
    predict_files(Path(flags.run), flags.images, protocol=flags.protocol, k=flags.k, as_json=flags.json)


def predict_files(run: Path, paths: Sequence[str], *, protocol: str, k: int, as_json: bool) -> None:
    """Print class, confidence, spread over references, energy and anomaly flag of each image, on stdout.

    paths: image files, and folders for the image files in them. The table comes at the end, JSON lines as they are
    found. Raises InputError where the run cannot be read and, after predicting the others, for images that cannot.
    """
    loaded = load(run)
    files = list(_files(paths))
    unreadable: list[str] = []
    table = None
    with Work(len(files)) as work:
        for start in range(0, len(files), PART):
            part = files[start : start + PART]
            for result in _results(loaded, part, unreadable, protocol, k):
                if as_json:
                    print(json.dumps(result, ensure_ascii=False))
                    continue
                table = table or _table(loaded, result)
                table.add_row(*("-" if value is None else _word(value) for value in result.values()))
            work.advance(len(part), "predicting")
    if table is not None:
        Console().print(table)
    if unreadable:
        count = f"{len(unreadable):,} of {len(files):,} images cannot be read: " if len(files) > 1 else ""
        raise InputError(count + "; ".join(unreadable))


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if not Path(path).is_dir():
            yield path
            continue
        found = sorted(str(file) for file in Path(path).iterdir() if file.suffix.lower() in SUFFIXES)
        if not found:
            raise InputError(f"there are no images in the folder {path} ({', '.join(SUFFIXES)}).")
        yield from found


def _results(
    run: Run, files: Sequence[str], unreadable: list[str], protocol: str, k: int
) -> Iterator[dict[str, object]]:
    """What is said of each image that can be read; the reasons of the others go to `unreadable`."""
    pictures, kept = [], []
    for file in files:
        try:
            pictures.append(opened(file))
            kept.append(file)
        except InputError as error:
            unreadable.append(str(error))
    if not kept:
        return
    prediction = run.predict(pictures, protocol=protocol, k=k)
    confidence, best = prediction.probs.max(1)
    std = prediction.std.mean(1) if prediction.std is not None else None
    limit = run.anomaly
    for i, file in enumerate(kept):
        yield {
            "image": file,
            "class": run.classes[int(best[i])],
            "confidence": round(float(confidence[i]), 4),
            "std": None if std is None else round(float(std[i]), 5),
            "energy": round(float(prediction.energy[i]), 4),
            "anomaly": None if limit is None else bool(prediction.energy[i] > limit.energy),
        }


def _table(run: Run, result: dict[str, object]) -> Table:
    limit = run.anomaly
    flagged = f"anomaly: {limit}" if limit else "anomaly: this run has no threshold"
    table = Table(caption=f"std: spread over references (k_random). energy: larger for anomalies. {flagged}.")
    for column in result:
        table.add_column(column, overflow="fold")
    return table


def _word(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
