"""Anchoring in one file: a classifier of (reference, residual) tuples instead of images.

    x, r      image and reference, both in the network's input space
    d = x - r
    logits = net([r, d])          a masked batch: net([0, d])

Only the stem changes, and it is linear: W_r r + W_d (x - r) = W_d x + (W_r - W_d) r. From this follow `anchor`
(W_r = W_d = W keeps the function of any pretrained classifier) and `fold` (one fixed reference is a bias).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored.method.search import find_stems
from anchored.method.stem import Stem, copied, folded_layer, logits_of, widen
from anchored.method.wrappers import unwrapped
from anchored.system.errors import InputError
from anchored.system.eval_mode import evaluating


class Anchored(nn.Module):
    """A classifier of tuples: `Anchored(x, reference) -> logits`. Made by `anchor`.

    `net` is the classifier with its stem(s) replaced by `Stem`; `stems` names them.
    """

    def __init__(self, net: nn.Module, stems: tuple[str, ...], direct: bool) -> None:
        super().__init__()
        self.net = net
        self.stems = stems
        self.direct = direct  # the stem receives the input as it is

    def forward(self, x: Tensor, reference: Tensor, *, masked: bool = False) -> Tensor:
        """Logits [B, classes] of the tuples [r, x - r]; masked: of [0, x - r].

        x: [B, C, H, W]; reference: [B or 1, C, H, W], both normalised as the network expects its input.
        Where the classifier transforms its input before the stem (a normalisation layer, patches), reference,
        residual and the zero of a masked reference live in the transformed space. Section 3.1 of the paper.
        """
        _check(x, reference)
        layers = self.stem_layers()
        try:
            for layer, r in zip(layers, self._at_stems(reference), strict=True):
                layer.reference, layer.masked = r, masked
            return logits_of(self.net(x))
        finally:
            for layer in layers:
                layer.clear()

    def many(self, x: Tensor, references: Tensor) -> Tensor:
        """Logits [K, B, classes] of x [B, C, H, W] under each of the references [K, C, H, W].

        Images and references pass the stem B + K times, not B x K, and the B x K input never exists.
        """
        _check(x, references[:1])
        layers = self.stem_layers()
        try:
            shifts = [layer.shift_of(r) for layer, r in zip(layers, self._at_stems(references), strict=True)]
            logits = []
            for k in range(len(references)):
                for layer, shift in zip(layers, shifts, strict=True):
                    layer.shift = shift[k : k + 1]
                # what comes before a stem may work on its input in place, and there are more passes to come
                logits.append(logits_of(self.net(x if self.direct else x.clone())))
            return torch.stack(logits)
        finally:
            for layer in layers:
                layer.clear()

    def stem_layers(self) -> list[Stem]:
        """The stems, in the order the image meets them."""
        layers = [self.net.get_submodule(name) for name in self.stems]
        assert all(isinstance(layer, Stem) for layer in layers)
        return layers  # type: ignore[return-value]

    def _at_stems(self, reference: Tensor) -> list[Tensor]:
        """The reference as each stem would receive it were it the input."""
        layers = self.stem_layers()
        if self.direct:
            return [reference] * len(layers)
        for layer in layers:
            layer.watching = True
        try:
            with evaluating(self.net):  # this pass only looks at what reaches the stems: it moves no statistics
                self.net(reference.clone())
            return [layer.seen for layer in layers]  # type: ignore[misc]
        finally:
            for layer in layers:
                layer.clear()


def anchor(
    model: nn.Module,
    *,
    stem: str | None = None,
    example: Tensor | None = None,
    init: Literal["preserve", "fresh"] = "preserve",
) -> Anchored:
    """An anchored copy of a classifier, in its dtype and on its device; `model` is not touched.

    What only runs the classifier (torch.compile, DataParallel, DistributedDataParallel) is not copied: the result
    holds the network inside, and is itself what to compile or parallelise. stem: name of the stem layer, where it
    cannot be found by watching the model run. example: one input [1 or more, C, H, W] to watch it on. init:
    "preserve" keeps the function, anchor(model)(x, r) == model(x) for every r; "fresh" gives the stem its default
    initialisation, for training from scratch (it draws from torch's global generator, as creating a layer does).
    Raises InputError where there is no linear stem, where the model uses its input beside its stems (they would
    see tuples, the rest plain x), and for models whose weights are not there (sharded, on the meta device).
    """
    if init not in ("preserve", "fresh"):
        raise InputError(f"init is 'preserve' or 'fresh'; got {init!r}")
    net = unwrapped(model)
    if any(isinstance(module, (Anchored, Stem)) for module in net.modules()):
        raise InputError("the model is anchored already")
    net = copied(net)
    with evaluating(net):
        names, direct = find_stems(net, example, stem)
    for name in names:
        layer = net.get_submodule(name)
        net = _replace(net, name, Stem(widen(layer, init)).train(layer.training))
    return Anchored(net, tuple(names), direct)


def anchored_loss(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    reference: Tensor,
    *,
    masked: bool,
    masked_target: Literal["uniform", "label"] = "uniform",
    criterion: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """The training loss of one batch of tuples (equation 1; masked batches: section 3.1).

    net: an `Anchored` (or a wrapper of one). x: [B, C, H, W]; y: class indices [B] or probabilities
    [B, classes]; reference: [B or 1, C, H, W]. A masked batch is fed as [0, x - r] and, with "uniform",
    taught to predict nothing: its target is 1 / classes for every class. criterion: cross-entropy by default.
    Raises TypeError, naming the criterion, where it takes class indices only and the target is uniform.
    """
    if masked_target not in ("uniform", "label"):
        raise InputError(f"masked_target is 'uniform' or 'label'; got {masked_target!r}")
    criterion = F.cross_entropy if criterion is None else criterion
    logits = net(x, reference, masked=masked)
    if not (masked and masked_target == "uniform"):
        return criterion(logits, y)
    logits = logits if logits.dtype == torch.float64 else logits.float()  # in bfloat16 1/10 is 0.1001
    uniform = torch.full_like(logits, 1 / logits.shape[-1])
    try:
        return criterion(logits, uniform)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        name = getattr(criterion, "__name__", type(criterion).__name__)
        raise TypeError(
            f"masked_target='uniform' needs a criterion that takes probabilities [B, classes]; {name} failed on "
            f"them ({error}). Use one that does (torch.nn.CrossEntropyLoss), or masked_target='label'."
        ) from error


@torch.no_grad()
def fold(net: Anchored, reference: Tensor) -> nn.Module:
    """An ordinary classifier with one reference built in: f(x) == net(x, reference), at the cost of the original.

    reference: [1, C, H, W] or [C, H, W], of any floating dtype: f computes in that of the network. The result has the
    state dict of the original architecture plus at most one tensor a stem; with a non-constant reference, or a padded
    stem, it takes inputs of the size of the reference only. Raises InputError where the stem does not allow it.
    """
    weight = next(net.stem_layers()[0].parameters())
    reference = (reference if reference.ndim == 4 else reference.unsqueeze(0)).to(weight.device, weight.dtype)
    folded = copied(net.net)
    for name, layer, r in zip(net.stems, net.stem_layers(), net._at_stems(reference), strict=True):
        folded = _replace(folded, name, folded_layer(layer, r).train(layer.training))
    return folded


def _replace(net: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    """`net` with its submodule `name` replaced by `layer` ("" is the net itself)."""
    if not name:
        return layer
    parent, _, child = name.rpartition(".")
    setattr(net.get_submodule(parent), child, layer)
    return net


def _check(x: Tensor, reference: Tensor) -> None:
    if reference.ndim != x.ndim or reference.shape[1:] != x.shape[1:] or len(reference) not in (1, len(x)):
        raise InputError(
            f"reference must be [B or 1, C, H, W] for x of [B, C, H, W]; got {list(reference.shape)} "
            f"for {list(x.shape)}"
        )
