"""A synthetic comparison folder with effects of known size, and a test that it is what it says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from anchored.evaluation import metrics
from anchored.evaluation.rows import Cell, Row, read_rows, write_rows
from anchored.system.files import write_json, write_text

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Effect:
    """How one arm behaves: accuracies in percent, over-confidence and anomaly separation in their units."""

    clean: float = 90.0
    shifted: float = 50.0
    overconfidence: float = 0.1
    separation: float = 1.0


HELP = {
    "standard": Effect(90.0, 45.0, 0.15, 0.8),
    "vanilla": Effect(90.0, 46.0, 0.14, 0.9),
    "masking-uniform": Effect(87.0, 50.0, 0.04, 1.5),
    "masking-label": Effect(89.5, 53.0, 0.10, 1.2),
}


# What arms share, by the names that their fields have.
SHARED: dict[str, Any] = {
    "recipe": "cifar", "alpha": 0.25, "augmentation": "geometric", "lr": 0.1, "masked_target": "uniform",
    "recalibrate_bn": 0, "protocol": "one_random", "k": 10,
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What the folder holds."""

    effects: Mapping[str, Effect] = field(default_factory=lambda: dict(HELP))
    seeds: tuple[int, ...] = (0,)
    corruptions: tuple[str, ...] = ("gaussian_noise", "fog", "pixelate")
    severities: tuple[int, ...] = (1, 3, 5)
    shift: str = "c"
    anomalies: tuple[str, ...] = ("photos",)
    n: int = 600
    n_other: int = 200
    model: str = "resnet9"
    data: str = "digits"
    seed_noise: float = 0.3
    scores: bool = True
    thumbnails: bool = True
    curves: bool = True
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> settings, for config.json and rows
    baseline: str | None = None
    pairs: tuple[str, ...] = ()
    budgets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> what run.json says of it
    command: str = ""


def build(out: Path, plan: Plan) -> Path:
    """Write the folder and return it."""
    rows: list[Row] = []
    for arm, effect in plan.effects.items():
        for seed in plan.seeds:
            run = f"{arm}-seed{seed}"
            tables: dict[str, Arrays] = {}
            for cell in cells(plan):
                tables[cell.name] = table = scores(plan, cell, arm, effect, seed)
                rows += measured(plan, cell, arm, seed, run, table, tables["clean"])
                if plan.scores:
                    path = out / "runs" / run / "scores" / f"{cell.name}.parquet"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    parquet.write_table(pa.table(table), path)
            if arm in plan.budgets:
                write_json(out / "runs" / run / "run.json", dict(plan.budgets[arm]))
            if plan.curves:
                lines = [json.dumps(record(arm, seed, epoch)) for epoch in range(1, 9)]
                write_text(out / "runs" / run / "metrics.jsonl", "\n".join(lines) + "\n")
    write_rows(out / "rows.jsonl", rows)
    write_json(out / "config.json", config(plan))
    if plan.thumbnails:
        rng = np.random.default_rng(0)
        images = {cell.name: rng.integers(0, 255, (8, 32, 32, 3), dtype=np.uint8) for cell in cells(plan)}
        np.savez(out / "thumbnails.npz", **images)
    return out


def cells(plan: Plan) -> Iterable[Cell]:
    yield Cell("clean")
    for corruption in plan.corruptions:
        for severity in plan.severities:
            yield Cell(plan.shift, corruption, severity, "shift")
    for anomaly in plan.anomalies:
        yield Cell(anomaly, kind="anomaly")


def scores(plan: Plan, cell: Cell, arm: str, effect: Effect, seed: int) -> Arrays:
    """Scores of one run on one cell: images differ in difficulty, the same for every run."""
    place = sum(map(ord, cell.name))
    rng = np.random.default_rng([place, seed, sum(map(ord, arm))])
    n = plan.n_other if cell.kind == "anomaly" else plan.n
    if cell.kind == "anomaly":
        energy = rng.normal(-4.0 + effect.separation, 1.0, n)
        correct = np.zeros(n, dtype=bool)
        chance = np.full(n, 0.5)
    else:
        wanted = effect.clean
        if cell.severity is not None:
            slope = (cell.severity - np.mean(plan.severities)) * 6.0
            wanted = effect.shifted - slope + 3.0 * plan.corruptions.index(str(cell.corruption))
        # Seeds move all arms alike and, half as much, each by itself.
        wanted += plan.seed_noise * float(np.random.default_rng([seed, 7]).normal())
        wanted += plan.seed_noise / 2 * float(np.random.default_rng([seed, sum(map(ord, arm))]).normal())
        difficulty = np.random.default_rng(1).random(n) + 0.15 * rng.random(n)
        correct = np.zeros(n, dtype=bool)
        correct[np.argsort(difficulty)[: round(n * wanted / 100)]] = True
        chance = np.full(n, wanted / 100)
        energy = rng.normal(-4.0, 1.0, n)
    confidence = np.clip(chance + effect.overconfidence + rng.normal(0, 0.08, n), 0.1, 1.0)
    label = np.full(n, -1) if cell.kind == "anomaly" else np.arange(n) % 10
    return {
        "index": np.arange(n, dtype=np.int64),
        "label": label.astype(np.int64),
        "prediction": np.where(correct, label, (label + 1) % 10).astype(np.int64),
        "confidence": confidence.astype(np.float32),
        "correct": correct,
        "energy": energy.astype(np.float32),
        "std": np.zeros(n, dtype=np.float32),
    }


