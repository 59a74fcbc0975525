"""The commands that take runs out and bring checkpoints in: export and import."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace


def export_parser() -> ArgumentParser:
    """The parser of `anchored export`."""
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


def export_command(flags: Namespace, command: str) -> None:
    """Run `anchored export`."""
    from anchored.export import export
    from anchored.runs import load

    path = export(
        load(flags.run), flags.file, protocol=flags.protocol, k=flags.k, reference=flags.reference, seed=flags.seed
    )
    print(f"{path} ({Path(path).stat().st_size / 1e6:.1f} MB)")


def import_parser() -> ArgumentParser:
    """The parser of `anchored import`."""
    p = ArgumentParser(
        description="Write a checkpoint released by the paper's authors as a run. It is read safely: tensors, plain "
        "values and the options of training, nothing that could execute."
    )
    p.add_argument("checkpoint", help="the released file")
    p.add_argument("out", help="folder of the run to write")
    p.add_argument("--model", help="its name, where the checkpoint does not say: resnet18, torchvision:NAME ...")
    p.add_argument("--method", default="masking", help="how it was trained, for the record: masking or vanilla")
    p.add_argument("--weights", default="ema", help="ema (averaged, where there are such) or raw")
    p.add_argument("--data", help="training data to take references from (the mean colour is the one reference)")
    p.add_argument("--root", help="where the archives of cifar10 and cifar100 are, or are downloaded to")
    p.add_argument("--references", type=int, help="size of the reference set (all training images of --data)")
    return p


def import_command(flags: Namespace, command: str) -> None:
    """Run `anchored import`."""
    from anchored.released import import_released

    names = ("model", "method", "weights", "data", "root", "references")
    print(import_released(flags.checkpoint, flags.out, **{name: flags[name] for name in names}))
