"""The flags that compare and train share: they mean the same, and a YAML file of them replays a run."""

from __future__ import annotations

import dataclasses
from typing import Any

from jsonargparse import Namespace

from anchored.commands.parser import Parser
from anchored.system.errors import InputError
from anchored.system.files import as_tuple

OVERRIDES = ("epochs", "batch_size", "lr", "alpha", "augmentation")  # fields of the recipe with flags of their own
K = 10  # references, where no number is given
SMOKE = {"epochs": 2, "train_limit": 5000, "limit": 500}


def add_training_flags(p: Parser) -> None:
    """Add them to the parser of a command."""
    p.add_argument("--config", action="config", help="a YAML file of these flags; the results hold theirs, flags.yaml")
    add = p.group("data and model")
    add(
        "--data",
        default="digits",
        help="digits, cifar10, cifar100, parquet:PATH, folder:PATH, csv:FILE, npz:PATH or hf:ID_OR_PATH (%(default)s)",
    )
    add("--root", help="where the archives of cifar10 and cifar100 are, or are downloaded to")
    add(
        "--model",
        default="resnet9",
        help="resnet9, resnet18, wrn40_2, timm:NAME, torchvision:NAME, hf:NAME or package.module:callable",
    )
    add("--weights", default="none", help="none, default (the library's pretrained ones) or a PATH")
    add("--image-size", type=int, help="side in pixels (the model's own, or the data's)")
    add("--train-limit", type=int, help="at most this many training images (seeded, stratified)")
    add("--val-fraction", type=float, default=0.0, help="part of the training data held out for validation")
    add("--label-noise", type=float, default=0.0, help="part of the training labels changed to another class")
    add("--labels", help="a file of training labels instead of the data's: FILE or FILE:key")
    add("--stream", action="store_true", help="decode the images of class folders as they are needed, in workers")
    add("--memory-limit", type=float, help="GiB that decoded images may take (half of the machine's memory)")
    add("--strict", action="store_true", help="an unreadable image is an error (else it is left out, and counted)")
    add = p.group("anchoring")
    add("--alpha", type=float, help="rate of masked batches, in [0, 1] (the recipe's)")
    add("--schedule", default="bernoulli", help="which batches are masked: bernoulli or periodic")
    add("--masked-bn", default="skip", help="masked batches update or skip the running statistics of batch norm")
    add("--recalibrate-bn", type=int, default=0, help="training images to estimate batch norm on again after training")
    add("--reference-source", default="set", help="references in training: set or batch")
    add("--references", type=int, help="size of the reference set (all training images)")
    add = p.group("training")
    add("--recipe", help="a recipe by name, a run, or a YAML file of fields (cpu_quick; finetune with --weights)")
    add("--epochs", type=int, help="epochs of training (the recipe's)")
    add("--batch-size", type=int, help="images a step, over all processes (the recipe's)")
    add("--lr", type=float, help="peak learning rate (the recipe's)")
    add(
        "--augmentation",
        help="a policy such as none, crop, crop_flip+randaugment or crop_flip+mixup (the recipe's; no flips where a "
        "mirrored image is another class)",
    )
    add("--set", nargs="+", default=[], help="any other field of the recipe, as NAME=VALUE")
    add("--select", default="last", help="the network of the last epoch, or of the best by top1 or nll on that part")
    add(
        "--precision",
        default="bfloat16",
        help="bfloat16 (autocast, where the device computes in it), float16 (with a scaled loss) or float32",
    )
    add("--smoke", action="store_true", help="minutes, not hours: 2 epochs, 5,000 training images, 500 test images")
    add = p.group("running")
    add("--device", default="auto", help="auto, cpu, cuda or mps")
    add("--compile", action="store_true", help="torch.compile the training step")
    add("--workers", type=int, default=2, help="processes that decode, with --stream")
    add("--checkpoint-every", type=float, default=300.0, help="seconds between checkpoints within an epoch")
    add("--keep", type=int, default=2, help="checkpoints that are kept")
    add("--tensorboard", action="store_true", help="write the metrics for TensorBoard too")
    add(
        "--wandb",
        action="store_true",
        help="record the metrics with Weights & Biases too (WANDB_MODE=offline: locally)",
    )


def comparison(flags: Namespace, *, limit: int | None = None, **values: Any) -> Any:
    """The Comparison that the flags of training describe."""
    from anchored.arms.recipe_choice import recipe
    from anchored.comparison.settings import Comparison

    given: dict[str, Any] = {name: flags[name] for name in OVERRIDES}
    train_limit = flags.train_limit
    if flags.smoke:
        given["epochs"] = given["epochs"] or SMOKE["epochs"]
        train_limit, limit = train_limit or SMOKE["train_limit"], limit or SMOKE["limit"]
    name = flags.recipe or ("cpu_quick" if flags.weights == "none" else "finetune")
    fields = _assignments(flags.set, given)
    same = {field.name for field in dataclasses.fields(Comparison)} - {"recipe", "train_limit", "limit", *values}
    same &= set(vars(flags))
    values |= {key: as_tuple(flags[key]) for key in same}
    resolved = recipe(name.as_dict() if isinstance(name, Namespace) else name, fields=fields, **given)
    return Comparison(recipe=resolved, train_limit=train_limit, limit=limit, **values)


def _assignments(pairs: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of --set, read as YAML."""
    import yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set takes fields of the recipe as NAME=VALUE; got {pair!r}.")
        name = name.replace("-", "_")
        if given.get(name) is not None or name in found:
            raise InputError(f"the field {name} of the recipe is given twice.")
        found[name] = yaml.safe_load(value)
    return found


def how(flags: Namespace, settings: Any) -> dict[str, Any]:
    """What changes how a command works and not what comes out of it."""
    from anchored.system.devices import device
    from anchored.training.recorders import RECORDERS, check

    if flags.workers < 0:
        raise InputError(f"workers counts processes, 0 for none; got {flags.workers}.")
    if flags.keep < 1:
        raise InputError(f"keep is at least 1 checkpoint; got {flags.keep}.")
    recorders = tuple(name for name in RECORDERS if flags[name])
    check(recorders)
    return {
        "device": device(flags.device),
        "compile": flags.compile,
        "checkpoint_every": flags.checkpoint_every,
        "keep": flags.keep,
        "workers": flags.workers,
        "recorders": recorders,
        "strict": flags.strict,
        "flags": _yaml(flags, settings.recipe),
        "memory_limit": None if flags.memory_limit is None else int(flags.memory_limit * 2**30),
    }


def _yaml(flags: Namespace, recipe: Any) -> str:
    """The flags as a file for --config, with the whole recipe in place of its name, without where the results go."""
    import yaml

    values = {name: value for name, value in flags.as_dict().items() if name not in ("config", "out")}
    values |= {
        "recipe": dataclasses.asdict(recipe) | {"milestones": list(recipe.milestones)},
        "set": [],
        "smoke": False,
    }
    values |= {name: None for name in OVERRIDES}
    if flags.smoke:
        values["train_limit"] = flags.train_limit or SMOKE["train_limit"]
        if "limit" in values:
            values["limit"] = flags.limit or SMOKE["limit"]
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
