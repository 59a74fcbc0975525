"""What an evaluation evaluates: runs, folded runs, library models and your own, each as a Predict with its input."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anchored import runs
from anchored.arms.run_config import unknown_columns
from anchored.data.class_maps import imagenet_classes
from anchored.evaluation.run_folders import FOLD
from anchored.evaluation.settings import EvaluationSettings
from anchored.method import protocols
from anchored.method.core import Anchored, fold
from anchored.method.protocols import Predict
from anchored.models.by_name import create
from anchored.models.ours import OURS
from anchored.runs.columns import run_columns
from anchored.system.devices import placed
from anchored.system.errors import InputError
from anchored.system.preprocess import Preprocess

IMAGENET_CLASSES = 1000


@dataclass(frozen=True)
class EvaluatedModel:
    """One model under evaluation.

    name: unique among them, fit for a file. classes: of its outputs, in order. about: what its rows say of it, as
    `Row.about`. fingerprint: of weights, input and protocol, so that scores of another model are not mixed in.
    training: what two runs of one arm have in common, whatever their seed. folder: of a run, None for others.
    """

    name: str
    spec: str
    predict: Predict
    preprocess: Preprocess
    classes: tuple[str, ...]
    about: dict[str, Any]
    fingerprint: str
    training: str
    folder: Path | None = None
    notes: tuple[str, ...] = ()


def load_models(
    settings: EvaluationSettings, folders: Mapping[str, Path], classes: Sequence[str], device: torch.device
) -> Iterator[EvaluatedModel]:
    """Every model of the settings: runs, fold:RUN, timm:NAME, torchvision:NAME, ours, package.module:callable.

    folders: those of the runs, by what names them (`run_folders`). classes: of the data, which a model without class
    names of its own has; pretrained library models of 1000 outputs have ImageNet's. Raises InputError for anything
    that cannot be evaluated.
    """
    library = [spec for spec in settings.models if spec not in folders]
    weights = settings.weights
    if len(weights) not in (1, len(library)):
        raise InputError(
            f"--weights takes one value for all models or one for each of the {len(library)}; got {len(weights)}."
        )
    weights_of_each = iter(weights if len(weights) == len(library) else [*weights] * len(library))
    names: list[str] = []
    for spec in settings.models:
        if spec in folders:
            model = _run(spec, folders[spec], settings, device)
        else:
            model = _library_model(spec, next(weights_of_each), classes, settings, device)
        if model.name in names:  # runs of two comparisons have the same names
            model = replace(model, name=_file_name(spec))
        if model.name in names:
            raise InputError(f"every model is given once; {spec!r} is given twice.")
        names.append(model.name)
        yield model


def _run(spec: str, folder: Path, settings: EvaluationSettings, device: torch.device) -> EvaluatedModel:
    run = runs.load(folder)
    size = settings.input.image_size
    if size not in (None, run.preprocess.size):
        raise InputError(
            f"{spec} has its own preprocessing ({run.preprocess.size} px); --image-size {size} is for library models."
        )
    config, protocol = run.config, settings.protocol
    how = (protocol, settings.k, settings.seed)
    about, notes = run_columns(config, run.info), []
    given_as_folder = Path(spec.removeprefix(FOLD)).exists()  # in the Hub's cache a folder has a number for a name
    name = run.folder.resolve().name if given_as_folder else _file_name(spec.removeprefix(FOLD))
    fingerprint = _fingerprint(run.net, run.preprocess, *how)
    training = repr((dataclasses.replace(config, seed=0), run.info.get("data"), run.info.get("split")))
    if spec.startswith(FOLD):
        if not isinstance(run.net, Anchored) or run.references is None:
            raise InputError(f"{spec}: only an anchored run can be folded; this one's method is {config.method}.")
        net: nn.Module = placed(fold(run.net, run.references.mean).eval(), device)
        predict = replace(protocols.direct(net), protocol="one_random")  # with the mean as its reference
        name, about["model"], about["arm"] = f"{name}-folded", f"{config.model}, folded", f"{config.arm_name} folded"
    else:
        placed(run.net, device)
        predict = run.predictor(protocol, k=settings.k, seed=settings.seed)
        if protocol != "one_random" and not config.anchored:
            notes.append(f"--protocol {protocol} has no effect on {name}: its method is standard")
    return EvaluatedModel(
        name, spec, predict, run.preprocess, run.classes, about, fingerprint, training, folder, tuple(notes)
    )


def _library_model(
    spec: str, weights: str, classes: Sequence[str], settings: EvaluationSettings, device: torch.device
) -> EvaluatedModel:
    given, seed, outputs = settings.input, settings.seed, len(classes)
    own_callable = spec not in OURS and spec.partition(":")[0] not in ("timm", "torchvision")
    if own_callable and weights == "default":
        weights = "none"  # a callable brings its weights along
    elif weights == "default":
        outputs = IMAGENET_CLASSES
    model = create(spec, outputs, weights=weights, image_size=given.image_size, seed=seed)
    if _headless(model.notes) and outputs != IMAGENET_CLASSES:
        outputs = IMAGENET_CLASSES
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
    about: dict[str, Any] = {
        "arm": spec,
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
    training = repr((spec, weights))
    return EvaluatedModel(
        name, spec, protocols.direct(net), preprocess, own, about, fingerprint, training, notes=tuple(notes)
    )


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
