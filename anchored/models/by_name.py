"""Name -> classifier: ours, those of libraries, and any callable of the user's."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from anchored.method.stem import logits_of
from anchored.models.libraries import Model, hugging_face_model, timm_model, torchvision_model
from anchored.models.ours import OURS
from anchored.models.weights import load_weights
from anchored.system.errors import InputError, unknown
from anchored.system.eval_mode import evaluating
from anchored.system.network import first_line


def create(
    name: str, num_classes: int, *, weights: str = "none", image_size: int | None = None, seed: int = 0
) -> Model:
    """The classifier `name` with `num_classes` outputs: ours, timm:NAME, torchvision:NAME, hf:NAME (of the Hub, or a
    folder with its config.json) or package.module:callable.

    weights: "none" (initialised under `seed`, without touching the global generator), "default" (the library's
    pretrained ones) or a path to .safetensors, .pt or .pth. Where only the head of the weights has another number
    of classes it stays newly initialised, and a note says so. image_size: side in pixels the model will be given,
    None for its own; a model that fails on it is refused. Raises InputError for an unknown name, weights that are
    not of this model, unreadable or not to be had.
    """
    kind, _, rest = name.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if name in OURS:
            if weights == "default":
                raise InputError(f"{name} has no pretrained weights; --weights is none or a PATH.")
            model = Model(OURS[name](num_classes), name)
        elif kind == "timm" and rest:
            model = timm_model(name, rest, num_classes, weights == "default", image_size)
        elif kind == "torchvision" and rest:
            model = torchvision_model(name, rest, num_classes, weights == "default", image_size)
        elif kind == "hf" and rest:
            model = hugging_face_model(name, rest, num_classes, weights == "default", image_size)
        elif rest:
            if weights == "default":
                raise InputError(f"{name} is your own: it has no default weights; --weights is none or a PATH.")
            model = Model(_own(kind, rest, num_classes), name)
        else:
            raise _unknown(name)
        if weights not in ("none", "default"):
            notes = load_weights(model.net, Path(weights), name)
            model = replace(model, pretrained=True, notes=model.notes + notes)
        if image_size is not None and name not in OURS:
            _try(model, num_classes, image_size)
    return model


def _unknown(name: str) -> InputError:
    import timm
    from torchvision import models

    found = {"timm": timm.is_model(name), "torchvision": name in models.list_models(module=models)}
    if here := [f"{library}:{name}" for library, has in found.items() if has]:
        return InputError(f"unknown model {name!r}; there is {' and '.join(here)}.")
    return unknown("model", name, [*OURS, "timm:NAME", "torchvision:NAME", "hf:NAME", "package.module:callable"])


def _own(module: str, name: str, num_classes: int) -> nn.Module:
    if os.getcwd() not in sys.path:  # a console script has its own folder there instead
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the user's file raises
        near = difflib.get_close_matches(module, ["timm", "torchvision"], n=1)
        hint = f"Did you mean {near[0]}:{name}? " if near else ""
        raise InputError(
            f"no callable {name!r} in the Python module {module!r} ({type(error).__name__}: {first_line(error)}). "
            f"{hint}A model is one of {', '.join(OURS)}, timm:NAME, torchvision:NAME, hf:NAME or module:callable."
        ) from error
    if not callable(found):
        raise InputError(f"{module}:{name} is not callable; it is {type(found).__name__}.")
    try:
        net = found(num_classes=num_classes)
    except TypeError as error:
        raise InputError(f"{module}:{name} is called as {name}(num_classes={num_classes}): {error}.") from error
    if not isinstance(net, nn.Module):
        raise InputError(f"{module}:{name} returns a torch.nn.Module; it returned {type(net).__name__}.")
    return net


def _try(model: Model, num_classes: int, size: int) -> None:
    """Refuse a model that does not give `num_classes` logits for images of `size` pixels, before hours of training."""
    try:
        with evaluating(model.net):
            logits = logits_of(model.net(torch.zeros(2, 3, size, size)))
    except Exception as error:  # a model's own way of refusing a size
        raise InputError(
            f"{model.name} fails on RGB images of {size} px ({type(error).__name__}: {first_line(error)}). "
            "Another --image-size may suit it."
        ) from error
    if logits.shape != (2, num_classes):
        raise InputError(
            f"{model.name} has to give logits [B, {num_classes}]; for 2 images it gives {list(logits.shape)}."
        )
