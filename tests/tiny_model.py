"""Networks for tests: one small enough to train, reached as `tiny_model:tiny`, and some that need no training."""

import torch
from torch import nn


def tiny(num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(64, num_classes),
    )  # fmt: skip


class Colour(nn.Module):
    """Tells red, green and blue apart by their means, without training; with more classes the others stay at 0."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(4.0))
        self.rest = num_classes - 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(self.scale * x.mean((2, 3)), (0, self.rest))


def colour(num_classes: int) -> nn.Module:
    return Colour(num_classes)


def not_a_number(num_classes: int) -> nn.Module:
    return nn.Sequential(Colour(num_classes), Broken())


class Broken(nn.Module):
    """NaN for everything it takes for the second class."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.argmax(1, keepdim=True) == 1, torch.nan, x)
