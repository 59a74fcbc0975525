"""cifar10: 50,000 and 10,000 colour images of 32x32 pixels in 10 classes, from the official archive."""

from __future__ import annotations

from anchored.data import cifar
from anchored.data.base import Data, Options

SPEC = "cifar10"


def load(path: str, options: Options) -> Data:
    """CIFAR-10 in the official order; see `anchored.data.cifar.load`."""
    return cifar.load("cifar10", options)
