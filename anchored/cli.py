"""The command line. Flags mean the same in every command; bad input is one line on stderr and exit status 2."""

from __future__ import annotations

import errno
import os
import select
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from anchored import cli_corrupt, cli_evaluate, cli_export, cli_train
from anchored.errors import InputError, Stopped, TrainingError
from anchored.flags import Version

# What can be wrong with a place that results are to be written to.
WRITING = (
    errno.ENOSPC,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EDQUOT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENOENT,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command.

    Exits with 0, 1 (training failed), 2 (bad input), 130 (interrupted), 141 (nobody reads the output) or 143 (SIGTERM).
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parsed = parser().parse_args(given)
    errors = Console(stderr=True)
    warnings.showwarning = lambda message, *rest, **more: errors.print(
        f"Note: {message}", highlight=False, markup=False
    )
    command = "anchored " + shlex.join(given)
    if parsed.subcommand != "train" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if os.environ.get("RANK", "0") == "0":  # once
            print(
                f"Error: of several processes train is the only command; run {parsed.subcommand} alone.",
                file=sys.stderr,
            )
        raise SystemExit(2)
    try:
        COMMANDS[parsed.subcommand](parsed[parsed.subcommand], command)
        sys.stdout.flush()
    except InputError as error:
        _end(errors, f"Error: {error}", 2)
    except TrainingError as error:
        _end(errors, f"Stopped: {error}", 1)
    except Stopped as error:
        _end(errors, f"{error} The same command goes on from there.", 143)
    except KeyboardInterrupt:
        _end(errors, "Interrupted. The same command goes on from the last checkpoint.", 130)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _unread():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(141) from None
        if error.errno not in WRITING:
            raise
        _end(errors, f"Error: cannot write {error.filename or 'the output'}: {error.strerror}.", 2)


def _unread() -> bool:
    """Whether the output is a pipe whose reader, such as `head`, has had enough."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _end(console: Console, message: str, status: int) -> None:
    console.print(message, highlight=False, markup=False, soft_wrap=True)
    raise SystemExit(status)


def parser() -> ArgumentParser:
    """The parser of the whole command line."""
    top = ArgumentParser(prog="anchored", description="Train image classifiers on (reference, residual) tuples.")
    top.add_argument("--version", action=Version)
    commands = top.add_subcommands(required=True)
    cli_train.compare_parser().below(commands, "compare", "train standard, vanilla and masking; evaluate; report")
    cli_train.train_parser().below(commands, "train", "train one classifier and save it as a run")
    commands.add_subcommand("corrupt", cli_corrupt.corrupt_parser(), help="corrupted copies of a data set")
    cli_evaluate.evaluate_parser().below(commands, "evaluate", "evaluate runs and library models; report")
    commands.add_subcommand("report", _report_parser(), help="draw the report of a comparison again")
    commands.add_subcommand("predict", _predict_parser(), help="predict images with a run")
    commands.add_subcommand("export", cli_export.export_parser(), help="write a run as .onnx or .pt2")
    commands.add_subcommand("import", cli_export.import_parser(), help="a released checkpoint of the paper as a run")
    commands.add_subcommand("doctor", _doctor_parser(), help="what this machine and installation can do")
    return top


def _report_parser() -> ArgumentParser:
    p = ArgumentParser(description="Draw a report again from rows and scores, of one folder or of several together.")
    p.add_argument(
        "sources", nargs="+", help="folders of comparisons or evaluations, runs in them, or rows.jsonl files"
    )
    p.add_argument("--out", type=str, help="folder of the report (the first source's own, if it is the only one)")
    return p


def _doctor_parser() -> ArgumentParser:
    p = ArgumentParser(description="Versions, devices, arithmetic, memory and the data that is there.")
    p.add_argument("--root", help="folder of downloaded data sets ($ANCHORED_DATA, else ~/.cache/anchored)")
    return p


def _predict_parser() -> ArgumentParser:
    p = ArgumentParser(description="Predict images with a run.")
    p.add_argument("run", help="folder of a run, or a Hub repository user/name")
    p.add_argument("images", nargs="+", help="image files, or folders of them")
    p.add_argument("--protocol", default="one_random", help="one_random, k_random or transduction")
    p.add_argument("--k", type=int, default=10, help="references of k_random")
    p.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    return p


def _report(flags: Namespace, command: str) -> None:
    from anchored.report import write_report

    sources = [Path(source) for source in flags.sources]
    for source in sources:
        if not source.exists():
            raise InputError(f"{source}: there is no such folder or file.")
    if flags.out is None and (len(sources) > 1 or not sources[0].is_dir()):
        raise InputError("a report of several folders, or of a file, needs --out, the folder to write it to.")
    print(write_report(flags.out or sources[0], sources))


def _predict(flags: Namespace, command: str) -> None:
    from anchored.predict import predict_files

    predict_files(Path(flags.run), flags.images, protocol=flags.protocol, k=flags.k, as_json=flags.json)


def _doctor(flags: Namespace, command: str) -> None:
    from anchored.doctor import doctor

    doctor(flags.root)


COMMANDS = {
    "compare": cli_train.run_compare,
    "train": cli_train.run_train,
    "evaluate": cli_evaluate.evaluate,
    "corrupt": cli_corrupt.run_corrupt,
    "report": _report,
    "predict": _predict,
    "export": cli_export.export_command,
    "import": cli_export.import_command,
    "doctor": _doctor,
}
