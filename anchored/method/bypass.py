"""What a network sees of its input beside its stems: that part would stay plain x where the rest becomes [r, x - r].

Decided by function: with the outputs of the stems held fixed, the logits must not depend on the input any more.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from anchored.method.stem import logits_of

Held = dict[str, Tensor]  # the output of each stem, by its name
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_NOISE = 1e-5  # of the largest logit: below it, a difference may be the rounding of kernels that add in any order


def use_beside(net: nn.Module, held: Held, a: Tensor, b: Tensor) -> str:
    """Where `net` uses its input other than through the stems, in words; "" where it does not.

    held: what the stems return, for any input; a, b: inputs [B, C, H, W] that differ. Of uses that have a gradient
    none is missed; others (a mask, an arg-max) are seen where they change the logits from a to b. `net` is in eval
    mode and gets copies of a and b, which it may change.
    """
    with _holding(net, held) as received, _without_gradients(net):
        x = a.detach().clone().requires_grad_(a.is_floating_point())
        try:
            with torch.enable_grad():
                logits = logits_of(net(x.clone()))
        except RuntimeError:  # some work in place where gradients do not allow it: there, values decide alone
            logits = logits_of(net(a.clone()))
        if any(getattr(node, "variable", None) is x for node in _graph(logits)):
            return _first_operation(net, received, a)
        change = _differ(logits, logits_of(net(b.clone())))
        # A network that draws at random changes by itself.
        if change and change > 10 * _differ(logits, logits_of(net(a.clone()))):
            changed = _first_changed(net, set(held), a, b)
            return f"it changes the output of {changed}, by an operation that has no gradient"
    return ""


@contextmanager
def _holding(net: nn.Module, held: Held) -> Iterator[dict[str, Tensor]]:
    """Inside, stems return what is held for them; the dictionary has what they last received."""
    received: dict[str, Tensor] = {}

    def hold(name: str, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        received[name] = inputs[0]
        return held[name].clone()

    with _hooked((net.get_submodule(name).register_forward_hook, functools.partial(hold, name)) for name in held):
        yield received


@contextmanager
def _hooked(hooks: Iterable[tuple[Callable[..., Any], Callable[..., Any]]]) -> Iterator[None]:
    """Inside, hooks are on modules: pairs of the method that registers one and the hook."""
    handles = [register(hook) for register, hook in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _without_gradients(net: nn.Module) -> Iterator[None]:
    """Inside, no parameter is differentiated, so that a graph has only what depends on the input."""
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _graph(*tensors: Tensor) -> set[Any]:
    """All nodes of the autograd graph of `tensors`."""
    found: set[Any] = set()
    waiting = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [before for before, _ in node.next_functions]
    return found


def _differ(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest value; 0 where it could be rounding."""
    difference = float((a.detach() - b).abs().nan_to_num(0.0, 0.0, 0.0).max())
    return difference if difference > _NOISE * float(a.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()) else 0.0


class _Trace(TorchFunctionMode):
    """Which operation made each node of the autograd graph, in which module and on which line."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.inside: list[str] = []  # the modules that are running, the innermost last
        self.made: dict[Any, str] = {}  # in the order of execution

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                self.made.setdefault(tensor.grad_fn, self._words(func, tensor.grad_fn))
        return result

    def _words(self, func: Callable[..., Any], node: Any) -> str:
        name = getattr(func, "__name__", "__get__").strip("_")
        if name == "get":  # an attribute, such as x.mT
            name = re.sub(r"Backward\d*$", "", node.name()).lower()
        place = _line()
        return f"by {name} in {_called(self.net, self.inside[-1] if self.inside else '')}{place and f', {place}'}"


def _first_operation(net: nn.Module, received: dict[str, Tensor], a: Tensor) -> str:
    """The first operation on the way from the input to the logits that is not on the way to a stem."""
    trace = _Trace(net)
    names = {module: name for name, module in net.named_modules()}

    def enter(module: nn.Module, inputs: Any) -> None:
        trace.inside.append(names[module])

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        trace.inside.pop()

    hooks = [(module.register_forward_pre_hook, enter) for module in names]
    with _hooked(itertools.chain(hooks, [(module.register_forward_hook, leave) for module in names])):
        x = a.detach().clone().requires_grad_()
        with torch.enable_grad():
            start = x.clone()
            with trace:
                logits = logits_of(net(start))
    beside = _graph(logits) - _graph(start, *received.values())
    return next((words for node, words in trace.made.items() if node in beside), f"by {_called(net, '')}")


def _first_changed(net: nn.Module, stems: set[str], a: Tensor, b: Tensor) -> str:
    """The first module, after the last stem, whose output is not the same for a and b."""
    runs: list[list[tuple[str, float]]] = []

    def note(waiting: set[str], seen: list[tuple[str, float]], name: str, _: nn.Module, __: Any, output: Any) -> None:
        waiting.discard(name)
        if not waiting and isinstance(output, Tensor):
            seen.append((name, float(output.cpu().double().sum())))

    for x in (a, b):
        runs.append([])
        hook = functools.partial(note, set(stems), runs[-1])
        with _hooked((m.register_forward_hook, functools.partial(hook, name)) for name, m in net.named_modules()):
            net(x.clone())
    name = next((first[0] for first, second in zip(*runs, strict=False) if first != second), "")
    return _called(net, name)


def _called(net: nn.Module, name: str) -> str:
    kind = type(net.get_submodule(name)).__name__
    return f"{name!r} ({kind})" if name else f"the model itself ({kind})"


def _line() -> str:
    """The line of the model's code that is running, where it is not torch's own."""
    frame = sys._getframe(3)
    while frame is not None and frame.f_code.co_filename != __file__:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, "<")):
            return f"line {frame.f_lineno} of {os.path.basename(file)}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
