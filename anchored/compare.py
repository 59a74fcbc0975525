"""The main job: train the same classifier three ways, evaluate all of them on the same images, report."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from anchored import corruptions, runs
from anchored import data as sources
from anchored.data.base import Data, ImageSet
from anchored.errors import InputError, unknown
from anchored.evaluate import anomaly_metrics, known_metrics, read_scores, score, write_scores
from anchored.files import read_json, write_atomic, write_json
from anchored.models import create
from anchored.preprocess import Preprocess
from anchored.progress import Work
from anchored.recipes import Recipe
from anchored.report import print_table, summarise, verdict, write_report
from anchored.rows import Cell, Row, write_rows
from anchored.train import METHODS, RunConfig, build, placed, reference_set, train

CORRUPTION_SEED = 0  # the test sets are the same for every run, whatever its seed
CORRUPTED_LIMIT = 1000  # test images a corrupted cell, unless --limit says otherwise
TRAINING_COST = 3.0  # a training pass of an image costs about three forward passes


@dataclass(frozen=True)
class Comparison:
    """The settings of one comparison, as resolved; see `anchored compare --help` for their meaning."""

    data: str
    model: str
    recipe: Recipe
    root: str | None = None
    image_size: int | None = None
    weights: str = "none"
    methods: tuple[str, ...] = METHODS
    masked_target: tuple[str, ...] = ("uniform",)
    schedule: str = "bernoulli"
    masked_bn: str = "skip"
    recalibrate_bn: int = 0
    reference_source: str = "set"
    references: int | None = None
    seeds: tuple[int, ...] = (0,)
    val_fraction: float = 0.0
    train_limit: int | None = None
    on: tuple[str, ...] = ("clean", "c")
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    anomalies: tuple[str, ...] = ("photos",)
    limit: int | None = None
    protocol: str = "one_random"
    k: int = 10
    precision: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in ("methods", "masked_target", "seeds", "severities"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise InputError(f"{name.replace('_', '-')} takes one or more different values; got {list(values)}.")
        for method in self.methods:
            if method not in METHODS:
                raise unknown("method", method, METHODS)
        for severity in self.severities:
            if severity not in range(1, 6):
                raise InputError(f"severities are 1 to 5; got {severity}.")
        if not 0 <= self.val_fraction < 1:
            raise InputError(
                f"val-fraction is the part of the training data held out, in [0, 1); got {self.val_fraction}."
            )
        for name in ("limit", "train_limit", "references", "k", "image_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name.replace('_', '-')} is at least 1; got {value}.")
        for benchmark in self.on:
            if benchmark != "clean":
                corruptions.suite(benchmark, table="cifar")

    def run_configs(self) -> list[RunConfig]:
        """Every run of the comparison, seed by seed."""
        variants = [
            (method, target)
            for method in self.methods
            for target in (self.masked_target if method == "masking" else self.masked_target[:1])
        ]
        return [
            RunConfig(
                method=method,
                model=self.model,
                recipe=self.recipe,
                seed=seed,
                weights=self.weights,
                masked_target=target,
                schedule=self.schedule,
                masked_bn=self.masked_bn,
                recalibrate_bn=self.recalibrate_bn,
                reference_source=self.reference_source,
                references=self.references,
                precision=self.precision,
            )
            for seed in self.seeds
            for method, target in variants
        ]


def compare(
    settings: Comparison,
    *,
    out: Path | None = None,
    device: torch.device,
    compile: bool = False,
    command: str = "",
    checkpoint_every: float = 300.0,
    console: Console | None = None,
) -> Path:
    """Train, evaluate and report; the folder with the results. The same call goes on where it was interrupted.

    out: the folder (default: runs/ and a name made of the settings). Everything that can be wrong with the
    settings or the data is checked before the first step of training. Raises InputError.
    """
    console = console or Console()
    configs = settings.run_configs()
    for note in _without_effect(settings):
        warnings.warn(note, stacklevel=2)
    prepared = prepare(settings)
    out = out or Path("runs") / f"compare-{prepared.data.name.replace(':', '-').replace('/', '_')}-{prepared.hash[:8]}"
    _claim(out, settings, prepared, command)
    cells = list(plan(settings, prepared))
    images = sum(len(planned.images) for planned in cells)
    training = len(prepared.data.train) * settings.recipe.epochs * TRAINING_COST

    with Work(len(configs) * (training + images), Console(stderr=True)) as work:
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
        _evaluate(settings, prepared, configs, cells, out, device, work)

    rows = list(_rows(settings, prepared, configs, [planned.cell for planned in cells], out))
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
    """Data, preprocessing and what identifies the comparison."""

    data: Data
    validation: ImageSet | None
    preprocess: Preprocess
    anomalies: tuple[tuple[str, ImageSet], ...]
    hash: str


def prepare(settings: Comparison) -> Prepared:
    """Load and check everything: data, model (built once on the way), anomaly sets, reference set sizes."""
    native = create(settings.model, 10, weights="none", image_size=settings.image_size, seed=0)
    size = settings.image_size or native.image_size
    data = sources.load(
        settings.data, size=size, root=settings.root, interpolation=native.interpolation, crop=native.crop
    )
    validation = None
    train_set = data.train
    if settings.train_limit is not None and settings.train_limit < len(train_set):
        train_set = train_set.subset(sources.limit(train_set, settings.train_limit, seed=0))
    if settings.val_fraction:
        train_set, validation = sources.split(train_set, settings.val_fraction, seed=0)[:2]
    data = dataclasses.replace(data, train=train_set)
    size = data.train.images.shape[1]
    mean, std = (native.mean, native.std)
    if mean is None or std is None:
        mean, std = sources.channel_statistics(data.train)
    preprocess = Preprocess(size, tuple(mean), tuple(std), native.interpolation, native.crop)
    for config in settings.run_configs():
        if config.anchored and config.references is not None and config.references > len(data.train):
            raise InputError(f"references is at most the {len(data.train)} training images; got {config.references}.")
    if settings.recalibrate_bn > len(data.train):
        raise InputError(
            f"recalibrate-bn is at most the {len(data.train)} training images; got {settings.recalibrate_bn}."
        )
    if settings.protocol != "one_random" and settings.k > min(settings.references or len(data.train), 1000):
        raise InputError(
            f"k = {settings.k} references are drawn without replacement from the reference set, which is smaller."
        )
    if len(data.classes) < 2:
        raise InputError(f"a classifier needs at least 2 classes; {data.name} has {len(data.classes)}.")
    # Builds (and, for anchored methods, anchors) the network once, so that a model that cannot be is refused now.
    for config in {config.method: config for config in settings.run_configs()}.values():
        build(config, len(data.classes), size)
    how: dict[str, Any] = {"root": settings.root, "interpolation": native.interpolation, "crop": native.crop}
    anomalies = tuple(sources.load_anomalies(spec, like=data, size=size, **how) for spec in settings.anomalies)
    return Prepared(data, validation, preprocess, anomalies, _hash(settings, data))


@dataclass(frozen=True)
class Planned:
    """A cell, the images it starts from and their positions in the data set."""

    cell: Cell
    images: ImageSet
    index: Tensor


def plan(settings: Comparison, prepared: Prepared) -> Iterator[Planned]:
    """The cells of the evaluation with the (uncorrupted) images each starts from.

    Without a limit the clean test set and the anomalies are taken whole, and 1,000 test images a corrupted cell.
    """

    def limited(images: ImageSet, n: int | None) -> tuple[ImageSet, Tensor]:
        index = torch.arange(len(images)) if n is None else sources.limit(images, n, seed=0)
        return images.subset(index), index

    table = "cifar" if prepared.preprocess.size <= 96 else "imagenet"  # which of the two lists of c-bar
    test = prepared.data.test
    yield Planned(Cell("clean"), *limited(test, settings.limit))
    shifted = limited(test, settings.limit or CORRUPTED_LIMIT)
    for benchmark in settings.on:
        if benchmark != "clean":
            for name in corruptions.suite(benchmark, table=table):
                for severity in settings.severities:
                    yield Planned(Cell(benchmark, name, severity, "shift"), *shifted)
    for name, images in prepared.anomalies:
        yield Planned(Cell(name, kind="anomaly"), *limited(images, settings.limit))


def _evaluate(
    settings: Comparison,
    prepared: Prepared,
    configs: list[RunConfig],
    cells: list[Planned],
    out: Path,
    device: torch.device,
    work: Work,
) -> None:
    """Score every run on every cell that has no scores yet; a cell's images are made once for all runs."""
    loaded: dict[str, Any] = {}
    thumbnails: dict[str, Any] = {}
    for planned in cells:
        cell, images = planned.cell, planned.images
        missing = [config for config in configs if not _scores_path(out, config, cell).exists()]
        work.skip((len(configs) - len(missing)) * len(images))
        wanted = cell.severity in (None, 3) and not (out / "thumbnails.npz").exists()
        if not missing and not wanted:
            continue
        tested = _corrupted(planned)
        if wanted:
            thumbnails[cell.name] = tested[:8].numpy()
        for config in missing:
            if config.run not in loaded:
                run = runs.load(out / "runs" / config.run)
                placed(run.net, device)
                loaded[config.run] = run.predictor(settings.protocol, k=settings.k)
            scores = score(
                loaded[config.run],
                tested,
                images.labels,
                planned.index,
                prepared.preprocess,
                device=device,
            )
            write_scores(_scores_path(out, config, cell), scores)
            work.advance(len(images), f"evaluating {config.run} on {cell.name}")
    if thumbnails:
        stored = io.BytesIO()
        np.savez_compressed(stored, **thumbnails)
        write_atomic(out / "thumbnails.npz", lambda path: path.write_bytes(stored.getvalue()))


