"""Models of one evaluation keep apart in rows and report, whatever their runs are called and wherever they lie."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from images import class_folders
from safetensors.torch import save_file
from saved_run import CLASSES, saved_run

from anchored.cli import main
from anchored.evaluation.rows import Row, read_rows
from anchored.models.by_name import create
from anchored.report.summary import headline
from anchored.system.files import read_json, write_json


@pytest.fixture
def data(tmp_path: Path) -> str:
    return f"folder:{class_folders(tmp_path / 'photos', dict.fromkeys(CLASSES, 10), side=16)}"


def trained(comparison: Path, method: str, seed: int, arm: str = "", **recipe: Any) -> str:
    """A run of a comparison; the weights are those of `saved_run` plus a little that its folder decides."""
    folder = comparison / "runs" / f"{arm or method}-seed{seed}"
    saved_run(folder, method)
    write_json(comparison / "config.json", {})
    info = read_json(folder / "run.json")
    info["config"] |= {"seed": seed, "arm": arm}
    info["config"]["recipe"] |= recipe
    write_json(folder / "run.json", info)
    return str(folder)


def rows_of(models: Iterable[str], data: str, out: Path, *flags: str) -> list[Row]:
    main(["evaluate", *models, "--data", data, "--device", "cpu", "--out", str(out), *flags])
    rows = read_rows(out / "rows.jsonl")
    assert len({(row.run, row.benchmark, row.metric) for row in rows}) == len(rows)
    return rows


def arms(rows: Iterable[Row]) -> dict[str, str]:
    return {row.run: row.arm for row in rows}


def reported(rows: list[Row]) -> dict[tuple[str, int], str]:
    """(name in the report, seed) -> run. None is left out because another one has its place."""
    summary = headline(rows)
    assert not [note for note in summary.notes if "the latter counts" in note]
    assert set(summary.runs.values()) == {row.run for row in rows}
    return dict(summary.runs)


def test_the_same_arms_of_two_comparisons(data: str, tmp_path: Path) -> None:
    runs = [trained(tmp_path / place, method, 0, arm)
            for place in ("x", "y") for method, arm in (("standard", ""), ("masking", "mine"))]  # fmt: skip
    runs.append(trained(tmp_path / "y", "vanilla", 0))
    rows = rows_of(runs, data, tmp_path / "out")
    assert set(arms(rows).values()) == {"standard, x", "standard, y", "mine, x", "mine, y", "vanilla, y"}
    assert len(reported(rows)) == 5
    baselines = headline(rows).baselines
    assert baselines == {"mine, x": "standard, x", "mine, y": "standard, y", "vanilla, y": "standard, y"}


def test_more_seeds_of_an_arm_in_another_folder_are_seeds_of_it(data: str, tmp_path: Path) -> None:
    runs = [trained(tmp_path / "x", "masking", seed) for seed in (0, 1)] + [trained(tmp_path / "y", "masking", 2)]
    found = reported(rows_of(runs, data, tmp_path / "out"))
    assert set(found) == {("masking-uniform", seed) for seed in range(3)}


@pytest.mark.parametrize("seed", [0, 5])
def test_what_no_column_tells_is_told_by_the_folder(seed: int, data: str, tmp_path: Path) -> None:
    """The epochs of a recipe are in no column that the report tells arms apart by."""
    short = [trained(tmp_path / "short", "masking", each, epochs=2) for each in (0, 1)]
    long = trained(tmp_path / "long", "masking", seed, epochs=50)
    found = reported(rows_of([*short, long], data, tmp_path / "out"))
    assert set(found) == {("masking-uniform, short", 0), ("masking-uniform, short", 1), ("masking-uniform, long", seed)}


def test_what_a_column_tells_needs_no_folder(data: str, tmp_path: Path) -> None:
    runs = [trained(tmp_path / place, "masking", 0, alpha=alpha) for place, alpha in (("x", 0.1), ("y", 0.4))]
    rows = rows_of(runs, data, tmp_path / "out")
    assert set(arms(rows).values()) == {"masking-uniform"}
    assert {name for name, _ in reported(rows)} == {"masking-uniform, alpha 0.1", "masking-uniform, alpha 0.4"}


def test_comparisons_of_one_name_are_told_apart_by_the_folders_above(data: str, tmp_path: Path) -> None:
    runs = [trained(tmp_path / place / "same", "masking", 0) for place in ("p", "q")]
    rows = rows_of(runs, data, tmp_path / "out")
    assert set(arms(rows).values()) == {"masking-uniform, p/same", "masking-uniform, q/same"}


def test_runs_of_the_hub_are_told_apart_by_their_names(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    for user in ("one", "two"):
        repository = tmp_path / "hub" / f"models--{user}--net"
        saved_run(repository / "snapshots" / "abc", model="resnet9")
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    rows = rows_of(["one/net", "two/net"], data, tmp_path / "out")
    assert arms(rows) == {"one-net": "masking-uniform, one/net", "two-net": "masking-uniform, two/net"}


def test_a_folded_run_is_an_arm_of_its_own(data: str, tmp_path: Path) -> None:
    run = trained(tmp_path / "x", "masking", 0)
    rows = rows_of([run, f"fold:{run}"], data, tmp_path / "out")
    assert set(arms(rows).values()) == {"masking-uniform", "masking-uniform folded"} and len(reported(rows)) == 2


def test_one_run_by_two_paths(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path / "x", "masking", 0)
    monkeypatch.chdir(tmp_path)
    rows = rows_of([run, "x/runs/masking-seed0"], data, tmp_path / "out")
    assert len(set(arms(rows).values())) == 2 and len(reported(rows)) == 2


def test_library_models_are_called_what_they_are(data: str, tmp_path: Path) -> None:
    rows = rows_of(["tiny_model:colour", "tiny_model:plain"], data, tmp_path / "out", "--image-size", "16")
    assert set(arms(rows).values()) == {"tiny_model:colour", "tiny_model:plain"}
    assert set(reported(rows)) == {("tiny_model:colour", 0), ("tiny_model:plain", 0)}


def test_weights_of_one_file_name_for_one_model(data: str, tmp_path: Path) -> None:
    paths = [tmp_path / name / "w.safetensors" for name in ("a", "b")]
    for seed, path in enumerate(paths):
        path.parent.mkdir()
        save_file(create("resnet9", len(CLASSES), seed=seed).net.state_dict(), path)
    flags = ["--weights", *map(str, paths), "--image-size", "32"]
    rows = rows_of(["resnet9", "resnet9"], data, tmp_path / "out", *flags)
    assert len(reported(rows)) == 2
    nll = {row.run: row.value for row in rows if (row.benchmark, row.metric) == ("clean", "nll")}
    assert len(set(nll.values())) == 2 and torch.tensor(list(nll.values())).isfinite().all()
