"""The stem: the linear layer(s) an image enters a classifier through. Found by watching, then widened.

A stem is linear, so feeding it the tuple [r, x - r] instead of x is a change of that one layer only.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


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
            # Models read attributes of their stem (`self.projection.weight.dtype`): answer as the layer would.
            return getattr(super().__getattr__("layer"), name)

    def pair(self, r: Tensor, d: Tensor) -> Tensor:
        """[r, d] along the channels, inside each group for grouped convolutions."""
        if isinstance(self.layer, nn.Linear):
            return torch.cat([r, d], dim=-1)
        groups = cast(int, self.layer.groups)
        if groups == 1:
            return torch.cat([r, d], dim=1)
        r, d = r.unflatten(1, (groups, -1)), d.unflatten(1, (groups, -1))
        return torch.cat([r, d], dim=2).flatten(1, 2)

    def shift_of(self, r: Tensor) -> Tensor:
        """What the reference r [K, ...] adds to L([0, u]): the map L([r, -r]) - L(0), [K, ...]."""
        zero = torch.zeros_like(r[:1])
        return self.layer(self.pair(r, -r)) - self.layer(self.pair(zero, zero))

    def forward(self, u: Tensor) -> Tensor:
        if self.watching:
            self.seen = u
            zero = torch.zeros_like(u)
            return self.layer(self.pair(zero, zero))
        if self.shift is not None:
            if self.image_term is None:
                self.image_term = self.layer(self.pair(torch.zeros_like(u), u))
            return self.image_term + self.shift
        if self.reference is None:
            raise RuntimeError("an anchored model is called as net(x, reference); its inner net cannot run alone")
        d = u - self.reference
        r = torch.zeros_like(d) if self.masked else self.reference.expand_as(d)
        return self.layer(self.pair(r, d))

    def clear(self) -> None:
        """Forget the reference and cached terms of the last call."""
        self.reference = self.shift = self.image_term = self.seen = None
        self.masked = self.watching = False


def widen(layer: nn.Module, init: str) -> nn.Module:
    """A copy of `layer` with twice the input channels: weight [W; W] ("preserve") or its default reset ("fresh").

    [W; W] applied to [r, x - r] is W r + W (x - r) = W x: the function of the layer, whatever the reference.
    """
    wide = copy.deepcopy(layer)
    if isinstance(wide, nn.Linear):
        wide.in_features *= 2
    else:
        cast(Any, wide).in_channels *= 2
    weight = cast(Tensor, layer.weight)
    wide.weight = nn.Parameter(torch.cat([weight.detach()] * 2, dim=1), requires_grad=weight.requires_grad)
    if init == "fresh":
        cast(Any, wide).reset_parameters()
    return wide


def narrow(stem: Stem) -> nn.Module:
    """The residual half of a stem's layer: a layer of the original type and C input channels, f(u) = L([0, u])."""
    layer = copy.deepcopy(stem.layer)
    if isinstance(layer, nn.Linear):
        layer.in_features //= 2
    else:
        cast(Any, layer).in_channels //= 2
    weight = cast(Tensor, layer.weight)
    half = weight.shape[1] // 2
    layer.weight = nn.Parameter(weight.detach()[:, half:].clone(), requires_grad=weight.requires_grad)
    return layer


class _AddsMap:
    """Mixed into a layer type: adds the fixed map of a folded reference to what the layer computes."""

    reference_map: Tensor

    def forward(self, u: Tensor) -> Tensor:
        y = super().forward(u)  # type: ignore[misc]
        if y.shape[1:] != self.reference_map.shape[1:]:
            raise ValueError(
                f"this model was folded with a reference whose stem output is {list(self.reference_map.shape[1:])}; "
                f"this input gives {list(y.shape[1:])}. Use the input size of the reference, or fold again "
                "(the zero reference fits any size)."
            )
        return y + self.reference_map


class FoldedConv1d(_AddsMap, nn.Conv1d):
    """A Conv1d plus the map of a folded reference."""


class FoldedConv2d(_AddsMap, nn.Conv2d):
    """A Conv2d plus the map of a folded reference."""


class FoldedConv3d(_AddsMap, nn.Conv3d):
    """A Conv3d plus the map of a folded reference."""


class FoldedLinear(_AddsMap, nn.Linear):
    """A Linear layer plus the map of a folded reference."""


_FOLDED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: FoldedConv1d,
    nn.Conv2d: FoldedConv2d,
    nn.Conv3d: FoldedConv3d,
    nn.Linear: FoldedLinear,
}


def _folded_type(kind: type[nn.Module]) -> type[nn.Module]:
    if kind not in _FOLDED:
        _FOLDED[kind] = type(f"Folded{kind.__name__}", (_AddsMap, kind), {})
    return _FOLDED[kind]


