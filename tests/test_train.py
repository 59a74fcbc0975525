"""Training: resuming to the same bits, checkpoints, SIGTERM, parts of a batch, averages, processes."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from anchored.arms.recipe import FIELDS
from anchored.arms.recipe_choice import recipe
from anchored.cli import WRITING, main
from anchored.comparison.inputs import prepare
from anchored.comparison.settings import Comparison, comparison
from anchored.data.base import Data, ImageSet
from anchored.runs import run as runs
from anchored.runs.build import build
from anchored.system.errors import InputError, Stopped, TrainingError
from anchored.training import checkpoints as checkpoints_module
from anchored.training import loop as train_module
from anchored.training import setup
from anchored.training.checkpoints import Checkpoints
from anchored.training.loop import train
from anchored.training.order import Order

TESTS = Path(__file__).parent
CPU = torch.device("cpu")


def settings(model: str = "tiny_model:tiny", *, epochs: int = 2, **changed: Any) -> Comparison:
    fields = {name: changed.pop(name) for name in list(changed) if name not in FIELDS or name == "schedule"}
    made = recipe("cpu_quick", epochs=epochs, **{"batch_size": 64, **changed})
    return comparison("digits", model, made, **{"methods": ("masking",), "anomalies": (), "on": ("clean",), **fields})


def trained(folder: Path, given: Comparison, **how: Any) -> nn.Module:
    prepared = prepare(given)
    (config,), inputs = prepared.settings.run_configs(), prepared.first
    return train(config, inputs.data, inputs.preprocess, folder, device=CPU, validation=inputs.validation, **how)


def test_a_run_of_one_step_trains(tmp_path: Path) -> None:
    given = settings(epochs=1, train_limit=64)
    untrained = build(given.run_configs()[0], 10, 32)
    assert not torch.equal(next(untrained.parameters()), next(trained(tmp_path, given).parameters()))


def same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


class Killed(Exception):
    pass


def killed_after(steps: int) -> Any:
    """A `tick` that ends the process, as far as the loop can tell, after so many steps."""
    left = [steps]

    def tick(amount: float, note: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    return tick


@pytest.mark.parametrize(
    "changed",
    [
        {"ema_decay": 0.9, "ema_steps": 3, "warmup": 0.0},
        {"augmentation": "crop+trivialaugment+mixup", "repeats": 2},
        {"optimiser": "adamw", "accumulate": 2, "clip": 1.0},
        {"val_fraction": 0.2, "select": "nll", "recalibrate_bn": 128},
        {"precision": "float16", "clip": 1.0},
    ],
)
def test_a_run_that_was_cut_off_within_an_epoch_ends_in_the_same_bits(tmp_path: Path, changed: dict[str, Any]) -> None:
    given = settings(**changed)
    whole = trained(tmp_path / "whole", given)
    for cut in (5, 14):  # a checkpoint after every step: the cuts lie within the epochs
        with pytest.raises(Killed):
            trained(tmp_path / "cut", given, checkpoint_every=0.0, tick=killed_after(cut))
    assert same(trained(tmp_path / "cut", given), whole)
    lines = [json.loads(line) for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "resume"] == [5, 19]


def test_the_average_of_the_weights_is_the_network_of_the_run(tmp_path: Path) -> None:
    given = settings(ema_decay=0.9, ema_steps=3, warmup=0.0)
    averaged = trained(tmp_path / "a", given)
    raw = trained(tmp_path / "b", settings(warmup=0.0))
    assert not same(averaged, raw)
    state, _ = Checkpoints(tmp_path / "a" / "checkpoints").newest(CPU)
    assert state is not None
    assert all(torch.equal(a, b) for a, b in zip(state["net"].values(), raw.state_dict().values(), strict=True))


def test_parts_of_a_batch_make_the_step_of_the_whole(tmp_path: Path) -> None:
    """Without batch norm and dropout, and with references of the whole batch: equal to rounding."""
    how = {"epochs": 1, "precision": "float32", "lr": 0.01}
    whole = trained(tmp_path / "a", settings("tiny_model:plain", **how))
    parts = trained(tmp_path / "b", settings("tiny_model:plain", accumulate=4, **how))
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("metric", ["top1", "nll"])
def test_select_takes_the_epoch_that_was_best_on_the_validation_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    values = iter([50.0, 70.0, 60.0] if metric == "top1" else [0.5, 0.3, 0.4])
    given = settings(epochs=3, val_fraction=0.2, select=metric)

    def judge(predict: Any, *rest: Any) -> dict[str, float]:
        seen.append({name: value.clone() for name, value in predict.net.state_dict().items()})
        return {metric: next(values)}

    monkeypatch.setattr("anchored.training.loop.validate", judge)
    net = trained(tmp_path, given)
    assert all(torch.equal(net.state_dict()[name], value) for name, value in seen[1].items())
    assert not all(torch.equal(net.state_dict()[name], value) for name, value in seen[2].items())


def test_a_truncated_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path: Path) -> None:
    given = settings()
    whole = trained(tmp_path / "whole", given)
    with pytest.raises(Killed):
        trained(tmp_path / "cut", given, checkpoint_every=0.0, tick=killed_after(8))
    newest = sorted((tmp_path / "cut" / "checkpoints").glob("step-*.pt"))
    assert [path.name for path in newest] == ["step-000000007.pt", "step-000000008.pt"]  # the last two are kept
    newest[-1].write_bytes(newest[-1].read_bytes()[:1000])
    said: list[str] = []
    assert same(trained(tmp_path / "cut", given, say=said.append), whole)
    assert len(said) == 1 and "step-000000008.pt cannot be read" in said[0]
    with pytest.raises(Killed):
        trained(tmp_path / "gone", given, checkpoint_every=0.0, tick=killed_after(8))
    for path in (tmp_path / "gone" / "checkpoints").glob("step-*.pt"):
        path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"no checkpoint in .* can be read"):
        trained(tmp_path / "gone", given)


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings()
    whole = trained(tmp_path / "whole", given)
    save, calls = torch.save, [0]

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full(state: Any, file: Any) -> None:
        calls[0] += 1
        if calls[0] > 6:  # the system refuses to write on, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
        save(state, file)

    monkeypatch.setattr(checkpoints_module.torch, "save", full)
    try:
        with pytest.raises(OSError, match="File too large") as failed:
            trained(tmp_path / "full", given, checkpoint_every=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.errno in WRITING and str(failed.value.filename).startswith(str(tmp_path / "full"))
    monkeypatch.setattr(checkpoints_module.torch, "save", save)
    names = sorted(path.name for path in (tmp_path / "full" / "checkpoints").iterdir())
    assert names == ["step-000000005.pt", "step-000000006.pt"]
    assert same(trained(tmp_path / "full", given), whole)


def test_a_loss_that_is_not_finite_names_step_images_and_checkpoint(tmp_path: Path) -> None:
    said = r"the loss is (nan|inf) at step \d+ .*images \[\d+, .*There is no checkpoint yet"
    with pytest.raises(TrainingError, match=said):
        trained(tmp_path, settings(lr=1e30))
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "failed" and len(last["images"]) == 64


def test_weights_that_a_step_broke_are_in_no_checkpoint(tmp_path: Path) -> None:
    one_step = settings(lr=1e30, epochs=3, batch_size=1347)  # the last step of an epoch breaks them
    with pytest.raises(TrainingError, match=r"(weights are|the loss is) .* at step \d"):
        trained(tmp_path / "run", one_step)
    for file in (tmp_path / "run" / "checkpoints").glob("*.pt"):
        assert all(value.isfinite().all() for value in torch.load(file, weights_only=True)["net"].values())


def test_validation_that_fails_names_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> dict[str, float]:
        raise InputError("logits must be numbers")

    monkeypatch.setattr(train_module, "validate", broken)
    with pytest.raises(TrainingError, match=r"validation fails \(logits must be numbers\) at step \d+ "):
        trained(tmp_path, settings(val_fraction=0.2))


def test_a_gradient_that_is_not_finite_stops_before_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda *given: torch.tensor(math.inf))
    with pytest.raises(TrainingError, match="the norm of the gradient is inf at step 0 "):
        trained(tmp_path, settings())


def scaled_by(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    monkeypatch.setattr(setup, "grad_scaler", lambda *given: scaler)


def test_a_scale_too_large_for_float16_skips_steps_until_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled_by(2.0**30, monkeypatch)
    given = settings("tiny_model:plain", precision="float16")
    with pytest.raises(Killed):
        trained(tmp_path, given, checkpoint_every=0.0, tick=killed_after(1))
    state, _ = Checkpoints(tmp_path / "checkpoints").newest(CPU)
    assert state is not None and state["scaler"]["scale"] == 2.0**29
    untrained = build(given.run_configs()[0], 10, 32).state_dict()
    assert all(torch.equal(value, untrained[name]) for name, value in state["net"].items())
    net = trained(tmp_path, given)
    state, _ = Checkpoints(tmp_path / "checkpoints").newest(CPU)
    assert state is not None and 1 < state["scaler"]["scale"] < 2.0**29
    assert all(value.isfinite().all() for value in net.parameters())
    assert not any(torch.equal(value, untrained[name]) for name, value in net.state_dict().items())


def test_a_gradient_that_is_not_finite_at_any_scale_stops_before_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled_by(4.0, monkeypatch)

    def broken(net: nn.Module) -> nn.Module:
        next(net.parameters()).register_hook(lambda gradient: gradient + math.inf)
        return net

    monkeypatch.setattr(setup, "placed", lambda net, device: broken(net))
    with pytest.raises(TrainingError, match="the norm of the gradient is inf at step 2 "):  # scales 4, 2, 1
        trained(tmp_path, settings(precision="float16"))


def test_sigterm_saves_the_step_in_hand_and_the_run_goes_on_from_it(tmp_path: Path) -> None:
    given = settings()
    whole = trained(tmp_path / "whole", given)

    def terminate(amount: float, note: str) -> None:
        if len((tmp_path / "cut" / "log.jsonl").read_text().splitlines()) == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match="stopped by SIGTERM after step"):
        trained(tmp_path / "cut", given, tick=terminate)
    assert signal.getsignal(signal.SIGTERM) is before
    assert same(trained(tmp_path / "cut", given), whole)


def test_sigterm_ends_the_command_with_143_and_the_same_command_finishes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anchored", "train", "--model", "tiny_model:tiny", "--epochs", "200"]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "--out", str(tmp_path / "run")], env=environment, stderr=subprocess.PIPE)
    log = tmp_path / "run" / "log.jsonl"
    deadline = time.monotonic() + 90
    while not (log.exists() and "checkpoint" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and b"The same command goes on from there" in errors
    state, _ = Checkpoints(tmp_path / "run" / "checkpoints").newest(CPU)
    assert state is not None and f"after step {state['step']}," in errors.decode()


def test_train_writes_a_run_that_predicts_and_replays_from_its_flags(tmp_path: Path) -> None:
    flags = ["--model", "tiny_model:tiny", "--epochs", "2", "--val-fraction", "0.2", "--label-noise", "0.1"]
    flags += ["--set", "clip=1", "ema_decay=0.9", "--seed", "3"]
    main(["train", *flags, "--out", str(tmp_path / "a")])
    run = runs.load(tmp_path / "a")
    assert run.info["label_noise"] == 0.1 and run.info["weights"] == "ema" and run.config.recipe.clip == 1.0
    assert (
        run.info["validation"].keys() == {"validation_top1", "validation_nll"}
        and not (tmp_path / "a" / "checkpoints").exists()
    )
    assert any("labels moved to another class" in note for note in run.info["notes"])
    main(["train", "--config", str(tmp_path / "a" / "flags.yaml"), "--out", str(tmp_path / "b")])
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "clip"], "NAME=VALUE"),
        (["--set", "momentun=1"], "momentum"),
        (["--set", "clip=-1"], "clip"),
        (["--set", "epochs=3", "--epochs", "2"], "given twice"),
        (["--select", "nll"], "needs a validation split"),
        (["--select", "best", "--val-fraction", "0.1"], "select is one of last, top1, nll"),
        (["--label-noise", "1.5"], "[0, 1]; got 1.5"),
        (["--labels", "/nowhere.npy"], "/nowhere.npy"),
        (["--keep", "0"], "keep is at least 1"),
        (["--method", "masked"], "unknown method 'masked'"),
        (["--augmentation", "crop_flop"], "crop_flip"),
    ],
)
def test_bad_flags_of_train(flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--out", str(tmp_path / "out"), *flags])
    assert ended.value.code == 2 and message in capsys.readouterr().err and not (tmp_path / "out").exists()


# --- order


def test_the_shares_of_all_processes_and_parts_make_the_global_batch() -> None:
    alone, shared = Order(100, 24, seed=1), Order(100, 24, seed=1)
    for step in (0, 3, 4, 9):
        whole = torch.cat([part.positions for part in alone.step(step)])
        mine = [part.positions for rank in range(2) for part in shared.step(step, rank, world=2, parts=3)]
        assert torch.equal(torch.cat(mine), whole) and len(mine) == 6
    epoch = torch.cat([alone.step(step)[0].positions for step in range(4)])
    assert len(epoch.unique()) == 96


def two_processes(tmp_path: Path, *flags: str) -> Path:
    out = tmp_path / "two"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "anchored"]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, "train", *flags, "--device", "cpu", "--out", str(out)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return out


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    flags = ["--model", "tiny_model:plain", "--epochs", "1", "--batch-size", "128", "--val-fraction", "0.25"]
    flags += ["--precision", "float32", "--lr", "0.02", "--alpha", "0.5"]
    main(["train", *flags, "--out", str(tmp_path / "one")])
    two = two_processes(tmp_path, *flags)
    one, both = runs.load(tmp_path / "one"), runs.load(two)
    for a, b in zip(one.net.parameters(), both.net.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    lines = [json.loads((folder / "metrics.jsonl").read_text()) for folder in (tmp_path / "one", two)]
    for name in (
        "loss",
        "loss_masked",
        "train_accuracy",
        "validation_top1",
        "validation_nll",
    ):  # n is exact: nobody counts twice
        assert lines[0][name] == pytest.approx(lines[1][name], rel=1e-4), name
    assert lines[0]["loss_masked"] is not None


def test_a_batch_without_equal_parts_is_refused(tmp_path: Path) -> None:
    images, labels = torch.zeros(30, 8, 8, 3, dtype=torch.uint8), torch.zeros(30, dtype=torch.int64)
    data = Data("d", ImageSet(images, labels), ImageSet(images, labels), ("a", "b"))
    given = settings("tiny_model:plain", batch_size=64, accumulate=4)
    prepared = prepare(given)
    (config,) = prepared.settings.run_configs()
    with pytest.raises(InputError, match="multiple of 1 processes x 4 parts; got 30"):
        train(config, data, prepared.first.preprocess, tmp_path, device=CPU)
