"""Which classifiers can be anchored: the identities of anchoring, checked over whole libraries of models.

    python -m anchored.models.compatibility --out docs/compatibility.md

For every classifier of torchvision (of at most 150 M parameters), a small member of every family of timm, and families
of Hugging Face built from their configuration (random weights, nothing is downloaded): anchored == original,
fold == anchored, and the gradient reaches both halves of the stem.
"""

from __future__ import annotations

import argparse
import functools
import gc
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn

from anchored.method.core import Anchored, anchor, fold
from anchored.method.stem import Halves, logits_of
from anchored.models.architectures import CASES, Case, too_large
from anchored.system.files import write_text
from anchored.system.network import first_line

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}  # of the largest logit; float64 finds anything but rounding
# Deep networks of random weights amplify rounding beyond that. They are held to this many times what their own logits
# change by when the last bits of the input do.
OWN_ROUNDING = 30


@dataclass(frozen=True)
class Result:
    """What `check` found; errors are relative to the largest logit. `reason` is empty where everything holds."""

    case: Case
    reason: str = ""
    stems: tuple[str, ...] = field(default=())
    side: int = 0
    dtype: str = ""
    preserved: float = float("nan")
    folded: float = float("nan")

    @property
    def ok(self) -> bool:
        """Whether the model can be anchored and everything holds."""
        return not self.reason


class _Broken(Exception):
    """An identity does not hold, or could not be seen to."""


def check(case: Case) -> Result:
    """Anchor the model and test the identities, in float64 where the model can compute in it."""
    failures = []
    for dtype in (torch.float64, torch.float32):
        try:
            return _identities(case, dtype)
        except _Broken as error:
            return Result(case, str(error))
        except Exception as error:  # a model may fail in float64 in ways of its own: then float32 decides
            failures.append(f"{type(error).__name__}: {first_line(error)}")
        finally:
            gc.collect()
    return Result(case, failures[-1])


def _identities(case: Case, dtype: torch.dtype) -> Result:
    stream = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model, side = case.make()
    x, r = (torch.rand(2, 3, side, side, generator=stream).to(dtype) for _ in range(2))
    with torch.no_grad():
        model = _awake(model.to(dtype), x, stream)
        expected = logits_of(model(x))
        scale = float(expected.abs().max())
        if not scale > 0 or float((expected[0] - expected[1]).abs().max()) < 1e-6 * scale:
            raise _Broken("the logits do not depend on the input, so nothing could be checked")
        tolerance = _tolerance(model, x, expected)
        net = anchor(model, example=x)
        del model
        preserved = float((net(x, r) - expected).abs().max()) / scale
        if not preserved <= tolerance:
            raise _Broken(f"anchored differs from the original by {preserved:.1e} of the largest logit")
        for parameter in _stem_weights(net):  # undo the symmetry of the halves, as training does
            parameter += 0.3 * parameter.std() * torch.randn(parameter.shape, generator=stream).to(dtype)
        folded = 0.0
        outputs = []
        for reference in (r[:1], torch.zeros_like(r[:1])):
            outputs.append(net(x, reference))
            scale = float(outputs[-1].abs().max())
            tolerance = _tolerance(functools.partial(net, reference=reference), x, outputs[-1])
            error = float((logits_of(fold(net, reference)(x)) - outputs[-1]).abs().max()) / scale
            folded = max(folded, error)
            if not error <= tolerance:
                raise _Broken(f"folded differs from anchored by {error:.1e} of the largest logit")
        if float((outputs[0] - outputs[1]).abs().max()) < 1e-6 * scale:
            raise _Broken("the reference does not matter after the halves of the stem were made to differ")
    net(x, r).square().sum().backward()
    for name, half in _half_gradients(net):
        if not float(half.abs().max()) > 0:
            raise _Broken(f"no gradient reaches the {name}")
    kinds = [_kind(layer.layer) for layer in net.stem_layers()]
    stems = tuple(f"{name} ({kind})" for name, kind in zip(net.stems, kinds, strict=True))
    return Result(case, "", stems, side, str(dtype).removeprefix("torch."), preserved, folded)


def _tolerance(f: Callable[[Tensor], Any], x: Tensor, y: Tensor) -> float:
    """How far other ways to compute y = f(x) may be from it, as a part of the largest logit."""
    stream = torch.Generator().manual_seed(1)
    signs = torch.randint(2, x.shape, generator=stream).to(x.dtype) * 2 - 1
    nudged = x * (1 + 2 * torch.finfo(x.dtype).eps * signs)
    own = float((logits_of(f(nudged)) - y).abs().max() / y.abs().max())
    return max(TOLERANCE[x.dtype], OWN_ROUNDING * own)


