"""What an evaluation evaluates: runs, folded runs, library models and your own, each as a Predict with its input."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anchored import runs
from anchored.arms.run_config import unknown_columns
from anchored.data.class_maps import imagenet_classes
from anchored.method import protocols
from anchored.method.core import Anchored, fold
from anchored.method.protocols import Predict
from anchored.models.by_name import create
from anchored.models.ours import OURS
from anchored.runs.columns import run_columns
from anchored.system.devices import placed
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess

FOLD = "fold:"
IMAGENET = 1000


@dataclass(frozen=True)
class Candidate:
    """One model under evaluation.

    name: unique among them, fit for a file. classes: of its outputs, in order. facts: what its rows say of training
    (fields of Row). fingerprint: of weights, input and protocol, so that scores of another model are not mixed in.
    """

    name: str
    spec: str
    predict: Predict
    preprocess: Preprocess
    classes: tuple[str, ...]
    facts: dict[str, Any]
    fingerprint: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Input:
    """What the input of a model without its own preprocessing is: flags of the command, None where not given."""

    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and (len(values) != 3 or (name == "std" and min(values) <= 0)):
                raise InputError(
                    f"--{name} takes three numbers, one a channel, in units of [0, 1]; got {list(values)}."
                )


def is_run(spec: str) -> bool:
    """Whether a model is named by its folder, as trained here, rather than by a library's or a module's name."""
    if spec.startswith(FOLD) or Path(spec).is_dir():
        return True
    return spec not in OURS and not re.match(r"[\w.]+:", spec)


def load(
    specs: Sequence[str],
    weights: Sequence[str],
    classes: Sequence[str],
    *,
    protocol: str,
    k: int,
    seed: int,
    given: Input,
    device: torch.device,
) -> Iterator[Candidate]:
    """Every model of `specs`: folders of runs, fold:RUN, timm:NAME, torchvision:NAME, ours, package.module:callable.

    weights: one for all that are not runs, or one for each. classes: of the data, which a model without class names of
    its own has; pretrained library models of 1000 outputs have ImageNet's. Raises InputError for anything that cannot
    be evaluated.
    """
    library = [spec for spec in specs if not is_run(spec)]
    if len(weights) not in (1, len(library)):
        raise InputError(
            f"--weights takes one value for all models or one for each of the {len(library)}; got {len(weights)}."
        )
    each = iter(weights if len(weights) == len(library) else [*weights] * len(library))
    names: list[str] = []
    for spec in specs:
        if is_run(spec):
            found = _run(spec, protocol, k, seed, given, device)
        else:
            found = _library(spec, next(each), classes, seed, given, device)
        if found.name in names:  # runs of two comparisons have the same names
            found = replace(found, name=_file_name(spec))
        if found.name in names:
            raise InputError(f"every model is given once; {spec!r} is given twice.")
        names.append(found.name)
        yield found


def _run(spec: str, protocol: str, k: int, seed: int, given: Input, device: torch.device) -> Candidate:
    folder = Path(spec.removeprefix(FOLD))
    if not folder.is_dir():
        raise InputError(
            f"{spec} is no folder of a run and no model: {', '.join(OURS)}, timm:NAME, torchvision:NAME or "
            "package.module:callable."
        )
    run = runs.load(folder)
    if given.image_size not in (None, run.preprocess.size):
        raise InputError(
            f"{spec} has its own preprocessing ({run.preprocess.size} px); --image-size {given.image_size} is for "
            "library models."
        )
    config, info = run.config, run.info
    anchored = config.anchored
    facts = run_columns(config, info)
    notes: tuple[str, ...] = ()
    name = run.folder.resolve().name
    fingerprint = _fingerprint(run.net, run.preprocess, protocol, k, seed)
    if spec.startswith(FOLD):
        if not isinstance(run.net, Anchored) or run.references is None:
            raise InputError(f"{spec}: only an anchored run can be folded; this one's method is {config.method}.")
        net: nn.Module = placed(fold(run.net, run.references.mean).eval(), device)
        predict = replace(protocols.direct(net), protocol="one_random")  # with the mean as its reference
        name, facts["model"] = f"{name}-folded", f"{config.model}, folded"
    else:
        placed(run.net, device)
        predict = run.predictor(protocol, k=k, seed=seed)
        if protocol != "one_random" and not anchored:
            notes = (f"--protocol {protocol} has no effect on {name}: its method is standard",)
    return Candidate(name, spec, predict, run.preprocess, run.classes, facts, fingerprint, notes)


def _library(
    spec: str, weights: str, classes: Sequence[str], seed: int, given: Input, device: torch.device
) -> Candidate:
    outputs = len(classes)
    own_callable = spec not in OURS and spec.partition(":")[0] not in ("timm", "torchvision")
    if own_callable and weights == "default":
        weights = "none"  # a callable brings its weights along
    elif weights == "default":
        outputs = IMAGENET
    model = create(spec, outputs, weights=weights, image_size=given.image_size, seed=seed)
    if _headless(model.notes) and outputs != IMAGENET:
        outputs = IMAGENET
        model = create(spec, outputs, weights=weights, image_size=given.image_size, seed=seed)
    if _headless(model.notes):
        raise InputError(
            f"{spec}: the weights {weights} have a head of another number of classes than the data ({len(classes)})."
        )
    own = tuple(classes) if outputs == len(classes) else imagenet_classes()
    notes = list(model.notes)
    if weights == "none" and not own_callable:
        notes.append(f"{spec} has random weights (--weights none): its accuracy is that of guessing")
    mean, std = given.mean or model.mean, given.std or model.std
    if mean is None or std is None:
        mean, std = mean or (0.0, 0.0, 0.0), std or (1.0, 1.0, 1.0)
        notes.append(f"{spec} says no mean and std: it gets pixels in [0, 1] (--mean and --std change that)")
    size = given.image_size or model.image_size
    if size is None:
        raise InputError(f"{spec} takes images of any size; pass --image-size, in pixels.")
    preprocess = Preprocess(size, tuple(mean), tuple(std), model.interpolation, model.crop)
    origin = {"default": "published", "none": "unknown" if own_callable else "untrained"}
    facts: dict[str, Any] = {
        "arm": None,
        "train_size": 0,
        "recipe": origin.get(weights, "unknown"),
        "augmentation": "unknown",
        "label_noise": 0.0,
        **unknown_columns(),
        "model": spec,
        "weights": {"default": "default", "none": "own" if own_callable else "random"}.get(weights, Path(weights).name),
        "seed": seed if weights == "none" else 0,
        "epoch": 0,
        "arithmetic": None,
        "parameters": sum(parameter.numel() for parameter in model.net.parameters()),
        "forward_passes": None,
    }
    net = placed(model.net.eval(), device)
    name = _file_name(spec) + ("" if weights in ("default", "none") else f"-{_file_name(Path(weights).stem)}")
    fingerprint = _fingerprint(net, preprocess, "direct", 1, 0)
    return Candidate(name, spec, protocols.direct(net), preprocess, own, facts, fingerprint, tuple(notes))


def _headless(notes: Sequence[str]) -> bool:
    return any(note.startswith("the head of ") for note in notes)


def _file_name(spec: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", spec).strip("-.")


def _fingerprint(net: nn.Module, preprocess: Preprocess, *how: object) -> str:
    digest = hashlib.blake2b(f"{preprocess} {how}".encode(), digest_size=16)
    for name, value in net.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
