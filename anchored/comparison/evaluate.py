"""`anchored evaluate`: any models on any benchmarks, through one Predict, to scores, rows and a report."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console

from anchored.data.checks import some
from anchored.data.class_maps import restricted
from anchored.evaluation import evaluated_models as models
from anchored.evaluation import summaries
from anchored.evaluation import thumbnails as examples
from anchored.evaluation.cell_images import StreamedCell
from anchored.evaluation.evaluated_models import Candidate
from anchored.evaluation.rows import Cell, Row, write_rows
from anchored.evaluation.scores import anomaly_metrics, evaluate, known_metrics, read_scores, write_scores
from anchored.evaluation.settings import Assessment, Planned, TestSet, clean_listing, planned, test_sets
from anchored.report import present
from anchored.runs import run as runs
from anchored.system.errors import InputError
from anchored.system.files import in_use, read_json, write_json
from anchored.system.progress import Work

# Settings that scores in one folder share: with another one, another folder.
UNREADABLE = "unreadable images, left out"
SHARED = ("data", "part", "limit", "strict", "classes")


def assess(
    settings: Assessment,
    *,
    out: Path,
    device: torch.device,
    command: str = "",
    console: Console | None = None,
) -> Path:
    """Evaluate and report; `out`, the folder of the results. The same call goes on where it was interrupted.

    Scores are kept per model and cell (OUT/runs/MODEL/scores/CELL.parquet), so that models and benchmarks can be
    added by later calls with the same `out`: the rows are those of the last call. Raises InputError for anything that
    cannot be evaluated, before the first image.
    """
    console, errors = console or Console(), Console(stderr=True)
    data = settings.data or _data_of(settings.models)
    clean = clean_listing(settings, data)
    found = list(
        models.load(
            settings.models,
            settings.weights,
            clean.classes,
            protocol=settings.protocol,
            k=settings.k,
            seed=settings.seed,
            given=settings.input,
            device=device,
        )
    )
    if settings.baseline is not None and settings.baseline not in summaries.baselines(each.name for each in found):
        raise InputError(
            f"--baseline is one of the models or alexnet (the published errors on ImageNet-C); got "
            f"{settings.baseline!r}. Models: {', '.join(candidate.name for candidate in found)}."
        )
    notes = [note for candidate in found for note in candidate.notes]
    sets = test_sets(settings, clean, found, notes)
    groups = _groups(settings, sets, found)
    for note in dict.fromkeys(notes):
        errors.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)
    digest = _claim(settings, sets, found, out, command, notes)
    total = sum(one.count * len(group) for group, plan in groups for one in plan)
    with in_use(out), Work(total, errors) as work:
        for group, plan in groups:
            for one in plan:
                _evaluate(one, group, out, device, work, notes)
    config = read_json(out / "config.json")
    config["data"]["notes"] = list(dict.fromkeys([*notes, *config["data"]["notes"]]))
    write_json(out / "config.json", config)
    first, plan = groups[0]
    examples.store(
        out,
        [examples.Shown(one.cell, one.make, one.of.target.names) for one in plan],
        [candidate.name for candidate in first],
    )
    rows = list(_rows(clean.name, groups, out, digest))
    rows += summaries.rows(rows, settings.baseline)
    write_rows(out / "rows.jsonl", rows)
    present(rows, out, console)
    return out


def _data_of(specs: Sequence[str]) -> str:
    """The data set that the runs were trained on, where they agree and its name is enough to find it."""
    names = set()
    for spec in specs:
        path = Path(spec.removeprefix(models.FOLD)) / "run.json"
        if models.is_run(spec) and path.is_file():
            names.add(str(read_json(path).get("data")))
    if len(names) == 1 and (name := names.pop()) in ("digits", "cifar10", "cifar100"):
        return name
    told = f"the runs say {some(sorted(names))}" if names else "no model says one"
    raise InputError(
        f"--data says where the test images are ({told}): cifar10, parquet:PATH, folder:PATH, npz:PATH ..."
    )


def _groups(
    settings: Assessment, sets: Sequence[TestSet], found: Sequence[Candidate]
) -> list[tuple[list[Candidate], list[Planned]]]:
    """Models that see the same pixels, and their cells: images are made once for all of them."""
    groups: dict[tuple[int, str, float], list[Candidate]] = {}
    for candidate in found:
        p = candidate.preprocess
        groups.setdefault((p.size, p.interpolation, p.crop), []).append(candidate)
    return [(group, planned(settings, sets, *geometry)) for geometry, group in groups.items()]


def _evaluate(
    one: Planned,
    group: Sequence[Candidate],
    out: Path,
    device: torch.device,
    work: Work,
    notes: list[str],
) -> None:
    """Score the models that have no scores of this cell yet."""
    missing = [candidate for candidate in group if not scores_path(out, candidate.name, one.cell).exists()]
    work.skip((len(group) - len(missing)) * one.count)
    if not missing:
        return
    images = one.make()
    predicts = {
        each.name: restricted(each.predict, one.of.target.columns[each.name], len(each.classes)) for each in missing
    }
    scores = evaluate(
        predicts,
        images,
        {candidate.name: candidate.preprocess for candidate in missing},
        device=device,
        tick=lambda amount, name: work.advance(amount, f"evaluating {name} on {one.cell.name}"),
    )
    for name, values in scores.items():
        write_scores(scores_path(out, name, one.cell), values)
    if isinstance(images, StreamedCell) and images.left_out:
        listed = some([images.listing.called(row) for row in sorted(images.left_out)])
        notes.append(f"{one.cell.name}: {UNREADABLE}: {len(images.left_out):,}: {listed}")


def scores_path(out: Path, model: str, cell: Cell) -> Path:
    """Where the scores of a model on a cell are."""
    return out / "runs" / model / "scores" / f"{cell.name}.parquet"


def _rows(
    data: str,
    groups: Sequence[tuple[Sequence[Candidate], Sequence[Planned]]],
    out: Path,
    digest: str,
) -> Iterator[Row]:
    """Every number of the evaluation, from the per-sample scores."""
    for group, plan in groups:
        for candidate in group:
            clean = read_scores(scores_path(out, candidate.name, Cell("clean")))
            for one in plan:
                scores = read_scores(scores_path(out, candidate.name, one.cell))
                if one.cell.kind == "anomaly":
                    values, n, n_other = (
                        anomaly_metrics(clean, scores, every=True),
                        len(clean["label"]),
                        len(scores["label"]),
                    )
                else:
                    values, n, n_other = known_metrics(scores, every=True), len(scores["label"]), 0
                for metric, value in values:
                    yield _row(candidate, one, digest, data, metric, value, n, n_other)


def _row(
    candidate: Candidate, one: Planned, digest: str, data: str, metric: str, value: float, n: int, n_other: int
) -> Row:
    predict = candidate.predict
    return Row(
        run=candidate.name,
        config_hash=digest,
        data=data,
        benchmark=one.cell.benchmark,
        corruption=one.cell.corruption,
        severity=one.cell.severity,
        corruption_source=one.source,
        preprocess=str(candidate.preprocess),
        protocol=predict.protocol,
        k=predict.k,
        tempering=predict.tempering,
        metric=metric,
        value=value,
        n=n,
        n_other=n_other,
        about=candidate.facts,
    )


def _claim(
    settings: Assessment,
    sets: Sequence[TestSet],
    found: Sequence[Candidate],
    out: Path,
    command: str,
    notes: Sequence[str],
) -> str:
    """Make `out` the folder of this evaluation, or check that its scores are of these images and models; its hash."""
    path, clean = out / "config.json", sets[0]
    shared = {name: getattr(settings, name) for name in SHARED}
    identity = {
        "settings": {**shared, "data": clean.listing.name},
        "sets": {one.benchmark: _identity(one) for one in sets},
    }
    digest = hashlib.blake2b(
        repr((identity["settings"], identity["sets"]["clean"])).encode(), digest_size=16
    ).hexdigest()
    about = {
        each.name: {
            "spec": each.spec,
            "fingerprint": each.fingerprint,
            "preprocess": str(each.preprocess),
            "protocol": each.predict.protocol,
            "k": each.predict.k,
        }
        for each in found
    }
    if path.exists():
        before = read_json(path)
        if before.get("config_hash") != digest or "models" not in before:
            raise InputError(
                f"{out} holds another evaluation or comparison (of {before.get('data', {}).get('name')}, limit "
                f"{before.get('settings', {}).get('limit')}). Use another --out."
            )
        for name, there in before["models"].items():
            if name in about and there["fingerprint"] != about[name]["fingerprint"]:
                raise InputError(
                    f"{out} holds scores of another model called {name}, or of another --protocol, --k or input. Use "
                    "another --out."
                )
        for name, there in before["sets"].items():
            if identity["sets"].get(name, there) != there:
                raise InputError(f"{out} holds scores of other images called {name}. Use another --out.")
        about = {**before["models"], **about}
        notes = [*notes, *(note for note in before["data"]["notes"] if UNREADABLE in note)]
        identity["sets"] = {**before["sets"], **identity["sets"]}
    elif out.exists() and any(out.iterdir()):
        raise InputError(f"--out {out} is not empty and holds no evaluation. Use an empty or a new folder.")
    write_json(
        path,
        {
            "command": command,
            "config_hash": digest,
            "settings": dataclasses.asdict(settings),
            "data": {
                "name": clean.listing.name,
                "split": clean.listing.split,
                "notes": list(dict.fromkeys(notes)),
                "test_size": len(clean.listing),
                "classes": list(clean.target.names),
            },
            "models": about,
            "sets": identity["sets"],
            "baseline": settings.baseline,
            "threads": torch.get_num_threads(),
            "versions": runs.versions(),
        },
    )
    return digest


def _identity(one: TestSet) -> str:
    """What tells a test set from another of the same name: its labels, classes, number, and where it comes from."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(one.listing.labels.numpy().data)
    split = one.archive.source if one.archive else one.listing.split
    digest.update(repr((one.listing.classes, one.target.kept, split)).encode())
    return digest.hexdigest()