def _awake(model: nn.Module, x: Tensor, stream: torch.Generator) -> nn.Module:
    """The model as if trained a little, in eval mode, so that its logits depend on its input.

    Untrained, some have scales or whole heads of zero (hence noise on every parameter) or running statistics that
    are not those of their activations, through which the signal dies (hence one pass that sets them).
    """
    model.eval()
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
        if norm.affine:
            norm.weight.fill_(1.0)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=stream).to(parameter.dtype), alpha=0.02)
    model(x)
    return model.eval()


def _stem_weights(net: Anchored) -> list[Tensor]:
    return [p for layer in net.stem_layers() for p in layer.parameters() if p.ndim > 1]


def _half_gradients(net: Anchored) -> Iterator[tuple[str, Tensor]]:
    for stem, layer in zip(net.stems, net.stem_layers(), strict=True):
        if isinstance(layer.layer, Halves):
            halves = [next(p for p in half.parameters() if p.ndim > 1).grad for half in layer.layer.children()]
        else:
            gradient: Any = layer.layer.weight.grad
            halves = list(gradient.chunk(2, dim=1))
        for what, half in zip(("reference", "residual"), halves, strict=True):
            yield f"{what} half of {stem!r}", torch.zeros(1) if half is None else half


def _kind(layer: nn.Module) -> str:
    layer = layer.residual if isinstance(layer, Halves) else layer
    if isinstance(layer, nn.Linear):
        return "Linear"
    kernel: Any = layer.kernel_size
    return f"{type(layer).__name__} {'x'.join(map(str, kernel))}"


def table(results: list[Result]) -> str:
    """The results as a page of Markdown."""
    refused = [result for result in results if not result.ok]
    libraries = dict.fromkeys(result.case.library for result in results)
    packages = ["torch", *(name for name in ("torchvision", "timm", "transformers") if name in libraries)]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    lines = [
        "# Classifiers that can be anchored",
        "",
        f"{len(results)} checked, {len(results) - len(refused)} anchored, {len(refused)} refused, with {versions}. "
        "Made by",
        "",
        "```bash",
        "python -m anchored.models.compatibility --out docs/compatibility.md",
        "```",
        "",
        "Random weights, two images of the side given, float64 unless the column says otherwise. *Anchored* is the",
        "largest difference between the anchored model and the original, *folded* that between the folded and the",
        "anchored model (for a random and the zero reference, after the halves of the stem were made to differ), both",
        "relative to the largest logit. Above 1e-9 they are rounding, amplified by a deep network of random weights,",
        f"and at most {OWN_ROUNDING} times what its own logits change by when the last bits of the input do. Every",
        "model in the tables also had a gradient in both halves of its stem.",
        "",
    ]
    if "torchvision" in libraries and (large := too_large()):
        lines += [f"Left out for their size, with the code of smaller members: {', '.join(large)}.", ""]
    if refused:
        lines += ["## Refused", "", "| library | family | model | reason |", "|---|---|---|---|"]
        lines += [f"| {r.case.library} | {r.case.family} | {r.case.name} | {r.reason} |" for r in refused] + [""]
    for library in libraries:
        lines += [
            f"## {library}",
            "",
            "| family | model | stem | side | anchored | folded |",
            "|---|---|---|---|---|---|",
        ]
        for r in results:
            if r.case.library == library and r.ok:
                side = f"{r.side}" if r.dtype == "float64" else f"{r.side}, {r.dtype}"
                lines.append(
                    f"| {r.case.family} | {r.case.name} | {', '.join(r.stems)} | {side} "
                    f"| {r.preserved:.0e} | {r.folded:.0e} |"
                )
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """The command: check, print a line a model on stderr and write the page."""
    p = argparse.ArgumentParser(
        prog="python -m anchored.models.compatibility", description=(__doc__ or "").split("\n")[0]
    )
    p.add_argument("--out", default="docs/compatibility.md", help="the page to write (%(default)s)")
    p.add_argument("--library", nargs="+", choices=list(CASES), default=list(CASES), help="libraries (all)")
    flags = p.parse_args(arguments)
    results = []
    for library in flags.library:
        for case in CASES[library]():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the libraries, about their own models
                started = time.monotonic()
                result = check(case)
            seconds = f"{time.monotonic() - started:.0f} s"
            print(library, case.family, case.name, result.reason or "ok", seconds, file=sys.stderr, flush=True)
            results.append(result)
    write_text(flags.out, table(results))


if __name__ == "__main__":
    main()