def _corrupted(planned: Planned) -> Tensor:
    cell, images = planned.cell, planned.images.images
    if cell.corruption is None or cell.severity is None:
        return images
    return corruptions.corrupt(
        images, cell.corruption, cell.severity, seed=CORRUPTION_SEED, index=planned.index.numpy()
    )


def _scores_path(out: Path, config: RunConfig, cell: Cell) -> Path:
    return out / "runs" / config.run / "scores" / f"{cell.name}.parquet"


def _rows(
    settings: Comparison, prepared: Prepared, configs: list[RunConfig], cells: list[Cell], out: Path
) -> Iterator[Row]:
    """Every number of the comparison, from the per-sample scores."""
    for config in configs:
        anchored = config.anchored
        clean = read_scores(_scores_path(out, config, Cell("clean")))
        for cell in cells:
            scores = read_scores(_scores_path(out, config, cell))
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
                    corruption_source=corruptions.source(cell.corruption) if cell.corruption else None,
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


def _claim(out: Path, settings: Comparison, prepared: Prepared, command: str) -> None:
    """Make `out` the folder of this comparison, or check that it is."""
    path = out / "config.json"
    if path.exists():
        before = read_json(path)
        if before.get("config_hash") == prepared.hash:
            return
        now = json.loads(json.dumps(dataclasses.asdict(settings)))
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
            "settings": dataclasses.asdict(settings),
            "data": {
                "name": data.name,
                "split": data.split,
                "notes": list(data.notes),
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


def _without_effect(settings: Comparison) -> Iterator[str]:
    """Settings that change nothing, in words."""
    if "masking" not in settings.methods and settings.masked_target != ("uniform",):
        yield "--masked-target has no effect without the method masking"
    if "masking" in settings.methods and settings.recipe.alpha == 0:
        yield "alpha 0 never masks: masking is the same as vanilla"
    if settings.methods == ("standard",) and settings.protocol != "one_random":
        yield "--protocol has no effect on the method standard alone"
    if settings.limit is not None and settings.limit < 100:
        yield f"--limit {settings.limit}: accuracies over so few images are coarse"
