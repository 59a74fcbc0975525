"""The folder of an evaluation: where its scores are, and the config.json that says of which images and models."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from anchored.evaluation.benchmarks import Benchmark
from anchored.evaluation.evaluated_models import EvaluatedModel
from anchored.evaluation.rows import Cell
from anchored.evaluation.settings import EvaluationSettings
from anchored.runs import run as runs
from anchored.system.errors import InputError
from anchored.system.files import read_json, write_json

UNREADABLE = "unreadable images, left out"
SHARED = ("data", "part", "limit", "strict", "classes")  # settings of all scores in a folder


def scores_path(out: Path, model: str, cell: Cell) -> Path:
    """Where the scores of a model on a cell are."""
    return out / "runs" / model / "scores" / f"{cell.name}.parquet"


def claim(
    out: Path,
    settings: EvaluationSettings,
    benchmarks: Sequence[Benchmark],
    models: Sequence[EvaluatedModel],
    command: str,
    notes: Sequence[str],
) -> str:
    """Make `out` the folder of this evaluation, or check that its scores are of these images and models; its hash.

    Models and benchmarks of earlier calls stay in config.json. Raises InputError for a folder of something else.
    """
    path, clean = out / "config.json", benchmarks[0]
    identities = {benchmark.name: _identity(benchmark) for benchmark in benchmarks}
    digest = _digest(settings, clean, identities["clean"])
    described = {model.name: _description(model) for model in models}
    if path.exists():
        before = read_json(path)
        _check_same(before, out, digest, identities, described)
        described = {**before["models"], **described}
        identities = {**before["sets"], **identities}
        notes = [*notes, *(note for note in before["data"]["notes"] if UNREADABLE in note)]
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
                "classes": list(clean.scored.names),
            },
            "models": described,
            "sets": identities,
            "baseline": settings.baseline,
            "threads": torch.get_num_threads(),
            "versions": runs.versions(),
        },
    )
    return digest


def add_notes(out: Path, notes: Sequence[str]) -> None:
    """Put the notes before those in the config.json of `out`, each of them once."""
    config = read_json(out / "config.json")
    config["data"]["notes"] = list(dict.fromkeys([*notes, *config["data"]["notes"]]))
    write_json(out / "config.json", config)


def _check_same(
    before: dict[str, Any], out: Path, digest: str, identities: dict[str, str], described: dict[str, dict[str, Any]]
) -> None:
    """Raise InputError where the scores in `out` are of other settings, models or images than these."""
    if before.get("config_hash") != digest or "models" not in before:
        raise InputError(
            f"{out} holds another evaluation or comparison (of {before.get('data', {}).get('name')}, limit "
            f"{before.get('settings', {}).get('limit')}). Use another --out."
        )
    for name, there in before["models"].items():
        if name in described and there["fingerprint"] != described[name]["fingerprint"]:
            raise InputError(
                f"{out} holds scores of another model called {name}, or of another --protocol, --k or input. Use "
                "another --out."
            )
    for name, there in before["sets"].items():
        if identities.get(name, there) != there:
            raise InputError(f"{out} holds scores of other images called {name}. Use another --out.")


def _description(model: EvaluatedModel) -> dict[str, Any]:
    return {
        "spec": model.spec,
        "fingerprint": model.fingerprint,
        "preprocess": str(model.preprocess),
        "protocol": model.predict.protocol,
        "k": model.predict.k,
    }


def _digest(settings: EvaluationSettings, clean: Benchmark, identity: str) -> str:
    """What identifies the scores of a folder: the shared settings and the clean test set."""
    shared = {**{name: getattr(settings, name) for name in SHARED}, "data": clean.listing.name}
    return hashlib.blake2b(repr((shared, identity)).encode(), digest_size=16).hexdigest()


def _identity(benchmark: Benchmark) -> str:
    """What tells a test set from another of the same name: its labels, classes, number, and where it comes from."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(benchmark.listing.labels.numpy().data)
    split = benchmark.archive.source if benchmark.archive else benchmark.listing.split
    digest.update(repr((benchmark.listing.classes, benchmark.scored.kept, split)).encode())
    return digest.hexdigest()
