"""Prediction of image files with a run, as a table or as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from anchored.runs import load


def predict_files(run: Path, paths: Sequence[str], *, protocol: str, k: int, as_json: bool) -> None:
    """Print class, confidence, spread over references, energy and anomaly flag of each image, on stdout.

    Raises InputError, before predicting, where the run or an image cannot be read.
    """
    loaded = load(run)
    prediction = loaded.predict(list(paths), protocol=protocol, k=k)
    confidence, best = prediction.probs.max(1)
    std = prediction.std.mean(1) if prediction.std is not None else None
    limit = loaded.anomaly
    results = [
        {
            "image": path,
            "class": loaded.classes[int(best[i])],
            "confidence": round(float(confidence[i]), 4),
            "std": None if std is None else round(float(std[i]), 5),
            "energy": round(float(prediction.energy[i]), 4),
            "anomaly": None if limit is None else bool(prediction.energy[i] > limit.energy),
        }
        for i, path in enumerate(paths)
    ]
    if as_json:
        for result in results:
            print(json.dumps(result, ensure_ascii=False))
        return
    flagged = f"anomaly: {limit}" if limit else "anomaly: this run has no threshold"
    table = Table(caption=f"std: spread over references (k_random). energy: larger for anomalies. {flagged}.")
    for column in results[0]:
        table.add_column(column, overflow="fold")
    for result in results:
        table.add_row(*("-" if value is None else _word(value) for value in result.values()))
    Console().print(table)


def _word(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
