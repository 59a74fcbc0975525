from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from anchored.augment import AUGMENTATIONS
from anchored.errors import InputError
from anchored.models import OURS
from anchored.recipes import RECIPES, Recipe, recipe


def torch_schedule(lr: float, epochs: int, make: Any) -> list[float]:
    """Learning rates at the start of each epoch, by PyTorch's scheduler `make(optimiser)`."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr)
    scheduler = make(optimiser)
    rates = []
    for _ in range(epochs):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return rates


# --- schedules


def test_multistep_as_pytorch_does_it() -> None:
    ours = Recipe("r", epochs=200, lr=0.1, milestones=(60, 120, 160), gamma=0.2)
    theirs = torch_schedule(0.1, 200, lambda o: lr_scheduler.MultiStepLR(o, [60, 120, 160], 0.2))
    assert [ours.lr_at(epoch) for epoch in range(200)] == pytest.approx(theirs, rel=1e-12)
    assert ours.lr_at(59.999) == 0.1 and ours.lr_at(60) == pytest.approx(0.02), "within an epoch it is constant"


def test_cosine_as_pytorch_does_it() -> None:
    ours = Recipe("r", epochs=30, lr=1e-3, schedule="cosine", min_lr=1e-5)
    theirs = torch_schedule(1e-3, 30, lambda o: lr_scheduler.CosineAnnealingLR(o, 30, 1e-5))
    assert [ours.lr_at(epoch) for epoch in range(30)] == pytest.approx(theirs, rel=1e-9)
    assert ours.lr_at(30) == pytest.approx(1e-5)


def test_cosine_with_the_linear_warm_up_of_the_papers_swin_recipe() -> None:
    ours = Recipe("r", epochs=300, lr=1e-3, schedule="cosine", warmup=20, warmup_start=0.01, min_lr=1e-5)

    def scheduler(optimiser: torch.optim.Optimizer) -> Any:
        warm = lr_scheduler.LinearLR(optimiser, 0.01, total_iters=20)
        main = lr_scheduler.CosineAnnealingLR(optimiser, 280, 1e-5)
        return lr_scheduler.SequentialLR(optimiser, [warm, main], [20])

    assert [ours.lr_at(epoch) for epoch in range(300)] == pytest.approx(torch_schedule(1e-3, 300, scheduler), rel=1e-6)
    assert ours.lr_at(0) == pytest.approx(1e-5) and ours.lr_at(20) == pytest.approx(1e-3)
    assert ours.lr_at(160) == pytest.approx((1e-3 + 1e-5) / 2), "half way down"


def test_one_cycle_is_a_triangle() -> None:
    ours = Recipe("r", epochs=20, lr=0.2, schedule="one_cycle", warmup=4)
    known = {0: 0.0, 1: 0.05, 2.5: 0.125, 4: 0.2, 8: 0.15, 12: 0.1, 19: 0.0125, 20: 0.0}
    assert {epoch: ours.lr_at(epoch) for epoch in known} == pytest.approx(known)


@pytest.mark.parametrize("schedule", ["one_cycle", "cosine"])
@pytest.mark.parametrize("epochs", [1, 2, 5, 20, 100])
def test_every_length_rises_to_the_peak_and_ends_low(schedule: str, epochs: int) -> None:
    ours = Recipe("r", epochs=epochs, lr=0.2, schedule=schedule, warmup=4, min_lr=1e-4)
    points = [epochs * step / 1000 for step in range(1001)]
    rates = [ours.lr_at(point) for point in points]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(0.2, rel=0.01)
    assert rates[:top] == sorted(rates[:top]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert points[top] <= epochs / 2, "warm-up takes at most half of a run shorter than its recipe"
    assert rates[-1] == pytest.approx(1e-4 if schedule == "cosine" else 0.0, abs=1e-12)


# --- the recipes


@pytest.mark.parametrize("name", ["cifar_resnet18", "cifar_wrn40_2"])
def test_the_papers_cifar_recipes(name: str) -> None:
    expected = {
        "epochs": 200,
        "batch_size": 128,
        "optimiser": "sgd",
        "lr": 0.1,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 5e-4,
        "schedule": "multistep",
        "milestones": (60, 120, 160),
        "gamma": 0.2,
        "label_smoothing": 0.0,
        "augmentation": "crop_flip",
        "clip": None,
        "alpha": 0.25,
    }
    values = dataclasses.asdict(recipe(name))
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_be_run_as_its_docstring_says(name: str) -> None:
    made = recipe(name)
    assert made == RECIPES[name]() and made.name == name
    assert made.augmentation in AUGMENTATIONS
    command = (RECIPES[name].__doc__ or "").splitlines()[0].split()
    assert command[:2] == ["anchored", "compare"] and command[command.index("--recipe") + 1] == name
    model = command[command.index("--model") + 1]
    assert model in OURS or model.startswith("timm:")


def test_recipes_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe("cpu_quick").lr = 1.0  # type: ignore[misc]


# --- overrides


def test_milestones_move_with_the_length() -> None:
    assert recipe("cifar_resnet18", epochs=50).milestones == (15, 30, 40)
    assert recipe("cifar_resnet18", epochs=200).milestones == (60, 120, 160)
    short = recipe("cifar_resnet18", epochs=2)
    assert short.lr_at(0) == pytest.approx(0.1) and short.lr_at(1.999) < 0.1
    given = recipe("cifar_resnet18", epochs=50, milestones=(10,))
    assert given.milestones == (10,)


def test_overrides_replace_what_they_name_and_nothing_else() -> None:
    base = dataclasses.asdict(recipe("finetune"))
    changed = dataclasses.asdict(recipe("finetune", lr=0.01, batch_size=8, alpha=0.0, epochs=None))
    assert {key for key in base if base[key] != changed[key]} == {"lr", "batch_size", "alpha"}
    assert (changed["lr"], changed["batch_size"], changed["alpha"]) == (0.01, 8, 0.0)


def test_a_larger_rate_scales_the_whole_schedule() -> None:
    base, doubled = recipe("cpu_quick"), recipe("cpu_quick", lr=2 * recipe("cpu_quick").lr)
    for share in (0.05, 0.3, 0.7, 0.95):
        assert doubled.lr_at(share * base.epochs) == pytest.approx(2 * base.lr_at(share * base.epochs))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"epochs": 0}, "epochs is at least 1; got 0"),
        ({"batch_size": 1}, "batch size is at least 2"),
        ({"lr": 0.0}, "lr is a positive number; got 0.0"),
        ({"lr": -0.1}, "lr is a positive number"),
        ({"lr": math.nan}, "lr is a positive number; got nan"),
        ({"lr": math.inf}, "lr is a positive number; got inf"),
        ({"alpha": 1.5}, "alpha is the probability .* got 1.5"),
        ({"alpha": -0.1}, "alpha is the probability"),
        ({"alpha": math.nan}, "alpha is the probability"),
        ({"label_smoothing": 1.0}, "label smoothing lies in"),
        ({"optimiser": "adam"}, "unknown optimiser 'adam'. Did you mean 'adamw'"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'. Did you mean 'cosine'"),
    ],
)
def test_values_out_of_range_are_refused(overrides: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        recipe("cpu_quick", **overrides)


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"Did you mean 'cifar_resnet18'.* Choices: cpu_quick"):
        recipe("cifar_resnet")
