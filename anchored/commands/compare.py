"""`anchored compare`: its flags, and the comparison that they describe."""

from __future__ import annotations

import warnings
from pathlib import Path

from jsonargparse import Namespace

from anchored.commands.parser import Parser
from anchored.commands.training_flags import K, add_training_flags, comparison, how
from anchored.system.files import as_tuple

NAME, HELP = "compare", "train standard, vanilla and masking; evaluate; report"


def parser() -> Parser:
    """Its flags."""
    p = Parser(
        "compare",
        description="Train a classifier three ways with one recipe, evaluate them on the same images, and say whether "
        "anchoring made it better. The same command again goes on where it was interrupted.",
    )
    methods = ["standard", "vanilla", "masking"]
    add = p.group("what is compared")
    add("--methods", "--method", nargs="+", default=methods, help=", ".join(methods))
    add("--masked-target", nargs="+", default=["uniform"], help="target of masked batches: uniform, label, or both")
    add("--seeds", "--seed", nargs="+", type=int, default=[0], help="one run of every method for each seed")
    add("--out", type=str, help="folder of the results (runs/compare-...)")
    add_training_flags(p)
    add = p.group("evaluation")
    add("--on", nargs="+", default=["clean", "c"], help="benchmarks: clean, c, c-bar, or names of corruptions")
    add("--severities", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="severities of the corruptions, 1 to 5")
    add("--anomalies", nargs="*", default=["photos"], help="anomaly sets: photos, or any data set by its name or path")
    add("--limit", type=int, help="at most this many test images a cell, the same for all methods")
    add("--protocol", default="one_random", help="one_random, k_random or transduction")
    add("--k", type=int, help="references of k_random, candidates of transduction (10)")
    return p


def run(flags: Namespace, command: str) -> None:
    """`anchored compare`."""
    from anchored.comparison.compare import compare

    values = {name: as_tuple(flags[name]) for name in ("methods", "masked_target", "seeds", "on", "severities")}
    values |= {"anomalies": as_tuple(flags.anomalies), "protocol": flags.protocol}
    if flags.k is not None and flags.protocol == "one_random":
        warnings.warn("--k has no effect without --protocol k_random or transduction", stacklevel=2)
    values["k"] = K if flags.k is None else flags.k
    settings = comparison(flags, limit=flags.limit, **values)
    compare(settings, out=Path(flags.out) if flags.out else None, command=command, **how(flags, settings))
