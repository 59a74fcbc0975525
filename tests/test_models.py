"""Models by name: the networks, what unknown names are told, image sizes, preprocessing, and anchoring them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import anchored
from anchored.models.by_name import create
from anchored.system.errors import InputError

SMALL = "timm:test_resnet"


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


# --- the networks


@pytest.mark.parametrize(
    ("name", "classes", "millions"),
    [
        ("resnet18", 10, 11.17),
        ("resnet18", 100, 11.22),
        ("wrn40_2", 10, 2.24),
        ("wrn40_2", 100, 2.26),
    ],
)
def test_parameters_as_in_the_paper(name: str, classes: int, millions: float) -> None:
    assert round(parameters(create(name, classes).net) / 1e6, 2) == millions


def test_resnet9_is_small() -> None:
    assert round(parameters(create("resnet9", 10).net) / 1e6, 1) == 1.6


@pytest.mark.parametrize("name", ["resnet9", "resnet18", "wrn40_2"])
def test_logits_at_several_sizes_and_gradients_everywhere(name: str) -> None:
    net = create(name, 7).net
    for side in (16, 32, 64):
        assert net.eval()(torch.rand(2, 3, side, side)).shape == (2, 7)
    net.train()
    F.cross_entropy(net(torch.rand(4, 3, 16, 16)), torch.tensor([0, 1, 2, 6])).backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in net.parameters())


def test_wide_residual_network_has_40_layers_and_the_released_dropout() -> None:
    net = create("wrn40_2", 10).net
    # depth = 6 n + 4: three groups of n blocks of two convolutions, behind a stem.
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) == 1 + 2 * 3 * ((40 - 4) // 6)
    assert {m.p for m in net.modules() if isinstance(m, nn.Dropout)} == {0.3}


@pytest.mark.parametrize("name", ["resnet9", "wrn40_2", SMALL, "torchvision:squeezenet1_1"])
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = create(name, 5, seed=1).net.state_dict()
    assert torch.equal(torch.get_rng_state(), before), "the global generator was used"
    torch.rand(3)
    assert same(first, create(name, 5, seed=1).net.state_dict())
    assert not same(first, create(name, 5, seed=2).net.state_dict())


# --- names


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet81", "Did you mean 'resnet18'"),
        ("wrn402", "Did you mean 'wrn40_2'"),
        ("resnet50", "timm:resnet50 and torchvision:resnet50"),
        ("timm:resnet1", "Near: resnet1[0-9]"),
        ("timm:test_resnet.nothing", "r160_in1k"),
        ("timm:", "timm:NAME"),
        ("torchvision:resnet181", "Did you mean 'resnet18'"),
        ("torchvison:resnet18", "Did you mean torchvision:resnet18"),
        ("no_such_package:net", "No module named 'no_such_package'"),
        ("math:nothing_here", "nothing_here"),
        ("math:pi", "not callable"),
        ("math:sqrt", "num_classes=3"),
    ],
)
def test_unknown_names_say_what_there_is(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        create(name, 3)


def test_a_callable_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_a_test.py").write_text(
        "from torch import nn\n"
        "def net(num_classes, width=4):\n"
        "    return nn.Sequential(nn.Conv2d(3, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),"
        " nn.Linear(width, num_classes))\n"
        "def wrong(num_classes):\n"
        "    return net(num_classes + 1)\n"
        "def nothing(num_classes):\n"
        "    return None\n"
    )
    (tmp_path / "broken_for_a_test.py").write_text("def net(:\n")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    model = create("mine_for_a_test:net", 6, image_size=12)
    assert model.net(torch.rand(2, 3, 12, 12)).shape == (2, 6)
    assert model.mean is None and model.image_size is None and not model.pretrained
    with pytest.raises(InputError, match=r"logits \[B, 6\]; for 2 images it gives \[2, 7\]"):
        create("mine_for_a_test:wrong", 6, image_size=12)
    with pytest.raises(InputError, match="returned NoneType"):
        create("mine_for_a_test:nothing", 6)
    with pytest.raises(InputError, match="SyntaxError"):
        create("broken_for_a_test:net", 6)
    with pytest.raises(InputError, match="no default weights"):
        create("mine_for_a_test:net", 6, weights="default")


# --- image sizes and preprocessing


def test_a_position_table_is_made_for_the_image_size() -> None:
    model = create("timm:test_vit", 3, image_size=64)
    assert model.image_size == 64
    assert model.net.pos_embed.shape[1] == (64 // 16) ** 2 + 1
    assert create("timm:test_vit", 3).image_size == 160


def test_a_convolutional_network_takes_any_size() -> None:
    model = create(SMALL, 3, image_size=48)
    assert model.image_size == 48 and model.net(torch.rand(2, 3, 48, 48)).shape == (2, 3)


@pytest.mark.parametrize(("name", "side"), [("timm:test_vit", 50), ("torchvision:alexnet", 32)])
def test_a_size_the_model_fails_on_is_refused_at_once(name: str, side: int) -> None:
    with pytest.raises(InputError, match=f"RGB images of {side} px"):
        create(name, 3, image_size=side)


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "test_vit2"])
def test_preprocessing_of_timm(name: str) -> None:
    model = create(f"timm:{name}", 3)
    config = timm.data.resolve_model_data_config(model.net)
    assert (model.mean, model.std, model.crop) == (config["mean"], config["std"], config["crop_pct"])
    assert model.interpolation == config["interpolation"]


@pytest.mark.parametrize(
    ("name", "interpolation", "crop"),
    [("resnet18", "bilinear", 224 / 256), ("efficientnet_b0", "bicubic", 224 / 256)],
)
def test_preprocessing_of_torchvision(name: str, interpolation: str, crop: float) -> None:
    model = create(f"torchvision:{name}", 3)
    assert (model.interpolation, model.crop, model.image_size) == (interpolation, crop, 224)
    assert model.mean == (0.485, 0.456, 0.406) and model.std == (0.229, 0.224, 0.225)


@pytest.mark.parametrize(("name", "side"), [("googlenet", 64), ("inception_v3", 96)])
def test_inception_trains_without_auxiliary_heads(name: str, side: int) -> None:
    net = create(f"torchvision:{name}", 4, image_size=side).net
    assert net.training and net.transform_input
    logits = net(torch.rand(2, 3, side, side))
    assert isinstance(logits, Tensor) and logits.shape == (2, 4)
    assert not any(key.startswith(("aux", "Aux")) for key in net.state_dict())


# --- anchoring


@pytest.mark.parametrize(
    "name",
    ["resnet9", "wrn40_2", "timm:test_vit", "timm:test_efficientnet", "torchvision:googlenet", "timm:test_nfnet"],
)
def test_what_create_returns_can_be_anchored(name: str) -> None:
    net = create(name, 5, image_size=64).net.double().eval()
    x = torch.rand(3, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wide = anchored.anchor(net, example=x[:2]).eval()
    with torch.no_grad():
        expected, logits = net(x), wide(x, x.flip(0) - 0.5)
    assert not torch.equal(expected[0], expected[1])
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-12)
    assert parameters(wide) > parameters(net)
