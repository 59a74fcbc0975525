"""The stem: the linear layer(s) an image enters a classifier through, widened to tuples and folded again.

A stem is linear, so feeding it the tuple [r, x - r] instead of x is a change of that one layer only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from anchored.method.wrappers import drop_compiled_forward, inside
from anchored.system.errors import InputError

LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


class Halves(nn.Module):
    """Two layers of one type in the place of a wide one: L([r, d]) = reference(r) + residual(d), one bias.

    For layers that do not use their weight as it stands (standardised, parametrised, padded in their own way):
    each half keeps the layer's own way, so two copies preserve the function and the residual one is what folds.
    """

    def __init__(self, reference: nn.Module, residual: nn.Module) -> None:
        super().__init__()
        if is_parametrized(reference, "bias"):
            raise InputError("a stem whose bias is parametrised cannot be anchored; remove that parametrisation")
        reference.register_parameter("bias", None)
        self.reference = reference
        self.residual = residual

    def forward(self, r: Tensor, d: Tensor) -> Tensor:
        return self.reference(r) + self.residual(d)


class Stem(nn.Module):
    """A linear layer L of 2C input channels that maps u to L([r, u - r]), or to L([0, u - r]) when masked.

    `reference` (in the space of u) and `masked` are set by `Anchored.forward` for the call. With `shift` set,
    the stem uses that L is affine: L([r, u - r]) = L([0, u]) + (L([r, -r]) - L(0)), where the first term is
    computed once for many references and the second once for many images.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.reference: Tensor | None = None
        self.masked = False
        self.shift: Tensor | None = None
        self.image_term: Tensor | None = None
        self.watching = False
        self.seen: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):  # copy asks for __deepcopy__, and would get a copy of the layer alone
                raise
            # Models read attributes of their stem (`self.projection.weight.dtype`): answer as the layer would.
            layer = super().__getattr__("layer")
            return getattr(layer.residual if isinstance(layer, Halves) else layer, name)

    def of(self, r: Tensor, d: Tensor) -> Tensor:
        """L([r, d]), the channels paired inside each group for grouped convolutions."""
        if isinstance(self.layer, Halves):
            return self.layer(r, d)
        if isinstance(self.layer, nn.Linear):
            return self.layer(torch.cat([r, d], dim=-1))
        groups = cast(int, self.layer.groups)
        if groups == 1:
            return self.layer(torch.cat([r, d], dim=1))
        r, d = r.unflatten(1, (groups, -1)), d.unflatten(1, (groups, -1))
        return self.layer(torch.cat([r, d], dim=2).flatten(1, 2))

    def shift_of(self, r: Tensor) -> Tensor:
        """What the reference r [K, ...] adds to L([0, u]): the map L([r, -r]) - L(0), [K, ...]."""
        zero = torch.zeros_like(r[:1])
        return self.of(r, -r) - self.of(zero, zero)

    def forward(self, u: Tensor) -> Tensor:
        if self.watching:
            self.seen = u
            zero = torch.zeros_like(u)
            return self.of(zero, zero)
        if self.shift is not None:
            if self.image_term is None:
                self.image_term = self.of(torch.zeros_like(u), u)
            return self.image_term + self.shift
        if self.reference is None:
            raise RuntimeError("an anchored model is called as net(x, reference); its inner net cannot run alone")
        d = u - self.reference
        r = torch.zeros_like(d) if self.masked else self.reference.expand_as(d)
        return self.of(r, d)

    def clear(self) -> None:
        """Forget the reference and cached terms of the last call."""
        self.reference = self.shift = self.image_term = self.seen = None
        self.masked = self.watching = False


def widen(layer: nn.Module, init: str) -> nn.Module:
    """`layer` for twice the input channels: weight [W; W] ("preserve") or its default reset ("fresh").

    [W; W] applied to [r, x - r] is W r + W (x - r) = W x: the function of the layer, whatever the reference.
    A plain convolution or Linear stays one layer; any other type becomes two `Halves`.
    """
    plain = type(layer) in LINEAR and not layer._forward_pre_hooks
    halves = [copied(layer), copied(layer)]
    if init == "preserve" and not plain:
        return Halves(*halves)
    wide = bare(layer)
    if isinstance(wide, nn.Linear):
        wide.in_features *= 2
    else:
        cast(Any, wide).in_channels *= 2
    weight = cast(Tensor, wide.weight)
    wide.weight = nn.Parameter(torch.cat([weight.detach()] * 2, dim=1), requires_grad=weight.requires_grad)
    if init == "fresh":
        cast(Any, wide).reset_parameters()
    if plain:
        return wide
    for half, part in zip(halves, cast(Tensor, wide.weight).detach().chunk(2, dim=1), strict=True):
        _assign(half, part)
    if wide.bias is not None:
        halves[1].bias = wide.bias
    return Halves(*halves)


