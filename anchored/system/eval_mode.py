"""Training and evaluation mode of a network, module by module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Inside, `net` is in eval mode and nothing is differentiated; after, every module is in the mode it was in."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
