"""Inference protocols: each turns a network and references into a Predict, `x -> Prediction`.

Everything downstream sees only a Predict, so a standard, an anchored and a folded model look alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor, nn

from anchored.method.core import Anchored
from anchored.method.precision import at_least_float32
from anchored.method.references import ReferenceSet
from anchored.method.stem import logits_of
from anchored.system.errors import InputError
from anchored.system.eval_mode import evaluating
from anchored.system.rng import generator


@dataclass(frozen=True)
class Prediction:
    """What a model says of a batch.

    logits: [B, C]. std: [B, C], unbiased standard deviation over references of the softmax, or None for one
    reference. energy: [B], -logsumexp(logits), larger for anomalies (over K references: their mean energy).
    disagreement: [B], the share of references whose arg-max differs from that of `logits`, or None for one.
    All are float32 or float64: values given in half precision become float32.
    """

    logits: Tensor
    energy: Tensor
    std: Tensor | None = None
    disagreement: Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, at_least_float32(value))

    @property
    def probs(self) -> Tensor:
        """Class probabilities [B, C]."""
        return self.logits.softmax(-1)


@dataclass(frozen=True)
class Predict:
    """A callable `x [B, C, H, W] -> Prediction` and how it predicts, for the record.

    `candidates` and `bank` are those of transduction. The network runs in eval mode without gradients and is
    left in the mode it was in.
    """

    net: nn.Module
    predict: Callable[[Tensor], Prediction]
    protocol: str
    k: int = 1
    tempering: str | None = None

    def __call__(self, x: Tensor) -> Prediction:
        with evaluating(self.net):
            return self.predict(x)


def _single(logits: Tensor) -> Prediction:
    logits = at_least_float32(logits)
    return Prediction(logits, -logits.logsumexp(-1))


def direct(net: nn.Module) -> Predict:
    """An ordinary classifier (standard, folded, anybody's) as a Predict."""
    return Predict(net, lambda x: _single(logits_of(net(x))), "direct")


def one_random(
    net: Anchored, references: ReferenceSet | None, *, reference: Literal["mean", "zero"] | Tensor = "mean"
) -> Predict:
    """One fixed reference for every image ("1 random" in the paper, section 2.3).

    reference: "mean" of the reference set, "zero", or a tensor [C, H, W] or [1, C, H, W] in the network's
    input space. Raises InputError for another word, or for "mean" without a reference set.
    """
    if isinstance(reference, Tensor):
        r = reference if reference.ndim == 4 else reference.unsqueeze(0)
    elif reference == "mean":
        if references is None:
            raise InputError("reference 'mean' needs a reference set; got none.")
        r = references.mean
    elif reference == "zero":
        r = None
    else:
        raise InputError(f"reference is 'mean', 'zero' or a tensor; got {reference!r}.")

    def predict(x: Tensor) -> Prediction:
        given = torch.zeros_like(x[:1]) if r is None else r.to(x.device, x.dtype)
        return _single(net.many(x, given)[0])

    return Predict(net, predict, "one_random")


def k_random(
    net: Anchored,
    references: ReferenceSet,
    *,
    k: int = 10,
    seed: int = 0,
    average: Literal["logits", "probs"] = "logits",
    tempering: Literal["amp"] | None = None,
) -> Predict:
    """The mean over k references drawn without replacement by `seed`, with their spread as uncertainty.

    average: "logits" or "probs" (then the logits are log mean probabilities). tempering="amp": divide the mean
    logits by 1 + exp(mean std over references of the sigmoid logits), as the paper's released ImageNet
    evaluation does; never on by itself. Raises InputError where k is larger than the set.
    """
    if average not in ("logits", "probs"):
        raise InputError(f"average is 'logits' or 'probs'; got {average!r}.")
    if tempering not in (None, "amp"):
        raise InputError(f"tempering is None or 'amp'; got {tempering!r}.")
    if tempering and k < 2:
        raise InputError(f"tempering 'amp' needs a spread over k >= 2 references; got k = {k}.")
    drawn = references.sample(k, seed)

    def predict(x: Tensor) -> Prediction:
        logits = at_least_float32(net.many(x, drawn.to(x.device, x.dtype)))
        probs = logits.softmax(-1)
        mean = logits.mean(0) if average == "logits" else probs.mean(0).log()
        if tempering == "amp":
            mean = mean / (1 + logits.sigmoid().std(0).mean(-1, keepdim=True).exp())
        energy = -logits.logsumexp(-1).mean(0)
        if k == 1:
            return Prediction(mean, energy)
        disagreement = (logits.argmax(-1) != mean.argmax(-1)).float().mean(0)
        return Prediction(mean, energy, probs.std(0), disagreement)

    return Predict(net, predict, "k_random", k, tempering)


def transduction(
    net: Anchored,
    references: ReferenceSet,
    *,
    candidates: int = 50,
    bank: int = 1000,
    seed: int = 0,
    residuals: Tensor | None = None,
    memory: int = 64 * 2**20,
) -> Predict:
    """For each image the reference whose residual is nearest to one seen in training (BLT, Netanyahu et al. 2023).

    candidates: references to choose from, drawn without replacement by `seed`. bank: how many training residuals
    to compare with; residuals: those residuals [M, C, H, W] (None: differences of random pairs of the reference
    set, which is what training saw where R = D). memory: bytes for the largest temporary.
    Raises InputError where candidates exceed the set, or where the set has one image and no residuals are given.
    """
    r = references.sample(candidates, seed)
    if residuals is None:
        if len(references) < 2:
            raise InputError("residuals of training need a reference set of at least 2 images, or residuals=.")
        stream = generator(seed, "residual bank")
        first = torch.randint(len(references), (bank,), generator=stream)
        other = (first + torch.randint(1, len(references), (bank,), generator=stream)) % len(references)
        residuals = references.take(first) - references.take(other)
    flat_r, flat_d = r.flatten(1), residuals.flatten(1)

    def predict(x: Tensor) -> Prediction:
        choice = nearest_reference(x.flatten(1), flat_r.to(x.device), flat_d.to(x.device), memory)
        return _single(net(x, r.to(x)[choice]))

    return Predict(net, predict, "transduction", 1)


def nearest_reference(x: Tensor, r: Tensor, residuals: Tensor, memory: int = 64 * 2**20) -> Tensor:
    """For each x the i that minimises min_j ||x - r_i - residual_j||^2 (int64 [N]).

    x: [N, D]; r: [m, D]; residuals: [M, D]. Up to ||x||^2, which no choice changes, the distance is
    -2 x.r_i + (||r_i + residual_j||^2 - 2 x.residual_j): two matrix products and an N x m x M broadcast, cut
    into chunks of N of at most `memory` bytes. In the dtype of x, in half precision in float32.
    """
    x = at_least_float32(x)
    r, residuals = r.to(x.dtype), residuals.to(x.dtype)
    with torch.autocast(x.device.type, enabled=False):
        norms = (r**2).sum(1)[:, None] + 2 * r @ residuals.T + (residuals**2).sum(1)[None]  # [m, M]
        chunk = max(1, memory // (norms.numel() * norms.element_size()))
        choice = []
        for part in x.split(chunk):
            to_bank = norms[None] - 2 * (part @ residuals.T)[:, None]  # [n, m, M]
            choice.append((to_bank.amin(2) - 2 * part @ r.T).argmin(1))
        return torch.cat(choice)


# By name, as commands ask for them: (net, references, k, seed) -> Predict. k: references of k_random, candidates of
# transduction; seed: draws them.
PROTOCOLS: dict[str, Callable[[Anchored, ReferenceSet, int, int], Predict]] = {
    "one_random": lambda net, references, k, seed: one_random(net, references),
    "k_random": lambda net, references, k, seed: k_random(net, references, k=k, seed=seed),
    "transduction": lambda net, references, k, seed: transduction(net, references, candidates=k, seed=seed),
}
