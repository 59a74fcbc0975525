"""Name -> classifier: three networks for 32 px images, any model of timm, torchvision, Hugging Face or your own."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored.errors import InputError, unknown
from anchored.modes import evaluating
from anchored.stem import logits_of
from anchored.weights import assign, downloaded, first_line, hub_without_waiting, load_weights, not_fetched


def _conv_bn(channels: int, out: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class _Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def resnet9(num_classes: int) -> nn.Module:
    """A residual network of nine layers that trains on a CPU (1.6 M parameters); input of at least 8 px.

    Strides instead of pooling: batch norm and ReLU see a quarter of the pixels, nearly twice as fast on a CPU.
    """
    return nn.Sequential(
        _conv_bn(3, 32),
        _conv_bn(32, 64, 2),
        _Residual(nn.Sequential(_conv_bn(64, 64), _conv_bn(64, 64))),
        _conv_bn(64, 128, 2),
        _conv_bn(128, 256, 2),
        _Residual(nn.Sequential(_conv_bn(256, 256), _conv_bn(256, 256))),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, num_classes),
    )


class _BasicBlock(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18(num_classes: int) -> nn.Module:
    """ResNet-18 in its CIFAR form: 3x3 stem of stride 1, no pooling (He et al. 2016; 11.17 M at 10 classes)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_BasicBlock(channels, out, stride), _BasicBlock(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_classes))


class _WideBlock(nn.Module):
    """Pre-activation block of a wide residual network."""

    def __init__(self, channels: int, out: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False) if channels != out else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(y)
        return shortcut + self.conv2(self.dropout(F.relu(self.bn2(self.conv1(y)))))


