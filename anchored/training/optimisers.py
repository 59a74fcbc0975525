"""What a recipe trains and how fast: frozen parts, parameter groups, the optimiser, the average of the weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from anchored.arms.recipe import Recipe
from anchored.method.core import Anchored
from anchored.system.errors import InputError

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
EMBEDDINGS = re.compile(
    r"(class|cls|dist|reg|register)_tokens?|pos(ition)?_embed(ding)?s?|relative_position_bias_table"
)


def optimiser(net: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser of a run, SGD or AdamW, with the groups of `parameter_groups`; freezes what is not trained.

    net: an `Anchored` or any classifier, before it is wrapped or compiled. Raises InputError where the recipe trains
    the head and there is none to be found.
    """
    freeze(net, recipe.trainable)
    groups = parameter_groups(net, recipe)
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(groups, recipe.lr, recipe.momentum, nesterov=recipe.nesterov)
    return torch.optim.AdamW(groups, recipe.lr)


def set_lr(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Give every group of parameters its share (`lr_scale`) of the learning rate `lr`."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group["lr_scale"]


def parameter_groups(net: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """The trainable parameters by `weight_decay` and `lr_scale`, in the order of the network.

    Parameters of norm layers, embeddings (class tokens, position embeddings and tables) and biases, with whatever else
    is a vector, decay by the recipe's value of their kind, or by `weight_decay` where that is None. lr_scale:
    layer_decay to the number of layers behind; 1 for the last layer.
    """
    kinds = dict(_kinds(net))
    depths = layers(net) if recipe.layer_decay != 1 else dict.fromkeys(kinds, 0)
    last = max(depths.values(), default=0)
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            own = getattr(recipe, f"{kinds[name]}_weight_decay") if kinds[name] else None
            decay = recipe.weight_decay if own is None else own
            groups.setdefault((decay, recipe.layer_decay ** (last - depths[name])), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "lr_scale": scale}
        for (decay, scale), parameters in groups.items()
    ]


def _kinds(net: nn.Module) -> Iterator[tuple[str, str]]:
    """(name, kind) of every parameter: norm, embedding, bias, or nothing in particular."""
    for prefix, module in net.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(module, NORMS):
                kind = "norm"
            elif isinstance(module, nn.Embedding) or EMBEDDINGS.fullmatch(name):
                kind = "embedding"
            else:
                kind = "bias" if parameter.ndim <= 1 else ""
            yield f"{prefix}.{name}" if prefix else name, kind


def layers(net: nn.Module) -> dict[str, int]:
    """The layer of every parameter by name, counted from the stem, 0.

    A timm model says itself what its layers are; elsewhere a layer is one numbered block of the network (`layer1.0`,
    `encoder.layers.encoder_layer_3`), with what lies before the first block as one layer and what follows a block,
    unnumbered, as another.
    """
    if isinstance(net, Anchored):
        return {f"net.{name}": layer for name, layer in layers(net.net).items()}
    names = [name for name, _ in net.named_parameters()]
    matcher: Any = getattr(net, "group_matcher", None)
    if matcher is not None:
        from timm.models import group_parameters

        given: dict[str, int] = group_parameters(net, matcher(coarse=False), reverse=True)
        return {name: given[name] for name in names}
    found: dict[str, int] = {}
    number, current = 0, None
    for name in names:
        block = _block(name)
        if block != current:
            number += bool(found)
            current = block
        found[name] = number
    return found


def _block(name: str) -> str | None:
    """The numbered block a parameter lies in: its path up to the first run of numbers ("features.1.0.block.2.bias")."""
    match = re.match(r"(?:[^.]+\.)*?(?:\w+_\d+|\d+(?:\.\d+)*)(?=\.)", name)
    return match.group() if match else None


def freeze(net: nn.Module, trainable: str) -> None:
    """Leave gradients to the trainable part only: "all", "head", or "stem_head" (the stem as well), in place."""
    if trainable == "all":
        return
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    parts = [head(net)] if trainable == "head" else [head(net), *stems(net)]
    for part in parts:
        for parameter in part.parameters():
            parameter.requires_grad_(True)


def head(net: nn.Module) -> nn.Module:
    """The last layer of a classifier. Raises InputError where there is no linear one."""
    inner = net.net if isinstance(net, Anchored) else net
    classifier: Any = getattr(inner, "get_classifier", None)
    if classifier is not None:
        given = classifier()
        if isinstance(given, nn.Module) and any(True for _ in given.parameters()):
            return given
    found = [module for module in inner.modules() if isinstance(module, nn.Linear)]
    if not found:
        raise InputError(f"trainable: {type(inner).__name__} has no linear layer to be its head. Use trainable all.")
    return found[-1]


def stems(net: nn.Module) -> list[nn.Module]:
    """The layers that see the image: an anchored network's stems, the first linear or convolution of another one."""
    if isinstance(net, Anchored):
        return list(net.stem_layers())
    return [next(module for module in net.modules() if isinstance(module, LINEAR))]


def train_mode(net: nn.Module) -> nn.Module:
    """`net.train()`, but frozen parts in eval mode: their running statistics and dropout stay out of training."""
    net.train()
    for module in net.modules():
        parameters = list(module.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            module.eval()
    return net


def averaged(net: nn.Module, recipe: Recipe) -> AveragedModel | None:
    """An exponential average of weights and buffers, for `average`; None where the recipe has no ema_decay."""
    if recipe.ema_decay is None:
        return None
    update = get_ema_multi_avg_fn(recipe.ema_keep)

    def mixed(averages: Any, current: Any, count: Any) -> None:
        if averages[0].is_floating_point():
            update(averages, current, count)
        else:  # index tables and counters: an average of 7 and 7 in floating point is 6.9999..., stored as 6
            for average, value in zip(averages, current, strict=True):
                average.copy_(value)

    return AveragedModel(net, multi_avg_fn=mixed, use_buffers=True)


def average(averages: AveragedModel | None, net: nn.Module, recipe: Recipe, step: int, epoch: float) -> None:
    """After optimiser step number `step` (from 0) at `epoch`: take the weights into the average, if it is their turn.

    During warm-up the average is the weights themselves, as in torchvision's reference.
    """
    if averages is None or step % recipe.ema_steps:
        return
    if epoch < min(recipe.warmup, recipe.epochs / 2):  # as `Recipe.lr_at` has it
        averages.n_averaged.fill_(0)
    averages.update_parameters(net)
