"""`anchored import`: a released checkpoint of the paper as a run."""

from __future__ import annotations

from jsonargparse import ArgumentParser, Namespace

from anchored.runs.released import import_released

NAME, HELP = "import", "a released checkpoint of the paper as a run"


def parser() -> ArgumentParser:
    """Its flags."""
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


def run(flags: Namespace, command: str) -> None:
    """Run `anchored import`."""

    names = ("model", "method", "weights", "data", "root", "references")
    print(import_released(flags.checkpoint, flags.out, **{name: flags[name] for name in names}))
