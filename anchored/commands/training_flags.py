"""The flags that compare and train share: they mean the same, and a YAML file of them replays a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from jsonargparse import Namespace

from anchored.arms.arm import Arm
from anchored.arms.prediction import PredictionSettings
from anchored.arms.recipe import Recipe
from anchored.arms.recipe_choice import recipe
from anchored.arms.recipes import RECIPES
from anchored.arms.run_config import RunConfig
from anchored.arms.setting import dashed, declared
from anchored.arms.training_data import TrainingData
from anchored.commands.parser import Parser
from anchored.comparison import settings as compared
from anchored.comparison.settings import Comparison
from anchored.system.devices import device
from anchored.system.errors import InputError
from anchored.system.files import as_tuple
from anchored.training.recorders import RECORDERS, check

OVERRIDES = ("epochs", "batch_size", "lr", "alpha", "augmentation")  # fields of the recipe with flags of their own
SMOKE = {"epochs": 2, "train_limit": 5000, "limit": 500}
MODEL = "resnet9"  # where neither flag nor recipe names one


def add_settings(add: Callable[..., Any], kind: type, *, of: str = "", unset: bool = False) -> None:
    """Add a flag for each setting that a dataclass declares with one; unset: what is not given is None."""
    types = {"int": int, "float": float}
    for field, its in declared(kind):
        if its.flag and of in ("", its.of):
            more: dict[str, Any] = {"default": None if unset else field.default}
            base = str(field.type).split(" |")[0]
            if base == "bool":
                more = {"action": "store_true"}
            elif base in types:
                more["type"] = types[base]
            add(f"--{dashed(field.name)}", help=its.help, **more)


def help_of(kind: type, name: str) -> str:
    """The help that a setting is declared with."""
    return next(its.help for field, its in declared(kind) if field.name == name)


def add_training_flags(p: Parser) -> None:
    """Add them to the parser of a command."""
    p.add_argument("--config", action="config", help="a YAML file of these flags; the results hold theirs, flags.yaml")
    _data_flags(p.group("data and model"))
    add = p.group("anchoring")
    add_settings(add, Recipe, unset=True)
    add_settings(add, RunConfig, of="method")
    _recipe_flags(p.group("training"))
    _running_flags(p.group("running"))


def _data_flags(add: Callable[..., Any]) -> None:
    add(
        "--data",
        default="digits",
        help="digits, cifar10, cifar100, parquet:PATH, folder:PATH, csv:FILE, npz:PATH or hf:ID_OR_PATH (%(default)s)",
    )
    add("--root", help="where the archives of cifar10 and cifar100 are, or are downloaded to")
    add("--model", help=f"{help_of(RunConfig, 'model')} (the recipe's, else {MODEL})")
    add("--weights", default="none", help=help_of(RunConfig, "weights"))
    add("--image-size", type=int, help="side in pixels (the recipe's or the model's own, or the data's)")
    add_settings(add, TrainingData)
    add("--stream", action="store_true", help="decode the images of class folders as they are needed, in workers")
    add("--memory-limit", type=float, help="GiB that decoded images may take (half of the machine's memory)")
    add("--strict", action="store_true", help="an unreadable image is an error (else it is left out, and counted)")


def _recipe_flags(add: Callable[..., Any]) -> None:
    add("--recipe", help=f"{help_of(RunConfig, 'recipe')} (cpu_quick; finetune with --weights)")
    add("--epochs", type=int, help="epochs of training (the recipe's)")
    add("--batch-size", type=int, help="images a step, over all processes (the recipe's)")
    add("--lr", type=float, help="peak learning rate (the recipe's)")
    add(
        "--augmentation",
        help="a policy such as none, crop, crop_flip+randaugment or crop_flip+mixup (the recipe's; no flips where a "
        "mirrored image is another class)",
    )
    add("--set", nargs="+", default=[], help="any other field of the recipe, as NAME=VALUE")
    add_settings(add, RunConfig, of="training")
    add(
        "--smoke",
        action="store_true",
        help="minutes, not hours: at most 2 epochs, 5,000 training images, 500 test images a cell",
    )


def _running_flags(add: Callable[..., Any]) -> None:
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


def comparison(flags: Namespace, **values: Any) -> Comparison:
    """The Comparison that the flags of training describe; `values` are those of the command's own."""

    overrides = _overrides(flags)
    name = flags.recipe or ("cpu_quick" if flags.weights == "none" else "finetune")
    chosen = recipe(name.as_dict() if isinstance(name, Namespace) else name, fields=overrides)
    kinds = (RunConfig, TrainingData, PredictionSettings)
    shared = [field.name for kind in kinds for field, _ in declared(kind) if field.name in flags]
    shared += ["root", "image_size", "stream"]
    values = {name: as_tuple(flags[name]) for name in shared if name not in ("model", "recipe")} | values
    values.pop("method", None)
    values.pop("seed", None)
    if flags.smoke:
        values["train_limit"] = at_most(values["train_limit"], SMOKE["train_limit"])
        whole = flags.epochs or recipe(chosen.name if chosen.name in RECIPES else dataclasses.asdict(chosen)).epochs
        values["arms"] = [_smoked(arm, whole) for arm in values.get("arms", ())]
    return compared.comparison(flags.data, flags.model or chosen.model or MODEL, chosen, overrides=overrides, **values)


