"""The paper's own numbers beside ours, and in which ways the setting differs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anchored.arms.recipes import RECIPES
from anchored.augment import parse
from anchored.evaluation.rows import Row
from anchored.report.summary import Summary

NUMBERS = Path(__file__).parent / "paper.csv"
IMAGENET = "imagenet1k"
# What the paper trained with: recipe, epochs of standard and of anchored training, images, rate of masked batches.
SETTINGS = {
    "resnet18": ("cifar_resnet18", 200, 200, 50_000, 0.25),
    "wrn40_2": ("cifar_wrn40_2", 200, 200, 50_000, 0.25),
    "swin_v2_t": ("imagenet_swin_v2_t", 300, 330, 1_281_167, 0.2),
    "swin_v2_s": ("imagenet_swin_v2_s", 300, 330, 1_281_167, 0.2),
    "swin_v2_b": ("imagenet_swin_v2_b", 300, 330, 1_281_167, 0.2),
    "vit_b_16": ("imagenet_vit_b_16", 300, 330, 1_281_167, 0.2),
}
TEST_SIZES = {"cifar10": 10_000, "cifar100": 10_000, IMAGENET: 50_000}
CORRUPTIONS = {"c": 19, "c-bar": 10}


@dataclass(frozen=True)
class Beside:
    """One number of ours and the paper's for the same model, method and benchmark."""

    arm: str
    benchmark: str
    ours: float
    paper: float
    table: str
    fraction: bool


def beside(summary: Summary, rows: Sequence[Row], classes: int) -> tuple[list[Beside], list[str]]:
    """Numbers that the paper has too, and warnings: in which ways the setting is not the paper's.

    classes: of the data, which tells ImageNet from others. Where data, model and method are the paper's its numbers
    are given, with a warning for each thing that differs (recipe, epochs, images, corruptions ...); where the paper
    has other models on this data, one warning says so; on data of no table there is nothing.
    """
    data = IMAGENET if classes == 1000 else summary.data.rpartition(":")[2]
    numbers = _numbers()
    known = sorted({model for there, model, *_ in numbers if there == data})
    if not known:
        return [], []
    found: list[Beside] = []
    warnings: list[str] = []
    for arm in summary.arms:
        own = [row for row in rows if summary.runs.get((arm, row.seed)) == row.run]
        model = own[0].model.removeprefix("torchvision:") if own else ""
        if model not in known or (own[0].model.startswith("torchvision:") != (data == IMAGENET)):
            who = own[0].model if own else "it"
            warnings.append(f"{arm}: the paper has no numbers for {who} on {data}, only for {', '.join(known)}")
            continue
        values: dict[tuple[str, str, str], list[float]] = {}
        for row in own:
            if row.corruption is None:
                key = row.benchmark, "" if row.severity is None else str(row.severity), row.metric
                values.setdefault(key, []).append(row.value)
        matched = [key for key in values if (data, model, own[0].method, *key) in numbers]
        for key in matched:
            value, table = numbers[data, model, own[0].method, *key]
            place = key[0] + (f" severity {key[1]}" if key[1] else "") + _kind(key[2])
            found.append(Beside(arm, place, float(np.mean(values[key])), value, table, "ece" in key[2]))
        if matched:
            warnings += [f"{arm}: {text}" for text in _differences(own, model, data, {key[0] for key in matched})]
    return found, list(dict.fromkeys(warnings))


def _kind(metric: str) -> str:
    kinds = {"smooth_ece_mean": "smooth ECE", "smooth_ece_std": "smooth ECE std", "auroc": "AUROC"}
    kind = kinds.get(metric.replace("auroc_mean", "auroc"), "")
    return f", {kind}" if kind else ""


def _differences(own: Sequence[Row], model: str, data: str, benchmarks: set[str]) -> list[str]:
    first = own[0]
    recipe, standard, anchored, images, alpha = SETTINGS[model]
    epochs = standard if first.method == "standard" else anchored
    found = []
    if not (first.method == "standard" and first.weights == "default"):  # torchvision's weights are the paper's
        if first.recipe != recipe:
            found.append(f"recipe {first.recipe}, the paper's is {recipe}")
        elif first.augmentation != (augmentation := str(parse(RECIPES[recipe]().policy))):
            found.append(f"augmentation {first.augmentation}, the paper's is {augmentation}")
        if first.epoch != epochs:
            found.append(f"{first.epoch} epochs, the paper's {epochs}")
        if first.train_size != images:
            found.append(f"{first.train_size:,} training images, the paper's {images:,}")
        if first.method == "masking" and first.alpha != alpha:
            found.append(f"alpha {first.alpha:g}, the paper's {alpha:g}")
        if first.label_noise:
            found.append(f"label noise {first.label_noise:g}, the paper's 0")
    if first.method != "standard" and first.protocol != "one_random":
        found.append(f"protocol {first.protocol}, the paper's one_random")
    clean = [row.n for row in own if row.benchmark == "clean"]
    if clean and min(clean) != TEST_SIZES[data]:
        found.append(f"{min(clean):,} clean test images, the paper's {TEST_SIZES[data]:,}")
    for benchmark in sorted(benchmarks & set(CORRUPTIONS)):
        cells = [row for row in own if row.benchmark == benchmark and row.corruption and row.metric == "top1"]
        names, n = {row.corruption for row in cells}, min((row.n for row in cells), default=TEST_SIZES[data])
        if len(names) != CORRUPTIONS[benchmark]:
            found.append(f"{len(names)} corruptions of {benchmark}, the paper's {CORRUPTIONS[benchmark]}")
        if n != TEST_SIZES[data]:
            found.append(f"{n:,} images a cell of {benchmark}, the paper's {TEST_SIZES[data]:,}")
        if not all((row.corruption_source or "").startswith("official, on disk") for row in cells):
            found.append(f"{benchmark} is generated here, the paper's are the published files")
    return found


def _numbers() -> dict[tuple[str, str, str, str, str, str], tuple[float, str]]:
    """(data, model, method, benchmark, severity, metric) -> (value, table)."""
    with open(NUMBERS, encoding="utf-8", newline="") as file:
        lines = csv.DictReader(line for line in file if not line.startswith("#"))
        return {
            (line["data"], line["model"], line["method"], line["benchmark"], line["severity"], line["metric"]): (
                float(line["value"]),
                line["table"],
            )
            for line in lines
        }
