"""Anchoring in other people's loops: DistributedDataParallel, autocast, averages of the weights, and the examples."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ddp_worker
import pytest
import torch
from fixtures import ROOT
from test_core import halves_differ, padded, randomise, seeded
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from anchored import Anchored, Anchoring, anchor, anchored_loss, fold


def two_processes(folder: Path, source: str) -> list[dict]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    script = str(Path(__file__).parent / "ddp_worker.py")
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(folder), source], env=environment, stderr=-1, text=True
        )
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("source", ["set", "batch"])
def test_two_processes_train_as_one_with_the_joint_batch(source: str, tmp_path: Path) -> None:
    first, second = two_processes(tmp_path, source)
    assert first["masked"] == second["masked"] and {True, False} == set(first["masked"])
    net, anchoring = ddp_worker.network(), ddp_worker.plan(source)
    before = net.state_dict()["net.0.layer.weight"].clone()
    optimiser = ddp_worker.optimiser(net)
    for step in range(ddp_worker.STEPS):
        x, y = ddp_worker.batch(step)
        if source == "set":
            r = anchoring.draw(x, step)
        else:  # references from the batch stay inside the part of each process
            halves = x.split(ddp_worker.LOCAL)
            r = torch.cat([anchoring.draw(half, step, rank=rank, world=2) for rank, half in enumerate(halves)])
        anchored_loss(net, x, y, r, masked=anchoring.masked(step)).backward()
        optimiser.step()
        optimiser.zero_grad()
    for name, value in net.state_dict().items():
        torch.testing.assert_close(first["net"][name], value, rtol=0, atol=1e-12)
        torch.testing.assert_close(second["net"][name], value, rtol=0, atol=1e-12)
    assert not torch.allclose(net.state_dict()["net.0.layer.weight"], before)


@pytest.fixture
def net() -> Anchored:
    return halves_differ(anchor(randomise(padded()), example=seeded(2, 3, 6, 6))).float()


@pytest.mark.parametrize("masked", [False, True])
def test_autocast_computes_in_bfloat16_and_gives_nearly_the_same_gradient(net: Anchored, masked: bool) -> None:
    x, r, y = seeded(8, 3, 6, 6).float(), seeded(8, 3, 6, 6, seed=1).float(), torch.arange(8) % 5
    seen = []
    net.net[0].layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    gradients, losses = [], []
    for enabled in (False, True):
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = anchored_loss(net, x, y, r, masked=masked)
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append(torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]))
    assert seen == [torch.float32, torch.bfloat16]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99
    assert net.many(x, r[:2]).dtype == torch.float32  # nothing of the other precision is kept between calls


def test_the_uniform_target_is_exact_in_bfloat16(net: Anchored) -> None:
    seen = []

    def criterion(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen.append((logits.dtype, target))
        return nn.functional.cross_entropy(logits, target)

    x = seeded(4, 3, 6, 6).float()
    with torch.autocast("cpu", torch.bfloat16):
        anchored_loss(net, x, torch.arange(4), x.flip(0), masked=True, criterion=criterion)
    ((dtype, target),) = seen
    assert dtype == torch.float32 and torch.equal(target, torch.full((4, 5), 0.2))


def test_an_average_of_the_weights_is_anchored_too(net: Anchored) -> None:
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True)
    expected = {name: value.clone() for name, value in net.state_dict().items()}
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    plan = Anchoring(alpha=0.5, seed=1, source="batch")
    for step in range(5):
        x, y = seeded(8, 3, 6, 6, seed=step).float(), torch.arange(8) % 5
        anchored_loss(net, x, y, plan.draw(x, step), masked=plan.masked(step)).backward()
        optimiser.step()
        optimiser.zero_grad()
        average.update_parameters(net)
        for name, value in net.state_dict().items():
            if step == 0:
                expected[name] = value.clone()  # the first update copies
            elif value.is_floating_point():
                expected[name] = 0.8 * expected[name] + 0.2 * value
    x, r = seeded(4, 3, 6, 6, seed=20).float(), seeded(1, 3, 6, 6, seed=21).float()
    by_hand = anchor(randomise(padded()), example=seeded(2, 3, 6, 6)).float()
    by_hand.load_state_dict(expected, strict=False)
    average.eval(), by_hand.eval()
    torch.testing.assert_close(average(x, r), by_hand(x, r), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(average(x, r, masked=True), by_hand(x, r, masked=True), rtol=1e-4, atol=1e-5)
    folded = fold(average.module, r)
    torch.testing.assert_close(folded(x), average(x, r), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(average(x, r), net.eval()(x, r), atol=1e-4)


def test_mixed_labels_are_probabilities_in_masked_batches_too(net: Anchored) -> None:
    x, r = seeded(4, 3, 6, 6).float(), seeded(4, 3, 6, 6, seed=1).float()
    a, b = nn.functional.one_hot(torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]]), 5).float()
    mixed = 0.3 * a + 0.7 * b
    for masked, target in ((False, "uniform"), (True, "label")):
        parts = [anchored_loss(net, x, y, r, masked=masked, masked_target=target) for y in (a, b)]
        loss = anchored_loss(net, x, mixed, r, masked=masked, masked_target=target)
        torch.testing.assert_close(loss, 0.3 * parts[0] + 0.7 * parts[1])
    uniform = anchored_loss(net, x, mixed, r, masked=True)
    torch.testing.assert_close(uniform, anchored_loss(net, x, torch.arange(4), r, masked=True))


def nll(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.nll_loss(logits.log_softmax(1), target)


def test_a_function_of_class_indices_is_named(net: Anchored) -> None:
    x = seeded(4, 3, 6, 6).float()
    with pytest.raises(TypeError, match=r"probabilities \[B, classes\]; nll failed"):
        anchored_loss(net, x, torch.arange(4), x.flip(0), masked=True, criterion=nll)
    assert torch.isfinite(anchored_loss(net, x, torch.arange(4), x.flip(0), masked=False, criterion=nll))


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # of the package about itself and its dependencies
def test_the_lightning_module_learns_the_digits(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightning", reason="the package lightning is not installed: anchored[lightning]")
    assert example("lightning_module").main() > 85
    assert "accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["pytorch_loop", "accelerate_loop"])
def test_examples_learn_the_digits(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert example(name).main() > 85
    assert "accuracy" in capsys.readouterr().out
