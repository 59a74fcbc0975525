"""The command line. Flags mean the same in every command; bad input is one line on stderr and exit status 2."""

from __future__ import annotations

import dataclasses
import errno
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from anchored import cli_export
from anchored.errors import InputError, TrainingError

SMOKE = {"epochs": 2, "train_limit": 5000, "limit": 500}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exits with 0, 1 (training failed), 2 (bad input) or 130 (interrupted)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parsed = parser().parse_args(given)
    errors = Console(stderr=True)
    warnings.showwarning = lambda message, *rest, **more: errors.print(
        f"Note: {message}", highlight=False, markup=False
    )
    command = "anchored " + shlex.join(given)
    try:
        COMMANDS[parsed.subcommand](parsed[parsed.subcommand], command)
    except InputError as error:
        _end(errors, f"Error: {error}", 2)
    except TrainingError as error:
        _end(errors, f"Stopped: {error}", 1)
    except KeyboardInterrupt:
        _end(errors, "Interrupted. The same command goes on from the last checkpoint.", 130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT):
            raise
        _end(errors, f"Error: cannot write {error.filename or 'the output'}: {error.strerror}.", 2)


def _end(console: Console, message: str, status: int) -> None:
    console.print(message, highlight=False, markup=False, soft_wrap=True)
    raise SystemExit(status)


def parser() -> ArgumentParser:
    """The parser of the whole command line."""
    top = ArgumentParser(prog="anchored", description="Train image classifiers on (reference, residual) tuples.")
    commands = top.add_subcommands(required=True)
    commands.add_subcommand("compare", _compare_parser(), help="train standard, vanilla and masking; evaluate; report")
    commands.add_subcommand("report", _report_parser(), help="draw the report of a comparison again")
    commands.add_subcommand("predict", _predict_parser(), help="predict images with a run")
    commands.add_subcommand("export", cli_export.export_parser(), help="write a run as .onnx or .pt2")
    commands.add_subcommand("import", cli_export.import_parser(), help="a released checkpoint of the paper as a run")
    commands.add_subcommand("doctor", ArgumentParser(), help="what this machine and installation can do")
    return top


def _compare_parser() -> ArgumentParser:
    p = ArgumentParser(
        description="Train a classifier three ways with one recipe, evaluate them on the same images, and say whether "
        "anchoring made it better. The same command again goes on where it was interrupted."
    )
    add = p.add_argument
    add("--config", action="config", help="a YAML file of these flags")
    add(
        "--data",
        default="digits",
        help="digits, cifar10, cifar100, parquet:PATH, folder:PATH or npz:PATH (%(default)s)",
    )
    add("--root", help="where the archives of cifar10 and cifar100 are, or are downloaded to")
    add(
        "--model",
        default="resnet9",
        help="resnet9, resnet18, wrn40_2, timm:NAME, torchvision:NAME or package.module:callable",
    )
    add("--weights", default="none", help="none, default (the library's pretrained ones) or a PATH")
    add("--image-size", type=int, help="side in pixels (the model's own, or the data's)")
    add(
        "--methods",
        "--method",
        nargs="+",
        default=["standard", "vanilla", "masking"],
        help="standard, vanilla, masking",
    )
    add("--masked-target", nargs="+", default=["uniform"], help="target of masked batches: uniform, label, or both")
    add("--alpha", type=float, help="rate of masked batches, in [0, 1] (the recipe's)")
    add("--schedule", default="bernoulli", help="which batches are masked: bernoulli or periodic")
    add("--masked-bn", default="skip", help="masked batches update or skip the running statistics of batch norm")
    add("--recalibrate-bn", type=int, default=0, help="training images to estimate batch norm on again after training")
    add("--reference-source", default="set", help="references in training: set or batch")
    add("--references", type=int, help="size of the reference set (all training images)")
    add("--recipe", help="cpu_quick, finetune, cifar_resnet18, cifar_wrn40_2 (cpu_quick; finetune with --weights)")
    add("--epochs", type=int, help="epochs of training (the recipe's)")
    add("--batch-size", type=int, help="images a step (the recipe's)")
    add("--lr", type=float, help="peak learning rate (the recipe's)")
    add(
        "--augmentation",
        help="none, crop or crop_flip (the recipe's; no flips where a mirrored image is another class)",
    )
    add("--seeds", "--seed", nargs="+", type=int, default=[0], help="one run of every method for each seed")
    add("--val-fraction", type=float, default=0.0, help="part of the training data held out for validation")
    add("--on", nargs="+", default=["clean", "c"], help="benchmarks: clean, c, c-bar, or names of corruptions")
    add("--severities", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="severities of the corruptions, 1 to 5")
    add("--anomalies", nargs="*", default=["photos"], help="anomaly sets: photos, or any data set by its name or path")
    add("--limit", type=int, help="at most this many test images a cell, the same for all methods")
    add("--protocol", default="one_random", help="one_random, k_random or transduction")
    add("--k", type=int, default=10, help="references of k_random")
    add("--precision", default="bfloat16", help="bfloat16 (autocast, where the device computes in it) or float32")
    add("--compile", action="store_true", help="torch.compile the training step")
    add("--device", default="auto", help="auto, cpu, cuda or mps")
    add("--smoke", action="store_true", help="minutes, not hours: 2 epochs, 5,000 training images, 500 test images")
    add("--out", type=str, help="folder of the results (runs/compare-...)")
    add("--checkpoint-every", type=float, default=300.0, help="seconds between checkpoints within an epoch")
    return p


