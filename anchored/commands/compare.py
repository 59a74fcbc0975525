"""`anchored compare`: its flags, and the comparison that they describe."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from anchored.arms.arm import Arm
from anchored.arms.prediction import PredictionSettings
from anchored.arms.run_config import RunConfig
from anchored.arms.setting import METHODS, declared
from anchored.commands.parser import Parser
from anchored.commands.training_flags import SMOKE, add_training_flags, at_most, comparison, help_of, how
from anchored.comparison.settings import Comparison
from anchored.system.errors import InputError
from anchored.system.files import as_tuple

NAME, HELP = "compare", "train standard, vanilla and masking; evaluate; report"
SMOKE_SEVERITIES = (3,)
SHORT = ("methods", "masked_target")  # flags that arms are given by without being written out


def parser() -> Parser:
    """Its flags."""
    p = Parser(
        NAME,
        description="Train a classifier in several ways (arms), evaluate them on the same images, and say which is "
        "better: standard, vanilla anchoring and masking with one recipe, or any arms of your own. The same command "
        "again goes on where it was interrupted, and one with more arms adds them.",
    )
    add = p.group("what is compared")
    add("--methods", "--method", nargs="+", default=list(METHODS), help=help_of(RunConfig, "method"))
    add("--masked-target", nargs="+", default=["uniform"], help=f"{help_of(RunConfig, 'masked_target')}, or both")
    add(
        "--arm",
        action="append",
        help='an arm of your own instead of the methods\', once for each: "NAME: METHOD FIELD=VALUE ...", e.g. "both: '
        'masking masked_target=label augmentation=augmix"',
    )
    add(
        "--arms",
        type=dict[str, Any],
        help="the same in a file of flags: a mapping of name to fields, method among them",
    )
    add("--baseline", help="the arm that others are compared with (the first)")
    add("--report-pairs", nargs="+", default=[], help="further pairs of arms to compare, A:B")
    add("--seeds", "--seed", nargs="+", type=int, default=[0], help="one run of every arm for each seed")
    add("--out", type=str, help="folder of the results (runs/compare-...)")
    add_training_flags(p)
    add = p.group("evaluation")
    add("--on", nargs="+", default=["clean", "c"], help="benchmarks: clean, c, c-bar, or names of corruptions")
    add("--severities", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="severities of the corruptions, 1 to 5")
    add("--anomalies", nargs="*", default=["photos"], help="anomaly sets: photos, or any data set by its name or path")
    add("--limit", type=int, help="at most this many test images a cell, the same for all arms")
    add("--protocol", default="one_random", help=help_of(PredictionSettings, "protocol"))
    add("--k", type=int, help=help_of(PredictionSettings, "k"))
    return p


def run(flags: Namespace, command: str) -> None:
    """Run `anchored compare`. Raises InputError."""
    from anchored.comparison.compare import compare

    settings = described(flags)
    compare(settings, out=Path(flags.out) if flags.out else None, command=command, **how(flags, settings))


def described(flags: Namespace) -> Comparison:
    """The Comparison that the flags describe. Raises InputError."""
    names = ("seeds", "on", "severities", "anomalies", "report_pairs", *SHORT)
    values: dict[str, Any] = {name: as_tuple(flags[name]) for name in names}
    if flags.smoke and values["severities"] == (1, 2, 3, 4, 5):
        values["severities"] = SMOKE_SEVERITIES
    values |= {"protocol": flags.protocol, "baseline": flags.baseline, "arms": _arms(flags)}
    if flags.k is not None and flags.protocol == "one_random" and not values["arms"]:
        warnings.warn("--k has no effect without --protocol k_random or transduction", stacklevel=2)
    defaults = {field.name: field.default for field, _ in declared(PredictionSettings)}
    values["k"] = defaults["k"] if flags.k is None else flags.k
    limit = at_most(flags.limit, SMOKE["limit"]) if flags.smoke else flags.limit
    return comparison(flags, limit=limit, **values)


def _arms(flags: Namespace) -> list[Arm]:
    """The arms of --arm and of a file's `arms`; none where the methods are meant."""

    arms = [Arm.parse(text) for text in flags.arm or ()]
    arms += [Arm.of(name, fields) for name, fields in (flags.arms or {}).items()]
    if arms and list(flags.methods) != list(METHODS):
        raise InputError("arms are given by --arm (or arms: in a file) or by --methods, not by both.")
    if arms and len(flags.masked_target) > 1:
        raise InputError("--masked-target takes one value with --arm: what arms share unless they say another.")
    return arms
