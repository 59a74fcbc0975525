"""Where and in what arithmetic a network runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from anchored.system.errors import InputError


def device(name: str) -> torch.device:
    """The torch device of --device; "auto" takes CUDA, then MPS, then the CPU. Raises InputError if it is not there."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if there["cuda"] else "mps" if there["mps"] else "cpu")
    kind = name.split(":")[0]
    if kind not in there or not there[kind]:
        found = ", ".join(key for key, value in there.items() if value)
        raise InputError(f"device {name!r} is not on this machine. Found: {found}; or auto.")
    return torch.device(name)


def placed(net: nn.Module, device: torch.device) -> nn.Module:
    """The network on `device`, its convolutions channels_last in memory (in place)."""
    net.to(device)
    net.to(memory_format=torch.channels_last)
    return net


def arithmetic(device: torch.device, precision: str) -> str:
    """What `autocast` computes in on this device: "bfloat16", "float16" or "float32".

    precision: as asked for; bfloat16 where the device has none of its own is float32.
    """
    return "float32" if precision == "bfloat16" and not has_bfloat16(device) else precision


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """float16 autocast, or bfloat16 where the device computes in it, where asked for; else float32 as it stands."""
    used = arithmetic(device, precision)
    return nullcontext() if used == "float32" else torch.autocast(device.type, dtype=getattr(torch, used))


def grad_scaler(device: torch.device, precision: str) -> torch.amp.GradScaler:
    """The scaler of the loss: small gradients vanish in float16; in any other precision it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "float16")


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has bfloat16 arithmetic of its own (emulation is slower than float32)."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    flags = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, flag)() for flag in flags if hasattr(torch.cpu, flag))
