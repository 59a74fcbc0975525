"""`anchored train --plan`: what it prints, and the arithmetic in which it measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from anchored.cli import main
from anchored.comparison import plan as plan_module
from anchored.comparison.plan import activations
from anchored.method.core import anchor
from anchored.models.by_name import create
from anchored.system import devices


def test_plan_prints_steps_and_days_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "has_bfloat16", lambda device: True)
    main(["train", "--model", "resnet9", "--epochs", "10", "--plan", "--images-per-second", "0.1"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "10 an epoch, 100 in 10 epochs" in printed
    assert "1.56 days on one device, 0.10 on 16" in printed  # 1347 x 10 / 0.1 s
    assert "activations 0.05 GiB on one device" in printed and "(bfloat16)" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("precision", "has", "measured", "says"),
    [
        ("bfloat16", True, "bfloat16", "(bfloat16)"),
        ("bfloat16", False, "float32", "(measured in float32, as this CPU has no bfloat16; bfloat16 keeps 0.5 to 0.6"),
        ("float16", True, "bfloat16", "(measured in bfloat16; float16 keeps as much)"),
        ("float16", False, "float32", "(measured in float32, as this CPU has no bfloat16; float16 keeps 0.5 to 0.6"),
        ("float32", True, "float32", "(float32)"),
        ("float32", False, "float32", "(float32)"),
    ],
)
def test_plan_measures_in_an_arithmetic_of_this_machine(
    precision: str,
    has: bool,
    measured: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[str] = []

    def spied(*given: Any) -> float:
        used.append(given[-1])
        return activations(*given)

    monkeypatch.setattr(devices, "has_bfloat16", lambda device: has)
    monkeypatch.setattr(plan_module, "activations", spied)
    main(["train", "--model", "tiny_model:tiny", "--plan", "--precision", precision])
    assert used == [measured] and says in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["resnet18", "resnet9"])
def test_half_precision_keeps_what_is_said_of_it(name: str) -> None:
    net = create(name, 10, weights="none", image_size=32, seed=0).net
    whole, half, other = (activations(net, 8, 10, precision) for precision in ("float32", "bfloat16", "float16"))
    assert half == other and 0.5 <= half / whole <= 0.6


def test_activations_are_what_autograd_keeps_of_an_image() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 10), nn.ReLU(), nn.Linear(10, 3))
    of_an_image = 4 * (48 + 10 + 3) + 8  # the input, what ReLU gives, log-probabilities, the label
    assert activations(net, 4, 3, "float32") == of_an_image
    half = activations(net, 4, 3, "bfloat16")
    assert 0.4 * of_an_image < half < of_an_image
    assert activations(anchor(net, init="fresh", example=torch.rand(2, 3, 4, 4)), 4, 3, "float32") == of_an_image + 192