def folded_layer(stem: Stem, r: Tensor) -> nn.Module:
    """An ordinary layer equal to the stem at the reference r [1, ...]: f(u) == L([r, u - r]).

    The reference becomes a bias where it adds the same value everywhere (unpadded stem, constant reference),
    else one buffer `reference_map`; the zero reference adds nothing.
    """
    layer = narrow(stem)
    probe = torch.zeros_like(r).copy_(torch.linspace(-1, 1, r.numel()).reshape(r.shape))
    expected = stem.layer(stem.pair(torch.zeros_like(probe), probe))
    if not torch.allclose(layer(probe), expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max())):
        raise ValueError(
            f"a stem of type {type(layer).__name__} does not use its weight as it stands (standardised or "
            "parametrised), so its residual half cannot be cut out and folded."
        )
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
    layer.__class__ = _folded_type(type(layer))
    layer.register_buffer("reference_map", shift)
    return layer


def _add_to_bias(layer: nn.Module, shift: Tensor) -> None:
    bias = cast("Tensor | None", layer.bias)
    layer.bias = nn.Parameter(shift if bias is None else bias.detach() + shift)


def logits_of(output: Any) -> Tensor:
    """The logits in what a classifier returns: a tensor, or an object or dict with `logits` (HF, GoogLeNet)."""
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    raise TypeError(f"a classifier returns logits or an object with .logits; this one returns {type(output).__name__}")


def example_for(model: nn.Module) -> Tensor:
    """A random input [2, C, H, W] the model runs on, of a size its configuration names or a common one."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(0))
    first = next((m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))), None)
    channels = first.in_channels if isinstance(first, nn.Conv2d) else 3
    shapes: list[tuple[int, ...]] = [(channels, side, side) for side in (32, 224, 64, 28, 256, 299, 384)]
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    hinted = config.get("input_size") if isinstance(config, dict) else None
    side = getattr(getattr(model, "config", None), "image_size", None)
    if isinstance(side, int):
        hinted = (getattr(model.config, "num_channels", channels), side, side)
    if hinted:
        shapes.insert(0, tuple(hinted))
    failures = []
    for shape in shapes:
        generator = torch.Generator().manual_seed(0)
        example = torch.rand(2, *shape, generator=generator).to(parameter.device, parameter.dtype)
        try:
            model(example)
            return example
        except Exception as error:  # any failure only means: not this size
            failures.append(
                f"{list(shape)}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
    raise ValueError(
        "the model ran on none of the input sizes tried; pass example= with one input it takes. Tried: "
        + "; ".join(failures)
    )


@torch.no_grad()
def find_stems(model: nn.Module, example: Tensor, stem: str | None) -> tuple[list[str], bool]:
    """Names of the linear layers the input enters `model` through, and whether they get the input as it is.

    The model runs (in eval mode) on two inputs and their midpoint. The output of each linear layer that is
    reached by finite values becomes NaN, so layers further down are recognised by the NaN they receive. A layer
    is a stem when what it receives depends on the input affinely. Raises ValueError, listing what was seen, when
    there is none, when one is fed through a non-linear path, or when one is called more than once.
    """
    layers: dict[str, nn.Module] = {
        name: module for name, module in model.named_modules() if isinstance(module, LINEAR)
    }
    if stem is not None:
        if stem not in layers:
            some = ", ".join(repr(name) for name in list(layers)[:8])
            raise ValueError(
                f"stem={stem!r} names no Conv1d/2d/3d or Linear layer of the model. The first are: {some}."
            )
        layers = {stem: layers[stem]}
    a, b = example, example.flip(0).roll(1, -1) * 0.5 + 0.1
    runs = [_watch(model, layers, x) for x in (a, b, (a + b) / 2)]
    at_a, at_b, at_middle = runs
    stems, refused = [], []
    for name, inputs in at_a.items():
        if name not in at_b or name not in at_middle or torch.equal(inputs[0], at_b[name][0]):
            continue  # fed by a constant (a position table, say), not by the image
        middle = (inputs[0] + at_b[name][0]) / 2
        if not torch.allclose(at_middle[name][0], middle, rtol=1e-3, atol=1e-4):
            refused.append(f"{name!r} receives a non-linear function of the input")
        elif len(inputs) > 1:
            refused.append(f"{name!r} is called {len(inputs)} times")
        else:
            stems.append(name)
    if refused or not stems:
        seen = "; ".join(refused) or "no Conv1d/2d/3d or Linear layer received a linear function of the input"
        first = ", ".join(f"{name or '(the model)'} ({type(m).__name__})" for name, m in list(layers.items())[:6])
        raise ValueError(
            f"no linear stem found: {seen}. Linear layers of the model, in order: {first or 'none'}. "
            "If the image enters through one of them, pass its name as stem=."
        )
    return stems, all(torch.equal(at_a[name][0], a) for name in stems if at_a[name][0].shape == a.shape) and all(
        at_a[name][0].shape == a.shape for name in stems
    )


def _watch(model: nn.Module, layers: dict[str, nn.Module], x: Tensor) -> dict[str, list[Tensor]]:
    """What each of `layers` receives, as far as it is finite, when the outputs of such layers become NaN."""
    seen: dict[str, list[Tensor]] = {}

    def watch(name: str, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not inputs or not torch.isfinite(inputs[0]).all():
            return output
        seen.setdefault(name, []).append(inputs[0].clone())
        return torch.full_like(output, torch.nan)

    handles = [m.register_forward_hook(functools.partial(watch, name)) for name, m in layers.items()]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return seen
