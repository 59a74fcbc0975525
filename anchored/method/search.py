"""Where the input enters a network: its stems, found by watching it run."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from anchored.method.bypass import Held, use_beside
from anchored.method.stem import LINEAR, copied
from anchored.method.wrappers import patched
from anchored.system.errors import InputError


@torch.no_grad()
def find_stems(model: nn.Module, example: Tensor | None, stem: str | None) -> tuple[list[str], bool]:
    """Names of the linear layers the input enters `model` through, and whether they get the input as it is.

    The model runs (in eval mode) on two inputs and their midpoint. The output of each linear layer that is
    reached by finite values becomes NaN, so layers further down are recognised by the NaN they receive. A layer
    is a stem when what it receives depends on the input affinely. Raises InputError, listing what was seen, when
    there is none, when one is fed through a non-linear path, when one is called more than once, or when the model
    uses its input beside them. example: as of `anchor`.
    """
    probe, x = _probe(model, example)
    # In autocast everything would be rounded to half precision, and linear looks non-linear then.
    with torch.autocast(x.device.type, enabled=False):
        return _stems_of(probe, x, stem)


def _probe(model: nn.Module, example: Tensor | None) -> tuple[nn.Module, Tensor]:
    """What to watch, and an input it runs on: a copy in float32 of a model in half precision, any other as it is.

    Half precision rounds more than a non-linear path may bend.
    """
    floats = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
    if any(tensor.dtype.itemsize < 4 for tensor in floats):
        probe = copied(model).float()
        try:
            x = _input_of(probe, example)
            probe(x.clone())
            return probe, x
        except Exception:  # a model that fixes its dtype: it runs as it is, or says what is wrong
            pass
    return model, _input_of(model, example)


def _input_of(model: nn.Module, example: Tensor | None) -> Tensor:
    """The example where the model's parameters are and in a format of theirs; one found where there is none."""
    if example is None:
        return example_for(model)
    parameters = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    if not parameters:
        return example
    first = parameters[0]
    near = any(parameter.device == example.device for parameter in parameters)
    fits = not example.is_floating_point() or any(parameter.dtype == example.dtype for parameter in parameters)
    return example.to(example.device if near else first.device, example.dtype if fits else first.dtype)


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
            model(example.clone())  # a model may change its input
            return example
        except Exception as error:  # any failure only means: not this size
            failures.append(
                f"{list(shape)}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
    raise InputError(
        "the model ran on none of the input sizes tried; pass example= with one input it takes. Tried: "
        + "; ".join(failures)
    )


def _stems_of(model: nn.Module, a: Tensor, stem: str | None) -> tuple[list[str], bool]:
    layers = _layers(model, stem)
    shifted = a.flip(0).roll(1, -1)
    b = shifted * 0.5 + 0.1
    at_a = _watch(model, layers, a)
    at_b, at_middle = (_watch(model, layers, x, until=at_a) for x in (b, (a + b) / 2))
    held: Held = {}
    refused, direct = [], True
    for name, calls in at_a.items():
        if name not in at_b or name not in at_middle:
            continue
        (into_a, from_a), (into_b, from_b), (into_middle, from_middle) = (
            run[name][0] for run in (at_a, at_b, at_middle)
        )
        if torch.equal(into_a, into_b):
            continue  # fed by a constant (a position table, say), not by the image
        if not _affine(into_a, into_b, into_middle):
            refused.append(f"{name!r} receives a non-linear function of the input")
        elif not _is_linear(layers[name], into_a, into_b) and not _affine(from_a, from_b, from_middle):
            refused.append(f"{name!r}, a {type(layers[name]).__name__}, is not linear itself")
        elif len(calls) > 1:
            refused.append(f"{name!r} is called {len(calls)} times")
        else:
            held[name] = from_a
            direct = direct and into_a.shape == a.shape and torch.equal(into_a, a)
    if refused or not held:
        raise _none_found(model, layers, refused)
    _refuse_bypass(model, held, a, b, 1 - 2 * shifted, stem)
    return list(held), direct


def _layers(model: nn.Module, stem: str | None) -> dict[str, nn.Module]:
    """The layers that may be stems, by name."""
    layers: dict[str, nn.Module] = {
        name: module for name, module in model.named_modules() if isinstance(module, LINEAR)
    }
    if stem is None:
        return layers
    if stem not in layers:
        some = ", ".join(repr(name) for name in list(layers)[:8])
        raise InputError(f"stem={stem!r} names no Conv1d/2d/3d or Linear layer of the model. The first are: {some}.")
    return {stem: layers[stem]}


def _none_found(model: nn.Module, layers: dict[str, nn.Module], refused: list[str]) -> InputError:
    seen = "; ".join(refused) or "no Conv1d/2d/3d or Linear layer received a linear function of the input"
    first = ", ".join(f"{name or '(the model)'} ({type(m).__name__})" for name, m in list(layers.items())[:6])
    message = (
        f"no linear stem found: {seen}. Linear layers of the model, in order: {first or 'none'}. "
        "If the image enters through one of them, pass its name as stem=."
    )
    if names := patched(model):
        message += (
            f" The forward of {names[0] or 'the model'} was replaced on the object, and in a copy such a forward may "
            "still run the layers of the original: restore it (del module.forward) before anchoring."
        )
    return InputError(message)


def _refuse_bypass(model: nn.Module, held: Held, a: Tensor, b: Tensor, signed: Tensor, stem: str | None) -> None:
    """Raise InputError where the model sees its input beside the stems: [r, x - r] would not be all that it sees."""
    try:
        where = use_beside(model, held, a, signed)
    except Exception:  # a model may refuse negative values; b is like the example
        where = use_beside(model, held, a, b)
    if where:
        raise InputError(
            f"the input is also used beside the stem {', '.join(map(repr, held))}: {where}. There the model would go "
            "on to see x itself, not [r, x - r]. Send that use through a linear layer of its own, which is then found "
            "as a second stem (a 1x1 convolution that starts as the identity changes nothing), or take it out."
            + (
                " With stem= only that layer is anchored: leave it out to anchor all that receive the input."
                * bool(stem)
            )
        )


def _affine(at_a: Tensor, at_b: Tensor, at_middle: Tensor) -> bool:
    """Whether what was seen for the midpoint of two inputs is the midpoint of what was seen for them, to rounding."""
    if not at_a.shape == at_b.shape == at_middle.shape:
        return False
    a, b, middle = (seen.cpu().double() for seen in (at_a, at_b, at_middle))
    rounding = 8 * torch.finfo(at_a.dtype).eps if at_a.is_floating_point() else 0.0
    change, size = float((a - b).abs().max()), float(torch.maximum(a.abs(), b.abs()).max())
    return float((middle - (a + b) / 2).abs().max()) <= max(1e-3 * change, rounding * size)


def _is_linear(layer: nn.Module, a: Tensor, b: Tensor) -> bool:
    """Whether a float64 copy of the layer is affine between two inputs: exact whatever the device rounds to."""
    try:
        layer = copied(layer).cpu().double()
        a, b = a.cpu().double(), b.cpu().double()
        return _affine(layer(a), layer(b), layer((a + b) / 2))
    except Exception:  # a layer of its own kind may not compute so
        return False


Calls = dict[str, list[tuple[Tensor, Tensor]]]


class _AllSeen(BaseException):
    """All layers that are waited for have been called. No Exception, so that no model handles it."""


def _watch(model: nn.Module, layers: dict[str, nn.Module], x: Tensor, until: Calls | None = None) -> Calls:
    """What each of `layers` receives and returns, as far as it is finite, when such outputs then become NaN.

    until: what another run has seen; this one ends when it has seen as much.
    """
    seen: Calls = {}
    missing = {name: len(calls) for name, calls in (until or {}).items()}

    def watch(name: str, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not inputs or not torch.isfinite(inputs[0]).all():
            return output
        seen.setdefault(name, []).append((inputs[0].clone(), output.clone()))
        if missing.get(name, 0) > 0:
            missing[name] -= 1
            if not any(missing.values()):
                raise _AllSeen
        return torch.full_like(output, torch.nan)

    handles = [m.register_forward_hook(functools.partial(watch, name)) for name, m in layers.items()]
    try:
        model(x.clone())
    except _AllSeen:
        pass
    finally:
        for handle in handles:
            handle.remove()
    return seen
