"""What to try where an arm is worse than its baseline: changes that bear on it, as commands to paste. No promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anchored.report import commands
from anchored.report.summary import Summary

RECALIBRATION = 2000  # training images to estimate batch norm on: a few hundred batches' worth of statistics
K = 10  # references of k_random, as in the paper
SEEDS = 3
# What makes two arms the same, apart from what a change changes.
_SAME = ("model", "recipe", "augmentation", "label_noise", "train_size", "weights", "method", "masked_target", "alpha",
         "recalibrate_bn", "protocol")  # fmt: skip


@dataclass(frozen=True)
class Step:
    """Something to try. aspects: what for; change and why: in words; command: "" where none is known to do it."""

    aspects: tuple[str, ...]
    change: str
    why: str
    command: str


@dataclass(frozen=True)
class _Change:
    """fields: of the arm, with the values to try; predicting: whether they leave the trained network as it is."""

    fields: Mapping[str, Any]
    words: str
    why: str
    slug: str
    predicting: bool = field(default=False)


def next_steps(summary: Summary, arm: str, worse: Sequence[str]) -> tuple[Step, ...]:
    """For each aspect in which `arm` is `worse`, the first change that no other arm of the comparison has already."""
    found: dict[str, Step] = {}
    for aspect in worse:
        change = next((c for c in _changes(summary, arm, aspect) if not _there(summary, arm, c)), None)
        if change is None:
            continue
        before = found.get(change.slug)
        aspects = (*before.aspects, aspect) if before else (aspect,)
        command = before.command if before else _command(summary, arm, change)
        found[change.slug] = Step(aspects, change.words, change.why, command)
    return tuple(found.values())


def more_seeds(summary: Summary) -> Step | None:
    """Training with other seeds; None where nothing was trained by a known command."""
    first = summary.seeds[0]
    command = commands.with_seeds(summary, [first + i for i in range(SEEDS)])
    why = "one seed says nothing of how another training would come out"
    return Step((), f"{SEEDS} seeds", why, command) if command else None


def _changes(summary: Summary, arm: str, aspect: str) -> Iterator[_Change]:
    """What bears on the aspect, for this kind of arm, what is likeliest to first."""
    method, target = summary.fact(arm, "method"), summary.fact(arm, "masked_target")
    alpha = summary.fact(arm, "alpha") or 0.0
    masks = method == "masking" and alpha > 0
    if aspect == "anomalies" and _one_reference(summary, arm):
        yield _k_random(summary, arm, "the spread over references is an anomaly score too")
    if masks and target == "uniform":
        yield _Change(
            {"masked_target": "label"}, "the label target", "masked batches then teach the labels too", "label"
        )
    if masks and aspect == "calibration" and not summary.fact(arm, "recalibrate_bn"):
        count = min(RECALIBRATION, summary.fact(arm, "train_size") or RECALIBRATION)
        yield _Change({"recalibrate_bn": count}, f"batch norm estimated again on {count:,} images",
                      "masked batches have other statistics (for a network with batch norm)",
                      "recalibrated")  # fmt: skip
    if aspect == "calibration" and _one_reference(summary, arm):
        yield _k_random(summary, arm, "averaged predictions are less sure of themselves")
    if masks and target == "label" and aspect == "anomalies":
        yield _Change({"masked_target": "uniform"}, "the uniform target",
                      "masked batches then teach to predict nothing", "uniform")  # fmt: skip
    if masks and aspect in ("clean", "shifted"):
        yield _Change({"alpha": alpha / 2}, f"alpha {alpha / 2:g} instead of {alpha:g}",
                      "masking too often leaves a network underfit", f"alpha-{alpha / 2:g}")  # fmt: skip
    if method == "vanilla" and aspect == "shifted":
        yield _Change({"method": "masking", "masked_target": "label"}, "masking with the label target",
                      "it discourages reading the answer off the residual alone", "masking")  # fmt: skip
    if aspect in ("clean", "shifted") and (longer := _longer(summary, arm)) is not None:
        yield longer


def _k_random(summary: Summary, arm: str, why: str) -> _Change:
    k = min(K, summary.fact(arm, "references") or K)
    return _Change({"protocol": "k_random", "k": k}, f"{k} random references", why, "k_random", predicting=True)


def _one_reference(summary: Summary, arm: str) -> bool:
    folded = str(summary.fact(arm, "model")).endswith(", folded")
    return summary.fact(arm, "protocol") == "one_random" and not folded


def _longer(summary: Summary, arm: str) -> _Change | None:
    """More epochs for all arms, where the arm has more to learn than its baseline: pairs, or stronger augmentation."""
    epochs = summary.fact(arm, "epoch")
    method, base = summary.fact(arm, "method"), summary.baselines[arm]
    pairs = method != "standard" and summary.fact(base, "method") == "standard"
    stronger = summary.fact(arm, "augmentation") != summary.fact(base, "augmentation")
    if not epochs or not (pairs or stronger):
        return None
    more = epochs + max(1, round(epochs / 2))
    why = "stronger augmentation takes longer to learn from" if stronger else "there are more pairs than images"
    return _Change({"epochs": more}, f"{more} epochs instead of {epochs}, for every arm", why, f"{more}-epochs")


def _there(summary: Summary, arm: str, change: _Change) -> bool:
    """Whether another arm is this one with the change."""
    wanted = {name: summary.fact(arm, name) for name in _SAME} | dict(change.fields)
    names = [name for name in _SAME if not ("method" in change.fields and name in ("alpha", "recalibrate_bn"))]
    return "epochs" not in change.fields and any(
        all(summary.fact(other, name) == wanted[name] for name in names) for other in summary.arms if other != arm
    )


def _command(summary: Summary, arm: str, change: _Change) -> str:
    if change.predicting:
        return commands.predicting(summary, arm, change.fields, change.slug)
    if "epochs" in change.fields:
        return commands.with_epochs(summary, change.fields["epochs"])
    return commands.training(summary, arm, change.fields, change.slug)