def wrn40_2(num_classes: int, dropout: float = 0.3) -> nn.Module:
    """WRN-40-2 (Zagoruyko & Komodakis 2016; 2.24 M at 10 classes), with the released code's dropout of 0.3."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    channels = 16
    for out, stride in ((32, 1), (64, 2), (128, 2)):
        for number in range(6):
            layers.append(_WideBlock(channels, out, stride if number == 0 else 1, dropout))
            channels = out
    layers += [nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes)]
    return nn.Sequential(*layers)


OURS: dict[str, Callable[..., nn.Module]] = {f.__name__: f for f in (resnet9, resnet18, wrn40_2)}


@dataclass(frozen=True)
class Model:
    """A classifier and how it wants its input.

    image_size: native side in pixels, None where any will do. mean, std: per channel in [0, 1] units, None to use
    the statistics of the data. crop: centre-crop fraction of the resized shorter side.
    """

    net: nn.Module
    name: str
    pretrained: bool = False
    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    interpolation: str = "bilinear"
    crop: float = 1.0
    notes: tuple[str, ...] = ()


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
            model = _timm(name, rest, num_classes, weights == "default", image_size)
        elif kind == "torchvision" and rest:
            model = _torchvision(name, rest, num_classes, weights == "default", image_size)
        elif kind == "hf" and rest:
            model = _hugging_face(name, rest, num_classes, weights == "default", image_size)
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


def _timm(name: str, rest: str, num_classes: int, pretrained: bool, image_size: int | None) -> Model:
    import timm

    if not timm.is_model(rest):
        near = difflib.get_close_matches(rest, timm.list_models(), n=5, cutoff=0.5)
        hint = f"Near: {', '.join(near)}." if near else "timm.list_models('*resnet*') lists those with a word in them."
        raise InputError(f"timm has no model {rest!r}. {hint}")
    architecture, _, tag = rest.partition(".")
    try:
        native = timm.get_pretrained_cfg(rest)
    except RuntimeError as error:
        tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{architecture}.*")]
        raise unknown(f"weights of timm's {architecture}", tag, tags) from error
    if pretrained and not timm.is_model_pretrained(rest):
        raise InputError(f"{name} has no pretrained weights; --weights is none or a PATH.")
    make = functools.partial(timm.create_model, rest, pretrained=pretrained, num_classes=num_classes)

    def sized() -> nn.Module:
        if image_size is None or (native is not None and native.input_size[1] == image_size):
            return make()
        # Models with position tables need their size at creation; the others take any and refuse the argument.
        try:
            return make(img_size=image_size)
        except TypeError:
            return make()
        except (AssertionError, ValueError, RuntimeError) as error:
            if pretrained:
                raise
            raise InputError(f"{name} cannot be made for {image_size} px images ({first_line(error)}).") from error

    if pretrained:
        assert native is not None  # is_model_pretrained says so
        source = f"https://huggingface.co/{native.hf_hub_id}" if native.hf_hub_id else str(native.url)
        try:
            with hub_without_waiting():
                net = sized()
        except Exception as error:  # the hub, its HTTP client, the disk and torch each have their own
            raise not_fetched(name, source, error) from error
    else:
        net = sized()
    config = timm.data.resolve_model_data_config(net)
    return Model(
        net,
        name,
        pretrained,
        image_size or config["input_size"][1],
        tuple(config["mean"]),
        tuple(config["std"]),
        config["interpolation"] if config["interpolation"] in ("bilinear", "bicubic") else "bicubic",
        float(config["crop_pct"]),
    )


def _torchvision(name: str, rest: str, num_classes: int, pretrained: bool, image_size: int | None) -> Model:
    from torchvision import models

    classifiers = models.list_models(module=models)
    if rest not in classifiers:
        raise unknown("torchvision model", rest, classifiers)
    options: dict[str, Any] = {}
    if rest in ("googlenet", "inception_v3"):
        # Without the auxiliary heads, so that the output is logits in training too; and always with the change of
        # normalisation their published weights expect, so that a saved run does not depend on where it started.
        options = {"aux_logits": False, "transform_input": True, "init_weights": True}
    elif image_size is not None and rest.startswith("vit_"):
        options = {"image_size": image_size}
    elif image_size is not None and rest == "maxvit_t":
        options = {"input_size": (image_size, image_size)}
    try:
        net = models.get_model(rest, num_classes=num_classes, **options)
    except (AssertionError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} cannot be made for {image_size} px images ({first_line(error)}).") from error
    weights = models.get_model_weights(rest).DEFAULT
    kind = weights.transforms()
    notes = assign(net, downloaded(weights.url, name), name, "the default weights") if pretrained else ()
    size = kind.crop_size[0]
    return Model(
        net,
        name,
        pretrained,
        image_size or size,
        tuple(kind.mean),
        tuple(kind.std),
        kind.interpolation.value,
        size / kind.resize_size[0],
        notes,
    )


def _hugging_face(name: str, rest: str, num_classes: int, pretrained: bool, image_size: int | None) -> Model:
    """A classifier of transformers from its configuration; its outputs are objects with `.logits`."""
    try:
        from transformers import AutoConfig, AutoModelForImageClassification, ImageProcessingMixin
    except ImportError as error:
        raise InputError(f"{name} needs the package transformers: pip install 'anchored[hf]'.") from error
    make = AutoModelForImageClassification
    try:
        with hub_without_waiting():
            config = AutoConfig.from_pretrained(rest, num_labels=num_classes)
            if image_size is not None and hasattr(config, "image_size"):
                config.image_size = image_size if isinstance(config.image_size, int) else [image_size, image_size]
            if pretrained:
                net = make.from_pretrained(rest, config=config, ignore_mismatched_sizes=True)
            else:
                net = make.from_config(config)
            try:
                steps = ImageProcessingMixin.get_image_processor_dict(rest)[0]
            except OSError:  # a configuration alone
                steps = {}
    except Exception as error:  # the hub, the file and the architecture each have their own
        raise InputError(
            f"{name} is no image classifier of transformers that can be made here ({first_line(error)}). It is "
            "hf:USER/NAME on the Hub, or hf:FOLDER with a config.json."
        ) from error
    size, crop = _side(steps.get("size")), _side(steps.get("crop_size"))
    native = getattr(config, "image_size", None) or crop or size
    return Model(
        net,
        name,
        pretrained,
        image_size or _side(native),
        tuple(steps["image_mean"]) if "image_mean" in steps else None,
        tuple(steps["image_std"]) if "image_std" in steps else None,
        {2: "bilinear", 3: "bicubic"}.get(steps.get("resample", 2), "bicubic"),
        crop / size if crop and size and steps.get("do_center_crop", True) else 1.0,
    )


def _side(size: Any) -> int | None:
    """Pixels in one of the ways image processors write a size."""
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge")
    return int(size[0]) if isinstance(size, (list, tuple)) else size


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
