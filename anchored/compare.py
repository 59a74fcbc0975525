"""The main job: train the same classifier three ways, evaluate all of them on the same images, report."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from anchored import cells, examples, runs
from anchored import data as sources
from anchored.cells import CellImages
from anchored.comparison import Comparison, without_effect
from anchored.data.base import Data, ImageSet
from anchored.devices import placed
from anchored.errors import InputError
from anchored.evaluate import anomaly_metrics, evaluate, known_metrics, read_scores, write_scores
from anchored.files import read_json, write_json
from anchored.models import create
from anchored.preprocess import Preprocess
from anchored.progress import Decoding, Work
from anchored.protocols import Predict
from anchored.report import print_table, summarise, verdict, write_report
from anchored.rows import Cell, Row, write_rows
from anchored.train import RunConfig, build, reference_set, train

TRAINING_COST = 3.0  # a training pass of an image costs about three forward passes


def compare(
    settings: Comparison,
    *,
    out: Path | None = None,
    device: torch.device,
    compile: bool = False,
    command: str = "",
    checkpoint_every: float = 300.0,
    strict: bool = False,
    memory_limit: int | None = None,
    console: Console | None = None,
) -> Path:
    """Train, evaluate and report; the folder with the results. The same call goes on where it was interrupted.

    out: the folder (default: runs/ and a name made of the settings). strict: an unreadable image is an error.
    memory_limit: bytes the images may take. Everything that can be wrong with the settings or the data is checked
    before the first step of training. Raises InputError.
    """
    console = console or Console()
    for note in without_effect(settings):
        warnings.warn(note, stacklevel=2)
    prepared = prepare(settings, strict=strict, memory_limit=memory_limit)
    settings = prepared.settings
    errors = Console(stderr=True)
    for note in prepared.notes:
        errors.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)
    configs = settings.run_configs()
    out = out or Path("runs") / f"compare-{prepared.data.name.replace(':', '-').replace('/', '_')}-{prepared.hash[:8]}"
    _claim(out, prepared, command)
    planned = plan(settings, prepared)
    images = sum(map(len, planned))
    training = len(prepared.data.train) * settings.recipe.epochs * TRAINING_COST

    with Work(len(configs) * (training + images), errors) as work:
        for config in configs:
            folder = out / "runs" / config.run
            if (folder / "run.json").exists():
                work.skip(training)
                continue
            epochs_before = _epochs_done(folder)
            work.skip(training * epochs_before / settings.recipe.epochs)
            net = train(
                config,
                prepared.data,
                prepared.preprocess,
                folder,
                device=device,
                validation=prepared.validation,
                compile=compile,
                checkpoint_every=checkpoint_every,
                tick=lambda amount, note: work.advance(TRAINING_COST * amount, note),
            )
            train_set = prepared.data.train
            runs.save(
                folder,
                config,
                net.to("cpu"),
                prepared.preprocess,
                prepared.data.classes,
                reference_set(config, train_set, prepared.preprocess),
                train_set,
                data=prepared.data.name,
                train_size=len(train_set),
                split=prepared.data.split,
            )
            (folder / "checkpoint.pt").unlink(missing_ok=True)
        _evaluate(settings, prepared, configs, planned, out, device, work)
    first_seed = [config.run for config in configs if config.seed == settings.seeds[0]]
    examples.store(out, [examples.Shown(c.cell, lambda c=c: c, prepared.data.classes) for c in planned], first_seed)  # type: ignore[misc]

    rows = list(_rows(settings, prepared, configs, planned, out))
    write_rows(out / "rows.jsonl", rows)
    write_report(out)
    summary = summarise(rows, out)
    print_table(summary, console)
    console.print()
    console.print(verdict(summary), highlight=False, markup=False, soft_wrap=True)
    console.print(f"Report: {out / 'report.html'}", highlight=False, markup=False, soft_wrap=True)
    return out


@dataclass(frozen=True)
class Prepared:
    """Data, preprocessing and what identifies the comparison; `settings` as the data leaves them."""

    settings: Comparison
    data: Data
    validation: ImageSet | None
    preprocess: Preprocess
    anomalies: tuple[tuple[str, ImageSet], ...]
    notes: tuple[str, ...]
    hash: str


def prepare(settings: Comparison, *, strict: bool = False, memory_limit: int | None = None) -> Prepared:
    """Load and check everything: data, model (built once on the way), anomaly sets, reference set sizes."""
    native = create(settings.model, 10, weights="none", image_size=settings.image_size, seed=0)
    how: dict[str, Any] = {"root": settings.root, "interpolation": native.interpolation, "crop": native.crop}
    how |= {"strict": strict, "memory_limit": memory_limit}
    with Decoding(f"reading {settings.data}") as progress:
        data = sources.load(settings.data, size=settings.image_size or native.image_size, progress=progress, **how)
    notes = list(data.notes)
    if settings.recipe.augmentation == "crop_flip" and not data.flip:
        settings = dataclasses.replace(settings, recipe=dataclasses.replace(settings.recipe, augmentation="crop"))
        notes.append(f"no flips: a mirrored image of {data.name} can be another class")
    validation = None
    train_set = data.train
    if settings.train_limit is not None and settings.train_limit < len(train_set):
        train_set = train_set.subset(sources.limit(train_set, settings.train_limit, seed=0))
    if settings.val_fraction:
        train_set, validation = sources.split(train_set, settings.val_fraction, seed=0)[:2]
    data = dataclasses.replace(data, train=train_set)
    if len(data.classes) < 2:
        raise InputError(f"a classifier needs at least 2 classes; {data.name} has {len(data.classes)}.")
    _check_sizes(settings, len(data.train))
    size = data.train.images.shape[1]
    mean, std = (native.mean, native.std)
    if mean is None or std is None:
        mean, std = sources.channel_statistics(data.train)
    preprocess = Preprocess(size, tuple(mean), tuple(std), native.interpolation, native.crop)
    # Builds (and, for anchored methods, anchors) the network once, so that a model that cannot be is refused now.
    notes += create(settings.model, len(data.classes), weights=settings.weights, image_size=size, seed=0).notes
    for config in {config.method: config for config in settings.run_configs() if config.anchored}.values():
        build(config, len(data.classes), size)
    anomalies = []
    for spec in settings.anomalies:
        with Decoding(f"reading {spec}") as progress:
            anomalies.append(sources.load_anomalies(spec, like=data, size=size, progress=progress, **how))
    return Prepared(settings, data, validation, preprocess, tuple(anomalies), tuple(notes), _hash(settings, data))


def _check_sizes(settings: Comparison, train_size: int) -> None:
    """Refuse counts of training images that are more than there are."""
    for name in ("references", "recalibrate_bn"):
        if (getattr(settings, name) or 0) > train_size:
            raise InputError(
                f"{name.replace('_', '-')} is at most the {train_size} training images; got {getattr(settings, name)}."
            )
    available = min(settings.references or train_size, runs.STORED_REFERENCES)
    if settings.protocol != "one_random" and settings.k > available:
        raise InputError(
            f"k = {settings.k} references are drawn without replacement from the reference set, of which a run keeps "
            f"{available}."
        )


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
                    train_size=len(prepared.data.train),
                    recipe=config.recipe.name,
                    augmentation=config.recipe.augmentation,
                    label_noise=0.0,
                    method=config.method,
                    masked_target=config.masked_target if config.method == "masking" else None,
                    alpha=config.alpha,
                    schedule=config.schedule,
                    masked_bn=config.masked_bn if config.method == "masking" else None,
                    recalibrate_bn=config.recalibrate_bn,
                    reference_source=config.reference_source if anchored else None,
                    references=(config.references or len(prepared.data.train)) if anchored else 0,
                    model=config.model,
                    weights="raw",
                    seed=config.seed,
                    epoch=config.recipe.epochs,
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


def _hash(settings: Comparison, data: Data) -> str:
    """What identifies a comparison: its settings and the images and labels themselves, wherever they lie."""
    digest = hashlib.blake2b(digest_size=16)
    values = dataclasses.asdict(settings)
    for name in ("data", "root"):
        values.pop(name)
    digest.update(json.dumps(values, sort_keys=True, default=str).encode())
    for part in (data.train, data.test):
        digest.update(part.images.contiguous().numpy().data)
        digest.update(part.labels.contiguous().numpy().data)
    return digest.hexdigest()


def _claim(out: Path, prepared: Prepared, command: str) -> None:
    """Make `out` the folder of this comparison, or check that it is."""
    path = out / "config.json"
    if path.exists():
        before = read_json(path)
        if before.get("config_hash") == prepared.hash:
            return
        now = json.loads(json.dumps(dataclasses.asdict(prepared.settings)))
        old = before.get("settings", {})
        changed = [f"{key}: {old.get(key)!r} there, {now[key]!r} here" for key in now if old.get(key) != now[key]]
        raise InputError(
            f"{out} holds another comparison ({'; '.join(changed) or 'the images differ'}). Use another --out."
        )
    if out.exists() and any(out.iterdir()):
        raise InputError(f"--out {out} is not empty and holds no comparison. Use an empty or a new folder.")
    data = prepared.data
    write_json(
        path,
        {
            "command": command,
            "config_hash": prepared.hash,
            "settings": dataclasses.asdict(prepared.settings),
            "data": {
                "name": data.name,
                "split": data.split,
                "notes": list(prepared.notes),
                "train_size": len(data.train),
                "validation_size": len(prepared.validation) if prepared.validation else 0,
                "test_size": len(data.test),
                "classes": list(data.classes),
            },
            "preprocess": str(prepared.preprocess),
            "threads": torch.get_num_threads(),
            "versions": runs.versions(),
        },
    )


def _epochs_done(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0
