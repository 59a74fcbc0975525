"""What this machine and this installation can do."""

from __future__ import annotations

import os

import torch

from anchored.devices import has_bfloat16
from anchored.runs import versions


def doctor() -> None:
    """Print versions, devices, bfloat16 and threads."""
    for name, version in versions().items():
        print(f"{name:14} {version}")
    print(f"{'cores':14} {os.cpu_count()} ({torch.get_num_threads()} threads used; set OMP_NUM_THREADS to change)")
    devices = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    for name in devices:
        device = torch.device(name)
        label = torch.cuda.get_device_name(device) if device.type == "cuda" else "processor"
        print(f"{name:14} {label}; bfloat16 arithmetic: {'yes' if has_bfloat16(device) else 'no, float32 is used'}")
