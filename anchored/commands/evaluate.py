"""`anchored evaluate`: its flags, and the settings they make."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from anchored.commands.parser import Parser
from anchored.evaluation.settings import EvaluationSettings, ModelInput
from anchored.system.devices import device
from anchored.system.files import as_tuple

NAME, HELP = "evaluate", "evaluate runs and library models; report"
K = 10  # references, where no number is given
SMOKE = {"limit": 200, "severities": [3]}


def parser() -> Parser:
    """Its flags."""
    p = Parser(
        "evaluate",
        description="Evaluate runs, folded runs, library models and your own on the same images: accuracy under shift, "
        "calibration and anomaly rejection, from per-sample scores that are kept. The same command again goes on where "
        "it was interrupted; another one with the same --out adds models or benchmarks.",
    )
    p.add_argument("--config", action="config", help="a YAML file of these flags")
    add = p.group("models")
    add(
        "models",
        nargs="+",
        help="runs (folders, or user/name on the Hub), fold:RUN, timm:NAME, torchvision:NAME, package.module:callable",
    )
    add("--weights", nargs="+", default=["default"], help="of library models, one or one each: default, none or a PATH")
    add("--protocol", default="one_random", help="of anchored runs: one_random, k_random or transduction")
    add("--k", type=int, help="references of k_random, candidates of transduction (10)")
    add("--seed", type=int, default=0, help="of the references that k_random and transduction draw")
    add("--image-size", type=int, help="side in pixels, for library models (their own)")
    add("--mean", nargs=3, type=float, help="of the input, for models without their own, in units of [0, 1] (0 0 0)")
    add("--std", nargs=3, type=float, help="of the input, for models without their own (1 1 1)")
    add("--baseline", help="the model that mean corruption errors and differences are relative to, or alexnet")
    add = p.group("test sets")
    add(
        "--data",
        help="the data whose test part is `clean`: cifar10, folder:PATH, csv:FILE ... (what runs were trained on)",
    )
    add("--part", default="test", help="test, or all images of --data, for data that nothing was trained on")
    add("--root", help="folder of downloaded data sets ($ANCHORED_DATA, else ~/.cache/anchored)")
    add(
        "--on",
        nargs="+",
        default=["clean"],
        help="clean, c, c-bar, c-mce, names of corruptions, c:PATH, c-bar:PATH, imagenet-r, imagenet-sketch, "
        "imagenet-v2, objectnet, cifar10.1, folder:PATH, parquet:PATH, npz:PATH, hf:PATH, csv:FILE",
    )
    add("--severities", nargs="+", type=int, help="severities of the corruptions, 1 to 5 (all)")
    add(
        "--anomalies",
        nargs="*",
        default=[],
        help="textures, svhn, isun, places365, ninco, photos, folder:, parquet: or npz:PATH, csv:FILE or a data set",
    )
    add(
        "--exclude-classes",
        nargs="*",
        default=[],
        help="classes of anomaly sets left out; known: the models' own; none",
    )
    add("--classes", help="a .json or .csv file from classes of the shifts to classes of the models")
    add("--limit", type=int, help="at most this many images a cell, the same for all models")
    add("--smoke", action="store_true", help="minutes, not hours: 200 images a cell, severity 3")
    add = p.group("running")
    add("--strict", action="store_true", help="an unreadable image or a missing corruption is an error, not a note")
    add("--device", default="auto", help="auto, cpu, cuda or mps")
    add("--out", type=str, default="runs/evaluation", help="folder of the results (%(default)s)")
    return p


def run(flags: Namespace, command: str) -> None:
    """Run `anchored evaluate`."""
    from anchored.comparison.evaluate import evaluate_models

    severities, limit = flags.severities or [1, 2, 3, 4, 5], flags.limit
    if flags.smoke:
        severities, limit = flags.severities or SMOKE["severities"], flags.limit or SMOKE["limit"]
    same = ("models", "data", "weights", "on", "anomalies", "part", "protocol", "seed", "root", "classes")
    values: dict[str, Any] = {name: as_tuple(flags[name]) for name in (*same, "exclude_classes", "baseline", "strict")}
    if flags.k is not None and flags.protocol == "one_random":
        warnings.warn("--k has no effect without --protocol k_random or transduction", stacklevel=2)
    values["k"] = K if flags.k is None else flags.k
    given = ModelInput(flags.image_size, as_tuple(flags.mean), as_tuple(flags.std))
    settings = EvaluationSettings(severities=tuple(severities), limit=limit, input=given, **values)
    evaluate_models(settings, out=Path(flags.out), device=device(flags.device), command=command)