def copied(net: nn.Module) -> nn.Module:
    """A deep copy in which no module is compiled or parallel (`wrappers`).

    Also of modules under the older weight_norm and spectral_norm, whose weight is no leaf.
    """
    modules = list(net.modules())
    with torch.no_grad():
        for module in modules:
            for hook in module._forward_pre_hooks.values():
                if isinstance(hook, (WeightNorm, SpectralNorm)):
                    weight = getattr(module, hook.name).detach()
                    setattr(module, hook.name, weight)
    memo: dict[int, Any] = {}
    for module in reversed(modules):  # the inner ones first
        if (within := inside(module)) is not None:
            memo[id(module)] = copy.deepcopy(within, memo)  # what the copy of its parent will hold in its place
    result: nn.Module = copy.deepcopy(net, memo)
    for module in result.modules():
        drop_compiled_forward(module)
    return result


def bare(layer: nn.Module) -> nn.Module:
    """A copy of `layer` with its effective weight as an ordinary parameter, free of parametrisations."""
    layer = copied(layer)
    if is_parametrized(layer):
        # Not remove_parametrizations: copies share their class, and it would take the property off that.
        values = {name: getattr(layer, name).detach() for name in cast(Any, layer).parametrizations}
        layer.__class__ = type(layer).__bases__[0]
        del layer.parametrizations
        layer._load_state_dict_pre_hooks.clear()  # weight_norm's, for older checkpoints; it cannot be pickled
        for name, value in values.items():
            layer.register_parameter(name, nn.Parameter(value))
    for hook in list(layer._forward_pre_hooks.values()):
        if isinstance(hook, WeightNorm):
            nn.utils.remove_weight_norm(layer, hook.name)
        elif isinstance(hook, SpectralNorm):
            nn.utils.remove_spectral_norm(layer, hook.name)
    return layer


def _assign(layer: nn.Module, weight: Tensor) -> None:
    """Give `layer` an effective weight of (or in proportion to) `weight`, through its parametrisation if any."""
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm):
            getattr(layer, hook.name + "_g").data = torch.norm_except_dim(weight, 2, hook.dim)
            getattr(layer, hook.name + "_v").data = weight.clone()
            return
        if isinstance(hook, SpectralNorm):
            getattr(layer, hook.name + "_orig").data = weight.clone()
            return
    cast(Any, layer).weight = weight.clone() if is_parametrized(layer, "weight") else nn.Parameter(weight.clone())


def narrow(stem: Stem) -> nn.Module:
    """The residual half of a stem's layer: a layer of the original type and C input channels, f(u) = L([0, u])."""
    if isinstance(stem.layer, Halves):
        return bare(stem.layer.residual)
    layer = copy.deepcopy(stem.layer)
    if isinstance(layer, nn.Linear):
        layer.in_features //= 2
    else:
        cast(Any, layer).in_channels //= 2
    weight = cast(Tensor, layer.weight)
    half = weight.shape[1] // 2
    layer.weight = nn.Parameter(weight.detach()[:, half:].clone(), requires_grad=weight.requires_grad)
    return layer


def add_reference_map(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    """Forward hook of a folded stem: adds the fixed map of the reference."""
    fixed = cast(Tensor, layer.reference_map)
    if output.shape[1:] != fixed.shape[1:]:
        raise InputError(
            f"this model was folded with a reference whose stem output is {list(fixed.shape[1:])}; this input gives "
            f"{list(output.shape[1:])}. Use the input size of the reference, or fold again (the zero reference fits "
            "any size)."
        )
    return output + fixed


def folded_layer(stem: Stem, r: Tensor) -> nn.Module:
    """An ordinary layer equal to the stem at the reference r [1, ...]: f(u) == L([r, u - r]).

    The reference becomes a bias where it adds the same value everywhere (unpadded stem, constant reference),
    else one buffer `reference_map`; the zero reference adds nothing.
    """
    layer = narrow(stem)
    if not r.any():
        return layer
    shift = stem.shift_of(r)
    if not isinstance(layer, nn.Linear):
        flat = r.flatten(2)
        unpadded = layer.padding in (0, "valid") or not any(cast(Sequence[int], layer.padding))
        if unpadded and type(layer) in LINEAR and torch.equal(flat, flat[:, :, :1].expand_as(flat)):
            _add_to_bias(layer, shift.flatten(2).mean(2)[0])
            return layer
    elif shift.ndim == 2:
        _add_to_bias(layer, shift[0])
        return layer
    layer.register_buffer("reference_map", shift)
    layer.register_forward_hook(add_reference_map)
    return layer


def _add_to_bias(layer: nn.Module, shift: Tensor) -> None:
    bias = cast("Tensor | None", layer.bias)
    layer.bias = nn.Parameter(shift if bias is None else bias.detach() + shift)


def logits_of(output: Any) -> Tensor:
    """The logits in what a classifier returns: a tensor, or an object or dict with `logits` (HF, GoogLeNet)."""
    if isinstance(output, Tensor):
        return output
    for name in ("logits", "last_hidden_state"):  # the second: PP-LCNet of transformers
        logits = output.get(name) if isinstance(output, dict) else getattr(output, name, None)
        if isinstance(logits, Tensor) and (name == "logits" or logits.ndim == 2):
            return logits
    raise TypeError(f"a classifier returns logits or an object with .logits; this one returns {type(output).__name__}")
