"""The main job: train the same classifier three ways, evaluate all of them on the same images, report."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

from anchored import runs
from anchored.arms.run_config import RunConfig
from anchored.comparison.inputs import Prepared, claim, prepare, say_notes
from anchored.comparison.settings import Comparison, without_effect
from anchored.comparison.train_run import cost, train_run
from anchored.evaluation import cell_images as cells
from anchored.evaluation import thumbnails as examples
from anchored.evaluation.cell_images import CellImages
from anchored.evaluation.rows import Cell, Row, write_rows
from anchored.evaluation.scores import anomaly_metrics, evaluate, known_metrics, read_scores, write_scores
from anchored.method.protocols import Predict
from anchored.report import present
from anchored.runs.columns import run_columns
from anchored.system.devices import placed
from anchored.system.files import in_use, read_json
from anchored.system.progress import Work


def compare(
    settings: Comparison,
    *,
    out: Path | None = None,
    device: torch.device,
    compile: bool = False,
    command: str = "",
    flags: str = "",
    checkpoint_every: float = 300.0,
    keep: int = 2,
    workers: int = 2,
    recorders: tuple[str, ...] = (),
    strict: bool = False,
    memory_limit: int | None = None,
    console: Console | None = None,
) -> Path:
    """Train, evaluate and report; the folder with the results. The same call goes on where it was interrupted.

    out: the folder (default: runs/ and a name made of the settings). strict: an unreadable image is an error.
    recorders: of `anchored.training.recorders`. memory_limit: bytes the images may take. command, flags (YAML): for
    the record.
    Everything that can be wrong with the settings or the data is checked before the first step of training. Raises
    InputError.
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
    images = sum(map(len, planned))
    with in_use(out), Work(len(configs) * (cost(prepared) + images), Console(stderr=True)) as work:
        for config in configs:
            train_run(
                config,
                prepared,
                out / "runs" / config.run,
                work,
                device=device,
                compile=compile,
                checkpoint_every=checkpoint_every,
                keep=keep,
                workers=workers,
                recorders=recorders,
            )
        _evaluate(settings, prepared, configs, planned, out, device, work)
    first_seed = [config.run for config in configs if config.seed == settings.seeds[0]]
    examples.store(out, [examples.Shown(c.cell, lambda c=c: c, prepared.data.classes) for c in planned], first_seed)  # type: ignore[misc]

    rows = list(_rows(settings, prepared, configs, planned, out))
    write_rows(out / "rows.jsonl", rows)
    present(rows, out, console)
    return out


def plan(settings: Comparison, prepared: Prepared) -> list[CellImages]:
    """The cells of the evaluation.

    Without a limit the clean test set and the anomalies are taken whole, and 1,000 test images a corrupted cell.
    """
    test = prepared.data.test
    return [
        cells.plain(Cell("clean"), test, settings.limit),
        *cells.suites(settings.on, settings.severities, test, settings.limit),
        *(cells.plain(Cell(name, kind="anomaly"), images, settings.limit) for name, images in prepared.anomalies),
    ]


def _evaluate(
    settings: Comparison,
    prepared: Prepared,
    configs: list[RunConfig],
    planned: list[CellImages],
    out: Path,
    device: torch.device,
    work: Work,
) -> None:
    """Score every run on every cell that has no scores yet."""
    loaded: dict[str, Predict] = {}
    for images in planned:
        cell = images.cell
        missing = [config.run for config in configs if not _scores_path(out, config.run, cell).exists()]
        work.skip((len(configs) - len(missing)) * len(images))
        for name in missing:
            if name not in loaded:
                run = runs.load(out / "runs" / name)
                placed(run.net, device)
                loaded[name] = run.predictor(settings.protocol, k=settings.k)
        scores = evaluate(
            {name: loaded[name] for name in missing},
            images,
            prepared.preprocess,
            device=device,
            tick=lambda amount, name, cell=cell: work.advance(amount, f"evaluating {name} on {cell.name}"),  # type: ignore[misc]
        )
        for name, values in scores.items():
            write_scores(_scores_path(out, name, cell), values)


def _scores_path(out: Path, run: str, cell: Cell) -> Path:
    return out / "runs" / run / "scores" / f"{cell.name}.parquet"


def _rows(
    settings: Comparison, prepared: Prepared, configs: list[RunConfig], planned: list[CellImages], out: Path
) -> Iterator[Row]:
    """Every number of the comparison, from the per-sample scores."""
    for config in configs:
        anchored = config.anchored
        about = run_columns(config, read_json(out / "runs" / config.run / "run.json"))
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
                    data=prepared.data.name,
                    about=about,
                    benchmark=cell.benchmark,
                    corruption=cell.corruption,
                    severity=cell.severity,
                    corruption_source=images.source,
                    preprocess=str(prepared.preprocess),
                    protocol=settings.protocol if anchored else "direct",
                    k=settings.k if anchored and settings.protocol == "k_random" else 1,
                    tempering=None,
                    metric=metric,
                    value=value,
                    n=n,
                    n_other=n_other,
                )
