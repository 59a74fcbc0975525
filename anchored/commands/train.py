"""`anchored train`: its flags, and the one run that they describe."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import Namespace

from anchored.arms.run_config import RunConfig
from anchored.commands.parser import Parser
from anchored.commands.training_flags import add_training_flags, comparison, help_of, how
from anchored.comparison.plan import plan
from anchored.comparison.train_run import train_one

NAME, HELP = "train", "train one classifier and save it as a run"


def parser() -> Parser:
    """Its flags."""
    p = Parser(
        "train",
        description="Train one classifier and save it as a run. Under torchrun all processes train it together: "
        "torchrun --nproc-per-node 2 -m anchored train ... The same command again goes on where it was interrupted.",
    )
    add = p.group("what is trained")
    add("--method", default="masking", help=help_of(RunConfig, "method"))
    add("--masked-target", default="uniform", help=help_of(RunConfig, "masked_target"))
    add("--seed", type=int, default=0, help=help_of(RunConfig, "seed"))
    add("--out", type=str, help="folder of the run (runs/train-...)")
    add("--plan", action="store_true", help="print steps, memory and time instead of training")
    add("--images-per-second", type=float, help="speed of one device, for the time that --plan prints")
    add_training_flags(p)
    return p


def run(flags: Namespace, command: str) -> None:
    """`anchored train`."""

    settings = comparison(flags, methods=(flags.method,), masked_target=(flags.masked_target,), seeds=(flags.seed,))
    if flags.plan:
        plan(settings, images_per_second=flags.images_per_second, strict=flags.strict)
        return
    train_one(settings, out=Path(flags.out) if flags.out else None, command=command, **how(flags, settings))
