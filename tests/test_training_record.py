"""What a run says of its own training: the arithmetic it was computed in, the time and the forward passes it took."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_train import CPU, Killed, killed_after, settings, trained
from torch import Tensor, nn

from anchored.comparison.inputs import prepare
from anchored.comparison.settings import Comparison
from anchored.comparison.train_run import cost, train_run
from anchored.runs import run as runs
from anchored.runs.run import Run
from anchored.system import devices
from anchored.system.progress import Work
from anchored.training import loop, setup, state
from anchored.training.checkpoints import Checkpoints
from anchored.training.order import passes
from anchored.training.state import State


def saved(given: Comparison, folder: Path) -> Run:
    """The run of `given`, trained or gone on with in `folder`."""
    prepared = prepare(given)
    (config,) = prepared.settings.run_configs()
    train_run(config, prepared.first, folder, Work(cost(config, prepared.first)), device=CPU)
    return runs.load(folder)


def forwards(monkeypatch: pytest.MonkeyPatch, hook: Callable[[Any, Any, Any], None]) -> None:
    """Call `hook(module, inputs, output)` at every forward pass of a network that is trained."""
    placed = setup.placed

    def hooked(net: nn.Module, device: torch.device) -> nn.Module:
        net.register_forward_hook(hook)
        return placed(net, device)

    monkeypatch.setattr(setup, "placed", hooked)


def has_bfloat16(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_bfloat16", lambda device: there)


def cut(given: Comparison, folder: Path, steps: int, **how: Any) -> list[str]:
    """Train `steps` steps more, each with a checkpoint, until the process is killed; what was said."""
    said: list[str] = []
    with pytest.raises(Killed):
        trained(folder, given, checkpoint_every=0.0, tick=killed_after(steps), say=said.append, **how)
    return said


def made_old(folder: Path) -> None:
    """Take from the newest checkpoint what older versions did not write."""
    path = Checkpoints(folder / "checkpoints").last
    assert path is not None
    kept = torch.load(path, weights_only=True)
    del kept["seconds"], kept["arithmetic"]
    torch.save(kept, path)


# --- arithmetic


@pytest.mark.parametrize(
    ("precision", "there", "used"),
    [
        ("bfloat16", True, "bfloat16"),
        ("bfloat16", False, "float32"),
        ("float16", True, "float16"),
        ("float16", False, "float16"),
        ("float32", True, "float32"),
        ("float32", False, "float32"),
    ],
)
@pytest.mark.parametrize("method", ["standard", "masking"])
def test_a_run_records_the_arithmetic_it_was_computed_in(
    method: str, precision: str, there: bool, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[torch.dtype] = set()
    forwards(monkeypatch, lambda module, inputs, logits: seen.add(logits.dtype) if module.training else None)
    has_bfloat16(there, monkeypatch)
    run = saved(settings(epochs=1, train_limit=128, precision=precision, methods=(method,)), tmp_path)
    assert run.info["arithmetic"] == used and seen == {getattr(torch, used)}
    assert run.config.precision == precision
    assert not any("arithmetic" in note for note in run.info["notes"])


@pytest.mark.parametrize(
    ("precision", "sittings", "recorded", "stretches"),
    [
        ("bfloat16", (True, True), "bfloat16", None),
        ("bfloat16", (False, False), "float32", None),
        ("bfloat16", (True, False), "bfloat16 and float32", "bfloat16 from step 0, float32 from step 3"),
        ("bfloat16", (False, True), "float32 and bfloat16", "float32 from step 0, bfloat16 from step 3"),
        ("bfloat16", (True, False, False), "bfloat16 and float32", "bfloat16 from step 0, float32 from step 3"),
        (
            "bfloat16",
            (True, False, True),
            "bfloat16 and float32",
            "bfloat16 from step 0, float32 from step 3, bfloat16 from step 6",
        ),
        ("float16", (True, False), "float16", None),
        ("float32", (False, True), "float32", None),
    ],
)
def test_going_on_in_another_arithmetic_is_said_and_recorded(
    precision: str,
    sittings: tuple[bool, ...],
    recorded: str,
    stretches: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = settings(epochs=1, precision=precision)
    for number, there in enumerate(sittings[:-1]):
        has_bfloat16(there, monkeypatch)
        said = cut(given, tmp_path, 3)
        assert len(said) == (number > 0 and sittings[0] != sittings[1] and stretches is not None)
    has_bfloat16(sittings[-1], monkeypatch)
    if stretches is None:
        run = saved(given, tmp_path)
    else:
        with pytest.warns(UserWarning, match=f"masking-uniform-seed0 is .* more than one arithmetic: {stretches} "):
            run = saved(given, tmp_path)
    assert run.info["arithmetic"] == recorded
    notes = [note for note in run.info["notes"] if "arithmetic" in note]
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    logged = [event["note"] for event in events if event["event"] == "arithmetic"]
    assert len(notes) == (stretches is not None) and logged[-1:] == notes
    for before, after in itertools.pairwise(events):
        assert before["event"] != "arithmetic" or after["event"] in ("step", "checkpoint"), "said before it goes on"


def test_a_run_whose_steps_are_all_taken_is_finished_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, said = settings(epochs=1), list[str]()
    has_bfloat16(True, monkeypatch)
    trained(tmp_path, given)
    has_bfloat16(False, monkeypatch)
    standing = State()
    trained(tmp_path, given, say=said.append, state=standing)
    assert said == [] and standing.arithmetic == "bfloat16"


def test_old_checkpoints_go_on_in_silence_and_nothing_is_made_up(tmp_path: Path) -> None:
    given = settings(epochs=1)
    whole = saved(given, tmp_path / "whole")
    cut(given, tmp_path / "old", 3)
    made_old(tmp_path / "old")
    assert cut(given, tmp_path / "old", 3) == []
    run = saved(given, tmp_path / "old")
    assert (run.info["arithmetic"], run.info["seconds"]) == (None, None)
    assert run.info["notes"] == whole.info["notes"]
    for a, b in zip(run.net.state_dict().values(), whole.net.state_dict().values(), strict=True):
        assert torch.equal(a, b)


# --- seconds


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (state, loop):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self.read))

    def read(self) -> float:
        self.now += 2**-20  # two readings are never the same
        return self.now

    def ticking(self, seconds: float, steps: int = 1000) -> Callable[[float, str], None]:
        """A `tick` for steps of so many seconds, killed within the one after `steps`."""
        kill = killed_after(steps)

        def tick(amount: float, note: str) -> None:
            self.now += seconds
            kill(amount, note)

        return tick


@pytest.mark.parametrize("cuts", [(), (4,), (4, 9)])
def test_seconds_are_those_of_the_steps_that_were_kept(
    cuts: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, given = Clock(monkeypatch), settings(epochs=2)
    for steps in cuts:
        with pytest.raises(Killed):
            trained(tmp_path, given, checkpoint_every=0.0, tick=clock.ticking(8.0, steps))
        clock.now += 5000.0  # the machine was off
    standing = State()
    trained(tmp_path, given, tick=clock.ticking(8.0), state=standing)
    assert standing.step == 42 and standing.seconds == pytest.approx(42 * 8.0, abs=0.1)


def test_seconds_leave_out_what_comes_after_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anchored.comparison import train_run as module

    clock, threshold = Clock(monkeypatch), module.anomaly_threshold

    def long(*given: Any, **how: Any) -> Any:
        clock.now += 1e6
        return threshold(*given, **how)

    def forward(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        clock.now += 3.0 if module.training else 0.0

    forwards(monkeypatch, forward)
    monkeypatch.setattr(module, "anomaly_threshold", long)
    run = saved(settings(epochs=1), tmp_path)
    assert run.info["seconds"] == pytest.approx(21 * 3.0, abs=0.1)


# --- forward passes


@pytest.mark.parametrize("method", ["standard", "masking"])
@pytest.mark.parametrize(
    "changed",
    [
        {"epochs": 1, "batch_size": 64},
        {"epochs": 3, "batch_size": 96, "train_limit": 250},
        {"epochs": 2, "batch_size": 60, "accumulate": 3},
        {"epochs": 2, "batch_size": 64, "repeats": 4},
        {"epochs": 2, "batch_size": 500, "train_limit": 100},
        {"epochs": 2, "val_fraction": 0.3},
        {"epochs": 1, "ema_decay": 0.5, "recalibrate_bn": 128},
    ],
)
def test_forward_passes_are_those_of_the_training_steps(
    changed: dict[str, Any], method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = [0]

    def forward(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        shown[0] += len(inputs[0]) if module.training and logits.requires_grad else 0

    forwards(monkeypatch, forward)
    run = saved(settings(**changed, methods=(method,)), tmp_path)
    images = run.info["train_size"]
    assert run.info["forward_passes"] == passes(run.config, images) == pytest.approx(shown[0] / images, rel=1e-12)
    assert run.info["forward_passes"] <= run.config.recipe.epochs