def at_most(value: int | None, most: int) -> int:
    """`value`, but not more than `most`, which holds where there is none."""
    return most if value is None else min(value, most)


def _smoked(arm: Arm, epochs: int) -> Arm:
    """An arm with as many times the epochs of the smoke test as it has of those that arms share, and no more images."""
    fields = dict(arm.fields)
    if "epochs" in fields:
        fields["epochs"] = max(1, round(SMOKE["epochs"] * int(fields["epochs"]) / epochs))
    if "train_limit" in fields:
        fields["train_limit"] = at_most(int(fields["train_limit"]), SMOKE["train_limit"])
    return dataclasses.replace(arm, fields=fields)


def _overrides(flags: Namespace) -> dict[str, Any]:
    """The fields of the recipe that flags give: those of their own, and those of --set, read as YAML."""
    given = {name: flags[name] for name in OVERRIDES if flags[name] is not None}
    if flags.smoke:
        given["epochs"] = at_most(given.get("epochs"), SMOKE["epochs"])
    for pair in flags.set:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set takes fields of the recipe as NAME=VALUE; got {pair!r}.")
        name = name.replace("-", "_")
        if name in given:
            raise InputError(f"the field {name} of the recipe is given twice.")
        given[name] = yaml.safe_load(value)
    return given


def how(flags: Namespace, settings: Comparison) -> dict[str, Any]:
    """What changes how a command works and not what comes out of it."""

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
        "flags": as_yaml(flags, settings),
        "memory_limit": None if flags.memory_limit is None else int(flags.memory_limit * 2**30),
    }


def as_yaml(flags: Namespace, settings: Comparison) -> str:
    """The flags as a file for --config, with the whole recipe in place of its name, without where the results go."""
    recipe = settings.recipe
    values = {name: value for name, value in flags.as_dict().items() if name not in ("config", "out", "arm")}
    values |= {
        "model": settings.model,
        "recipe": dataclasses.asdict(recipe) | {"milestones": list(recipe.milestones)},
        "set": [],
        "smoke": False,
    }
    values |= {name: None for name in OVERRIDES}
    if "arms" in values and settings.by_method is None:
        values["arms"] = {arm.name: _written(arm.flat(), settings.shared.flat()) for arm in settings.arms}
    if flags.smoke:
        values["train_limit"] = settings.shared.data.train_limit
        if "limit" in values:
            values |= {"limit": settings.limit, "severities": list(settings.severities)}
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def _written(arm: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an arm that are not those that all share, as YAML has them."""
    changed = {name: value for name, value in arm.items() if name != "recipe" and value != shared[name]}
    changed["method"] = arm["method"]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}
