"""The main job: train the arms of a comparison, evaluate all of them on the same images, report."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from anchored import runs
from anchored.arms.run_config import RunConfig
from anchored.comparison.folder import claim
from anchored.comparison.inputs import Prepared, prepare, say_notes
from anchored.comparison.settings import Comparison, without_effect
from anchored.comparison.train_run import cost, train_run
from anchored.evaluation import cell_images as cells
from anchored.evaluation import thumbnails
from anchored.evaluation.cell_images import CellImages
from anchored.evaluation.rows import Cell, Row, write_rows
from anchored.evaluation.scores import anomaly_metrics, evaluate, known_metrics, read_scores, write_scores
from anchored.method.protocols import Predict
from anchored.report.present import present
from anchored.runs.columns import run_columns
from anchored.system.devices import placed
from anchored.system.files import in_use, read_json, write_json
from anchored.system.progress import Work

RUN_FILES = ("model.safetensors", "references.safetensors", "metrics.jsonl", "log.jsonl")


def compare(
    settings: Comparison,
    *,
    out: Path | None = None,
    device: torch.device,
    command: str = "",
    flags: str = "",
    strict: bool = False,
    memory_limit: int | None = None,
    console: Console | None = None,
    **how: Any,
) -> Path:
    """Train, evaluate and report; the folder with the results. The same call goes on where it was interrupted.

    Another call with the same `out` and more arms, seeds or benchmarks trains and evaluates what is missing. out: the
    folder (default: runs/ and a name made of the settings). strict: an unreadable image is an error. memory_limit:
    bytes the images may take. command, flags (YAML): for the record. how: compile, checkpoint_every, keep, workers,
    recorders, as in `train_run`. Everything that can be wrong with the settings or the data is checked before the first
    step of training. Raises InputError.
    """
    console = console or Console()
    for note in without_effect(settings):
        warnings.warn(note, stacklevel=2)
    prepared = prepare(settings, strict=strict, memory_limit=memory_limit)
    say_notes(prepared)
    settings = prepared.settings
    configs = settings.run_configs()
    out = out or prepared.folder("compare")
    claim(out, prepared, command, flags)
    planned = plan(settings, prepared)
    passes = sum(cost(config, prepared.inputs[config.arm_name]) for config in configs)
    with in_use(out), Work(passes + len(configs) * sum(map(len, planned)), Console(stderr=True)) as work:
        twins = _twins(settings)
        for config in configs:
            folder = out / "runs" / config.run
            if config.arm_name in twins and not (folder / "run.json").exists():
                _copy_run(out / "runs" / f"{twins[config.arm_name]}-seed{config.seed}", folder, config)
            train_run(config, prepared.inputs[config.arm_name], folder, work, device=device, **how)
        _evaluate(prepared, configs, planned, out, device, work)
    first_seed = [config.run for config in configs if config.seed == settings.seeds[0]]
    classes = prepared.first.data.classes
    thumbnails.store(out, [thumbnails.Shown(c.cell, lambda c=c: c, classes) for c in planned], first_seed)  # type: ignore[misc]

    rows = list(_rows(prepared, configs, planned, out))
    write_rows(out / "rows.jsonl", rows)
    present(rows, out, console)
    return out


def plan(settings: Comparison, prepared: Prepared) -> list[CellImages]:
    """The cells of the evaluation.

    Without a limit the clean test set and the anomalies are taken whole, and 1,000 test images a corrupted cell.
    """
    test = prepared.first.data.test
    return [
        cells.plain(Cell("clean"), test, settings.limit),
        *cells.suites(settings.on, settings.severities, test, settings.limit),
        *(cells.plain(Cell(name, kind="anomaly"), images, settings.limit) for name, images in prepared.anomalies),
    ]


def _twins(settings: Comparison) -> dict[str, str]:
    """Arms that are trained as an earlier one is, and differ from it only in how they predict."""
    found: dict[str, str] = {}
    for number, arm in enumerate(settings.arms):
        for other in settings.arms[:number]:
            if settings.by_method is None and arm.training() == other.training():
                found.setdefault(arm.name, found.get(other.name, other.name))
    return found


def _copy_run(source: Path, folder: Path, config: RunConfig) -> None:
    """Make the run in `folder` of one that was trained the same way under another name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in RUN_FILES:
        if (source / name).exists():
            (folder / name).unlink(missing_ok=True)
            try:
                os.link(source / name, folder / name)
            except OSError:  # a file system without links
                shutil.copyfile(source / name, folder / name)
    info = read_json(source / "run.json")
    info["config"] = {**info["config"], "arm": config.arm}
    write_json(folder / "run.json", {**info, "trained_as": source.name})


def _evaluate(
    prepared: Prepared, configs: list[RunConfig], planned: list[CellImages], out: Path, device: torch.device, work: Work
) -> None:
    """Score every run on every cell that has no scores of it yet."""
    loaded: dict[str, Predict] = {}
    by_run = {config.run: config for config in configs}
    for images in planned:
        cell = images.cell
        missing = [run for run in by_run if not _scores_path(out, run, cell).exists()]
        work.skip((len(configs) - len(missing)) * len(images))
        for name in missing:
            if name not in loaded:
                prediction = prepared.settings.arm(by_run[name].arm_name).prediction
                run = runs.load(out / "runs" / name)
                placed(run.net, device)
                loaded[name] = run.predictor(prediction.protocol, k=prediction.k)
        scores = evaluate(
            {name: loaded[name] for name in missing},
            images,
            {name: prepared.inputs[by_run[name].arm_name].preprocess for name in missing},
            device=device,
            tick=lambda amount, name, cell=cell: work.advance(amount, f"evaluating {name} on {cell.name}"),  # type: ignore[misc]
        )
        for name, values in scores.items():
            write_scores(_scores_path(out, name, cell), values)


def _scores_path(out: Path, run: str, cell: Cell) -> Path:
    return out / "runs" / run / "scores" / f"{cell.name}.parquet"


def _rows(prepared: Prepared, configs: list[RunConfig], planned: list[CellImages], out: Path) -> Iterator[Row]:
    """Every number of the comparison, from the per-sample scores."""
    for config in configs:
        info = json.loads((out / "runs" / config.run / "run.json").read_text())
        about = run_columns(config, info)
        inputs, prediction = prepared.inputs[config.arm_name], prepared.settings.arm(config.arm_name).prediction
        protocol = prediction.protocol if config.anchored else "direct"
        clean = read_scores(_scores_path(out, config.run, Cell("clean")))
        for images in planned:
            cell = images.cell
            scores = read_scores(_scores_path(out, config.run, cell))
            if cell.kind == "anomaly":
                values, n, n_other = list(anomaly_metrics(clean, scores)), len(clean["label"]), len(scores["label"])
            else:
                values, n, n_other = list(known_metrics(scores, every=cell.kind == "id")), len(scores["label"]), 0
            for metric, value in values:
                yield Row(
                    run=config.run,
                    config_hash=prepared.hash,
                    data=inputs.data.name,
                    about=about,
                    benchmark=cell.benchmark,
                    corruption=cell.corruption,
                    severity=cell.severity,
                    corruption_source=images.source,
                    preprocess=str(inputs.preprocess),
                    protocol=protocol,
                    k=prediction.k if protocol == "k_random" else 1,
                    tempering=None,
                    metric=metric,
                    value=value,
                    n=n,
                    n_other=n_other,
                )
