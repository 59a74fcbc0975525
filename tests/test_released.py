"""Synthetic checkpoints of the released layouts come in exactly; unsafe and foreign ones do not."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision import models as tv

import anchored
from anchored.cli import main
from anchored.runs.released import import_released
from anchored.system.errors import InputError


class Block(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class CifarResNet18(nn.Module):
    """The usual CIFAR ResNet-18 by its usual names, with a stem of 6 channels."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(6, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.linear = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.linear(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Wrapper(nn.Module):
    """Of the release: the network of [reference, residual] lies in `net`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


def awake(net: nn.Module, seed: int) -> nn.Module:
    """Statistics and scales of batch norm that are not those of a new layer."""
    stream = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(0.1 * torch.randn(module.running_mean.shape, generator=stream))
            module.running_var.copy_(0.5 + torch.rand(module.running_var.shape, generator=stream))
    return net.eval()


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    torch.manual_seed(0)
    net = awake(CifarResNet18(), 1)
    path = tmp_path_factory.mktemp("cifar") / "resnet18.pth"
    torch.save(nn.DataParallel(Wrapper(net)).state_dict(), path)
    return net, path


def imagenet_model() -> nn.Module:
    """A small model of torchvision's, whose training script wrote the ImageNet checkpoints, with 6 channels."""
    net = tv.shufflenet_v2_x0_5(num_classes=5)
    net.conv1[0] = nn.Conv2d(6, 24, 3, 2, 1, bias=False)
    return awake(net, 2)


def pair(x: Tensor, r: Tensor) -> Tensor:
    return torch.cat([r.expand_as(x), x - r], dim=1)


def test_cifar_checkpoint(cifar: tuple[nn.Module, Path], tmp_path: Path) -> None:
    net, path = cifar
    main(["import", str(path), str(tmp_path / "run"), "--data", "digits", "--references", "20"])
    run = anchored.load(tmp_path / "run")
    assert isinstance(run.net, anchored.Anchored) and run.references is not None and len(run.references) == 20
    assert run.preprocess.mean == (0.4914, 0.4822, 0.4465) and run.preprocess.std == (0.2023, 0.1994, 0.2010)
    stream = torch.Generator().manual_seed(0)
    x, r = torch.randn(3, 3, 32, 32, generator=stream), run.references.sample(1, 0)
    with torch.no_grad():
        torch.testing.assert_close(run.net(x, r), net(pair(x, r)), rtol=0, atol=1e-4)
    assert run.info["imported"]["weights"] == "raw" and len(run.info["imported"]["sha256"]) == 64
    assert run.predict(torch.zeros(32, 32, 3, dtype=torch.uint8), protocol="k_random", k=20).std is not None


def test_without_data_the_reference_is_the_mean_colour(cifar: tuple[nn.Module, Path], tmp_path: Path) -> None:
    net, path = cifar
    run = anchored.load(import_released(path, tmp_path / "run"))
    image = torch.randint(0, 256, (2, 32, 32, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x = run.preprocess(image)
    with torch.no_grad():
        torch.testing.assert_close(run.predict(image).logits, net(pair(x, torch.zeros_like(x[:1]))), rtol=0, atol=1e-4)
    assert "mean colour" in run.info["imported"]["references"]
    with pytest.raises(InputError, match="k = 10"):
        run.predict(image, protocol="k_random")


@pytest.mark.parametrize("weights", ["ema", "raw"])
def test_imagenet_checkpoint(weights: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    raw, averaged = imagenet_model(), imagenet_model()
    state = {
        "model": Wrapper(raw).state_dict(),
        "model_ema": {"n_averaged": torch.tensor(7)} | nn.DataParallel(Wrapper(averaged)).state_dict(),
        "optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]},
        "epoch": 299,
        "args": argparse.Namespace(model="shufflenet_v2_x0_5", lr=0.003, device="cuda", distributed=True),
    }
    torch.save(state, tmp_path / "model_299.pth")
    run = anchored.load(import_released(tmp_path / "model_299.pth", tmp_path / "run", weights=weights))
    stream = torch.Generator().manual_seed(0)
    x, r = torch.randn(2, 3, 64, 64, generator=stream), torch.randn(1, 3, 64, 64, generator=stream)
    expected = averaged if weights == "ema" else raw
    with torch.no_grad():
        assert not torch.allclose(raw(pair(x, r)), averaged(pair(x, r)), atol=1e-3)
        torch.testing.assert_close(run.net(x, r), expected(pair(x, r)), rtol=0, atol=1e-4)
    imported = run.info["imported"]
    assert imported["weights"] == weights and imported["epoch"] == 299 and imported["options"]["lr"] == 0.003


class Malicious:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("inside", [False, True], ids=["beside the weights", "inside the Namespace"])
def test_a_malicious_pickle_does_not_execute(inside: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark, path = tmp_path / "executed", tmp_path / "evil.pth"
    evil = Malicious(mark)
    torch.save({"model": {}, "args": argparse.Namespace(model=evil) if inside else evil}, path)
    with pytest.raises(SystemExit) as ended:
        main(["import", str(path), str(tmp_path / "run")])
    assert ended.value.code == 2 and "cannot be read safely" in capsys.readouterr().err
    assert not mark.exists() and not (tmp_path / "run").exists()
    torch.load(path, weights_only=False)
    assert mark.exists(), "the pickle has to be one that executes where it is allowed to"


def test_what_is_not_a_released_checkpoint_is_refused(cifar: tuple[nn.Module, Path], tmp_path: Path) -> None:
    _, path = cifar
    state = torch.load(path, weights_only=True)
    plain = {key.removeprefix("module.net."): value for key, value in state.items()}
    wrong_stem = {**state, "module.net.conv1.weight": state["module.net.conv1.weight"][:, :3]}
    shorter = {key: value for key, value in state.items() if "layer3.1.conv2" not in key}
    unknown_model = {"net.stem.weight": torch.zeros(2, 6, 3, 3), "net.head.bias": torch.zeros(2)}
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    cases = [
        (plain, {}, "keys start with module.net"),
        ([1, 2], {}, "holds a list"),
        (wrong_stem, {}, r"1 of another shape \(0.layer.weight\)"),
        (shorter, {}, "1 missing"),
        (unknown_model, {}, "does not say which model"),
        (state, {"model": "torchvision:vgg11"}, "another model than an anchored torchvision:vgg11"),
        (state, {"data": "digits", "references": 10**6}, "size of a reference set"),
        (state, {"references": 10}, "--data"),
        (state, {"method": "standard"}, "Choices: vanilla, masking"),
        (state, {"weights": "best"}, "Choices: ema, raw"),
    ]
    for number, (content, options, message) in enumerate(cases):
        file = path if content is state else tmp_path / f"{number}.pth"
        if content is not state:
            torch.save(content, file)
        with pytest.raises(InputError, match=message):
            import_released(file, tmp_path / f"run{number}", **options)  # type: ignore[arg-type]
        assert not (tmp_path / f"run{number}").exists()
    with pytest.raises(InputError, match="in use"):
        import_released(path, tmp_path / "used")
    with pytest.raises(InputError, match="no file"):
        import_released(tmp_path / "missing.pth", tmp_path / "run")
