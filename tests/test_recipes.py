from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from fixtures import shared
from torch.optim import lr_scheduler

from anchored.arms.recipe import Recipe
from anchored.arms.recipe_choice import recipe, recipe_from
from anchored.arms.recipes import RECIPES
from anchored.augment import parse
from anchored.models import OURS
from anchored.system.errors import InputError
from anchored.system.files import write_json


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
    assert parse(made.policy)
    command = (RECIPES[name].__doc__ or "").splitlines()[0].split()
    assert command[:2] == ["anchored", "compare"] and command[command.index("--recipe") + 1] == name
    model = command[command.index("--model") + 1]
    assert model in OURS or model.startswith(("timm:", "torchvision:"))


SWIN = {
    "epochs": 300,
    "batch_size": 1024,
    "optimiser": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.05,
    "norm_weight_decay": 0.0,
    "bias_weight_decay": 0.0,
    "embedding_weight_decay": 0.0,
    "schedule": "cosine",
    "warmup": 20,
    "warmup_start": 0.01,
    "min_lr": 1e-5,
    "label_smoothing": 0.1,
    "policy": "resized_crop_flip+trivialaugment+random_erasing(p=0.25)+mixup(alpha=0.8)+cutmix(alpha=1.0)",
    "repeats": 4,
    "clip": 5.0,
    "ema_decay": 0.99998,
    "ema_steps": 32,
    "alpha": 0.2,
    "layer_decay": 1.0,
    "trainable": "all",
}
VIT = SWIN | {
    "batch_size": 4096,
    "lr": 3e-3,
    "weight_decay": 0.3,
    "norm_weight_decay": None,
    "bias_weight_decay": None,
    "embedding_weight_decay": None,
    "warmup": 30,
    "warmup_start": 0.033,
    "min_lr": 0.0,
    "label_smoothing": 0.11,
    "policy": "resized_crop_flip+randaugment+mixup(alpha=0.2)+cutmix(alpha=1.0)",
    "repeats": 3,
    "clip": 1.0,
}


@pytest.mark.parametrize(
    ("name", "expected"), [*((f"imagenet_swin_v2_{s}", SWIN) for s in "tsb"), ("imagenet_vit_b_16", VIT)]
)
def test_the_papers_imagenet_recipes(name: str, expected: dict[str, Any]) -> None:
    made = recipe(name)
    assert {key: getattr(made, key) for key in expected} == expected


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("imagenet")])
def test_imagenet_recipes_are_headed_by_the_papers_numbers(name: str) -> None:
    path = shared("ANCHORED_PAPER", "paper") / "tables" / "table2_6_imagenet_generalization.csv"
    with open(path, newline="") as file:
        table = {(row["model"], row["method"], row["benchmark"]): row["top1"] for row in csv.DictReader(file)}
    for method in ("standard", "masking"):
        clean, c, r = (table[name.removeprefix("imagenet_"), method, on] for on in ("id", "c_sev5", "imagenet_r"))
        assert f"{method} {clean}" in (text := " ".join((RECIPES[name].__doc__ or "").split()))
        assert c in text and r in text


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


