"""Batch normalisation under masking: masked batches have other statistics than the ones inference meets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def frozen_statistics(net: nn.Module, frozen: bool) -> Iterator[None]:
    """Inside, batch normalisation uses batch statistics but leaves its running ones alone (masked_bn = "skip")."""
    layers = _layers(net) if frozen else []
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum


@torch.no_grad()
def recalibrate(net: nn.Module, passes: Iterable[Callable[[], Any]]) -> None:
    """Estimate the running statistics of batch normalisation again, as the plain average over forward passes.

    `passes` run `net` on unmasked tuples of training images: masked batches have other statistics, and running
    averages over both fit neither. The network is left in eval mode, and as it was where it has no such layer.
    """
    layers = _layers(net)
    net.eval()
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # cumulative average
        layer.train()
    for forward in passes:
        forward()
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    net.eval()


def _layers(net: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
