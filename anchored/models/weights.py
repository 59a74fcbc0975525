"""Weights into a classifier: from a file, or from where its library publishes them; refused where they do not fit."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anchored.system.errors import InputError
from anchored.system.network import first_line, reachable

# What training scripts call the weights inside their checkpoints; averaged ones first, as they are what one evaluates.
_AVERAGED = ("state_dict_ema", "model_ema", "ema")
_NESTED = (*_AVERAGED, "state_dict", "model", "net")
_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")  # heads of GoogLeNet and Inception that only their training uses
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")


def load_weights(net: nn.Module, path: Path, name: str) -> tuple[str, ...]:
    """Load the weights at `path` into `net`, the model `name`, and return what a reader should know of it.

    path: .safetensors, or .pt/.pth holding tensors only; bare, or nested in a checkpoint of timm, torchvision or
    Lightning; with the prefix of a wrapper or not. A position table of another image size is interpolated and a head
    of another number of classes left as it is, and a note says so. Raises InputError for a file that is missing,
    unreadable, unsafe, or of another model; `net` is then untouched.
    """
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
            f"the weights {path} cannot be read safely ({type(error).__name__}: {first_line(error)}). They have to be "
            ".safetensors, or a .pt/.pth of tensors only."
        ) from error
    notes: tuple[str, ...] = ()
    while isinstance(state, dict) and (key := next((k for k in _NESTED if isinstance(state.get(k), dict)), None)):
        if key in _AVERAGED:
            notes = (f"the averaged weights ({key}) of {path} are used",)
        state = state[key]
    if not isinstance(state, dict):
        raise InputError(f"the weights {path} hold no state dict but a {type(state).__name__}.")
    tensors = {str(key): value for key, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError(
            f"the weights {path} hold no tensors; its keys are {', '.join(map(str, [*state][:5])) or '-'}."
        )
    return notes + assign(net, tensors, name, where=str(path))


def assign(net: nn.Module, state: dict[str, Tensor], name: str, where: str) -> tuple[str, ...]:
    """Put `state` into `net`, the model `name`; notes as of `load_weights`. `where` names the source in messages.

    Raises InputError where a key is missing, unexpected or of another shape, the head apart.
    """
    notes: list[str] = []
    state = _renamed(net, state)
    if _problems(net, state) and (fitted := _fitted(net, dict(state))) is not None and not _problems(net, fitted):
        if any(key in state and state[key].shape != value.shape for key, value in fitted.items()):
            notes.append(f"{where}: position tables are interpolated to this image size")
        state = fitted
    if problems := _problems(net, state):
        raise InputError(f"{where} holds a checkpoint of another model than {name}: keys {'; '.join(problems)}.")
    parameters = [key for key, _ in net.named_parameters() if key in state]
    if odd := [key for key in parameters if not state[key].isfinite().all()]:
        named = ", ".join(odd[:3])
        raise InputError(f"weights are finite numbers; in {where} {len(odd)} tensors hold NaN or infinity ({named}).")
    target = net.state_dict()  # an ordered dict with the version numbers some layers ask for
    head = [key for key in target if key in state and target[key].shape != state[key].shape]
    target.update({key: state[key] for key in target if key in state and key not in head})
    net.load_state_dict(target)
    if head:
        notes.append(f"the head of {where} is for {state[head[0]].shape[0]} classes; a new one is trained")
    return tuple(notes)


def _renamed(net: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """`state` under the names `net` uses: wrappers' prefixes, old DenseNet names and auxiliary heads taken off."""
    own = net.state_dict().keys()
    state = {key: value for key, value in state.items() if key != "n_averaged"}
    while not own & state.keys():
        prefixes = {key.partition(".")[0] for key in state if "." in key}
        if len(prefixes) != 1 or any("." not in key for key in state):
            break
        state = {key.partition(".")[2]: value for key, value in state.items()}
    state = {key if key in own else _OLD_DENSENET.sub(r"\1\2.", key): value for key, value in state.items()}
    return {key: value for key, value in state.items() if key in own or not key.startswith(_AUXILIARY)}


def _problems(net: nn.Module, state: dict[str, Tensor]) -> list[str]:
    own = net.state_dict()
    # Checkpoints older than PyTorch 0.4.1, torchvision's among them, lack the counters of batch normalisation.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in own]
    heads = _heads(net)
    shapes = [
        key
        for key, value in own.items()
        if key in state
        and value.shape != state[key].shape
        and not (key.rpartition(".")[0] in heads and value.shape[1:] == state[key].shape[1:])
    ]
    return [
        f"{len(keys)} {what} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
        for what, keys in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if keys
    ]


def _heads(net: nn.Module) -> set[str]:
    """Names of the layers with an output per class: what a timm model says, else the last linear layer."""
    named = [(name, module) for name, module in net.named_modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    classifier = getattr(net, "get_classifier", None)
    if callable(classifier):
        said = classifier()
        parts = said if isinstance(said, (tuple, list)) else (said,)
        heads = [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]
        return {name for name, module in named if any(module is head for head in heads)}
    return {name for name, _ in named[-1:]}


def _fitted(net: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """`state` as the library of `net` converts it, None where it does not: other layouts, other image sizes."""
    module = sys.modules[type(net).__module__]
    try:
        if module.__name__ == "torchvision.models.vision_transformer":
            return dict(module.interpolate_embeddings(net.image_size, net.patch_size, state))
        if module.__name__.startswith("timm.") and hasattr(module, "checkpoint_filter_fn"):
            return dict(module.checkpoint_filter_fn(state, net))
    except Exception:  # written for checkpoints of that family: anything may happen with one of another model
        return None
    return None


def downloaded(url: str, name: str) -> dict[str, Tensor]:
    """The state dict at `url`, from the cache of torch.hub if it is there, checked by the hash in its name.

    Raises InputError, with what to do, where it is not to be had.
    """
    try:
        cached = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
        if not cached.exists() and not reachable(url):
            raise OSError("no network, or no such host")
        return torch.hub.load_state_dict_from_url(
            url, map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except Exception as error:  # the network, the disk, the hash, the pickle
        raise not_fetched(name, url, error) from error


def not_fetched(name: str, source: str, error: BaseException) -> InputError:
    """The InputError for pretrained weights that could not be had."""
    return InputError(
        f"the pretrained weights of {name} could not be fetched ({first_line(error)}). Download {source} where there "
        "is a network and pass the file as --weights PATH."
    )
