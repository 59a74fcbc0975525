"""What this machine and this installation can do."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import torch
from jsonargparse import ArgumentParser, Namespace

from anchored.data.cifar import ARCHIVES
from anchored.data.decode import machine_memory
from anchored.data.published import ANOMALIES, SHIFTS, data_root
from anchored.runs.run import versions
from anchored.system.devices import has_bfloat16

EXTRAS = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "hf": ("transformers", "datasets"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "lightning": ("lightning",),
}
NAME, HELP = "doctor", "what this machine and installation can do"


def parser() -> ArgumentParser:
    """Its flags."""
    p = ArgumentParser(description="Versions, devices, arithmetic, memory and the data that is there.")
    p.add_argument("--root", help="folder of downloaded data sets ($ANCHORED_DATA, else ~/.cache/anchored)")
    return p


def run(flags: Namespace, command: str) -> None:
    """Run `anchored doctor`."""
    doctor(flags.root)


def doctor(root: str | None = None) -> None:
    """Print versions, optional packages, devices, bfloat16, memory and the data that is there.

    root: folder of downloaded data (None: $ANCHORED_DATA, else ~/.cache/anchored).
    """
    for name, version in versions().items():
        _line(name, version)
    for extra, packages in EXTRAS.items():
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        _line(f"[{extra}]", "installed" if not missing else f"not installed: pip install 'anchored[{extra}]'")
    _line("cores", f"{os.cpu_count()} ({torch.get_num_threads()} threads used; set OMP_NUM_THREADS to change)")
    _line("memory", f"{machine_memory() / 2**30:.1f} GiB; images may take half of it (--memory-limit)")
    devices = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    for name in devices:
        device = torch.device(name)
        label = torch.cuda.get_device_name(device) if device.type == "cuda" else "processor"
        arithmetic = "bfloat16" if has_bfloat16(device) else "float32 (no bfloat16 arithmetic)"
        _line(name, f"{label}; trains in {arithmetic}")
    place = data_root(root)
    _line("data", f"{place}: {', '.join(_found(place)) or 'nothing yet'}")
    _line("disk", f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GiB free in this folder")


def _found(place: Path) -> list[str]:
    """The data sets by name whose files are below `place`, and the folders of parquet files in it."""
    places = {name: (archive.file, archive.folder) for name, archive in ARCHIVES.items()} | SHIFTS | ANOMALIES
    named = [name for name, paths in places.items() if any((place / path).exists() for path in paths)]
    folders = sorted(entry for entry in place.iterdir() if entry.is_dir()) if place.is_dir() else []
    return named + [f"parquet:{folder}" for folder in folders if any(folder.glob("*.parquet"))]


def _line(name: str, text: str) -> None:
    print(f"{name:14} {text}")