def test_none_is_a_value_where_fields_are_given() -> None:
    base = recipe("imagenet_swin_v2_t")
    assert base.clip is not None and base.ema_decay is not None
    bare = recipe("imagenet_swin_v2_t", fields={"clip": None, "ema_decay": "none"}, epochs=None)
    assert (bare.clip, bare.ema_decay, bare.epochs) == (None, None, base.epochs)
    mapping = recipe({"name": "imagenet_swin_v2_t", "clip": None}, epochs=3)
    assert (mapping.clip, mapping.epochs, mapping.name) == (None, 3, "imagenet_swin_v2_t")


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
        ({"epochs": 2.5}, "epochs is a whole number; got 2.5"),
        ({"epochs": True}, "epochs is a whole number; got True"),
        ({"lr": "fast"}, "lr is a number; got 'fast'"),
        ({"nesterov": 1}, "nesterov is true or false; got 1"),
        ({"optimiser": 3}, "optimiser is text; got 3"),
        ({"accumulate": 3}, "accumulate is .* equal parts .* got 3 for a batch size of 128"),
        ({"accumulate": 0}, "accumulate is .* got 0"),
        ({"momentum": 1.0}, r"momentum lies in \[0, 1\); got 1.0"),
        ({"momentum": 0.0}, "nesterov needs a momentum above 0"),
        ({"weight_decay": -1e-4}, "weight decay is a number of at least 0; got -0.0001"),
        ({"norm_weight_decay": math.nan}, "norm weight decay is a number of at least 0 or none; got nan"),
        ({"bias_weight_decay": -1}, "bias weight decay is"),
        ({"embedding_weight_decay": math.inf}, "embedding weight decay is"),
        ({"layer_decay": 0.0}, r"layer decay is .* in \(0, 1\]; got 0.0"),
        ({"layer_decay": 1.1}, "layer decay is"),
        ({"milestones": (3, 2)}, r"milestones are epochs from 0 in increasing order; got \[3, 2\]"),
        ({"milestones": (-1,)}, "milestones are"),
        ({"milestones": 5}, "milestones is a list of whole numbers; got 5"),
        ({"gamma": 0.0}, r"gamma, .* lies in \(0, 1\]; got 0.0"),
        ({"warmup": -1}, "warmup is epochs from 0; got -1"),
        ({"warmup_start": 2}, r"warmup start is .* in \[0, 1\]; got 2"),
        ({"min_lr": 1.0}, r"min lr lies in \[0, lr = 0.2\]; got 1.0"),
        ({"min_lr": -0.1}, "min lr lies"),
        ({"augmentation": "crop_flop"}, "unknown augmentation 'crop_flop'. Did you mean 'crop_flip'"),
        ({"augmentation": "crop+mixup", "mixup_alpha": 0.2}, "mixup more than once"),
        ({"random_erasing": 2}, r"random erasing is a probability in \[0, 1\]; got 2"),
        ({"mixup_alpha": -0.1}, "mixup alpha is a positive number, 0 for none; got -0.1"),
        ({"cutmix_alpha": math.inf}, "cutmix alpha is"),
        ({"repeats": 0}, r"repeats, .* 1..128, the batch size; got 0"),
        ({"clip": 0.0}, "clip is the largest gradient norm, above 0, or none; got 0.0"),
        ({"clip": math.nan}, "clip is"),
        ({"ema_decay": 1.0}, r"ema decay lies in \[0, 1\), or none; got 1.0"),
        ({"ema_steps": 0}, "ema steps is at least 1; got 0"),
        ({"trainable": "heads"}, "unknown trainable 'heads'. Did you mean 'head'"),
        ({"learning_rate": 0.1}, "unknown field of a recipe 'learning_rate'"),
        ({"weightdecay": 0.1}, "unknown field of a recipe 'weightdecay'. Did you mean 'weight_decay'"),
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


# --- replay


def test_a_run_and_a_comparison_give_back_their_recipe(tmp_path: Path) -> None:
    made = recipe("imagenet_swin_v2_b", epochs=7, clip=2.5)
    write_json(tmp_path / "run" / "run.json", {"config": {"method": "masking", "recipe": dataclasses.asdict(made)}})
    write_json(tmp_path / "all" / "config.json", {"settings": {"data": "x", "recipe": dataclasses.asdict(made)}})
    for path in ("run", "run/run.json", "all", "all/config.json"):
        assert recipe(str(tmp_path / path)) == recipe_from(tmp_path / path) == made
    assert recipe(str(tmp_path / "run"), lr=0.5) == dataclasses.replace(made, lr=0.5)


def test_a_saved_recipe_holds_whatever_its_name_means_later(tmp_path: Path) -> None:
    made = dataclasses.replace(recipe("finetune"), clip=None, milestones=(1, 2), nesterov=True)
    write_json(tmp_path / "run.json", {"config": {"recipe": dataclasses.asdict(made)}})
    assert recipe_from(tmp_path) == made, "None, lists and all"


def test_yaml_names_a_recipe_and_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: cifar_resnet18\nepochs: 100\nlr: 5e-2\nweight-decay: 1e-4\naugmentation: crop+pixmix\n")
    expected = recipe("cifar_resnet18", epochs=100, lr=0.05, weight_decay=1e-4, augmentation="crop+pixmix")
    assert recipe(str(file)) == expected and expected.milestones == (30, 60, 80)
    file.write_text("epochs: 3\nschedule: cosine\nclip: null\n")
    assert recipe(str(file)) == Recipe("mine", epochs=3, schedule="cosine")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 1\n- 2\n", "holds no recipe: a mapping of fields"),
        ("epochs: [1", "cannot be read"),
        ("lr: 0.1\n", "needs the number of epochs, or the name of a recipe. Names: cpu_quick"),
        ("name: cpu_quick\nepoch: 3\n", "unknown field of a recipe 'epoch'. Did you mean 'epochs'"),
        ("name: cpu_quick\nlr: -1\n", "lr is a positive number"),
    ],
)
def test_bad_recipe_files(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(InputError, match=says):
        recipe(str(tmp_path / "r.yaml"))


def test_files_without_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing.yaml cannot be read: No such file"):
        recipe(str(tmp_path / "missing.yaml"))
    with pytest.raises(InputError, match=r"neither run.json"):
        recipe(str(tmp_path))
