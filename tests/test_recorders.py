"""TensorBoard and Weights & Biases beside metrics.jsonl."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from anchored.cli import main

TRAIN = ["train", "--model", "tiny_model:tiny", "--epochs", "2", "--train-limit", "128"]


def lines(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_tensorboard_gets_the_metrics_of_every_epoch(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    main([*TRAIN, "--tensorboard", "--out", str(tmp_path / "run")])
    found = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    shown = [(event.step, pytest.approx(event.value, rel=1e-6)) for event in found.Scalars("loss")]
    assert shown == [(line["step"], line["loss"]) for line in lines(tmp_path / "run")]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> object:
    """The package, in offline mode, with what it would log gathered in `logged`."""
    package = pytest.importorskip("wandb", reason="the package wandb is not installed: anchored[wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    package.logged = []
    log = package.sdk.wandb_run.Run.log

    def watched(self: object, numbers: dict[str, float], step: int) -> None:
        package.logged.append((self.id, step, numbers))  # type: ignore[attr-defined]
        log(self, numbers, step=step)

    monkeypatch.setattr(package.sdk.wandb_run.Run, "log", watched)
    return package


@pytest.mark.filterwarnings("ignore")  # of the package about itself
def test_wandb_gets_the_metrics_of_every_epoch_offline(tmp_path: Path, wandb: object) -> None:
    main([*TRAIN, "--wandb", "--out", str(tmp_path / "run")])
    logged = wandb.logged  # type: ignore[attr-defined]
    expected = [(line["step"], pytest.approx(line["loss"])) for line in lines(tmp_path / "run")]
    assert [(step, numbers["loss"]) for _, step, numbers in logged] == expected and len(logged) == 2
    assert len({name for name, _, _ in logged}) == 1, "one run, the same when training goes on"
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_said_before_any_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    with pytest.raises(SystemExit) as ended:
        main([*TRAIN, f"--{name}", "--out", str(tmp_path / "run")])
    assert ended.value.code == 2 and f"pip install 'anchored[{name}]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_wandb_without_a_login_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = pytest.importorskip("wandb", reason="the package wandb is not installed: anchored[wandb]")

    def refuse(**options: object) -> None:
        raise package.errors.UsageError("No API key configured. Use `wandb login` to log in.")

    monkeypatch.setattr(package, "init", refuse)
    with pytest.raises(SystemExit) as ended:
        main([*TRAIN, "--wandb", "--out", str(tmp_path / "run")])
    assert ended.value.code == 2 and "WANDB_MODE=offline" in capsys.readouterr().err


@pytest.mark.filterwarnings("always")
def test_wandb_out_of_reach_is_recorded_offline(
    tmp_path: Path, wandb: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    init = wandb.init  # type: ignore[attr-defined]

    def unreachable(**options: object) -> object:
        if options.get("mode") != "offline":
            raise wandb.errors.CommError("no such host")  # type: ignore[attr-defined]
        return init(**options)

    monkeypatch.setattr(wandb, "init", unreachable)
    main([*TRAIN, "--wandb", "--out", str(tmp_path / "run")])
    assert "recorded offline" in capsys.readouterr().err and len(wandb.logged) == 2  # type: ignore[attr-defined]
