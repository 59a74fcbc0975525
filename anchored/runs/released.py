"""The checkpoints the paper's authors released, read safely and written as runs.

Two layouts: CIFAR ResNet-18, a state dict with keys `module.net.conv1.weight` ..., alone or under `state_dict`, `net`
or `model`; and torchvision's training checkpoints of ImageNet models, a dict of `model` and `model_ema` (keys
`module.net....` and an entry `n_averaged`) with the options of training, an argparse.Namespace, under `args`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from anchored import data as sources
from anchored.arms.recipe_choice import recipe
from anchored.arms.recipes import RECIPES
from anchored.data.base import Data, Images, ImageSet
from anchored.data.recorded import source_of
from anchored.method.core import Anchored, anchor
from anchored.method.references import ReferenceSet
from anchored.models.by_name import create
from anchored.runs import run as runs
from anchored.system.errors import InputError, unknown
from anchored.system.network import first_line
from anchored.system.preprocess import Preprocess

# The release normalises both CIFAR sets with these.
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_CIFAR_KEY = re.compile(r"layer([1-4])\.([01])\.(conv[12]|bn[12]|shortcut\.[01])\.(\w+)")


def import_released(
    checkpoint: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    model: str | None = None,
    method: Literal["vanilla", "masking"] = "masking",
    weights: Literal["ema", "raw"] = "ema",
    data: str | None = None,
    root: str | None = None,
    references: int | None = None,
) -> Path:
    """Write the authors' `checkpoint` to `folder` as a run that `anchored.load` reads; returns the folder.

    model: its name, where the checkpoint does not say (resnet18, torchvision:vit_b_16 ...). method: how it was
    trained, for the record. weights: where it holds both, the averaged ("ema") or the last ("raw") ones. data, root,
    references: the training data, as in `compare`, and how many of its images become the reference set; the
    checkpoint holds no images, so without data the one reference is the mean colour, and k_random has nothing to draw
    from. Raises InputError for a file that cannot be read safely, of another layout or model, or a folder in use.
    """
    checkpoint, folder = Path(checkpoint), Path(folder)
    if method not in ("vanilla", "masking"):
        raise unknown("method of a released checkpoint", method, ["vanilla", "masking"])
    if weights not in ("ema", "raw"):
        raise unknown("weights", weights, ["ema", "raw"])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is in use; name an empty or a new folder.")
    if data is None and references is not None:
        raise InputError("references are images of the training data: name it with data (--data).")
    content = read_safely(checkpoint)
    state, which = _state(content, weights, checkpoint)
    arguments = vars(content["args"]) if isinstance(content.get("args"), argparse.Namespace) else {}
    name, state = _named_model(model, state, arguments, checkpoint)
    classes = next((value.shape[0] for key, value in reversed(state.items()) if key.endswith("bias")), 0)  # the head's
    net, preprocess = _network(name, classes, state, checkpoint)
    recipe_name = "cifar_resnet18" if name == "resnet18" else f"imagenet_{name.partition(':')[2]}"
    config = runs.RunConfig(method, name, recipe(recipe_name if recipe_name in RECIPES else "finetune"), 0)
    imported = {
        "file": checkpoint.name,
        "sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        "weights": which,
        "epoch": content.get("epoch") if isinstance(content.get("epoch"), int) else None,
        "references": data or "the mean colour: the checkpoint holds no images",
        "options": {key: value for key, value in arguments.items() if isinstance(value, (int, float, str, bool))},
    }
    if data is None:
        train, reference_set = _mean_colour(preprocess)
        numbers = tuple(map(str, range(classes)))
        runs.save(folder, config, net, preprocess, numbers, reference_set, train, imported=imported)
        return folder
    loaded = _training_data(data, root, preprocess, classes)
    reference_set = ReferenceSet.from_dataset(loaded.train, references, seed=0, transform=preprocess)
    told: dict[str, Any] = {"data": loaded.name, "split": loaded.split, "source": source_of(data, root)}
    runs.save(folder, config, net, preprocess, loaded.classes, reference_set, loaded.train, **told, imported=imported)
    return folder


def read_safely(path: Path) -> dict[str, Any]:
    """The dict pickled in `path`: tensors, plain values and argparse.Namespace; anything else is refused unread."""
    if not path.is_file():
        raise InputError(f"{path} is no file.")
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each way a pickle can be damaged or unsafe has its own
        raise InputError(
            f"{path} cannot be read safely ({type(error).__name__}: {first_line(error)}). Of Python objects a released "
            "checkpoint holds tensors, plain values and an argparse.Namespace; nothing else is loaded."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}; a released checkpoint is a dict.")
    return content


def _state(content: dict[str, Any], weights: str, path: Path) -> tuple[dict[str, Tensor], str]:
    """The state dict in a checkpoint, without the prefixes of its wrappers, and which of its weights it is."""
    order = ["model_ema", "model"] if weights == "ema" else ["model", "model_ema"]
    key = next((key for key in (*order, "state_dict", "net") if isinstance(content.get(key), dict)), None)
    found: dict[Any, Any] = content if key is None else content[key]
    state = {str(name): value for name, value in found.items() if isinstance(value, Tensor) and name != "n_averaged"}
    prefixed = re.compile(r"(?:module\.)*net\.")
    if not state or not all(prefixed.match(name) for name in state):
        odd = next((name for name in state if not prefixed.match(name)), "none at all")
        raise InputError(
            f"{path} is no released checkpoint of an anchored model: its keys start with module.net. or net., and "
            f"among these is {odd}."
        )
    return {prefixed.sub("", name, count=1): value for name, value in state.items()}, (
        "ema" if key == "model_ema" else "raw"
    )


def _named_model(
    model: str | None, state: dict[str, Tensor], arguments: dict[str, Any], path: Path
) -> tuple[str, dict[str, Tensor]]:
    """The name of the model in a checkpoint and its state dict, under the keys that the model of this name has here."""
    if "conv1.weight" in state and "layer1.0.conv1.weight" in state and (model or "resnet18") == "resnet18":
        return "resnet18", {_cifar_key(key): value for key, value in state.items()}
    if model or isinstance(arguments.get("model"), str):
        return model or f"torchvision:{arguments['model']}", state
    raise InputError(
        f"{path} does not say which model it holds, and its keys ({', '.join([*state][:3])}, ...) are not those of a "
        "CIFAR ResNet-18. Name the model (--model torchvision:NAME)."
    )


def _cifar_key(key: str) -> str:
    """A key of the released CIFAR ResNet-18 under the name that `resnet18` has for it."""
    layer, _, what = key.partition(".")
    if layer in ("conv1", "bn1"):
        return f"{'0' if layer == 'conv1' else '1'}.{what}"
    if layer in ("linear", "fc"):
        return f"13.{what}"
    match = _CIFAR_KEY.fullmatch(key.replace("downsample", "shortcut"))
    if match is None:
        return key  # refused with the other keys that do not fit
    stage, block, part, what = match.groups()
    return f"{3 + 2 * (int(stage) - 1) + int(block)}.{part}.{what}"


def _network(name: str, classes: int, state: dict[str, Tensor], path: Path) -> tuple[Anchored, Preprocess]:
    """The anchored model `name` with the released weights, in eval mode."""
    model = create(name, classes)
    size = model.image_size or 32
    try:
        net = anchor(model.net, example=torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)))
    except ValueError as error:
        raise InputError(f"{name} cannot be anchored: {error}") from error
    stems = {f"{stem}.{what}": f"{stem}.layer.{what}" for stem in net.stems for what in ("weight", "bias")}
    renamed = {f"net.{stems.get(key, key)}": value for key, value in state.items()}
    own = net.state_dict()
    wrong = [
        f"{len(keys)} {what} ({', '.join(key.removeprefix('net.') for key in keys[:3])})"
        for what, keys in (
            ("missing", [key for key in own if key not in renamed and not key.endswith("num_batches_tracked")]),
            ("unexpected", [key for key in renamed if key not in own]),
            ("of another shape", [key for key in own if key in renamed and own[key].shape != renamed[key].shape]),
        )
        if keys
    ]
    if wrong:
        raise InputError(f"{path} holds another model than an anchored {name}: keys {'; '.join(wrong)}.")
    net.load_state_dict(renamed, strict=False)
    mean, std = model.mean or CIFAR_MEAN, model.std or CIFAR_STD
    return net.eval(), Preprocess(size, tuple(mean), tuple(std), model.interpolation, model.crop)


def _mean_colour(preprocess: Preprocess) -> tuple[Images, ReferenceSet]:
    """One image of the mean colour, which is zero in the normalised input space, and the reference set of it alone."""
    colour = torch.tensor(preprocess.mean).mul(255).round().to(torch.uint8)
    image = colour.expand(1, preprocess.size, preprocess.size, 3).contiguous()
    zero = torch.zeros(1, 3, preprocess.size, preprocess.size)
    return ImageSet(image, torch.zeros(1, dtype=torch.int64)), ReferenceSet.from_images(zero, mean=zero)


def _training_data(data: str, root: str | None, preprocess: Preprocess, classes: int) -> Data:
    """The training data as the model takes it. Raises InputError where it has another number of classes."""
    loaded = sources.load(
        data, size=preprocess.size, root=root, interpolation=preprocess.interpolation, crop=preprocess.crop
    )
    if len(loaded.classes) != classes:
        raise InputError(f"the checkpoint has {classes} classes and {data} has {len(loaded.classes)}.")
    return loaded
