"""The processes that train one run together: PyTorch's DDP through Accelerate, under torchrun."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from anchored.system.errors import InputError


class Team:
    """This process among those started by torchrun; alone where there was no torchrun.

    rank, size: this process's number and how many there are. device: the one this process computes on.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.rank, self.size = device, 0, 1
        self.accelerator: Any = None
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from accelerate import Accelerator

            self.accelerator = Accelerator(cpu=device.type == "cpu")
            self.rank, self.size = self.accelerator.process_index, self.accelerator.num_processes
            self.device = self.accelerator.device

    @property
    def main(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def forward(self, net: nn.Module) -> Any:
        """`net` with gradients averaged over the processes."""
        return net if self.accelerator is None else self.accelerator.prepare_model(net)

    def synchronised(self, net: nn.Module) -> nn.Module:
        """`net` with batch statistics over all processes, where the device can (not on a CPU)."""
        if self.size == 1 or self.device.type == "cpu":
            return net
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        return converted

    def check(self, batch_size: int, parts: int = 1) -> None:
        """Refuse a global batch without equal parts for every process. Raises InputError."""
        if batch_size % (self.size * parts):
            raise InputError(
                f"the batch size of the whole step is a multiple of {self.size} processes x {parts} parts; got "
                f"{batch_size}."
            )

    def accumulating(self, forward: Any, more: bool) -> AbstractContextManager[Any]:
        """Inside, gradients stay in this process when `more` parts of the batch are to come."""
        return self.accelerator.no_sync(forward) if more and self.accelerator is not None else nullcontext()

    def total(self, *values: float) -> list[float]:
        """Sums over the processes."""
        if self.accelerator is None:
            return list(values)
        summed = self.accelerator.reduce(torch.tensor(values, dtype=torch.float64, device=self.device), "sum")
        return summed.tolist()

    def summed(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over the processes of a tensor of one shape and dtype in all of them."""
        if self.accelerator is None:
            return values
        found: torch.Tensor = self.accelerator.reduce(values.to(self.device), "sum")
        return found

    def gathered(self, items: list[str]) -> list[str]:
        """The items of all processes, in the order of their ranks, each once."""
        if self.accelerator is None:
            return items
        from accelerate.utils import gather_object

        return list(dict.fromkeys(gather_object(items)))

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.accelerator is not None:
            self.accelerator.wait_for_everyone()