def measured(plan: Plan, cell: Cell, arm: str, seed: int, run: str, table: Arrays, clean: Arrays) -> list[Row]:
    """The rows an evaluator writes for the cell."""
    if cell.kind == "anomaly":
        found = {
            "auroc": metrics.auroc(clean["energy"], table["energy"]),
            "fpr95": metrics.fpr95(clean["energy"], table["energy"]),
        }
    else:
        found = {
            "top1": 100.0 * table["correct"].mean(),
            "smooth_ece": metrics.smooth_ece(table["confidence"], table["correct"]),
            "ece": metrics.ece(table["confidence"], table["correct"]),
        }
    return [row(plan, cell, arm, seed, run, name, float(value)) for name, value in found.items()]


def row(plan: Plan, cell: Cell, arm: str, seed: int, run: str, metric: str, value: float) -> Row:
    method, _, target = arm.partition("-")
    said: dict[str, Any] = {}
    if arm in plan.arms:
        said = {"arm": arm, **plan.arms[arm]}
        method, target = said.pop("method"), said.pop("masked_target", None)
    return Row.of(**{**dict(
        run=run, config_hash="abc123", data=plan.data, train_size=1000, recipe="cifar", augmentation="geometric",
        label_noise=0.0, method=method, masked_target=target or None, alpha=0.25 if target else 0.0,
        schedule="bernoulli", masked_bn="update" if target else None, recalibrate_bn=0,
        reference_source=None if method == "standard" else "set", references=0 if method == "standard" else 50,
        model=plan.model, weights="raw", seed=seed, epoch=8, benchmark=cell.benchmark, corruption=cell.corruption,
        severity=cell.severity, corruption_source="generated" if cell.corruption else None, preprocess="32",
        protocol="direct" if method == "standard" else "one_random", k=1, tempering=None, metric=metric,
        value=value, n=plan.n, n_other=plan.n_other if cell.kind == "anomaly" else 0,
    ), **said})  # fmt: skip


def record(arm: str, seed: int, epoch: int) -> dict[str, float | None]:
    """One line of a training log."""
    loss = 2.0 / epoch + 0.02 * seed + 0.03 * len(arm)
    return {
        "epoch": epoch,
        "step": 10 * epoch,
        "loss": loss,
        "loss_masked": loss + 0.4 if arm.startswith("masking") else None,
        "train_accuracy": 100.0 - 40.0 / epoch - 0.2 * len(arm),
        "lr": 0.1 / epoch,
        "images_per_second": 1000.0,
    }


def config(plan: Plan) -> dict[str, Any]:
    arms = {name: {"hash": name, "settings": {**SHARED, **fields}} for name, fields in plan.arms.items()}
    more: dict[str, Any] = {} if plan.baseline is None else {"baseline": plan.baseline}
    if arms:
        shared = {key: value for key, value in SHARED.items() if key not in ("recipe", "alpha", "augmentation", "lr")}
        recipe = {"name": "cifar", "alpha": 0.25, "augmentation": "geometric", "lr": 0.1}
        more |= {
            "arms": arms,
            "report_pairs": list(plan.pairs),
            "settings": {
                "data": plan.data,
                "recipe": recipe,
                "on": ["clean", "c"],
                "severities": [1, 2, 3, 4, 5],
                "anomalies": list(plan.anomalies),
                "arms": arms,
                **shared,
            },
        }
    return {
        **more,
        "command": plan.command or f"anchored compare --data {plan.data} --model {plan.model}",
        "versions": {"anchored": "0.1.0", "torch": "2.8.0", "python": "3.11"},
        "data": {
            "name": plan.data, "split": "as given", "notes": ["2 files skipped"], "train_size": 1000,
            "test_size": plan.n, "classes": [str(digit) for digit in range(10)],
        },
        "config_hash": "abc123",
        "model": plan.model,
        "epochs": 8,
        "recipe": {"lr": 0.1, "batch_size": 128},
    }  # fmt: skip


def test_the_synthetic_folder_has_the_effects_it_claims(tmp_path: Path) -> None:
    rows = read_rows(build(tmp_path, Plan(seed_noise=0.0)) / "rows.jsonl")
    for arm, effect in HELP.items():
        mine = [row for row in rows if row.arm == arm and row.metric == "top1"]
        shifted = [row.value for row in mine if row.benchmark == "c"]
        assert abs(next(row.value for row in mine if row.benchmark == "clean") - effect.clean) < 0.2
        assert len(shifted) == 9
        assert abs(np.mean(shifted) - effect.shifted - 3.0) < 0.2  # the three corruptions add 0, 3 and 6 points
