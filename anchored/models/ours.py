"""Our own small classifiers, in their CIFAR forms: functions of the number of classes."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn


def _conv_bn(channels: int, out: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class _Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def resnet9(num_classes: int) -> nn.Module:
    """A residual network of nine layers that trains on a CPU (1.6 M parameters); input of at least 8 px.

    Strides instead of pooling: batch norm and ReLU see a quarter of the pixels, nearly twice as fast on a CPU.
    """
    return nn.Sequential(
        _conv_bn(3, 32),
        _conv_bn(32, 64, 2),
        _Residual(nn.Sequential(_conv_bn(64, 64), _conv_bn(64, 64))),
        _conv_bn(64, 128, 2),
        _conv_bn(128, 256, 2),
        _Residual(nn.Sequential(_conv_bn(256, 256), _conv_bn(256, 256))),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, num_classes),
    )


class _BasicBlock(nn.Module):
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


def resnet18(num_classes: int) -> nn.Module:
    """ResNet-18 in its CIFAR form: 3x3 stem of stride 1, no pooling (He et al. 2016; 11.17 M at 10 classes)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_BasicBlock(channels, out, stride), _BasicBlock(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_classes))


class _WideBlock(nn.Module):
    """Pre-activation block of a wide residual network."""

    def __init__(self, channels: int, out: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False) if channels != out else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(y)
        return shortcut + self.conv2(self.dropout(F.relu(self.bn2(self.conv1(y)))))


def wrn40_2(num_classes: int, dropout: float = 0.3) -> nn.Module:
    """WRN-40-2 (Zagoruyko & Komodakis 2016; 2.24 M at 10 classes), with the released code's dropout of 0.3."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    channels = 16
    for out, stride in ((32, 1), (64, 2), (128, 2)):
        for number in range(6):
            layers.append(_WideBlock(channels, out, stride if number == 0 else 1, dropout))
            channels = out
    layers += [nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes)]
    return nn.Sequential(*layers)


OURS: dict[str, Callable[..., nn.Module]] = {f.__name__: f for f in (resnet9, resnet18, wrn40_2)}