def _report_parser() -> ArgumentParser:
    p = ArgumentParser(description="Draw the report of a comparison again, from its rows and scores.")
    p.add_argument("folder", help="folder of a comparison")
    return p


def _predict_parser() -> ArgumentParser:
    p = ArgumentParser(description="Predict images with a run.")
    p.add_argument("run", help="folder of a run, or a Hub repository user/name")
    p.add_argument("images", nargs="+", help="image files")
    p.add_argument("--protocol", default="one_random", help="one_random, k_random or transduction")
    p.add_argument("--k", type=int, default=10, help="references of k_random")
    p.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    return p


def _compare(flags: Namespace, command: str) -> None:
    from anchored.compare import Comparison, compare
    from anchored.recipes import recipe

    given: dict[str, Any] = {name: flags[name] for name in ("epochs", "batch_size", "lr", "alpha", "augmentation")}
    train_limit, limit = None, flags.limit
    if flags.smoke:
        given["epochs"] = given["epochs"] or SMOKE["epochs"]
        train_limit, limit = SMOKE["train_limit"], limit or SMOKE["limit"]
    name = flags.recipe or ("cpu_quick" if flags.weights == "none" else "finetune")
    same = {
        field.name for field in dataclasses.fields(Comparison) if field.name not in ("recipe", "train_limit", "limit")
    }
    values = {key: _tuple(flags[key]) for key in same}
    settings = Comparison(recipe=recipe(name, **given), train_limit=train_limit, limit=limit, **values)
    compare(
        settings,
        out=Path(flags.out) if flags.out else None,
        device=device(flags.device),
        compile=flags.compile,
        command=command,
        checkpoint_every=flags.checkpoint_every,
    )


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _report(flags: Namespace, command: str) -> None:
    from anchored.report import write_report

    folder = Path(flags.folder)
    if not (folder / "rows.jsonl").is_file():
        raise InputError(f"{folder} is not a finished comparison: it has no rows.jsonl.")
    print(write_report(folder))


def _predict(flags: Namespace, command: str) -> None:
    from anchored.predict import predict_files

    predict_files(Path(flags.run), flags.images, protocol=flags.protocol, k=flags.k, as_json=flags.json)


def _doctor(flags: Namespace, command: str) -> None:
    from anchored.doctor import doctor

    doctor()


def device(name: str) -> Any:
    """The torch device of --device; "auto" takes CUDA, then MPS, then the CPU. Raises InputError if it is not there."""
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if there["cuda"] else "mps" if there["mps"] else "cpu")
    kind = name.split(":")[0]
    if kind not in there or not there[kind]:
        found = ", ".join(key for key, value in there.items() if value)
        raise InputError(f"device {name!r} is not on this machine. Found: {found}; or auto.")
    return torch.device(name)


COMMANDS = {
    "compare": _compare,
    "report": _report,
    "predict": _predict,
    "export": cli_export.export_command,
    "import": cli_export.import_command,
    "doctor": _doctor,
}
