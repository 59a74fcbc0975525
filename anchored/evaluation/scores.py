"""Evaluation: a Predict on a test set gives per-sample scores; metrics are computed from those alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchored.evaluation import metrics
from anchored.evaluation.cell_images import CellImages
from anchored.method.protocols import Predict
from anchored.system.devices import autocast
from anchored.system.errors import InputError
from anchored.system.files import write_atomic
from anchored.system.preprocess import Preprocess

Scores = dict[str, NDArray[Any]]
PART = 1024  # images of a cell that exist at once
TOP5_CLASSES = 10  # with fewer, five guesses are half of all classes


def score(
    predict: Predict,
    images: Tensor,
    labels: Tensor,
    index: Tensor,
    preprocess: Preprocess,
    *,
    device: torch.device,
    precision: str = "float32",
    batch_size: int | None = None,
) -> Scores:
    """Per-sample scores of `predict` on images (uint8 [N, H, W, 3]) with labels (int64 [N], -1 for anomalies).

    Columns: index (int64, position in the data set), label, prediction, confidence (float32, largest softmax),
    max_logit (float32), correct (bool), energy (float32, larger for anomalies), std (float32, class mean of the
    spread over references) and disagreement (float32, share of references with another arg-max), both NaN for one
    reference, nll and brier (float32, NaN for anomalies), and top5 (bool, the label is among the five largest
    logits) where there are 10 classes or more. Raises InputError for labels outside [-1, C) and logits that are
    not numbers.
    """
    columns: dict[str, list[Tensor]] = {
        name: []
        for name in ("prediction", "confidence", "max_logit", "energy", "std", "disagreement", "nll", "brier", "top5")
    }
    batch_size = batch_size or (64 if device.type == "cpu" else 256)  # activations that stay in the cache
    for part in torch.arange(len(images)).split(batch_size):
        x, y = preprocess(images[part].to(device)), labels[part].to(device)
        with autocast(device, precision):
            prediction = predict(x)
        logits = prediction.logits.double()
        _check(logits, y)
        probs = logits.softmax(1)
        confidence, best = probs.max(1)
        known = y >= 0
        target = torch.zeros_like(probs).scatter_(1, y.clamp(min=0)[:, None], 1.0)
        nll = -logits.log_softmax(1).gather(1, y.clamp(min=0)[:, None])[:, 0]
        brier = ((probs - target) ** 2).sum(1)
        unknown = torch.full_like(nll, torch.nan)
        std = unknown if prediction.std is None else prediction.std.double().mean(1)
        columns["prediction"].append(best)
        columns["confidence"].append(confidence)
        columns["max_logit"].append(logits.amax(1))
        columns["energy"].append(prediction.energy.double())
        columns["std"].append(std)
        columns["disagreement"].append(unknown if prediction.disagreement is None else prediction.disagreement)
        columns["nll"].append(nll.where(known, torch.nan))
        columns["brier"].append(brier.where(known, torch.nan))
        if logits.shape[1] >= TOP5_CLASSES:
            columns["top5"].append((logits.topk(5).indices == y[:, None]).any(1))
    scores: Scores = {"index": index.numpy(), "label": labels.cpu().numpy()}
    for name, parts in columns.items():
        if not parts:
            continue
        values = torch.cat(parts).cpu().numpy()
        scores[name] = values if values.dtype.kind in "ib" else values.astype(np.float32)
    # float32 can round a softmax of nearly one up to above it
    scores["confidence"] = scores["confidence"].clip(0, 1)
    scores["correct"] = scores["prediction"] == scores["label"]
    return scores


def _check(logits: Tensor, labels: Tensor) -> None:
    # A softmax of minus infinity is a probability of zero; only NaN and plus infinity have no meaning.
    odd = (logits.isnan() | logits.isposinf()).any(1)
    if odd.any():
        raise InputError(f"logits must be numbers; they are NaN or infinite for {int(odd.sum())} of {len(odd)} images.")
    if len(labels) and not -1 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise InputError(
            f"labels must lie in [0, {logits.shape[1]}), the classes of the model (or be -1: no known class); "
            f"got {int(labels.min())} to {int(labels.max())}."
        )


def evaluate(
    predicts: Mapping[str, Predict],
    images: CellImages,
    preprocess: Preprocess | Mapping[str, Preprocess],
    *,
    device: torch.device,
    tick: Callable[[int, str], None] = lambda amount, name: None,
) -> dict[str, Scores]:
    """The scores of several models on one cell, whose images are made once for all of them, part by part.

    preprocess: one for all models, or each model's own (of the same size). `tick(images, name)` hears of progress.
    Raises InputError, naming model and cell, where a model's logits are not numbers or a label is out of range.
    """
    found: dict[str, list[Scores]] = {name: [] for name in predicts}
    for positions, pixels in images.parts(PART):
        for name, predict in predicts.items():
            labels, index = images.labels[positions], images.index[positions]
            own = preprocess if isinstance(preprocess, Preprocess) else preprocess[name]
            try:
                found[name].append(score(predict, pixels, labels, index, own, device=device))
            except InputError as error:
                raise InputError(f"{name} on {images.cell.name}: {error}") from error
            tick(len(positions), name)
    return {
        name: {key: np.concatenate([part[key] for part in parts]) for key in parts[0]} for name, parts in found.items()
    }


def write_scores(path: Path, scores: Scores) -> None:
    """Write per-sample scores as parquet, atomically."""
    write_atomic(path, lambda temporary: pq.write_table(pa.table(scores), temporary, compression="zstd"))


def read_scores(path: Path) -> Scores:
    """Per-sample scores written by `write_scores`."""
    table = pq.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def known_metrics(scores: Scores, *, every: bool) -> Iterator[tuple[str, float]]:
    """(metric, value) of scores on images of known classes: accuracies in percent, calibration errors as fractions.

    every: also negative log-likelihood, Brier score, and top5 where the scores have it.
    """
    yield "top1", metrics.top1(scores["prediction"], scores["label"])
    yield "smooth_ece", metrics.smooth_ece(scores["confidence"], scores["correct"])
    yield "ece", metrics.ece(scores["confidence"], scores["correct"])
    if every:
        yield "nll", float(scores["nll"].mean(dtype=np.float64))
        yield "brier", float(scores["brier"].mean(dtype=np.float64))
        if "top5" in scores:
            yield "top5", 100.0 * float(scores["top5"].mean())


# What tells anomalies, larger for them: name -> (column, sign). The energy's metrics have no suffix.
ANOMALY_SCORES = {
    "": ("energy", 1.0),
    "_msp": ("confidence", -1.0),
    "_maxlogit": ("max_logit", -1.0),
    "_std": ("std", 1.0),
    "_disagreement": ("disagreement", 1.0),
}


def anomaly_metrics(clean: Scores, anomalies: Scores, *, every: bool = False) -> Iterator[tuple[str, float]]:
    """(metric, value) in percent of telling anomalies from clean test images: auroc and fpr95 by the energy.

    every: also aupr (anomalies are the positives), and all three by the maximum softmax probability (`auroc_msp`),
    the maximum logit (`_maxlogit`) and, over several references, their spread (`_std`) and `_disagreement`.
    """
    for suffix, (column, sign) in ANOMALY_SCORES.items():
        if suffix and (
            not every or any(column not in part or np.isnan(part[column]).any() for part in (clean, anomalies))
        ):
            continue
        known, odd = sign * clean[column], sign * anomalies[column]
        yield f"auroc{suffix}", metrics.auroc(known, odd)
        yield f"fpr95{suffix}", metrics.fpr95(known, odd)
        if every:
            yield f"aupr{suffix}", metrics.aupr(known, odd)
