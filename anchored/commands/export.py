"""`anchored export`: a run as one file that needs nothing of this package."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from anchored.runs.export import export
from anchored.runs.run import load

NAME, HELP = "export", "write a run as .onnx or .pt2"


def parser() -> ArgumentParser:
    """Its flags."""
    p = ArgumentParser(
        description="Write a run as one file that needs neither anchored nor references: the classifier with one "
        "reference folded in, or with k references built in (mean logits, their spread and energy)."
    )
    p.add_argument("run", help="folder of a run, or a Hub repository user/name")
    p.add_argument("file", help="what to write; the ending decides: .onnx, or .pt2 for torch.export")
    p.add_argument("--protocol", default="one_random", help="one_random or k_random")
    p.add_argument("--k", type=int, default=10, help="references of k_random")
    p.add_argument("--reference", default="mean", help="reference of one_random: mean or zero")
    p.add_argument("--seed", type=int, default=0, help="draws the references of k_random")
    return p


def run(flags: Namespace, command: str) -> None:
    """Run `anchored export`."""

    path = export(
        load(flags.run), flags.file, protocol=flags.protocol, k=flags.k, reference=flags.reference, seed=flags.seed
    )
    print(f"{path} ({Path(path).stat().st_size / 1e6:.1f} MB)")
