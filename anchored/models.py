"""Name -> classifier: three networks for 32 px images, and any model of timm, torchvision or your own."""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored.errors import InputError, unknown


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
    """The classifier `name` with `num_classes` outputs: ours, timm:NAME, torchvision:NAME or package.module:callable.

    weights: "none" (initialised under `seed`, without touching the global generator), "default" (the library's
    pretrained ones) or a path to .safetensors, .pt or .pth. Where only the head of the weights has another number
    of classes it stays newly initialised, and a note says so. Raises InputError for an unknown name, weights that
    are not of this model, unreadable or not to be had.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kind, _, rest = name.partition(":")
        if name in OURS:
            model = Model(OURS[name](num_classes), name)
            if weights == "default":
                raise InputError(f"{name} has no pretrained weights; --weights is none or a PATH.")
        elif kind == "timm" and rest:
            model = _timm(name, rest, num_classes, weights == "default", image_size)
        elif kind == "torchvision" and rest:
            model = _torchvision(name, rest, num_classes, weights == "default")
        elif rest:
            model = Model(_own(kind, rest)(num_classes=num_classes), name)
        else:
            raise unknown("model", name, [*OURS, "timm:NAME", "torchvision:NAME", "package.module:callable"])
    if weights not in ("none", "default"):
        notes = load_weights(model.net, Path(weights), name)
        model = _replace(model, pretrained=True, notes=notes)
    return model


def _replace(model: Model, **changes: Any) -> Model:
    import dataclasses

    return dataclasses.replace(model, **changes)


def _timm(name: str, rest: str, num_classes: int, pretrained: bool, image_size: int | None) -> Model:
    import timm

    if not timm.is_model(rest):
        near = difflib.get_close_matches(rest, timm.list_models(), n=5, cutoff=0.5)
        raise InputError(f"timm has no model {rest!r}. Near: {', '.join(near) or 'none'}.")
    make = functools.partial(timm.create_model, rest, pretrained=pretrained, num_classes=num_classes)
    try:
        net = make()
        native = timm.data.resolve_model_data_config(net)["input_size"][1]
        if image_size is not None and image_size != native:
            # Models with position tables need their size at creation; the others take any and refuse the argument.
            try:
                net = make(img_size=image_size)
            except TypeError:
                net = make()
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        wanted = timm.get_pretrained_cfg(rest)
        raise InputError(
            f"the pretrained weights of {name} could not be fetched ({_first_line(error)}). Download "
            f"{wanted.hf_hub_id or wanted.url or rest} elsewhere and pass the file as --weights PATH."
        ) from error
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


def _torchvision(name: str, rest: str, num_classes: int, pretrained: bool) -> Model:
    from torchvision import models

    classifiers = models.list_models(module=models)
    if rest not in classifiers:
        raise unknown("torchvision model", rest, classifiers)
    weights = models.get_model_weights(rest).DEFAULT
    kind = weights.transforms()
    if pretrained:
        net = models.get_model(rest)
        try:
            state = weights.get_state_dict(progress=False)
        except OSError as error:
            raise InputError(
                f"the pretrained weights of {name} could not be fetched ({_first_line(error)}). Download "
                f"{Path(weights.url).name} elsewhere and pass the file as --weights PATH."
            ) from error
        net = models.get_model(rest, num_classes=num_classes)
        _assign(net, state, name)
    else:
        net = models.get_model(rest, num_classes=num_classes)
    size = kind.crop_size[0]
    return Model(
        net,
        name,
        pretrained,
        size,
        tuple(kind.mean),
        tuple(kind.std),
        kind.interpolation.value,
        size / kind.resize_size[0],
    )


def _own(module: str, name: str) -> Callable[..., nn.Module]:
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"no callable {name!r} in the Python module {module!r} ({error}). A model is one of {', '.join(OURS)}, "
            "timm:NAME, torchvision:NAME or package.module:callable."
        ) from error
    if not callable(found):
        raise InputError(f"{module}:{name} is not callable; it is {type(found).__name__}.")
    return found


def load_weights(net: nn.Module, path: Path, name: str) -> tuple[str, ...]:
    """Load the weights at `path` into `net` and return notes; see `create`."""
    if not path.is_file():
        raise InputError(f"--weights {path} is no file; it is none, default or the PATH of a .safetensors or .pt file.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format fails in ways of its own on a damaged or unsafe file
        raise InputError(
            f"the weights {path} cannot be read safely ({type(error).__name__}: {_first_line(error)}). They have to be "
            ".safetensors, or a .pt/.pth of tensors only."
        ) from error
    for key in ("state_dict", "model_ema", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict):
        raise InputError(f"the weights {path} hold no state dict but a {type(state).__name__}.")
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    for prefix in ("module.", "_orig_mod."):
        tensors = {key.removeprefix(prefix): value for key, value in tensors.items()}
    tensors.pop("n_averaged", None)
    return _assign(net, tensors, name, where=str(path))


def _assign(
    net: nn.Module, state: dict[str, Tensor], name: str, where: str = "the pretrained weights"
) -> tuple[str, ...]:
    own = net.state_dict()
    missing = [key for key in own if key not in state]
    unexpected = [key for key in state if key not in own]
    shapes = [key for key in own if key in state and own[key].shape != state[key].shape]
    head = [key for key in shapes if own[key].shape[1:] == state[key].shape[1:] and _is_head(net, key)]
    if missing or unexpected or len(head) < len(shapes):
        parts = [
            f"{len(keys)} {what} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
            for what, keys in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
            if keys
        ]
        raise InputError(f"{where} holds a checkpoint of another model than {name}: keys {'; '.join(parts)}.")
    net.load_state_dict({key: own[key] if key in head else state[key] for key in own})
    if head:
        return (f"the head of {where} is for {state[head[0]].shape[0]} classes; a new one is trained",)
    return ()


def _is_head(net: nn.Module, key: str) -> bool:
    """Whether `key` belongs to the last linear layer(s) of the network: an output per class."""
    module = net.get_submodule(key.rpartition(".")[0])
    if not isinstance(module, (nn.Linear, nn.Conv2d)):
        return False
    last = [m for m in net.modules() if isinstance(m, (nn.Linear, nn.Conv2d))][-2:]
    return any(module is m for m in last)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
