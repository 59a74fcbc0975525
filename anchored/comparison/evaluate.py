"""`anchored evaluate`: any models on any benchmarks, through one Predict, to scores, rows and a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console

import anchored.data as sources
from anchored.comparison.evaluation_folder import UNREADABLE, add_notes, claim, scores_path
from anchored.data.checks import some
from anchored.data.class_maps import restricted
from anchored.evaluation import summaries
from anchored.evaluation import thumbnails as examples
from anchored.evaluation.arm_names import told_apart
from anchored.evaluation.benchmarks import Benchmark, clean_listing, find_benchmarks
from anchored.evaluation.cell_images import StreamedCell
from anchored.evaluation.evaluated_models import EvaluatedModel, load_models
from anchored.evaluation.own_data import check_part, own_data, own_data_note
from anchored.evaluation.planned_cells import PlannedCell, plan_cells
from anchored.evaluation.rows import Cell, Row, write_rows
from anchored.evaluation.run_folders import run_folders
from anchored.evaluation.scores import anomaly_metrics, evaluate, known_metrics, read_scores, write_scores
from anchored.evaluation.settings import EvaluationSettings
from anchored.report import present
from anchored.system.errors import InputError
from anchored.system.files import in_use
from anchored.system.progress import Work


def evaluate_models(
    settings: EvaluationSettings,
    *,
    out: Path,
    device: torch.device,
    command: str = "",
    console: Console | None = None,
) -> Path:
    """Evaluate and report; `out`, the folder of the results. The same call goes on where it was interrupted.

    Scores are kept per model and cell (OUT/runs/MODEL/scores/CELL.parquet), so that models and benchmarks can be
    added by later calls with the same `out`: the rows are those of the last call. Without `settings.data` the test
    images are those of the data that the runs were trained on. Raises InputError for anything that cannot be
    evaluated, before the first image.
    """
    console, errors = console or Console(), Console(stderr=True)
    notes: list[str] = []
    folders = run_folders(settings.models)
    own = settings.data is None
    if own:
        located = own_data(folders)
        settings = dataclasses.replace(settings, data=located.data, root=settings.root or located.root)
        _say([own_data_note(located, len(folders))], errors)
    assert settings.data is not None
    test = sources.listing(settings.data, part="test", root=settings.root)
    notes += check_part(folders, test, part=settings.part, own=own)
    clean = clean_listing(settings, test)
    models = told_apart(list(load_models(settings, folders, clean.classes, device)))
    _check_baseline(settings.baseline, models)
    notes += [note for model in models for note in model.notes]
    benchmarks = find_benchmarks(settings, clean, models, notes)
    groups = _groups(settings, benchmarks, models)
    _say(notes, errors)
    digest = claim(out, settings, benchmarks, models, command, notes)
    total = sum(cell.count * len(group) for group, cells in groups for cell in cells)
    with in_use(out), Work(total, errors) as work:
        for group, cells in groups:
            for cell in cells:
                _score_missing(cell, group, out, device, work, notes)
    add_notes(out, notes)
    first_group, cells = groups[0]
    shown = [examples.Shown(cell.cell, cell.make, cell.benchmark.scored.names) for cell in cells]
    examples.store(out, shown, [model.name for model in first_group])
    rows = list(_rows(clean.name, groups, out, digest))
    rows += summaries.rows(rows, settings.baseline)
    write_rows(out / "rows.jsonl", rows)
    present(rows, out, console)
    return out


def _say(notes: Sequence[str], console: Console) -> None:
    for note in dict.fromkeys(notes):
        console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)


def _check_baseline(baseline: str | None, models: Sequence[EvaluatedModel]) -> None:
    if baseline is not None and baseline not in summaries.baselines(model.name for model in models):
        raise InputError(
            f"--baseline is one of the models or alexnet (the published errors on ImageNet-C); got {baseline!r}. "
            f"Models: {', '.join(model.name for model in models)}."
        )


def _groups(
    settings: EvaluationSettings, benchmarks: Sequence[Benchmark], models: Sequence[EvaluatedModel]
) -> list[tuple[list[EvaluatedModel], list[PlannedCell]]]:
    """Models that see the same pixels, and their cells: images are made once for all of them."""
    groups: dict[tuple[int, str, float], list[EvaluatedModel]] = {}
    for model in models:
        preprocess = model.preprocess
        groups.setdefault((preprocess.size, preprocess.interpolation, preprocess.crop), []).append(model)
    return [(group, plan_cells(settings, benchmarks, *geometry)) for geometry, group in groups.items()]


def _score_missing(
    planned: PlannedCell,
    group: Sequence[EvaluatedModel],
    out: Path,
    device: torch.device,
    work: Work,
    notes: list[str],
) -> None:
    """Score the models that have no scores of this cell yet."""
    missing = [model for model in group if not scores_path(out, model.name, planned.cell).exists()]
    work.skip((len(group) - len(missing)) * planned.count)
    if not missing:
        return
    images = planned.make()
    outputs = planned.benchmark.scored.outputs
    scores = evaluate(
        {model.name: restricted(model.predict, outputs[model.name], len(model.classes)) for model in missing},
        images,
        {model.name: model.preprocess for model in missing},
        device=device,
        tick=lambda amount, name: work.advance(amount, f"evaluating {name} on {planned.cell.name}"),
    )
    for name, values in scores.items():
        write_scores(scores_path(out, name, planned.cell), values)
    if isinstance(images, StreamedCell) and images.left_out:
        listed = some([images.listing.called(row) for row in sorted(images.left_out)])
        notes.append(f"{planned.cell.name}: {UNREADABLE}: {len(images.left_out):,}: {listed}")


def _rows(
    data: str,
    groups: Sequence[tuple[Sequence[EvaluatedModel], Sequence[PlannedCell]]],
    out: Path,
    digest: str,
) -> Iterator[Row]:
    """Every number of the evaluation, from the per-sample scores."""
    for group, cells in groups:
        for model in group:
            clean = read_scores(scores_path(out, model.name, Cell("clean")))
            for planned in cells:
                scores = read_scores(scores_path(out, model.name, planned.cell))
                if planned.cell.kind == "anomaly":
                    values = anomaly_metrics(clean, scores, every=True)
                    n, n_other = len(clean["label"]), len(scores["label"])
                else:
                    values, n, n_other = known_metrics(scores, every=True), len(scores["label"]), 0
                for metric, value in values:
                    yield _row(model, planned, digest, data, metric, value, n, n_other)


def _row(
    model: EvaluatedModel,
    planned: PlannedCell,
    digest: str,
    data: str,
    metric: str,
    value: float,
    n: int,
    n_other: int,
) -> Row:
    return Row(
        run=model.name,
        config_hash=digest,
        data=data,
        about=model.about,
        benchmark=planned.cell.benchmark,
        corruption=planned.cell.corruption,
        severity=planned.cell.severity,
        corruption_source=planned.source,
        preprocess=str(model.preprocess),
        protocol=model.predict.protocol,
        k=model.predict.k,
        tempering=model.predict.tempering,
        metric=metric,
        value=value,
        n=n,
        n_other=n_other,
    )
